#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "keel/tokenizer/json_node.h"
#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// A piece of a vocabulary as an error shows it: in quotes, cut to 40 bytes, on one line.
std::string quoted_piece(std::string_view piece);

/// The pieces of a merging model as its file has them; views into the file.
class VocabularyReader {
 public:
  /// {"piece": id, ...}. Error(format) for ids that are none and for pieces or ids that are there twice.
  explicit VocabularyReader(const JsonNode& vocab);

  std::optional<int32_t> find(std::string_view piece) const;
  size_t size() const { return entries_.size(); }

  /// Gives added tokens their place: what the model knows must have the same id there. Fills spec.pieces, in_model and
  /// added. Error(format) if the ids of both together are not 0, 1, 2, ... without gaps.
  void place(const std::vector<AddedToken>& added, TokenizerSpec& spec) const;

  /// Adds one merge, of the rank after those that are there. Error(format) if a side or both joined are no pieces.
  void add_merge(std::string_view left, std::string_view right, const std::string& where, TokenizerSpec& spec) const;

 private:
  struct Entry {
    std::string_view piece;
    int32_t id;
  };
  [[noreturn]] void fail(const std::string& problem) const { vocab_.fail(problem); }

  JsonNode vocab_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace keel
