#include "keel/base/suggest.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace keel {
namespace {

/// Optimal string alignment distance: insertions, deletions, substitutions, swaps of neighbours; case is ignored.
size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

/// The names that `start` is the beginning of; none if it is very short.
std::vector<std::string> beginning_with(std::string_view start, std::span<const std::string> known) {
  constexpr size_t kShortest = 3;
  std::vector<std::string> found;
  if (start.size() < kShortest) return found;
  std::copy_if(known.begin(), known.end(), std::back_inserter(found),
               [&](const std::string& candidate) { return candidate.starts_with(start); });
  return found;
}

constexpr size_t kFew = 20;

}  // namespace

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;  // whole characters
  return std::string(text.substr(0, most)) + "...";
}

std::string quoted_name(std::string_view name) {
  constexpr size_t kMost = 60;
  return "'" + shortened(name, kMost) + "'";
}

std::string suggestion(std::string_view name, std::span<const std::string> known) {
  const std::string* nearest = nullptr;
  size_t best = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    // Names differ by at least what one is longer; this also bounds the work for a name of any length.
    const size_t longer = std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size());
    if (longer >= best) continue;
    if (const size_t distance = edit_distance(name, candidate); distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  // "--temp" is the beginning of "--temperature" before it is a misspelt "--help".
  const std::vector<std::string> beginnings = beginning_with(name, known);
  if (beginnings.size() == 1 && best > 1) nearest = &beginnings[0];
  if (beginnings.size() > 1) {
    nearest = nullptr;
    known = beginnings;
  }
  if (nearest != nullptr) return "did you mean '" + *nearest + "'?";
  if (known.empty() || known.size() > kFew) return {};
  std::string list = "one of ";
  for (size_t i = 0; i < known.size(); ++i) list += (i == 0 ? "" : ", ") + known[i];
  return list;
}

}  // namespace keel
