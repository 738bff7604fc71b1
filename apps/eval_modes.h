#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/base/options.h"
#include "keel/base/report.h"
#include "keel/checkpoint/model_folder.h"
#include "keel/inference/inference_model.h"
#include "keel/model/model_config.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

/// keel-eval MODEL --text FILE...: perplexity of texts. Returns the exit code.
int evaluate_texts(const Options& options);
/// keel-eval MODEL --tasks NAME,...: benchmarks. Returns the exit code.
int evaluate_tasks(const Options& options);
/// keel-eval --list-tasks, keel-eval --describe TASK.
int list_tasks(const Options& options);
int describe_task(const Options& options);
/// The four seeds of --seed; one number stands for all. Error(usage).
std::vector<uint64_t> parse_seeds(const std::string& text);

/// The model on the command line.
struct ScoredModel {
  ModelFolder folder;
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;

  /// Positions that the model was made for, kDefaultPositions where it does not say.
  int64_t positions() const {
    return config.max_position_embeddings > 0 ? config.max_position_embeddings : kDefaultPositions;
  }
  void add_to(Report& report) const;
};
ScoredModel open_scored_model(const Options& options);

}  // namespace keel
