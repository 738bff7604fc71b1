#include "keel/analyze/gradients.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "keel/base/clock.h"
#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/log.h"
#include "keel/base/process.h"
#include "keel/base/quantity.h"
#include "keel/base/signals.h"
#include "keel/kernels/memory/memory.h"
#include "keel/train/data_identity.h"
#include "keel/train/recomputation.h"
#include "keel/train/run_directory.h"
#include "keel/train/training_run.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

/// The run directory that a model path is, or lies in as one of its checkpoints; "" if neither.
std::string run_of(const std::string& path) {
  if (path.empty()) return "";
  if (is_run_directory(path)) return path;
  const fs::path folder = fs::weakly_canonical(path);
  const fs::path run = (folder.has_filename() ? folder : folder.parent_path()).parent_path().parent_path();
  return fs::exists(fs::path(path) / "trainer.json") && is_run_directory(run.string()) ? run.string() : "";
}

/// N of the step-N that a run's next step follows; 0 for a folder that is no checkpoint.
int64_t next_step(const std::string& folder) {
  const fs::path state = fs::path(folder) / "trainer.json";
  if (!fs::exists(state)) return 0;
  const Json step = read_json(state, ErrorKind::format).root().value("step", Json());
  return step.is_number_integer() ? step.get<int64_t>() : 0;
}

void set(Config& config, const char* key, const Json& value) {
  config.apply_value(key, value, {.layer = ConfigLayer::flag, .name = "keel-analyze"});
}

/// --sequences, with a micro-batch that divides it.
void take_sequences(Config& config, int64_t sequences) {
  set(config, "train.batch_tokens", Json());
  config.apply_value("train.batch_sequences", sequences, {.layer = ConfigLayer::flag, .name = "--sequences"});
  constexpr const char* kMicro = "train.micro_batch_sequences";
  if (!config.is_word(kMicro) && sequences % config.integer(kMicro) != 0) set(config, kMicro, "auto");
}

/// The micro-batch that the run chose for itself: sums are then rounded as there.
void take_micro_batch(TrainSettings& settings, const Json& resolved) {
  const int64_t micro = resolved["micro_batch_sequences"].get<int64_t>();
  const bool same_batch = resolved.value("batch_sequences", Json()) == settings.batch_sequences;
  if (!settings.micro_batch_is_auto || !same_batch || micro < 1 || settings.batch_sequences % micro != 0) return;
  settings.micro_batch_sequences = micro;
}

/// What only a whole run needs is neither asked for nor looked at.
Config without_training(Config config) {
  for (const ConfigKey& key : config.schema().keys()) {
    if (is_length(key.path)) set(config, key.path.c_str(), Json());
  }
  set(config, "train.steps", 1);
  set(config, "train.stop_on_divergence", false);
  set(config, "optimizer.learning_rate", 0.0);
  set(config, "schedule.warmup_steps", 0);
  for (const char* key :
       {"data.val_path", "validate.every_steps", "validate.sample.prompts", "validate.sample.every_steps"}) {
    set(config, key, Json());
  }
  return config;
}

void require_reachable(const GradientSetup& setup) {
  constexpr int64_t kMostTokens = int64_t{1} << 53;
  const int64_t most = kMostTokens / setup.run.settings.tokens_per_step() - 1;
  if (setup.step <= most) return;
  throw Error(ErrorKind::config, fmt::format("step {} is above {}, the last that can be counted", setup.step, most),
              "--step");
}

/// Chooses an automatic mode of recomputation, too.
void require_memory(Context& ctx, TrainSettings& settings) {
  const bool on_gpu = ctx.device() != Device::cpu;
  const int64_t there = on_gpu ? free_device_bytes(ctx) : available_memory_bytes();
  const int64_t limit = settings.memory_limit_bytes > 0 ? std::min(settings.memory_limit_bytes, there) : there;
  const auto estimate = on_gpu ? estimate_device_memory : estimate_with_allowance;
  settings = with_recomputation(settings, settings.micro_batch_sequences, limit, estimate);
  const int64_t needed = estimate(plan_training(settings, settings.micro_batch_sequences)).total_bytes();
  if (needed <= limit) return;
  const auto [bytes, allowed] = format_bytes_apart(needed, limit);
  throw Error(ErrorKind::memory, "the model and its batch need " + bytes + " and may use " + allowed, "",
              "a smaller train.micro_batch_sequences or train.recompute=auto needs less");
}

Json weight_norms_json(const std::vector<WeightGradientNorm>& norms) {
  Json json = Json::object();
  for (const WeightGradientNorm& norm : norms) set_number(json, norm.name, norm.norm);
  return json;
}

Json sublayers_json(const GradientProfile& profile) {
  Json list = Json::array();
  for (const SublayerProfile& s : profile.sublayers) {
    Json json;
    json["sublayer"] = list.size();
    json["branch_kind"] = list.size() % 2 == 0 ? "attention" : "mlp";
    set_number(json, "stream_gradient_norm", s.stream_gradient_norm);
    set_number(json, "stream_rms", s.stream_rms);
    set_number(json, "branch_rms", s.branch_rms);
    set_number(json, "stream_branch_cosine", s.stream_branch_cosine);
    set_number(json, "skip_gain", s.skip_gain);
    json["weight_gradient_norm"] = weight_norms_json(s.weight_gradient_norms);
    list.push_back(std::move(json));
  }
  return list;
}

/// Sublayers that a table shows: all of a few, else both ends and some between them, attention and feed-forward alike.
std::vector<int64_t> shown_sublayers(int64_t count) {
  constexpr int64_t kMost = 48, kEnds = 8, kBetween = 16;
  std::vector<int64_t> shown;
  if (count <= kMost) {
    for (int64_t l = 0; l < count; ++l) shown.push_back(l);
    return shown;
  }
  for (int64_t l = 0; l < kEnds; ++l) shown.push_back(l);
  for (int64_t i = 1; i <= kBetween; ++i) {
    // Of the places that divide the middle evenly, every other one is moved to the block's second sublayer.
    const int64_t l = kEnds + i * (count - 2 * kEnds) / (kBetween + 1);
    shown.push_back(l / 2 * 2 + i % 2);
  }
  for (int64_t l = count - kEnds; l < count; ++l) shown.push_back(l);
  return shown;
}

/// A number of the results; one that is not finite by its name.
std::string cell(const Json& row, const std::string& key) {
  if (row[key].is_number()) return fmt::format("{:.5g}", row[key].get<double>());
  return row.value(key + "_non_finite", "-");
}

}  // namespace

GradientSetup prepare_gradients(Context& ctx, const GradientQuestion& question) {
  if (!question.model_path.empty()) require_directory(question.model_path);
  Config config(train_schema());
  const std::string run = run_of(question.model_path);
  std::optional<JsonDocument> run_json;
  if (!run.empty()) {
    run_json = RunDirectory::read_run_json(run);
    config.apply(*run_json, ConfigLayer::recipe, "/config");
  }
  question.configure(config);
  if (question.sequences) take_sequences(config, *question.sequences);
  GradientSetup setup{.config = config, .run = prepare_run(without_training(config), question.model_path)};
  if (run_json) take_micro_batch(setup.run.settings, run_json->root()["resolved"]);
  require_precision(ctx, setup.run.settings);
  setup.run.settings.profile_every = 1;
  setup.run.settings.keeps_optimizer = false;
  if (setup.run.init) {
    set_model_keys(setup.config, setup.run.settings.model, "CHECKPOINT");
    for (const std::string& warning : setup.run.init->warnings) log::warn("{}", warning);
  }
  setup.step = question.step.value_or(setup.run.init ? next_step(setup.run.init->path) : 0);
  require_reachable(setup);
  require_memory(ctx, setup.run.settings);
  setup.run.identity = data_identity(setup.run);
  return setup;
}

GradientAnalysis analyze_gradients(Context& ctx, const GradientSetup& setup, Progress& progress) {
  const Stopwatch stopwatch;
  const TrainSettings& settings = setup.run.settings;
  const std::unique_ptr<Trainer> trainer = make_trainer(ctx, setup.run, nullptr);
  progress.start("gradients", settings.batch_sequences, "sequences");
  const std::optional<StepResult> step =
      trainer->step(setup.step, {.profile = true, .progress = [&](int64_t sequences) { progress.update(sequences); }});
  if (!step) throw Stopped{stop_signal()};
  progress.finish();
  if (step->empty) {
    throw Error(ErrorKind::format, fmt::format("no target of step {}'s batch counts: all are masked", setup.step),
                setup.run.train->stream(0).shards().front().path, "--step N takes another batch");
  }
  const GradientProfile& profile = *step->profile;
  GradientAnalysis analysis{.results = Json::object(), .is_finite = !step->non_finite};
  Json& r = analysis.results;
  r["weights"] = setup.run.init ? "checkpoint" : "initial";
  r["scheme"] = settings.model.residual_scheme;
  r["blocks"] = settings.model.num_hidden_layers;
  r["parameters"] = count_parameters(settings.model).total;
  r["step"] = setup.step;
  r["sequences"] = settings.batch_sequences;
  r["micro_batch_sequences"] = settings.micro_batch_sequences;
  r["tokens"] = settings.tokens_per_step();
  set_number(r, "loss", step->loss);
  set_number(r, "grad_norm", step->grad_norm);
  set_number(r, "skip_product", std::exp(profile.log_skip_product));
  set_number(r, "log_skip_product", profile.log_skip_product);
  r["sublayers"] = sublayers_json(profile);
  set_number(r["last_stream"], "stream_gradient_norm", profile.final_stream_gradient_norm);
  set_number(r["last_stream"], "stream_rms", profile.final_stream_rms);
  r["weight_gradient_norm"] = weight_norms_json(profile.weight_gradient_norms);
  set_number(r, "seconds", stopwatch.seconds());
  return analysis;
}

std::string gradient_table(const Json& r) {
  const auto count = static_cast<int64_t>(r["sublayers"].size());
  std::string table =
      fmt::format("{}, {} sublayers, {} weights; batch of step {}: {} sequences, loss {}, |gradient| {}\n",
                  r["scheme"].get<std::string>(), count, r["weights"].get<std::string>(), r["step"].get<int64_t>(),
                  r["sequences"].get<int64_t>(), cell(r, "loss"), cell(r, "grad_norm"));
  const auto line = [&](const std::string& l, const char* branch, const std::string& gradient, const std::string& x,
                        const std::string& F, const std::string& cosine, const std::string& gain) {
    table += fmt::format("{:>9}  {:<9}{:>12}{:>12}{:>12}{:>12}{:>12}\n", l, branch, gradient, x, F, cosine, gain);
  };
  line("sublayer", "branch", "|dL/dx|", "rms x", "rms F", "cos(x,F)", "skip gain");
  const std::vector<int64_t> shown = shown_sublayers(count);
  for (const int64_t l : shown) {
    const Json& s = r["sublayers"][l];
    line(std::to_string(l), l % 2 == 0 ? "attention" : "mlp", cell(s, "stream_gradient_norm"), cell(s, "stream_rms"),
         cell(s, "branch_rms"), cell(s, "stream_branch_cosine"), cell(s, "skip_gain"));
  }
  const Json& last = r["last_stream"];
  line(std::to_string(count), "(head)", cell(last, "stream_gradient_norm"), cell(last, "stream_rms"), "", "", "");
  table += fmt::format("product of the skip gains {} (its logarithm {})\n", cell(r, "skip_product"),
                       cell(r, "log_skip_product"));
  if (std::ssize(shown) < count) {
    table += fmt::format("{} of {} sublayers are shown; the report (--out, --report, --json) has all\n", shown.size(),
                         count);
  }
  return table;
}

}  // namespace keel
