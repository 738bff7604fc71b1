#include "keel/eval/row_processing.h"

#include <charconv>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/eval/python_text.h"

namespace keel {
namespace {

std::string field(const Json& row, const char* name) {
  const auto at = row.find(name);
  if (at == row.end() || !at->is_string()) {
    throw Error(ErrorKind::format, fmt::format("the field {} is missing or no text", name));
  }
  return at->get<std::string>();
}

/// Every match of \[.*?\] taken out; the dot stands for anything but a line end.
std::string without_brackets(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t open = text.find('[');
    const size_t close = open == std::string_view::npos ? open : text.find_first_of("]\n", open);
    if (close == std::string_view::npos) break;
    if (text[close] == '\n') {
      out.append(text.substr(0, open + 1));
      text.remove_prefix(open + 1);
    } else {
      out.append(text.substr(0, open));
      text.remove_prefix(close + 1);
    }
  }
  return out.append(text);
}

std::string clean_hellaswag(std::string_view text) {
  return python_replace(without_brackets(python_replace(python_strip(text), " [title]", ". ")), "  ", " ");
}

Json process_hellaswag(const Json& row) {
  Json out = row;
  const std::string context = field(row, "ctx_a") + " " + python_capitalize(field(row, "ctx_b"));
  out["query"] = clean_hellaswag(field(row, "activity_label") + ": " + context);
  const auto endings = row.find("endings");
  if (endings == row.end() || !endings->is_array()) {
    throw Error(ErrorKind::format, "the field endings is missing or no list");
  }
  Json choices = Json::array();
  for (const Json& ending : *endings) {
    if (!ending.is_string()) throw Error(ErrorKind::format, "an ending is no text");
    choices.push_back(clean_hellaswag(ending.get_ref<const std::string&>()));
  }
  out["choices"] = std::move(choices);
  const std::string label = field(row, "label");
  int64_t gold = 0;
  const auto end = std::from_chars(label.data(), label.data() + label.size(), gold);
  if (end.ec != std::errc() || end.ptr != label.data() + label.size()) {
    throw Error(ErrorKind::format, fmt::format("the label is no whole number: '{}'", label), "",
                "rows of a test split have none");
  }
  out["gold"] = gold;
  return out;
}

constexpr struct {
  const char* name;
  RowProcessor process;
} kProcessors[] = {{"hellaswag", process_hellaswag}};

}  // namespace

RowProcessor find_row_processor(const std::string& name) {
  for (const auto& processor : kProcessors) {
    if (name == processor.name) return processor.process;
  }
  return nullptr;
}

std::vector<std::string> row_processor_names() {
  std::vector<std::string> names;
  for (const auto& processor : kProcessors) names.emplace_back(processor.name);
  return names;
}

}  // namespace keel
