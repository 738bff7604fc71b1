#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

/// A text with expressions in {{ }} over the fields of a row, as benchmark definitions are written: a part of Jinja.
///
///   names, attributes and items    {{question}}  {{choices.text}}  {{options[0]}}  {{words[:-1]}}
///   literals                       'text'  "text"  12  [a, b]
///   operators                      + (numbers, texts, lists)  - (numbers)  ~ (joins as text)
///   methods of texts               strip lstrip rstrip lower upper capitalize; split(separator), replace(a, b)
///   method of lists                index(value)
///   filters                        |join(separator) |trim |string |int |length |first |last |list |lower |upper
///                                  |replace(a, b) |map(attribute='name')
///
/// They mean what they mean in Jinja over Python values: white space is Unicode's, a missing field is an error (strict
/// undefined), and what is outside {{ }} stays as it is, a last newline included. Statements ({% %}), comments ({# #})
/// and white-space control ({{- -}}) are refused.
class KEEL_API Template {
 public:
  /// Error(config) "template ...: what (where): hint" for what is not of this form.
  Template(std::string text, const std::string& where);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  const std::string& source() const;

  /// The value of a template that is one expression and nothing else; of any other its text. Error(format) naming the
  /// field that is missing or of another type.
  Json value(const Json& row) const;
  /// Rendered as Python's str() of every value.
  std::string text(const Json& row) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace keel
