#include "keel/eval/task_scores.h"

#include <algorithm>
#include <cmath>

#include "keel/eval/python_text.h"
#include "keel/eval/statistics.h"

namespace keel {
namespace {

size_t argmax(std::span<const double> values) {
  size_t best = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return i;
    if (values[i] > values[best]) best = i;
  }
  return best;
}

bool is_gold_outside(const EvalDocument& document) {
  if (document.choices.empty()) return false;
  return document.gold < 0 || document.gold >= std::ssize(document.choices);
}

double value_of(TaskMetric::Kind kind, const EvalDocument& document, std::span<const Score> scores) {
  if (kind == TaskMetric::Kind::perplexity) return scores[0].log_likelihood;
  if (document.choices.empty()) return scores[0].is_greedy ? 1 : 0;
  std::vector<double> values;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double length =
        kind == TaskMetric::Kind::acc_norm ? static_cast<double>(count_characters(document.choices[i])) : 1;
    values.push_back(scores[i].log_likelihood / length);
  }
  return static_cast<int64_t>(argmax(values)) == document.gold ? 1 : 0;
}

}  // namespace

TaskScores score_task(const TaskDocuments& documents, std::vector<std::vector<Score>> scores,
                      int64_t bootstrap_iterations, int threads) {
  TaskScores out{.documents = &documents, .scores = std::move(scores)};
  for (const TaskMetric& metric : documents.task->metrics) out.metrics.push_back({.metric = &metric});
  for (size_t i = 0; i < documents.documents.size(); ++i) {
    const EvalDocument& document = documents.documents[i];
    const std::vector<Score>& requests = out.scores[i];
    for (MetricResult& metric : out.metrics) {
      metric.values.push_back(value_of(metric.metric->kind, document, requests));
    }
    out.truncated += std::any_of(requests.begin(), requests.end(), [](const Score& s) { return s.truncated; });
    out.nan +=
        std::count_if(requests.begin(), requests.end(), [](const Score& s) { return std::isnan(s.log_likelihood); });
    out.gold_outside += is_gold_outside(document);
  }
  for (MetricResult& metric : out.metrics) {
    if (metric.metric->kind == TaskMetric::Kind::perplexity) {
      metric.value = perplexity_of(metric.values);
      metric.standard_error = perplexity_bootstrap(metric.values, bootstrap_iterations, threads);
    } else {
      metric.value = mean_of(metric.values);
      if (bootstrap_iterations > 0) metric.standard_error = mean_standard_error(metric.values);
    }
  }
  return out;
}

}  // namespace keel
