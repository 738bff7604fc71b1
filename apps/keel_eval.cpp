/// keel-eval: scores models. Options; the work of each mode is in eval_text.cpp and eval_tasks.cpp.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "eval_modes.h"
#include "keel/base/error.h"
#include "keel/base/options.h"
#include "keel/base/tool.h"
#include "keel/eval/task.h"
#include "weights_option.h"

namespace keel {
namespace {

constexpr const char* kTasks = "Benchmarks (--tasks)";
constexpr const char* kTexts = "Texts (--text)";

/// Only where the shell asks: the definitions need not be read for anything else.
std::vector<std::string> task_completions() {
  std::vector<std::string> names;
  for (const Task& task : built_in_tasks()) names.push_back(task.name);
  return names;
}

std::vector<Option> task_options() {
  return {
      {.name = "--tasks",
       .value = "NAME,...",
       .completions = task_completions(),
       .list = true,
       .group = kTasks,
       .help = "Benchmarks to score, and tags that stand for several; --list-tasks shows them."},
      {.name = "--data",
       .type = OptionType::directory,
       .value = "DIR",
       .group = kTasks,
       .help = "Folder with the benchmarks' files, in the form their authors or the hub distribute."},
      {.name = "--num-fewshot",
       .type = OptionType::integer,
       .value = "N",
       .minimum = 0,
       .maximum = 1e6,
       .group = kTasks,
       .help = "Examples before each question; by default the task's own number, else none."},
      {.name = "--limit",
       .type = OptionType::real,
       .value = "N",
       .minimum = 0,
       .maximum = 1e9,
       .above_minimum = true,
       .group = kTasks,
       .help = "Score the first N rows of each task; below 1, that part of them."},
      {.name = "--samples",
       .value = "FILE|JSON",
       .group = kTasks,
       .help = "Score these rows: {\"task\": [0, 4, 7]}, or a file that holds it.",
       .brief = false},
      {.name = "--log-samples",
       .type = OptionType::flag,
       .group = kTasks,
       .help = "Write every prompt with its scores beside the results (needs --out)."},
      {.name = "--softmax-dtype",
       .type = OptionType::choice,
       .initial = "fp32",
       .choices = {"fp32", "bf16", "fp16"},
       .group = kTasks,
       .help = "Type that probabilities are rounded to; bf16 and fp16 imitate transformers in that type.",
       .brief = false},
      {.name = "--max-length",
       .type = OptionType::integer,
       .value = "N",
       .unit = "tokens",
       .minimum = 1,
       .maximum = 1e9,
       .group = kTasks,
       .help = "Longest input, longer ones lose their beginning; by default the model's max_position_embeddings."},
      {.name = "--prefix-token-id",
       .type = OptionType::integer,
       .value = "N",
       .minimum = 0,
       .maximum = 2147483647,
       .group = kTasks,
       .help = "Token that stands for an empty context; by default BOS, else EOS.",
       .brief = false},
      {.name = "--empty-continuation",
       .type = OptionType::choice,
       .initial = "error",
       .choices = {"error", "alone"},
       .group = kTasks,
       .help = "Where a tokenizer merges an answer with its context until nothing is left of it: stop, or encode it "
               "alone.",
       .brief = false},
      {.name = "--bootstrap-iters",
       .type = OptionType::integer,
       .value = "N",
       .initial = "100000",
       .minimum = 0,
       .maximum = 1e7,
       .group = kTasks,
       .help = "Samples behind the standard error of a perplexity; 0 leaves standard errors out.",
       .brief = false},
      {.name = "--seed",
       .value = "N,...",
       .initial = "0,1234,1234,1234",
       .group = kTasks,
       .help =
           "Seeds as lm-evaluation-harness names them: python, numpy, torch, few-shot. The last one draws examples; "
           "one number stands for all.",
       .brief = false},
      {.name = "--list-tasks", .type = OptionType::flag, .group = kTasks, .help = "Print the benchmarks known here."},
      {.name = "--describe",
       .value = "TASK",
       .completions = task_completions(),
       .group = kTasks,
       .help = "Print a task's definition and the files it needs; with --data also its first prompt."},
  };
}

std::vector<Option> text_options() {
  return {
      {.name = "--text",
       .type = OptionType::file,
       .value = "FILE",
       .repeatable = true,
       .group = kTexts,
       .help = "Text whose perplexity is wanted; each file is one text."},
      {.name = "--window",
       .type = OptionType::integer,
       .value = "N",
       .unit = "tokens",
       .minimum = 2,
       .maximum = 1e9,
       .group = kTexts,
       .help = "Positions of a window, its BOS included; by default the model's max_position_embeddings."},
      {.name = "--stride",
       .type = OptionType::integer,
       .value = "N",
       .unit = "tokens",
       .minimum = 1,
       .maximum = 1e9,
       .group = kTexts,
       .help = "From one window to the next; below a window's length they overlap and only new tokens count."},
  };
}

Tool eval_tool() {
  Tool tool{.name = "keel-eval", .summary = "Score a model: benchmarks, and the perplexity of texts."};
  tool.options = {
      {.name = "MODEL",
       .type = OptionType::directory,
       .help = "Model folder, checkpoint, or run (its newest complete checkpoint)."},
  };
  const auto add = [&](std::vector<Option> options) {
    for (Option& option : options) tool.options.push_back(std::move(option));
  };
  add(task_options());
  add(text_options());
  add({
      {.name = "--compat-bos",
       .type = OptionType::choice,
       .initial = "tokenizer",
       .choices = {"tokenizer", "off", "on"},
       .help =
           "BOS before each prompt as the tokenizer's files say, before each window of a text if it has one; never; "
           "or it must have one."},
      {.name = "--batch-tokens",
       .type = OptionType::integer,
       .value = "N",
       .initial = "4096",
       .unit = "tokens",
       .minimum = 1,
       .maximum = 1e9,
       .help = "Tokens that the model runs at once."},
      {.name = "--out",
       .type = OptionType::file,
       .value = "PATH",
       .help = "Benchmarks: folder (or .json file) for the result and sample files of lm-evaluation-harness. Texts: "
               "file for the report, - is stdout."},
      {.name = "--json", .type = OptionType::flag, .help = "Print the results as JSON in place of the table."},
      report_option(),
      threads_option(),
      weights_option(),
      progress_option(),
      force_option(),
  });
  add(device_options());
  tool.examples = {
      {"keel-eval runs/keel-64 --tasks arc_easy,hellaswag --data bench --out eval",
       "scores and files as "
       "lm-evaluation-harness has them"},
      {"keel-eval hf/model --tasks arc_easy --num-fewshot 25 --data bench --limit 100", "25 examples, 100 rows"},
      {"keel-eval runs/keel-64 --text wiki.test.raw --report ppl.json", "perplexity by token, word and byte"},
      {"keel-eval --describe arc_easy --data bench", "a task's definition and first prompt"},
  };
  return tool;
}

/// Error(usage) for an option that has no effect on what is asked for.
void refuse_without_effect(const Options& options, const std::vector<std::string>& names, const std::string& what) {
  for (const std::string& name : names) {
    if (options.is_given(name)) throw Error(ErrorKind::usage, name + " has no effect " + what);
  }
}

std::vector<std::string> names_of(const std::vector<Option>& options, const std::vector<std::string>& but) {
  std::vector<std::string> names;
  for (const Option& option : options) {
    if (std::find(but.begin(), but.end(), option.name) == but.end()) names.push_back(option.name);
  }
  return names;
}

const std::vector<std::string> kOfARun = {"MODEL",          "--text", "--window", "--stride", "--compat-bos",
                                          "--batch-tokens", "--out",  "--report", "--weights"};

int run_keel_eval(const Options& options) {
  if (options.flag("--list-tasks")) {
    refuse_without_effect(options, kOfARun, "beside --list-tasks");
    refuse_without_effect(options, names_of(task_options(), {"--list-tasks"}), "beside --list-tasks");
    return list_tasks(options);
  }
  if (options.is_given("--describe")) {
    refuse_without_effect(options, kOfARun, "beside --describe");
    refuse_without_effect(options, names_of(task_options(), {"--describe", "--data", "--num-fewshot", "--seed"}),
                          "beside --describe");
    return describe_task(options);
  }
  if (!options.has("MODEL")) throw Error(ErrorKind::usage, "MODEL must be given", "", "'keel-eval -h' shows how");
  const bool tasks = options.is_given("--tasks"), texts = options.is_given("--text");
  if (tasks && texts) throw Error(ErrorKind::usage, "--tasks and --text are two evaluations: give one of them");
  if (!tasks && !texts) {
    throw Error(ErrorKind::usage, "nothing to score", "", "give --tasks with --data, or --text");
  }
  if (tasks) {
    refuse_without_effect(options, names_of(text_options(), {}), "with --tasks");
    return evaluate_tasks(options);
  }
  refuse_without_effect(options, names_of(task_options(), {}), "with --text");
  return evaluate_texts(options);
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  return keel::run_tool(argc, argv, keel::eval_tool(), keel::run_keel_eval);
}
