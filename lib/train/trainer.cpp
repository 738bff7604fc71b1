#include "keel/train/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/rng.h"
#include "keel/base/signals.h"
#include "keel/inference/inference_model.h"
#include "keel/kernels/adamw/adamw.h"
#include "keel/kernels/cast/cast.h"
#include "keel/kernels/common/recording.h"
#include "keel/kernels/grad_norm/grad_norm.h"
#include "keel/kernels/memory/device_reader.h"
#include "keel/kernels/memory/memory.h"
#include "keel/model/parameters.h"
#include "keel/model/skip_profile.h"
#include "keel/train/batch_feed.h"

namespace keel {
namespace {

std::vector<AdamwSegment> adamw_segments(const ParameterLayout& layout, const OptimizerSettings& optimizer) {
  std::vector<AdamwSegment> segments;
  for (const Parameter& p : layout.parameters) {
    if (p.frozen) continue;
    const ClassSettings& own = optimizer.classes[static_cast<int>(p.parameter_class)];
    const bool decays = optimizer.decay_all || p.is_matrix();
    segments.push_back({.offset = p.offset,
                        .size = p.size,
                        .parameter_class = p.parameter_class,
                        .weight_decay = decays ? static_cast<float>(own.weight_decay) : 0.0F,
                        .eps = static_cast<float>(own.eps)});
  }
  return segments;
}

/// What the sizes of a pass over the batch follow from.
Recording::Key key_of(const FlatBatch& batch) {
  return {batch.tokens.extent(0), batch.cu_seqlens.extent(0)};
}

/// By the bits of the exponent: no branch, so that the loop runs at the speed of memory.
bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  for (const float value : values)
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
  return bad == 0;
}

}  // namespace

struct Trainer::Impl {
  Context& ctx;
  TrainSettings settings;
  const BatchReader& train;
  const BatchReader* validation;  // null without validation data
  TrainMemory memory;
  Arena arena;
  std::vector<WeightMatrix> compute;  // of each parameter; empty where the masters are multiplied by
  ParameterBuffers parameters;
  Decoder decoder;
  std::optional<GradientProfiler> profiler;
  std::optional<InferenceModel> sampler;
  std::vector<AdamwSegment> segments;
  std::function<bool()> interrupted;
  BatchFeed feed;
  std::array<Recording, 2> recordings;  // of the first micro-batch of a step and of the others
  bool problem_is_said = false;
  PinnedMemory<StepScalars> sent_scalars, fetched_scalars;
  Mark scalars_sent;
  struct Step {
    int64_t t = 0;
    StepRequest request;
    std::vector<SequenceRef> sequences;
    DecoderObserver observer = {};
    bool follows = false;  ///< was begun when the one before was not collected
  };
  std::optional<Step> begun, to_collect;
  Mark started;                  ///< the last step that does not follow
  std::array<Mark, 2> finished;  ///< the last step and the one before, in turn
  size_t last_finished = 0;
  std::optional<DeviceReader> reader;  // of a GPU

  Impl(Context& context, const TrainSettings& run, const BatchReader& train_reader,
       const BatchReader* validation_reader, std::function<bool()> is_interrupted)
      : ctx(context),
        settings(run),
        train(train_reader),
        validation(validation_reader),
        memory(plan_training(settings, settings.micro_batch_sequences)),
        arena(ctx, memory.arena, "a smaller train.micro_batch_sequences needs less; --plan shows what for"),
        compute(memory.compute.count > 0 ? bf16_matrices(memory.layout, arena.at(memory.compute))
                                         : std::vector<WeightMatrix>()),
        parameters{.layout = &memory.layout,
                   .weights = view(memory.weights),
                   .gradients = view(memory.gradients),
                   .compute = compute},
        decoder(ctx, settings.model, memory.decoder, arena, is_interrupted),
        segments(adamw_segments(memory.layout, settings.optimizer)),
        interrupted(std::move(is_interrupted)),
        feed(ctx, {.tokens = view(memory.tokens),
                   .targets = view(memory.targets),
                   .positions = view(memory.positions),
                   .weights = view(memory.batch_weights),
                   .cu_seqlens = view(memory.cu_seqlens)}),
        recordings{Recording(ctx), Recording(ctx)},
        sent_scalars(ctx, 1),
        fetched_scalars(ctx, 1),
        scalars_sent(ctx),
        started(ctx),
        finished{Mark(ctx), Mark(ctx)} {
    if (ctx.device() != Device::cpu) reader.emplace(ctx, kMostProduced);
    if (memory.profile) profiler.emplace(ctx, settings.model, memory.layout, decoder, *memory.profile, arena);
    if (memory.sampler) {
      sampler.emplace(ctx, settings.model, parameters, *memory.sampler, arena, interrupted);
    }
  }

  template <class T>
  View<T, 1> view(const Region<T>& region) const {
    return {arena.at(region), {region.count}};
  }
  View<StepScalars, 1> scalars() const { return view(memory.scalars); }

  StepScalars inputs(int64_t t) const {
    StepScalars s{};
    for (int c = 0; c < kParameterClasses; ++c) {
      const ClassSettings& own = settings.optimizer.classes[c];
      s.learning_rate[c] = learning_rate(settings.schedule, own.learning_rate, own.final_learning_rate, t);
    }
    s.bias_correction1 = 1 - std::pow(settings.optimizer.beta1, static_cast<double>(t + 1));
    s.bias_correction2 = 1 - std::pow(settings.optimizer.beta2, static_cast<double>(t + 1));
    s.clip = settings.optimizer.clip;
    return s;
  }

  void send_scalars(const StepScalars& values) {
    scalars_sent.wait();
    sent_scalars.first(1)(0) = values;
    enqueue_copy_to_device(ctx, sent_scalars, scalars());
    scalars_sent.set();
  }

  /// Enqueues; they are there once finished[last_finished] is reached.
  void fetch_scalars() {
    enqueue_copy_to_host(ctx, View<const StepScalars, 1>(scalars()), fetched_scalars);
    last_finished = 1 - last_finished;
    finished[last_finished].set();
  }
  StepScalars fetched() {
    finished[last_finished].wait();
    return fetched_scalars.first(1)(0);
  }

  /// The micro-batch of the step's sequences from `first` on; false if interrupted.
  bool add_gradients(const Step& step, int64_t first) {
    const int64_t micro = settings.micro_batch_sequences;
    if (interrupted && interrupted()) return false;
    const FlatBatch batch = feed.load(train, std::span(step.sequences).subspan(first, micro));
    const auto pass = [&] {
      return decoder.forward_backward(parameters, batch, first > 0, scalars(), {}, step.observer);
    };
    Recording& recording = recordings[first > 0 ? 1 : 0];
    if (!(step.request.profile ? pass() : recording.run(key_of(batch), pass))) return false;
    say_problem(recording);
    if (step.request.progress) step.request.progress(first + micro);
    return true;
  }

  void say_problem(const Recording& recording) {
    if (recording.problem().empty() || std::exchange(problem_is_said, true)) return;
    log::warn("operations are enqueued one by one, which is slower than a CUDA graph of them: {}", recording.problem());
  }

  void update() {
    adamw(ctx, segments, settings.optimizer.beta1, settings.optimizer.beta2, scalars(), parameters.gradients,
          parameters.weights, view(memory.exp_avg), view(memory.exp_avg_sq), view(memory.compute));
  }

  /// After the masters came from elsewhere.
  void round_weights() {
    if (memory.compute.count == 0) return;
    for (const Parameter& p : memory.layout.parameters) {
      if (!p.is_matrix()) continue;
      const std::array<int64_t, 2> extents{p.shape[0], p.shape[1]};
      narrow(ctx, View<const float, 2>(arena.at(memory.weights) + p.offset, extents),
             View<Bf16, 2>(arena.at(memory.compute) + p.offset, extents));
    }
  }

  View<float, 1> values_of(const Parameter& p, const Region<float>& region) const {
    return {arena.at(region) + p.offset, {p.size}};
  }

  /// The parameter's tensor, which passes through `reader` on a GPU.
  TensorSource tensor(const std::string& prefix, const Parameter& p, const Region<float>& region) {
    const View<float, 1> values = values_of(p, region);
    if (!reader) return float_tensor(prefix + p.name, p.shape, {values.data(), static_cast<size_t>(p.size)});
    return {.name = prefix + p.name,
            .shape = p.shape,
            .produce =
                [this, values](int64_t first, std::span<std::byte> out) {
                  const auto count = static_cast<int64_t>(out.size() / sizeof(float));
                  std::memcpy(out.data(), reader->read(values.slice(first, first + count)).data(), out.size());
                },
            .prepare = [this, values](int64_t first,
                                      int64_t count) { reader->request(values.slice(first, first + count)); }};
  }

  std::vector<TensorSource> tensors(const std::string& prefix, const Region<float>& region) {
    if (reader) reader->forget();
    std::vector<TensorSource> list;
    for (const Parameter& p : memory.layout.parameters) list.push_back(tensor(prefix, p, region));
    return list;
  }

  /// Whether all values are; those of a GPU are brought to the host.
  bool is_finite(const View<float, 1>& values) {
    if (!reader) return all_finite({values.data(), static_cast<size_t>(values.size())});
    const auto part = [&](int64_t first) {
      return View<const float, 1>(values.slice(first, std::min(first + kMostProduced, values.size())));
    };
    for (int64_t first = 0; first < values.size(); first += kMostProduced) {
      if (first == 0) reader->request(part(0));
      if (first + kMostProduced < values.size()) reader->request(part(first + kMostProduced));
      const HostView<const float, 1> host = reader->read(part(first));
      if (!all_finite({host.data(), static_cast<size_t>(host.size())})) return false;
    }
    return true;
  }

  /// Reads the parameters' values in `regions` from the tensors of these names before theirs. On a GPU one tensor at a
  /// time passes through memory of the host, once all are found to be there.
  void load(const TensorSet& tensors, std::initializer_list<std::pair<const char*, Region<float>>> regions,
            const std::string& tied_head) {
    std::vector<TensorTarget> targets;
    std::vector<View<float, 1>> places;
    for (const auto& [prefix, region] : regions) {
      for (const Parameter& p : memory.layout.parameters) {
        places.push_back(values_of(p, region));
        const bool is_host = ctx.device() == Device::cpu;
        targets.push_back(
            {prefix + p.name, p.shape,
             is_host ? std::span(places.back().data(), static_cast<size_t>(p.size)) : std::span<float>()});
      }
    }
    if (ctx.device() == Device::cpu) return tensors.read(targets, tied_head);
    const std::vector<TensorSet::Place> found = tensors.match(targets, tied_head);
    std::vector<float> values;
    for (size_t i = 0; i < found.size(); ++i) {
      values.resize(places[i].size());
      found[i].file->read(*found[i].tensor, std::span<float>(values));
      copy_to_device(ctx, HostView<const float, 1>(values.data(), {places[i].size()}), places[i]);
      ctx.synchronize();
    }
  }

  /// Draws initial weights on the host.
  void draw_weights() {
    const uint64_t seed = derive_seed(settings.seed, "init");
    if (ctx.device() == Device::cpu) {
      return initialise_parameters(memory.layout, seed, ctx.team(),
                                   {parameters.weights.data(), parameters.weights.extents()});
    }
    std::vector<float> drawn(memory.layout.size);
    const HostView<float, 1> host(drawn.data(), {memory.layout.size});
    initialise_parameters(memory.layout, seed, ctx.team(), host);
    copy_to_device(ctx, HostView<const float, 1>(host), parameters.weights);
    ctx.synchronize();
  }
};

Trainer::Trainer(Context& ctx, const TrainSettings& settings, const BatchReader& train, const BatchReader* validation,
                 std::function<bool()> interrupted)
    : impl_(std::make_unique<Impl>(ctx, settings, train, validation, std::move(interrupted))) {}

Trainer::~Trainer() = default;

void Trainer::initialise() {
  impl_->draw_weights();
  impl_->round_weights();
  if (!residual_scheme(impl_->settings.model.residual_scheme).profiled_skip) return;
  const std::vector<SequenceRef> sequences = impl_->train.step_sequences(0, impl_->settings.micro_batch_sequences);
  const FlatBatch batch = impl_->feed.load(impl_->train, sequences);
  if (profile_skip_scales(impl_->ctx, impl_->decoder, impl_->parameters, batch)) return;
  throw_if_stopped();
  throw Error(ErrorKind::internal, "the profiling pass was interrupted without a signal");
}

void Trainer::load_weights(const TensorSet& tensors) {
  impl_->load(tensors, {{"", impl_->memory.weights}},
              impl_->settings.model.tie_word_embeddings ? "lm_head.weight" : "");
  impl_->round_weights();
}

void Trainer::load_optimizer(const TensorSet& tensors) {
  impl_->load(tensors, {{"exp_avg.", impl_->memory.exp_avg}, {"exp_avg_sq.", impl_->memory.exp_avg_sq}}, "");
}

bool Trainer::begin(int64_t t, const StepRequest& request) {
  Impl& r = *impl_;
  r.begun.reset();
  if (request.profile && !r.profiler) throw Error(ErrorKind::internal, "a profile of a run without profile_every");
  if (request.profile && r.to_collect && r.to_collect->request.profile) {
    throw Error(ErrorKind::internal, "a profile of a step before that of the last one was collected");
  }
  Impl::Step step{.t = t, .request = request, .sequences = r.train.step_sequences(t, r.settings.batch_sequences)};
  step.follows = r.to_collect.has_value();
  if (!step.follows) r.started.set();
  if (request.profile) {
    r.profiler->begin();
    step.observer = r.profiler->observer(r.parameters);
  }
  r.send_scalars(r.inputs(t));
  if (!r.add_gradients(step, 0)) return false;
  r.begun = std::move(step);
  return true;
}

bool Trainer::finish() {
  Impl& r = *impl_;
  if (!r.begun || r.to_collect) throw Error(ErrorKind::internal, "no step is begun, or the last one not collected");
  Impl::Step step = std::move(*r.begun);
  r.begun.reset();
  const int64_t micro = r.settings.micro_batch_sequences;
  for (int64_t first = micro; first < r.settings.batch_sequences; first += micro) {
    if (!r.add_gradients(step, first)) return false;
  }
  if (step.request.profile) r.profiler->end(r.parameters);
  grad_norm(r.ctx, r.parameters.gradients, r.scalars(), r.view(r.memory.norm_partial));
  if (r.settings.keeps_optimizer) r.update();
  r.fetch_scalars();
  r.to_collect = std::move(step);
  return true;
}

StepResult Trainer::collect() {
  Impl& r = *impl_;
  if (!r.to_collect) throw Error(ErrorKind::internal, "no step is finished");
  const Impl::Step step = std::move(*r.to_collect);
  r.to_collect.reset();
  const StepScalars s = r.fetched();
  const Mark& begin = step.follows ? r.finished[1 - r.last_finished] : r.started;
  StepResult result{.loss = s.loss_sum / s.weight_sum,
                    .grad_norm = s.grad_norm,
                    .learning_rate = learning_rate(r.settings.schedule, r.settings.optimizer.learning_rate,
                                                   r.settings.optimizer.final_learning_rate, step.t),
                    .seconds = r.finished[r.last_finished].seconds_since(begin),
                    .non_finite = s.non_finite != 0 && s.weight_sum > 0,
                    .empty = s.weight_sum == 0};
  if (step.request.profile) result.profile = r.profiler->fetch(s.weight_sum);
  return result;
}

std::optional<StepResult> Trainer::step(int64_t t, const StepRequest& request) {
  if (!begin(t, request) || !finish()) return std::nullopt;
  return collect();
}

bool Trainer::runs_behind() const {
  return impl_->ctx.device() != Device::cpu;
}

std::optional<double> Trainer::validate(const std::function<bool(int64_t done, int64_t total)>& give_up) {
  Impl& r = *impl_;
  const int64_t tokens = r.settings.validate.tokens > 0 ? r.settings.validate.tokens : r.validation->stream(0).tokens();
  const std::vector<SequenceRef> sequences = r.validation->validation_sequences(tokens);
  const int64_t micro = r.settings.micro_batch_sequences;
  const int64_t count = static_cast<int64_t>(sequences.size());
  if (r.to_collect) throw Error(ErrorKind::internal, "a validation before the last step was collected");
  r.begun.reset();
  r.send_scalars({});
  for (int64_t first = 0; first < count; first += micro) {
    if (give_up && give_up(first, count)) return std::nullopt;
    const FlatBatch batch =
        r.feed.load(*r.validation, std::span(sequences).subspan(first, std::min(micro, count - first)));
    if (!r.decoder.forward(r.parameters, batch)) return std::nullopt;
    r.decoder.loss(r.parameters, batch, r.scalars());
  }
  r.fetch_scalars();
  const StepScalars s = r.fetched();
  if (s.weight_sum == 0) {
    throw Error(ErrorKind::format, "no target of the validation data counts: its loss mask leaves none",
                r.validation->stream(0).shards().front().path);
  }
  return s.loss_sum / s.weight_sum;
}

std::optional<std::vector<TrainSample>> Trainer::sample(int64_t step, const std::function<bool()>& give_up) {
  struct GivenUp {};
  Impl& r = *impl_;
  if (!r.sampler) throw Error(ErrorKind::internal, "samples of a run without validate.sample.prompts");
  const std::vector<GenerationRequest> requests = sample_requests(r.settings, step);
  std::vector<TrainSample> samples(requests.size());
  try {
    Generator(*r.sampler, sample_sizes(r.settings))
        .run(requests, {.on_token =
                            [&](int64_t request, int32_t id) {
                              if (give_up && give_up()) throw GivenUp{};
                              samples[request].tokens.push_back(id);
                              return true;
                            },
                        .on_finish = [&](int64_t request, FinishReason reason) { samples[request].reason = reason; }});
  } catch (const Stopped&) {
    return std::nullopt;
  } catch (const GivenUp&) {
    return std::nullopt;
  }
  return samples;
}

std::string Trainer::non_finite_tensor() const {
  Impl& r = *impl_;
  const std::pair<const char*, const Region<float>&> arrays[] = {
      {"", r.memory.weights}, {"exp_avg.", r.memory.exp_avg}, {"exp_avg_sq.", r.memory.exp_avg_sq}};
  for (const auto& [prefix, region] : arrays) {
    if (r.is_finite(r.view(region))) continue;
    for (const Parameter& p : r.memory.layout.parameters) {
      if (!r.is_finite(r.values_of(p, region))) return prefix + p.name;
    }
  }
  return "";
}

std::vector<TensorSource> Trainer::weight_tensors() const {
  return impl_->tensors("", impl_->memory.weights);
}

std::vector<TensorSource> Trainer::optimizer_tensors() const {
  std::vector<TensorSource> list = impl_->tensors("exp_avg.", impl_->memory.exp_avg);
  for (TensorSource& tensor : impl_->tensors("exp_avg_sq.", impl_->memory.exp_avg_sq))
    list.push_back(std::move(tensor));
  return list;
}

const TrainMemory& Trainer::memory() const {
  return impl_->memory;
}

}  // namespace keel
