#include "keel/tokenizer/sentencepiece_tokenizer.h"

#include <fmt/core.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "keel/tokenizer/bpe_merger.h"
#include "keel/tokenizer/large_part.h"
#include "keel/tokenizer/part_cache.h"
#include "keel/tokenizer/sentencepiece_model.h"
#include "keel/tokenizer/utf8_repair.h"

namespace keel {
namespace {

using PieceType = SentencepieceModel::PieceType;

constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581
constexpr int64_t kMaxPartBytes = 64 << 20;               // of the merger, which takes 60 bytes a byte
constexpr int64_t kMaxLibraryPartBytes = 16 << 20;        // of the library, which takes 210

// True if some character of `text` other than U+2581 stands in front of a U+2581, or a plain space anywhere.
bool has_inner_space(std::string_view text) {
  if (text.find(' ') != std::string_view::npos) return true;
  while (text.starts_with(kSpacePiece)) text.remove_prefix(kSpacePiece.size());
  return text.find(kSpacePiece) != std::string_view::npos;
}

// Whether cutting a text in front of each space that follows another character leaves its ids as they are.
bool cuts_are_exact(const SentencepieceModel& model) {
  const bool plain = model.type == SentencepieceModel::Type::bpe && model.charsmap.empty() &&
                     !model.remove_extra_whitespaces && model.escape_whitespaces && !model.whitespace_as_suffix;
  bool knows_space = false;
  for (const SentencepieceModel::Piece& piece : model.pieces) {
    const bool in_text = piece.type == PieceType::normal || piece.type == PieceType::user_defined;
    if (piece.type == PieceType::unused || (in_text && has_inner_space(piece.text))) return false;
    knows_space |= in_text && piece.text == kSpacePiece;
  }
  return plain && knows_space;
}

struct ControlPiece {
  std::string text;
  int32_t id;
};

struct Shared {
  SentencepieceModel model;
  sentencepiece::SentencePieceProcessor processor;
  bool cuts = false;                   // texts may be cut in front of spaces
  std::optional<BpeMerger> merger;     // where cuts are exact and the model is plain enough
  std::vector<ControlPiece> controls;  // longest first
  std::array<bool, 256> begins_control{};
  std::vector<int> byte_values;  // by id; -1 for other pieces
};

class SentencepieceEncoder : public TokenEncoder {
 public:
  explicit SentencepieceEncoder(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}

  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) override {
    if (special == SpecialText::plain) return encode_plain(text, ids);
    while (!text.empty()) {
      const auto [at, control] = find_control(text);
      encode_plain(text.substr(0, at), ids);
      if (control == nullptr) return;
      ids.push_back(control->id);
      text.remove_prefix(at + control->text.size());
    }
  }

 private:
  // The first control piece spelt out in the text, the longest of those at one place; its offset, or the text's end.
  std::pair<size_t, const ControlPiece*> find_control(std::string_view text) const {
    for (size_t at = 0; at < text.size(); ++at) {
      if (!shared_->begins_control[static_cast<unsigned char>(text[at])]) continue;
      for (const ControlPiece& control : shared_->controls) {
        if (text.substr(at).starts_with(control.text)) return {at, &control};
      }
    }
    return {text.size(), nullptr};
  }

  void encode_plain(std::string_view text, std::vector<int32_t>& ids) {
    if (!shared_->cuts) return encode_part(text, ids);
    size_t begin = 0;
    for (size_t space; (space = find_cut(text, begin)) != std::string_view::npos; begin = space) {
      encode_cut_part(text, begin, space, ids);
    }
    encode_cut_part(text, begin, text.size(), ids);
  }

  // The next space after text[begin] that follows another character and has something behind it.
  static size_t find_cut(std::string_view text, size_t begin) {
    for (size_t at = begin + 1; at + 1 < text.size(); ++at) {
      at = text.find(' ', at);
      if (at == std::string_view::npos || at + 1 >= text.size()) break;
      if (text[at - 1] != ' ' && !text.substr(0, at).ends_with(kSpacePiece)) return at;
    }
    return std::string_view::npos;
  }

  void encode_cut_part(std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids) {
    if (begin > 0 && shared_->model.add_dummy_prefix) ++begin;  // every part gets one in front
    const std::string_view part = text.substr(begin, end - begin);
    if (cache_.find(part, ids)) return;
    const size_t before = ids.size();
    const int64_t lost_before = lost_bytes();
    if (shared_->merger) {
      merge_part(part, ids);
    } else {
      encode_part(part, ids);
    }
    if (lost_bytes() > lost_before) return;  // the cache does not count
    cache_.insert(part, ids.data() + before, ids.size() - before);
  }

  void merge_part(std::string_view part, std::vector<int32_t>& ids) {
    if (part.empty()) return;
    const std::unique_lock<std::mutex> lock = admit_part(part, kMaxPartBytes);
    normalized_.clear();
    if (shared_->model.add_dummy_prefix) normalized_ += kSpacePiece;
    for (size_t at = 0; at < part.size();) {
      const size_t space = std::min(part.find(' ', at), part.size());
      normalized_.append(part.substr(at, space - at));
      if (space < part.size()) normalized_ += kSpacePiece;
      at = space + 1;
    }
    note_lost(shared_->merger->encode(normalized_, workspace_, ids));
    if (lock) workspace_ = {};
  }

  void encode_part(std::string_view part, std::vector<int32_t>& ids) {
    const std::unique_lock<std::mutex> lock = admit_part(part, kMaxLibraryPartBytes);
    const auto status = shared_->processor.Encode(part, &part_ids_);
    if (!status.ok()) throw Error(ErrorKind::internal, "sentencepiece: " + status.ToString());
    ids.insert(ids.end(), part_ids_.begin(), part_ids_.end());
    if (std::count(part_ids_.begin(), part_ids_.end(), shared_->processor.unk_id()) > 0) count_lost(part);
  }

  // The library's pieces are what the text has, where the vocabulary has none.
  void count_lost(std::string_view part) {
    std::vector<std::string> pieces;
    const auto status = shared_->processor.Encode(part, &pieces);
    if (!status.ok()) throw Error(ErrorKind::internal, "sentencepiece: " + status.ToString());
    for (size_t i = 0; i < std::min(pieces.size(), part_ids_.size()); ++i) {
      if (part_ids_[i] == shared_->processor.unk_id()) note_lost(static_cast<int64_t>(pieces[i].size()));
    }
  }

  std::shared_ptr<const Shared> shared_;
  PartCache cache_;
  BpeMerger::Workspace workspace_;
  std::string normalized_;
  std::vector<int> part_ids_;
};

class SentencepieceDecoder : public TokenDecoder {
 public:
  explicit SentencepieceDecoder(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}

  void append(int32_t id, std::string& text) override {
    const SentencepieceModel& model = shared_->model;
    if (id < 0 || id >= static_cast<int64_t>(model.pieces.size())) {
      throw Error(ErrorKind::format, fmt::format("token id {} outside the vocabulary of {}", id, model.pieces.size()));
    }
    const SentencepieceModel::Piece& piece = model.pieces[id];
    if (piece.type == PieceType::control) return;
    if (piece.type == PieceType::byte) {
      at_start_ = false;
      bytes_.push_back(static_cast<char>(shared_->byte_values[id]));
      return give_bytes(incomplete_utf8_tail(bytes_), text);
    }
    give_bytes(0, text);
    append_piece(piece, text);
    at_start_ = false;
  }

  void finish(std::string& text) override {
    give_bytes(0, text);
    at_start_ = true;
  }

 private:
  // All waiting bytes but the last `kept`.
  void give_bytes(int64_t kept, std::string& text) {
    const size_t given = bytes_.size() - kept;
    append_replacing_invalid_utf8(std::string_view(bytes_).substr(0, given), text);
    bytes_.erase(0, given);
  }

  void append_piece(const SentencepieceModel::Piece& piece, std::string& text) const {
    const SentencepieceModel& model = shared_->model;
    if (piece.type == PieceType::unknown) {
      text += model.unk_surface;
      return;
    }
    std::string_view rest = piece.text;
    const bool drops_space = model.add_dummy_prefix || model.remove_extra_whitespaces;
    if (at_start_ && drops_space && rest.starts_with(kSpacePiece)) rest.remove_prefix(kSpacePiece.size());
    for (size_t at; (at = rest.find(kSpacePiece)) != std::string_view::npos;) {
      text.append(rest.substr(0, at));
      text.push_back(' ');
      rest.remove_prefix(at + kSpacePiece.size());
    }
    text.append(rest);
  }

  std::shared_ptr<const Shared> shared_;
  bool at_start_ = true;
  std::string bytes_;
};

class SentencepieceTokenizer : public Tokenizer {
 public:
  SentencepieceTokenizer(std::string_view bytes, const std::string& name, bool adds_bos, bool adds_eos)
      : adds_bos_(adds_bos), adds_eos_(adds_eos) {
    auto shared = std::make_shared<Shared>();
    shared->model = parse_sentencepiece_model(bytes, name);
    const auto status = shared->processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) throw Error(ErrorKind::format, "damaged sentencepiece model: " + status.ToString(), name);
    if (shared->model.has_denormalizer) {
      throw Error(ErrorKind::usage, "a sentencepiece model with denormalisation rules is not read by this version",
                  name);
    }
    shared->cuts = cuts_are_exact(shared->model);
    if (shared->cuts && BpeMerger::is_for(shared->model)) shared->merger.emplace(shared->model);
    collect_pieces(*shared);
    shared_ = std::move(shared);
  }

  std::string type() const override {
    switch (shared_->model.type) {
      case SentencepieceModel::Type::unigram:
        return "sentencepiece-unigram";
      case SentencepieceModel::Type::bpe:
        return "sentencepiece-bpe";
      case SentencepieceModel::Type::word:
        return "sentencepiece-word";
      case SentencepieceModel::Type::character:
        return "sentencepiece-char";
    }
    return "sentencepiece";
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(shared_->model.pieces.size()); }
  std::optional<int32_t> bos_id() const override { return find_reserved(shared_->model.bos_piece); }
  std::optional<int32_t> eos_id() const override { return find_reserved(shared_->model.eos_piece); }
  std::optional<int32_t> pad_id() const override { return find_reserved(shared_->model.pad_piece); }
  std::optional<int32_t> unk_id() const override { return shared_->processor.unk_id(); }
  bool adds_bos() const override { return adds_bos_ && bos_id(); }
  bool adds_eos() const override { return adds_eos_ && eos_id(); }

  const std::string& piece(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) {
      throw Error(ErrorKind::format, fmt::format("token id {} outside the vocabulary of {}", id, vocab_size()));
    }
    return shared_->model.pieces[id].text;
  }

  std::unique_ptr<TokenEncoder> make_encoder() const override {
    return std::make_unique<SentencepieceEncoder>(shared_);
  }
  std::unique_ptr<TokenDecoder> make_decoder() const override {
    return std::make_unique<SentencepieceDecoder>(shared_);
  }

 private:
  static void collect_pieces(Shared& shared) {
    const std::vector<SentencepieceModel::Piece>& pieces = shared.model.pieces;
    shared.byte_values.assign(pieces.size(), -1);
    for (size_t id = 0; id < pieces.size(); ++id) {
      if (pieces[id].type == PieceType::control) {
        shared.controls.push_back({pieces[id].text, static_cast<int32_t>(id)});
        shared.begins_control[static_cast<unsigned char>(pieces[id].text[0])] = true;
      }
      if (pieces[id].type == PieceType::byte) {
        shared.byte_values[id] = std::stoi(pieces[id].text.substr(3, 2), nullptr, 16);
      }
    }
    std::stable_sort(shared.controls.begin(), shared.controls.end(),
                     [](const ControlPiece& a, const ControlPiece& b) { return a.text.size() > b.text.size(); });
  }

  // As the library has it: the piece of that name, control pieces first, unless it is the unknown one.
  std::optional<int32_t> find_reserved(const std::string& text) const {
    const int id = shared_->processor.PieceToId(text);
    if (shared_->processor.IsUnknown(id)) return std::nullopt;
    return id;
  }

  std::shared_ptr<const Shared> shared_;
  bool adds_bos_, adds_eos_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string_view bytes, const std::string& name, bool adds_bos,
                                                        bool adds_eos) {
  return std::make_unique<SentencepieceTokenizer>(bytes, name, adds_bos, adds_eos);
}

}  // namespace keel
