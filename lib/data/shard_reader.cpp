#include "keel/data/shard_reader.h"

#include <algorithm>
#include <cstring>

#include "keel/base/signals.h"

namespace keel {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;

/// Calls body(id) for tokens [begin, end).
template <class Body>
void for_ids(const MappedFile& bin, TokenDtype type, int64_t begin, int64_t end, Body body) {
  with_token_type(type, [&](auto token) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(&token, bin.bytes().data() + i * static_cast<int64_t>(sizeof token), sizeof token);
      body(static_cast<int64_t>(token));
    }
  });
}

}  // namespace

ShardReader::ShardReader(const std::filesystem::path& prefix)
    : prefix_(prefix), index_(prefix.string() + ".idx"), bin_(prefix.string() + ".bin") {
  index_.check_bin(bin_);
}

void ShardReader::read_document(int64_t k, std::vector<int64_t>& ids) const {
  for_ids(bin_, type(), index_.document_start(k), index_.document_start(k + 1), [&](int64_t id) { ids.push_back(id); });
}

std::optional<ShardReader::Range> ShardReader::id_range() const {
  std::optional<Range> range;
  for (int64_t begin = 0; begin < tokens(); begin += kChunk) {
    throw_if_stopped();
    for_ids(bin_, type(), begin, std::min(begin + kChunk, tokens()), [&](int64_t id) {
      if (!range) range = Range{id, id};
      range->smallest = std::min(range->smallest, id);
      range->largest = std::max(range->largest, id);
    });
  }
  return range;
}

}  // namespace keel
