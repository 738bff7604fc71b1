#include "keel/inference/inference_model.h"

#include "keel/kernels/memory/memory.h"
#include "keel/model/model_config_json.h"

namespace keel {

std::vector<TensorTarget> parameter_targets(const ParameterLayout& layout, HostView<float, 1> weights) {
  std::vector<TensorTarget> targets;
  for (const Parameter& p : layout.parameters) {
    targets.push_back({p.name, p.shape, std::span<float>(weights.data() + p.offset, static_cast<size_t>(p.size))});
  }
  return targets;
}

struct InferenceModel::Impl {
  Context& ctx;
  ModelConfig config;
  ParameterLayout layout;
  ArenaPlan plan;
  Region<float> weights;
  DecoderPlan decoder_plan;
  Arena arena;
  ParameterBuffers parameters;
  Decoder decoder;

  Impl(Context& context, const ModelFolder& folder, const DecoderOptions& options, std::function<bool()> interrupted)
      : ctx(context),
        config(parse_model_config(folder.config_text, folder.config_path)),
        layout(parameter_layout(config)),
        weights(plan.add<float>(MemoryKind::weights, layout.size)),
        decoder_plan(plan_decoder(config, all_sublayers(config), options, plan)),
        arena(plan),
        parameters{.layout = &layout, .weights = {arena.at(weights), {layout.size}}, .gradients = {}},
        decoder(ctx, config, decoder_plan, arena, std::move(interrupted)) {
    folder.tensors.read(parameter_targets(layout, host_view(ctx, parameters.weights)),
                        config.tie_word_embeddings ? "lm_head.weight" : "");
  }
};

InferenceModel::InferenceModel(Context& ctx, const ModelFolder& folder, DecoderOptions options,
                               std::function<bool()> interrupted) {
  options.training = false;
  impl_ = std::make_unique<Impl>(ctx, folder, options, std::move(interrupted));
}

InferenceModel::~InferenceModel() = default;

const ModelConfig& InferenceModel::config() const {
  return impl_->config;
}

int64_t InferenceModel::memory_bytes() const {
  return impl_->arena.bytes();
}

bool InferenceModel::forward(const FlatBatch& batch) {
  return impl_->decoder.forward(impl_->parameters, batch);
}

void InferenceModel::logits(View<const int32_t, 1> rows, View<float, 2> logits) {
  impl_->decoder.logits(impl_->parameters, rows, logits);
}

void InferenceModel::loss(const FlatBatch& batch, View<StepScalars, 1> scalars, View<float, 1> nll) {
  impl_->decoder.loss(impl_->parameters, batch, scalars, nll);
}

void InferenceModel::score(View<const int32_t, 1> rows, View<const int32_t, 1> targets, View<const float, 1> weights,
                           View<float, 1> nll, View<int32_t, 1> argmax) {
  impl_->decoder.score(impl_->parameters, rows, targets, weights, nll, argmax);
}

}  // namespace keel
