#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/json.h"

namespace keel::detail {

/// An expression of a template: template.h says what it may hold.
class Expression {
 public:
  virtual ~Expression() = default;
  /// Error(format) if the row has not what it needs.
  virtual Json evaluate(const Json& row) const = 0;
};

/// The expression that a whole text is. Error(config) with `where`.
std::unique_ptr<const Expression> parse_expression(std::string_view text, const std::string& where);

}  // namespace keel::detail
