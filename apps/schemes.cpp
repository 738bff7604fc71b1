#include "schemes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/base/output.h"
#include "keel/model/residual_wiring.h"

namespace keel {

Option list_schemes_option() {
  return {.name = "--list-schemes", .type = OptionType::flag, .help = "List the residual schemes."};
}

int list_schemes(bool as_json) {
  Json list = Json::array();
  std::string text;
  for (const ResidualScheme& scheme : residual_schemes()) {
    list.push_back({{"name", scheme.name}, {"summary", scheme.summary}});
    text += fmt::format("{:<14} {}\n", scheme.name, scheme.summary);
  }
  write_stdout(as_json ? json_text(list, 2) + "\n" : text);
  return kExitOk;
}

}  // namespace keel
