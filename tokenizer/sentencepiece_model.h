#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

/// What a sentencepiece .model file says (protobuf `sentencepiece.ModelProto`), as far as it matters here.
struct SentencepieceModel {
  enum class Type { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
  };

  std::vector<Piece> pieces;
  Type type = Type::unigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string unk_piece = "<unk>", bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string charsmap;  ///< compiled normalisation rules; empty = identity
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool has_denormalizer = false;
};

/// Parses and checks a model completely, so that the sentencepiece library, which trusts its input, can be given the
/// same bytes: the wire format, piece texts and types, the set of byte pieces, and every reachable node of the
/// normalisation trie. Error(format) naming `name`.
SentencepieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& name);

}  // namespace keel
