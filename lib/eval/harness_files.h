#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/eval/task_scores.h"

namespace keel {

/// What lm-evaluation-harness's result file says of a run beside the scores.
struct HarnessRun {
  std::string model;  ///< as named on the command line
  int64_t parameters = 0;
  int64_t max_length = 0;
  int64_t batch_tokens = 0;
  std::optional<double> limit;
  std::optional<int64_t> num_fewshot;
  int64_t bootstrap_iterations = 0;
  std::vector<uint64_t> seeds;                    ///< python, numpy, torch, few-shot
  std::string device = "cpu", dtype = "float32";  ///< where and in what the model ran
  /// A token of the tokenizer, if it has it.
  struct Token {
    std::string text;
    int32_t id = 0;
  };
  std::optional<Token> pad, eos, bos;
  bool log_samples = false;
  double start_time = 0, end_time = 0;  ///< Unix, seconds
  std::string environment;              ///< program and machine, for people
  Json keel;                            ///< what only we say: data files, softmax, BOS, counts
};

/// The result file of lm-evaluation-harness 0.4.13, key for key: results, group_subtasks, configs, versions, n-shot,
/// higher_is_better, n-samples, config, ... and one more key "keel".
KEEL_API Json harness_results(const HarnessRun& run, const std::vector<TaskScores>& tasks);

/// A line of its samples file, without the line end.
KEEL_API std::string harness_sample(const TaskScores& task, size_t document);

/// The table that it prints, in Markdown.
KEEL_API std::string harness_table(const std::vector<TaskScores>& tasks);

/// A model's name as the name of a folder: runs of "<>:/|\?*[] become "__".
KEEL_API std::string sanitized_model_name(const std::string& name);
/// Local time for file names: 2026-11-29T12-31-52.836006.
KEEL_API std::string harness_date(double unix_time);

}  // namespace keel
