#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace keel {

/// A regular expression as tokenizers write them (Oniguruma's Ruby syntax), matched by PCRE2 with Unicode properties.
/// What the two understand differently is translated (\s, \w, \u0041) or refused (\b, \h, sets in sets, {1,3}+ ...).
/// Immutable; matching goes through one Matcher a thread.
class SplitPattern {
 public:
  /// Error(usage) naming `name` for what cannot be matched as it is meant.
  SplitPattern(const std::string& pattern, const std::string& name);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  struct Match {
    size_t begin, end;
  };

  class Matcher {
   public:
    explicit Matcher(const SplitPattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;
    /// The first match in valid UTF-8 that begins at or after `at`. Error(format) when the pattern takes more than
    /// 10 million steps or 64 MiB for it; Stopped after a signal.
    std::optional<Match> find(std::string_view text, size_t at);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The same expression for PCRE2. Exposed for tests.
std::string pattern_for_pcre2(const std::string& pattern, const std::string& name);

}  // namespace keel
