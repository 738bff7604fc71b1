#include "keel/inference/inference_model.h"

#include "keel/inference/packed_weights.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/batch_copy.h"
#include "keel/model/model_config_json.h"

namespace keel {
namespace {

const char* tied_head(const ModelConfig& config) {
  return config.tie_word_embeddings ? "lm_head.weight" : "";
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
        arena(ctx, plan, "fewer tokens or sequences at a time, or shorter ones, need less") {
    weights.read(ctx, folder.tensors, tied_head(config), arena);
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

struct InferenceModel::Impl {
  Context& ctx;
  std::unique_ptr<LoadedModel> loaded;  // null where weights and memory are borrowed
  ModelConfig config;
  ParameterBuffers parameters;
  Decoder decoder;
  BatchCopy batch{ctx};
  FlatBatch flat;
  DeviceCopy<int32_t> rows{ctx}, targets{ctx}, argmax{ctx};
  DeviceCopy<float> weights{ctx}, nll{ctx}, logits{ctx};
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

bool InferenceModel::forward(const HostBatch& batch) {
  impl_->flat = impl_->batch.of(batch);
  return impl_->decoder.forward(impl_->parameters, impl_->flat);
}

void InferenceModel::logits(HostView<const int32_t, 1> rows, HostView<float, 2> logits) {
  Impl& m = *impl_;
  m.decoder.logits(m.parameters, m.rows.of(rows), m.logits.in_place_of(logits));
  m.logits.fetch(logits);
  m.ctx.synchronize();
  m.logits.receive(logits);
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
