#include "keel/inference/inference_model.h"

#include <algorithm>

#include "keel/base/quantity.h"
#include "keel/inference/packed_weights.h"
#include "keel/kernels/linear/linear.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/batch_copy.h"
#include "keel/model/model_config_json.h"

namespace keel {
namespace {

const char* tied_head(const ModelConfig& config) {
  return config.tie_word_embeddings ? "lm_head.weight" : "";
}

constexpr const char* kNeedLess = "fewer tokens or sequences at a time, or shorter ones, need less";

/// Before anything is read: Error(memory) if a GPU has less left.
void require_room(Context& ctx, const ArenaPlan& plan) {
  if (ctx.device() == Device::cpu) return;
  const int64_t wanted = plan.total_bytes() + plan.beside().total_bytes(), left = free_device_bytes(ctx);
  if (wanted <= left) return;
  const auto [needed, there] = format_bytes_apart(wanted, left);
  throw Error(ErrorKind::memory, "the model needs " + needed + " of the GPU's memory, which has " + there + " left", "",
              kNeedLess);
}

/// A model folder's weights in memory of their own, with room for a decoder.
struct LoadedModel {
  ModelConfig config;
  ArenaPlan plan;
  PackedWeights weights;
  DecoderPlan decoder_plan;
  Arena arena;

  LoadedModel(Context& ctx, const ModelFolder& folder, const DecoderOptions& options, WeightType type)
      : config(parse_model_config(folder.config_text, folder.config_path)),
        weights(found_layout(config, folder.tensors), type, plan),
        decoder_plan(plan_decoder(config, all_sublayers(config), options, plan)),
        arena(ctx, with_operations(ctx, options, type), kNeedLess) {
    weights.read(ctx, folder.tensors, tied_head(config), arena);
  }

 private:
  const ArenaPlan& with_operations(Context& ctx, const DecoderOptions& options, WeightType type) {
    for (const auto& [out, in] : block_matrices(config)) {
      expect_linear(plan.beside(), type, options.compute, out, in, options.max_tokens);
    }
    expect_linear(plan.beside(), type, options.compute, config.vocab_size, config.hidden_size, options.max_tokens);
    expect_batches(plan.beside(), options);
    require_room(ctx, plan);
    return plan;
  }
};

}  // namespace

ParameterLayout found_layout(const ModelConfig& config, const TensorSet& tensors) {
  ParameterLayout layout = parameter_layout(config);
  std::vector<TensorTarget> targets;
  for (const Parameter& p : layout.parameters) targets.push_back({p.name, p.shape, {}});
  (void)tensors.match(targets, tied_head(config));
  return layout;
}

void expect_batches(OperationMemory& memory, const DecoderOptions& options) {
  const int64_t N = options.max_tokens, S = options.sequences(), K = options.logit_rows;
  const int64_t cache = options.cache_pages > 0 ? N + S * options.pages_of_sequence() + S : 0;
  const int64_t batch = 4 * N + S + 1 + cache;  // BatchCopy
  const int64_t scored = 5 * K;
  memory.expect(OperationMemory::batches,
                (batch + scored) * static_cast<int64_t>(sizeof(int32_t)) + static_cast<int64_t>(sizeof(StepScalars)));
}

struct InferenceModel::Impl {
  Context& ctx;
  std::unique_ptr<LoadedModel> loaded;  // null where weights and memory are borrowed
  ModelConfig config;
  ParameterBuffers parameters;
  Decoder decoder;
  BatchCopy batch{ctx};
  FlatBatch flat;
  DeviceCopy<int32_t> rows{ctx}, targets{ctx}, argmax{ctx};
  DeviceCopy<float> weights{ctx}, nll{ctx};
  DeviceCopy<StepScalars> scalars{ctx};

  Impl(Context& context, std::unique_ptr<LoadedModel> model, std::function<bool()> interrupted)
      : ctx(context),
        loaded(std::move(model)),
        config(loaded->config),
        parameters(loaded->weights.buffers(loaded->arena)),
        decoder(ctx, config, loaded->decoder_plan, loaded->arena, std::move(interrupted)) {}
  Impl(Context& context, const ModelConfig& model, const ParameterBuffers& weights, const DecoderPlan& plan,
       const Arena& arena, std::function<bool()> interrupted)
      : ctx(context), config(model), parameters(weights), decoder(ctx, config, plan, arena, std::move(interrupted)) {}
};

InferenceModel::InferenceModel(Context& ctx, const ModelFolder& folder, DecoderOptions options,
                               std::function<bool()> interrupted, WeightType weights) {
  options.training = false;
  options.compute = ctx.device() == Device::cuda && weights == WeightType::bf16 ? ElementType::bf16 : ElementType::fp32;
  impl_ =
      std::make_unique<Impl>(ctx, std::make_unique<LoadedModel>(ctx, folder, options, weights), std::move(interrupted));
}

InferenceModel::InferenceModel(Context& ctx, const ModelConfig& config, const ParameterBuffers& parameters,
                               const DecoderPlan& plan, const Arena& arena, std::function<bool()> interrupted)
    : impl_(std::make_unique<Impl>(ctx, config, parameters, plan, arena, std::move(interrupted))) {}

InferenceModel::~InferenceModel() = default;

const ModelConfig& InferenceModel::config() const {
  return impl_->config;
}

const ArenaPlan* InferenceModel::memory() const {
  return impl_->loaded ? &impl_->loaded->plan : nullptr;
}

bool InferenceModel::forward(const HostBatch& batch) {
  impl_->flat = impl_->batch.of(batch);
  return impl_->decoder.forward(impl_->parameters, impl_->flat);
}

void InferenceModel::logits(HostView<const int32_t, 1> rows, HostView<float, 2> logits) {
  Impl& m = *impl_;
  if (m.ctx.device() == Device::cpu) {
    return m.decoder.logits(m.parameters, m.rows.of(rows), {logits.data(), logits.extents()});
  }
  const View<const int32_t, 1> all = m.rows.of(rows);
  const View<float, 2> chunk = m.decoder.logit_chunk();
  const int64_t V = logits.extent(1);
  for (int64_t begin = 0; begin < all.extent(0); begin += chunk.extent(0)) {
    const int64_t count = std::min(chunk.extent(0), all.extent(0) - begin);
    m.decoder.logits(m.parameters, all.slice(begin, begin + count), chunk.slice(0, count));
    copy_to_host(m.ctx, View<const float, 1>(chunk.data(), {count * V}),
                 HostView<float, 1>(logits.data() + begin * V, {count * V}));
  }
  m.ctx.synchronize();
}

void InferenceModel::loss(StepScalars& scalars) {
  Impl& m = *impl_;
  const HostView<StepScalars, 1> host(&scalars, {1});
  const View<StepScalars, 1> device = m.scalars.in_place_of(host);
  copy_to_device(m.ctx, HostView<const StepScalars, 1>(host), device);
  m.decoder.loss(m.parameters, m.flat, device);
  m.scalars.fetch(host);
  m.ctx.synchronize();
  m.scalars.receive(host);
}

void InferenceModel::score(HostView<const int32_t, 1> rows, HostView<const int32_t, 1> targets,
                           HostView<const float, 1> weights, HostView<float, 1> nll, HostView<int32_t, 1> argmax) {
  Impl& m = *impl_;
  m.decoder.score(m.parameters, m.rows.of(rows), m.targets.of(targets), m.weights.of(weights), m.nll.in_place_of(nll),
                  m.argmax.in_place_of(argmax));
  m.nll.fetch(nll);
  m.argmax.fetch(argmax);
  m.ctx.synchronize();
  m.nll.receive(nll);
  m.argmax.receive(argmax);
}

}  // namespace keel
