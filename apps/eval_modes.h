#pragma once

#include "keel/base/options.h"

namespace keel {

/// keel-eval MODEL --text FILE...: perplexity of texts. Returns the exit code.
int evaluate_texts(const Options& options);
/// keel-eval MODEL --tasks NAME,...: benchmarks. Returns the exit code.
int evaluate_tasks(const Options& options);
/// keel-eval --list-tasks, keel-eval --describe TASK.
int list_tasks(const Options& options);
int describe_task(const Options& options);

}  // namespace keel
