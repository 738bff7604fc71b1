#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// Finds added tokens in a text: from left to right, the longest of those at one place, as the Aho-Corasick matcher of
/// the `tokenizers` crate does ("leftmost longest"). Immutable. At most 1024 steps a byte of text, mostly one.
class AddedTokens {
 public:
  /// `tokens` with contents as they stand in the text that is searched. Of equal contents the first holds.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Piece {
    size_t begin, end;
    int32_t id;  ///< kText for text between
  };
  static constexpr int32_t kText = -1;

  /// Cuts a text into tokens and the text between, nothing of it empty. A special token that is found while `special`
  /// is false stays text, together with what it covers.
  void split(std::string_view text, bool special, std::vector<Piece>& pieces) const;

 private:
  static constexpr int32_t kNoToken = -1;
  struct Node {
    int32_t token = kNoToken;  // index of the token that ends here
  };

  // Index and end of the longest token that begins here.
  std::pair<int32_t, size_t> longest_at(std::string_view text, size_t at) const;
  size_t find_beginning(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  bool only_special_ = true;
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, int32_t> children_;  // node << 8 | byte
  std::array<int32_t, 256> roots_{};                // child of the root, 0 for none
  char only_beginning_ = 0;
  int beginnings_ = 0;
};

}  // namespace keel
