#include "keel/tokenizer/sentencepiece_model.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "keel/base/error.h"
#include "keel/tokenizer/utf8_repair.h"

namespace keel {
namespace {

constexpr size_t kMaxPieceBytes = 8000;

/// A field of a protobuf message: `number` holds varints and the bits of fixed fields, `bytes` what has a length.
struct WireField {
  enum Type { varint = 0, fixed64 = 1, bytes_type = 2, fixed32 = 5 };
  int64_t id = 0;
  int type = varint;
  uint64_t number = 0;
  std::string_view bytes;
};

/// Reads the fields of one message in order. Groups, which no model has, count as damage.
class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  std::optional<WireField> next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t tag = varint();
    WireField field;
    field.id = static_cast<int64_t>(tag >> 3);
    field.type = static_cast<int>(tag & 7);
    if (field.id == 0 || field.id >= int64_t{1} << 29) throw damaged();
    switch (field.type) {
      case WireField::varint:
        field.number = varint();
        break;
      case WireField::fixed64:
        field.number = fixed(8);
        break;
      case WireField::fixed32:
        field.number = fixed(4);
        break;
      case WireField::bytes_type:
        field.bytes = take(varint());
        break;
      default:
        throw damaged();
    }
    return field;
  }

 private:
  Error damaged() const { return {ErrorKind::format, "not a sentencepiece model, or a damaged one", name_}; }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) throw damaged();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  uint64_t fixed(int size) {
    const std::string_view taken = take(size);
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(taken[i]);
    return value;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint64_t byte = fixed(1);
      if (shift < 64) value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw damaged();
  }

  std::string_view rest_;
  const std::string& name_;
};

class ModelParser {
 public:
  explicit ModelParser(const std::string& name) : name_(name) {}

  SentencepieceModel parse(std::string_view bytes) {
    for_each(bytes, [&](const WireField& field) {
      if (field.type != WireField::bytes_type) return;
      switch (field.id) {
        case 1:
          piece(field.bytes);
          break;
        case 2:
          trainer_spec(field.bytes);
          break;
        case 3:
          normalizer_spec(field.bytes);
          break;
        case 4:
          self_test_data(field.bytes);
          break;
        case 5:
          denormalizer_spec(field.bytes);
          break;
        default:
          break;
      }
    });
    return std::move(model_);
  }

 private:
  template <class Visit>
  void for_each(std::string_view bytes, Visit visit) {
    WireReader reader(bytes, name_);
    while (const std::optional<WireField> field = reader.next()) visit(*field);
  }

  void piece(std::string_view bytes) {
    SentencepieceModel::Piece& piece = model_.pieces.emplace_back();
    for_each(bytes, [&](const WireField& field) {
      if (field.id == 1 && field.type == WireField::bytes_type) piece.text = field.bytes;
      if (field.id == 2 && field.type == WireField::fixed32) {
        const auto bits = static_cast<uint32_t>(field.number);
        std::memcpy(&piece.score, &bits, sizeof bits);
      }
      // A value outside the enumeration counts as absent, as in every protobuf reader.
      if (field.id == 3 && field.type == WireField::varint && field.number >= 1 && field.number <= 6) {
        piece.type = static_cast<SentencepieceModel::PieceType>(field.number);
      }
    });
  }

  void trainer_spec(std::string_view bytes) {
    for_each(bytes, [&](const WireField& field) {
      const bool is_number = field.type == WireField::varint, is_bytes = field.type == WireField::bytes_type;
      if (field.id == 3 && is_number && field.number >= 1 && field.number <= 4) {
        model_.type = static_cast<SentencepieceModel::Type>(field.number);
      }
      if (field.id == 24 && is_number) model_.whitespace_as_suffix = field.number != 0;
      if (field.id == 35 && is_number) model_.byte_fallback = field.number != 0;
      if (field.id == 44 && is_bytes) model_.unk_surface = field.bytes;
      const auto name = [&](int64_t id, std::string& to) {
        if (field.id == id && is_bytes && !field.bytes.empty()) to = field.bytes;
      };
      name(45, model_.unk_piece);
      name(46, model_.bos_piece);
      name(47, model_.eos_piece);
      name(48, model_.pad_piece);
    });
  }

  void normalizer_spec(std::string_view bytes) {
    for_each(bytes, [&](const WireField& field) {
      if (field.id == 2 && field.type == WireField::bytes_type) model_.charsmap = field.bytes;
      if (field.type != WireField::varint) return;
      if (field.id == 3) model_.add_dummy_prefix = field.number != 0;
      if (field.id == 4) model_.remove_extra_whitespaces = field.number != 0;
      if (field.id == 5) model_.escape_whitespaces = field.number != 0;
    });
  }

  void denormalizer_spec(std::string_view bytes) {
    for_each(bytes, [&](const WireField& field) {
      if (field.id == 2 && field.type == WireField::bytes_type && !field.bytes.empty()) model_.has_denormalizer = true;
    });
  }

  void self_test_data(std::string_view bytes) {
    for_each(bytes, [&](const WireField& field) {
      if (field.id == 1 && field.type == WireField::bytes_type) for_each(field.bytes, [](const WireField&) {});
    });
  }

  const std::string& name_;
  SentencepieceModel model_;
};

std::optional<int> byte_of_piece(std::string_view text) {
  for (int byte = 0; byte < 256; ++byte) {
    if (text == fmt::format("<0x{:02X}>", byte)) return byte;
  }
  return std::nullopt;
}

void check_pieces(const SentencepieceModel& model, const std::string& name) {
  const auto fail = [&](size_t id, const char* what) {
    throw Error(ErrorKind::format, fmt::format("damaged sentencepiece model: piece {} {}", id, what), name);
  };
  using PieceType = SentencepieceModel::PieceType;
  if (model.pieces.empty()) throw Error(ErrorKind::format, "not a sentencepiece model: it has no pieces", name);
  std::unordered_set<std::string_view> seen[2];  // text, and what text never produces, may share a spelling
  std::array<bool, 256> bytes{};
  int64_t unknown = 0, byte_pieces = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencepieceModel::Piece& piece = model.pieces[id];
    if (piece.text.empty()) fail(id, "is empty");
    if (piece.text.size() >= kMaxPieceBytes) fail(id, "is too long");
    if (piece.text.find('\0') != std::string::npos) fail(id, "holds a NUL byte");
    if (find_invalid_utf8(piece.text) >= 0) fail(id, "is not UTF-8");
    if (!std::isfinite(piece.score)) fail(id, "has a score that is not a number");
    const bool reserved =
        piece.type == PieceType::unknown || piece.type == PieceType::control || piece.type == PieceType::byte;
    if (!seen[reserved].insert(piece.text).second) fail(id, "occurs twice");
    unknown += piece.type == PieceType::unknown;
    if (piece.type != PieceType::byte) continue;
    const std::optional<int> byte = byte_of_piece(piece.text);
    if (!byte) fail(id, "should be a byte such as <0x0A>");
    bytes[*byte] = true;
    ++byte_pieces;
  }
  if (unknown != 1) throw Error(ErrorKind::format, "damaged sentencepiece model: it needs one <unk> piece", name);
  if (byte_pieces != (model.byte_fallback ? 256 : 0)) {
    throw Error(ErrorKind::format,
                fmt::format("damaged sentencepiece model: {} byte pieces with byte_fallback {}", byte_pieces,
                            model.byte_fallback ? "on" : "off"),
                name);
  }
}

/// The normalisation rules: u32 size of a trie, the trie (a Darts double array of u32 units), then NUL-ended
/// replacement texts. A unit has in bits 0-7 the byte that leads to it, in bit 8 whether a value hangs below it, in bit
/// 9 whether bits 10-30 count in steps of 256, in bits 10-30 the offset of its children; a value has bit 31 set.
class CharsmapCheck {
 public:
  CharsmapCheck(std::string_view blob, const std::string& name) : name_(name) {
    uint32_t trie_bytes = 0;
    if (blob.size() <= sizeof trie_bytes) throw damaged();
    std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
    blob.remove_prefix(sizeof trie_bytes);
    if (trie_bytes >= blob.size() || trie_bytes == 0 || trie_bytes % 4 != 0) throw damaged();
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), blob.data(), trie_bytes);
    texts_ = blob.substr(trie_bytes);
    if (texts_.back() != '\0') throw damaged();
  }

  /// Walks all nodes that a text can lead to.
  void run() {
    std::vector<bool> visited(units_.size());
    std::vector<uint32_t> open{0};
    visited[0] = true;
    while (!open.empty()) {
      const uint32_t node = open.back();
      open.pop_back();
      const uint32_t unit = units_[node];
      const uint32_t children = node ^ ((unit >> 10) << ((unit & 1u << 9) >> 6));
      if ((children | 0xFF) >= units_.size()) throw damaged();
      if ((unit & 1u << 8) != 0) check_value(units_[children]);
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const uint32_t child = children ^ byte;
        if ((units_[child] & (1u << 31 | 0xFF)) != byte || visited[child]) continue;
        visited[child] = true;
        open.push_back(child);
      }
    }
  }

 private:
  void check_value(uint32_t unit) const {
    const uint32_t offset = unit & ~(1u << 31);
    if (offset >= texts_.size()) throw damaged();
    const std::string_view text = texts_.substr(offset, texts_.find('\0', offset) - offset);
    if (find_invalid_utf8(text) >= 0) throw damaged();
  }

  Error damaged() const {
    return {ErrorKind::format, "damaged sentencepiece model: its normalisation rules make no sense", name_};
  }

  const std::string& name_;
  std::vector<uint32_t> units_;
  std::string_view texts_;
};

}  // namespace

SentencepieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& name) {
  SentencepieceModel model = ModelParser(name).parse(bytes);
  check_pieces(model, name);
  if (!model.charsmap.empty()) CharsmapCheck(model.charsmap, name).run();
  return model;
}

}  // namespace keel
