#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/eval/documents.h"
#include "keel/eval/scorer.h"

namespace keel {

/// One aggregate of a task, over its documents.
struct MetricResult {
  const TaskMetric* metric = nullptr;
  std::vector<double> values;            ///< one a document: 0 or 1, or a log-likelihood (perplexity)
  double value = 0;                      ///< the aggregate
  std::optional<double> standard_error;  ///< none where it cannot be told (one document, no bootstrap)
};

/// A task with its scores.
struct TaskScores {
  const TaskDocuments* documents = nullptr;
  std::vector<std::vector<Score>> scores;  ///< [document][request]
  std::vector<MetricResult> metrics;
  int64_t truncated = 0;     ///< documents of which a request lost the beginning of its context
  int64_t nan = 0;           ///< requests whose log-likelihood is no number
  int64_t gold_outside = 0;  ///< documents whose right answer is none of the choices: scored 0
};

/// Metrics of every document and their aggregates, as lm-evaluation-harness computes them: of equal log-likelihoods the
/// first choice wins, and a NaN wins over all (numpy's argmax). `scores` has one entry a document. Stopped after a
/// signal.
KEEL_API TaskScores score_task(const TaskDocuments& documents, std::vector<std::vector<Score>> scores,
                               int64_t bootstrap_iterations, int threads);

}  // namespace keel
