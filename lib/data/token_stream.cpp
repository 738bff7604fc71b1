#include "token_stream.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/hash.h"

namespace keel {
namespace {

/// Widens count tokens into out; returns the first that is not in [0, limit), or count.
template <class T>
int64_t widen(const std::byte* source, int64_t count, int64_t limit, int32_t* out) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, source + i * sizeof(T), sizeof(T));
    good &= static_cast<int64_t>(token) >= 0 && static_cast<int64_t>(token) < limit;
    out[i] = static_cast<int32_t>(token);
  }
  if (good) return count;
  for (int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, source + i * sizeof(T), sizeof(T));
    if (static_cast<int64_t>(token) < 0 || static_cast<int64_t>(token) >= limit) return i;
  }
  return count;
}

int64_t widen(TokenDtype type, const std::byte* source, int64_t count, int64_t limit, int32_t* out) {
  return with_token_type(type, [&](auto token) { return widen<decltype(token)>(source, count, limit, out); });
}

int64_t token_at(const detail::Shard& shard, int64_t at) {
  return with_token_type(shard.info.type, [&](auto token) {
    std::memcpy(&token, shard.tokens(at, 1).data(), sizeof token);
    return static_cast<int64_t>(token);
  });
}

[[noreturn]] void refuse_token(const detail::Shard& shard, int64_t token, int64_t limit) {
  std::string place = fmt::format("token {}", token);
  if (shard.index) {
    const int64_t document = shard.index->document_of(token);
    place = fmt::format("document {}, position {}", document, token - shard.index->document_start(document));
  }
  throw Error(ErrorKind::format,
              fmt::format("token id {} is outside the vocabulary of {}", token_at(shard, token), limit),
              shard.info.path + ", " + place, "was the data made with another tokenizer?");
}

void check_range(int64_t begin, int64_t end, int64_t tokens, int64_t room) {
  if (begin < 0 || begin > end || end > tokens || room != end - begin) {
    throw Error(ErrorKind::internal, fmt::format("tokens [{}, {}) of {} into {} elements", begin, end, tokens, room));
  }
}

/// Calls body(shard, first, count) for the pieces of [begin, end), first counted from the shard's own start.
template <class Body>
void for_pieces(const TokenStream::Impl& stream, int64_t begin, int64_t end, Body body) {
  for (size_t i = begin < end ? stream.shard_of(begin) : 0; begin < end; ++i) {
    const detail::Shard& shard = stream.shards[i];
    const int64_t first = begin - shard.info.first_token;
    const int64_t count = std::min(end - begin, shard.info.tokens - first);
    body(shard, first, count);
    begin += count;
  }
}

}  // namespace

size_t TokenStream::Impl::shard_of(int64_t token) const {
  const auto after = std::upper_bound(infos.begin(), infos.end(), token,
                                      [](int64_t t, const TokenShard& info) { return t < info.first_token; });
  return static_cast<size_t>(after - infos.begin()) - 1;
}

std::span<const TokenShard> TokenStream::shards() const {
  return impl_->infos;
}
int64_t TokenStream::tokens() const {
  return impl_->tokens;
}

bool TokenStream::has_documents() const {
  return std::all_of(impl_->shards.begin(), impl_->shards.end(),
                     [](const auto& shard) { return shard.index.has_value(); });
}

int64_t TokenStream::documents() const {
  if (!has_documents()) return -1;
  int64_t sum = 0;
  for (const TokenShard& info : impl_->infos) sum += info.documents;
  return sum;
}

bool TokenStream::has_mask() const {
  return std::any_of(impl_->infos.begin(), impl_->infos.end(),
                     [](const auto& info) { return !info.mask_path.empty(); });
}

void TokenStream::read(int64_t begin, int64_t end, HostView<int32_t, 1> out, int64_t limit) const {
  check_range(begin, end, tokens(), out.size());
  limit = std::min<int64_t>(limit, int64_t{1} << 31);
  int32_t* next = out.data();
  for_pieces(*impl_, begin, end, [&](const detail::Shard& shard, int64_t first, int64_t count) {
    const int64_t good = widen(shard.info.type, shard.tokens(first, count).data(), count, limit, next);
    if (good < count) refuse_token(shard, first + good, limit);
    next += count;
  });
}

void TokenStream::read_mask(int64_t begin, int64_t end, HostView<uint8_t, 1> out) const {
  check_range(begin, end, tokens(), out.size());
  uint8_t* next = out.data();
  for_pieces(*impl_, begin, end, [&](const detail::Shard& shard, int64_t first, int64_t count) {
    if (shard.mask.size() == 0) {
      std::memset(next, 1, static_cast<size_t>(count));
    } else {
      std::memcpy(next, shard.mask.bytes().data() + first, static_cast<size_t>(count));
      const uint8_t* bad = std::find_if(next, next + count, [](uint8_t byte) { return byte > 1; });
      if (bad != next + count) {
        throw Error(ErrorKind::format, fmt::format("loss mask byte {} is neither 0 nor 1", *bad),
                    fmt::format("{}, token {}", shard.info.mask_path, first + (bad - next)));
      }
    }
    next += count;
  });
}

std::vector<int64_t> TokenStream::document_starts(int64_t begin, int64_t end) const {
  if (!has_documents()) throw Error(ErrorKind::internal, "document starts of data without a document array");
  check_range(begin, end, tokens(), end - begin);
  std::vector<int64_t> starts;
  for_pieces(*impl_, begin, end, [&](const detail::Shard& shard, int64_t first, int64_t count) {
    const MegatronIndex& index = *shard.index;
    for (int64_t k = index.first_document_from(first); k < index.documents(); ++k) {
      const int64_t start = index.document_start(k);
      if (start >= first + count) break;
      if (start < index.document_start(k + 1)) starts.push_back(shard.info.first_token + start);
    }
  });
  return starts;
}

std::string TokenStream::compute_xxh3(int64_t shard) const {
  const auto bytes = impl_->shards.at(static_cast<size_t>(shard)).file.bytes();
  return hex(xxh3(bytes.data(), bytes.size()));
}

void TokenStream::verify_hashes() const {
  for (int64_t i = 0; i < static_cast<int64_t>(shards().size()); ++i) {
    const TokenShard& info = shards()[i];
    if (info.xxh3.empty()) continue;
    const std::string found = compute_xxh3(i);
    if (found != info.xxh3) {
      throw Error(ErrorKind::format, fmt::format("altered: XXH3 {}, recorded {}", found, info.xxh3), info.path);
    }
  }
}

}  // namespace keel
