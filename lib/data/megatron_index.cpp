#include "keel/data/megatron_index.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <optional>

#include "keel/base/error.h"
#include "token_file.h"

namespace keel {

using detail::kMegatronHeaderBytes;

template <class T>
T MegatronIndex::load(int64_t offset, int64_t index) const {
  T value;
  std::memcpy(&value, file_.bytes().data() + offset + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void MegatronIndex::fail(const std::string& what) const {
  throw Error(ErrorKind::format, what, file_.path().string());
}

MegatronIndex::MegatronIndex(const std::filesystem::path& path) : file_(path) {
  if (file_.size() < kMegatronHeaderBytes ||
      std::memcmp(file_.bytes().data(), detail::kMegatronMagic, sizeof detail::kMegatronMagic) != 0) {
    fail(fmt::format("not a Megatron index: {} bytes, no MMIDIDX at its start", file_.size()));
  }
  const auto version = load<uint64_t>(9, 0);
  if (version != detail::kMegatronVersion) fail(fmt::format("Megatron index of version {}, wanted 1", version));
  const auto code = load<uint8_t>(17, 0);
  const auto type = token_dtype_of_megatron(code);
  if (!type) {
    const char* what = code == 6 ? " (float64)" : code == 7 ? " (float32)" : "";
    fail(fmt::format("dtype code {}{} is not a type of tokens, wanted 1 to 5 or 8", code, what));
  }
  type_ = *type;
  const auto sequences = load<uint64_t>(18, 0);
  const auto entries = load<uint64_t>(26, 0);
  const auto room = static_cast<uint64_t>(file_.size());
  if (sequences > room / 12 || entries > room / 8) {
    fail(fmt::format("{} sequences and {} document entries do not fit in {} bytes", sequences, entries, room));
  }
  sequences_ = static_cast<int64_t>(sequences);
  entries_ = static_cast<int64_t>(entries);
  const int64_t wanted = kMegatronHeaderBytes + 12 * sequences_ + 8 * entries_;
  if (file_.size() != wanted && file_.size() != wanted + sequences_) {
    fail(fmt::format("{} bytes, wanted {} for {} sequences and {} document entries", file_.size(), wanted, sequences_,
                     entries_));
  }
  check_sequences();
  check_documents();
}

void MegatronIndex::check_sequences() {
  const int64_t lengths = kMegatronHeaderBytes;
  const int64_t pointers = kMegatronHeaderBytes + 4 * sequences_;
  const int64_t item = token_dtype_bytes(type_);
  for (int64_t i = 0; i < sequences_; ++i) {
    const auto length = load<int32_t>(lengths, i);
    const auto pointer = load<int64_t>(pointers, i);
    if (length < 0) fail(fmt::format("sequence {} has length {}", i, length));
    if (pointer != tokens_ * item) {
      fail(fmt::format("sequence {} points to byte {}, wanted {}", i, pointer, tokens_ * item));
    }
    tokens_ += length;
    if (tokens_ > std::numeric_limits<int64_t>::max() / item - std::numeric_limits<int32_t>::max()) {
      fail("the sequence lengths add up to more than 2^63 bytes");
    }
  }
}

void MegatronIndex::check_documents() const {
  const int64_t array = kMegatronHeaderBytes + 12 * sequences_;
  if (entries_ < 1) fail("the document array is empty");
  int64_t previous = 0;
  for (int64_t k = 0; k < entries_; ++k) {
    const auto first = load<int64_t>(array, k);
    if (k == 0 && first != 0) fail(fmt::format("the document array starts with {}, wanted 0", first));
    if (first < previous || first > sequences_) {
      fail(fmt::format("document {} starts at sequence {} of {}, after {}", k, first, sequences_, previous));
    }
    previous = first;
  }
  if (previous != sequences_) {
    fail(fmt::format("the document array ends with sequence {}, wanted {}", previous, sequences_));
  }
}

int64_t MegatronIndex::document_start(int64_t k) const {
  const auto sequence = load<int64_t>(kMegatronHeaderBytes + 12 * sequences_, k);
  if (sequence == sequences_) return tokens_;
  return load<int64_t>(kMegatronHeaderBytes + 4 * sequences_, sequence) / token_dtype_bytes(type_);
}

int64_t MegatronIndex::first_document_from(int64_t token) const {
  int64_t low = 0;
  int64_t high = documents();
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (document_start(middle) >= token) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

int64_t MegatronIndex::document_of(int64_t token) const {
  return first_document_from(token + 1) - 1;
}

void MegatronIndex::check_bin(const MappedFile& bin) const {
  detail::require_size(bin.path(), bin.size(), tokens_ * token_dtype_bytes(type_),
                       fmt::format("the {} {} tokens of its index", tokens_, to_string(type_)));
}

}  // namespace keel
