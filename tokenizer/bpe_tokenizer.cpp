#include "keel/tokenizer/bpe_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "keel/tokenizer/added_tokens.h"
#include "keel/tokenizer/bpe_model.h"
#include "keel/tokenizer/byte_alphabet.h"
#include "keel/tokenizer/large_part.h"
#include "keel/tokenizer/normalizer.h"
#include "keel/tokenizer/part_cache.h"
#include "keel/tokenizer/pre_tokenizer.h"
#include "keel/tokenizer/unicode.h"
#include "keel/tokenizer/utf8_repair.h"

namespace keel {
namespace {

constexpr int64_t kMaxWordBytes = 64 << 20;

bool is_byte_level(const TokenizerSpec& spec) {
  return !spec.pre_tokenizer.empty() && spec.pre_tokenizer.back().kind == PreTokenizerStep::Kind::byte_level;
}

// Special tokens come before others; those that are looked for in normalised text are normalised.
AddedTokens added_tokens(const TokenizerSpec& spec, const Normalizer& normalizer, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const bool special : {true, false}) {
    for (const AddedToken& token : spec.added) {
      if (token.special != special || token.normalized != normalized) continue;
      tokens.push_back(token);
      if (normalized) tokens.back().content = normalizer.applied(token.content);
    }
  }
  return AddedTokens(std::move(tokens));
}

struct Shared {
  Shared(TokenizerSpec given, const std::string& name)
      : spec(std::move(given)),
        normalizer(spec.normalizer),
        raw_tokens(added_tokens(spec, normalizer, false)),
        normalized_tokens(added_tokens(spec, normalizer, true)),
        pre_tokenizer(spec.pre_tokenizer, name),
        model(spec, is_byte_level(spec)),
        is_special(spec.pieces.size(), false) {
    for (const AddedToken& token : spec.added) {
      is_special[token.id] = token.special;
      if (token.normalized && !spec.decoder.byte_level) normalized_pieces[token.id] = normalizer.applied(token.content);
    }
  }

  // What a decoder begins with: a token that was found in normalised text takes its marks for spaces along.
  const std::string& decoded_piece(int32_t id) const {
    const auto found = normalized_pieces.find(id);
    return found == normalized_pieces.end() ? spec.pieces[id] : found->second;
  }

  void check_id(int32_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(spec.pieces.size())) {
      throw Error(ErrorKind::format, fmt::format("token id {} outside the vocabulary of {}", id, spec.pieces.size()));
    }
  }

  TokenizerSpec spec;
  Normalizer normalizer;
  AddedTokens raw_tokens, normalized_tokens;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  std::vector<bool> is_special;
  std::unordered_map<int32_t, std::string> normalized_pieces;
};

class BpeEncoder : public TokenEncoder, private WordSink {
 public:
  explicit BpeEncoder(std::shared_ptr<const Shared> shared)
      : shared_(std::move(shared)), scratch_(shared_->pre_tokenizer) {}

  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) override {
    if (find_invalid_utf8(text) >= 0) {
      repaired_.clear();
      append_replacing_invalid_utf8(text, repaired_);
      text = repaired_;
    }
    ids_ = &ids;
    const bool parse = special == SpecialText::parse;
    shared_->raw_tokens.split(text, parse, raw_pieces_);
    for (const AddedTokens::Piece& piece : raw_pieces_) {
      if (piece.id == AddedTokens::kText) {
        encode_part(text.substr(piece.begin, piece.end - piece.begin), piece.begin == 0, parse);
      } else {
        ids.push_back(piece.id);
      }
    }
  }

 private:
  void encode_part(std::string_view part, bool first, bool parse) {
    const std::string_view text = shared_->normalizer.apply(part, normalized_, spare_);
    shared_->normalized_tokens.split(text, parse, normalized_pieces_);
    for (const AddedTokens::Piece& piece : normalized_pieces_) {
      const std::string_view inner = text.substr(piece.begin, piece.end - piece.begin);
      if (piece.id == AddedTokens::kText) {
        shared_->pre_tokenizer.split(inner, first && piece.begin == 0, scratch_, *this);
      } else {
        ids_->push_back(piece.id);
      }
    }
  }

  void word(std::string_view word) override {
    const BpeModel& model = shared_->model;
    if (!model.may_cut()) return encode_whole(word);
    if (const std::optional<int32_t> id = model.whole_piece(word)) return ids_->push_back(*id);
    // Parts are merged even where one is a piece that ignore_merges would take as a whole.
    for (size_t begin = 0, end; begin < word.size(); begin = end) {
      end = model.find_cut(word, begin);
      merge(word.substr(begin, end - begin));
    }
  }

  void encode_whole(std::string_view word) {
    if (cache_.find(word, *ids_)) return;
    if (const std::optional<int32_t> id = shared_->model.whole_piece(word)) {
      ids_->push_back(*id);
      cache_.insert(word, &*id, 1);
    } else {
      merge(word);
    }
  }

  void merge(std::string_view word) {
    if (cache_.find(word, *ids_)) return;
    const size_t before = ids_->size();
    const std::unique_lock<std::mutex> lock = admit_part(word, kMaxWordBytes);
    const int64_t lost = shared_->model.encode(word, workspace_, *ids_);
    if (lock) workspace_ = {};
    if (lost > 0) return note_lost(lost);  // the cache does not count
    cache_.insert(word, ids_->data() + before, ids_->size() - before);
  }

  std::shared_ptr<const Shared> shared_;
  PreTokenizer::Scratch scratch_;
  PartCache cache_;
  BpeModel::Workspace workspace_;
  std::string repaired_, normalized_, spare_;
  std::vector<AddedTokens::Piece> raw_pieces_, normalized_pieces_;
  std::vector<int32_t>* ids_ = nullptr;
};

class BpeDecoder : public TokenDecoder {
 public:
  explicit BpeDecoder(std::shared_ptr<const Shared> shared)
      : shared_(std::move(shared)), strip_left_(shared_->spec.decoder.strip_most) {}

  void append(int32_t id, std::string& text) override {
    shared_->check_id(id);
    if (shared_->is_special[id]) return;
    const DecoderRules& rules = shared_->spec.decoder;
    const std::string& piece = shared_->decoded_piece(id);
    if (rules.byte_level) {
      ByteAlphabet::get().append_bytes(piece, bytes_);
      give_bytes(incomplete_utf8_tail(bytes_), text);
    } else {
      append_characters(piece, text);
    }
    at_start_ = false;
  }

  void finish(std::string& text) override {
    give_bytes(0, text);
    at_start_ = true;
    strip_left_ = shared_->spec.decoder.strip_most;
  }

 private:
  // All waiting bytes but the last `kept`.
  void give_bytes(int64_t kept, std::string& text) {
    const size_t given = bytes_.size() - kept;
    if (given == 0) return;
    valid_.clear();
    append_replacing_invalid_utf8(std::string_view(bytes_).substr(0, given), valid_);
    bytes_.erase(0, given);
    give_text(valid_, text);
  }

  void give_text(std::string_view part, std::string& text) {
    const std::string& strip = shared_->spec.decoder.strip;
    for (; strip_left_ > 0 && !part.empty(); --strip_left_) {
      if (!part.starts_with(strip)) {
        strip_left_ = 0;
        break;
      }
      part.remove_prefix(strip.size());
    }
    text += part;
  }

  // The value of "<0x0A>", -1 for other pieces.
  static int byte_value(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    int value = 0;
    for (char c : piece.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  }

  void append_characters(std::string_view piece, std::string& text) {
    const DecoderRules& rules = shared_->spec.decoder;
    const size_t most = most_rewritten(piece.size());
    piece_ = piece;
    for (const auto& [pattern, content] : rules.replacements) replace(pattern, content, most);
    const int byte = rules.byte_fallback ? byte_value(piece_) : -1;
    if (byte >= 0) {
      bytes_.push_back(static_cast<char>(byte));
      return give_bytes(incomplete_utf8_tail(bytes_), text);
    }
    give_bytes(0, text);
    if (!rules.metaspace.empty()) replace(rules.metaspace, at_start_ && rules.metaspace_prefix ? "" : " ", most);
    give_text(piece_, text);
  }

  void replace(const std::string& pattern, const std::string& content, size_t most) {
    if (piece_.find(pattern) == std::string::npos) return;
    replaced_.clear();
    append_replaced(piece_, pattern, content, replaced_, most);
    piece_.swap(replaced_);
  }

  std::shared_ptr<const Shared> shared_;
  bool at_start_ = true;
  int64_t strip_left_;
  std::string bytes_, valid_, piece_, replaced_;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, const SpecialIds& ids, const std::string& name)
      : shared_(std::make_shared<Shared>(std::move(spec), name)), ids_(ids) {}

  std::string type() const override { return is_byte_level(shared_->spec) ? "byte-level-bpe" : "bpe"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(shared_->spec.pieces.size()); }
  std::optional<int32_t> bos_id() const override { return ids_.bos; }
  std::optional<int32_t> eos_id() const override { return ids_.eos; }
  std::optional<int32_t> unk_id() const override { return ids_.unk; }
  std::optional<int32_t> pad_id() const override { return ids_.pad; }
  bool adds_bos() const override { return ids_.adds_bos; }
  bool adds_eos() const override { return ids_.adds_eos; }

  const std::string& piece(int32_t id) const override {
    shared_->check_id(id);
    return shared_->spec.pieces[id];
  }

  std::unique_ptr<TokenEncoder> make_encoder() const override { return std::make_unique<BpeEncoder>(shared_); }
  std::unique_ptr<TokenDecoder> make_decoder() const override { return std::make_unique<BpeDecoder>(shared_); }

 private:
  std::shared_ptr<const Shared> shared_;
  SpecialIds ids_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerSpec spec, const SpecialIds& ids, const std::string& name) {
  return std::make_unique<BpeTokenizer>(std::move(spec), ids, name);
}

}  // namespace keel
