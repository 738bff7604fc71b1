#include "keel/model/kv_cache.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "keel/base/error.h"

namespace keel {

int64_t cache_rows(int64_t pages, int64_t page_size) {
  constexpr int64_t kMost = int64_t{std::numeric_limits<int32_t>::max()} + 1;
  if (pages < 0 || page_size < 1) {
    throw Error(ErrorKind::internal, fmt::format("a cache of {} pages of {} tokens", pages, page_size));
  }
  if (pages > kMost / page_size) {
    throw Error(ErrorKind::memory,
                fmt::format("a key-value cache of {} pages of {} tokens, at most {} tokens are possible", pages,
                            page_size, kMost),
                "", "fewer sequences at a time, or shorter ones, need less");
  }
  return pages * page_size;
}

KvPages::KvPages(int64_t pages, int64_t page_size)
    : page_size_(page_size), users_(cache_rows(pages, page_size) / page_size, 0) {
  for (int64_t page = pages - 1; page >= 0; --page) free_.push_back(static_cast<int32_t>(page));
}

int64_t KvPages::create() {
  sequences_[next_] = {};
  return next_++;
}

int64_t KvPages::fork(int64_t sequence, int64_t tokens) {
  const Sequence& from = sequences_.at(sequence);
  const int64_t shared = std::min(tokens, from.length) / page_size_;
  Sequence copy{.pages = {from.pages.begin(), from.pages.begin() + shared}, .length = shared * page_size_};
  for (int32_t page : copy.pages) ++users_[page];
  sequences_[next_] = std::move(copy);
  return next_++;
}

void KvPages::release(int64_t sequence) {
  for (int32_t page : sequences_.at(sequence).pages) {
    if (--users_[page] == 0) free_.push_back(page);
  }
  sequences_.erase(sequence);
}

int64_t KvPages::pages_wanted(int64_t sequence, int64_t tokens) const {
  const Sequence& s = sequences_.at(sequence);
  return (s.length + tokens + page_size_ - 1) / page_size_ - static_cast<int64_t>(s.pages.size());
}

bool KvPages::append(int64_t sequence, int64_t tokens) {
  const int64_t wanted = pages_wanted(sequence, tokens);
  if (wanted > free_pages()) return false;
  Sequence& s = sequences_.at(sequence);
  for (int64_t i = 0; i < wanted; ++i) {
    const int32_t page = free_.back();
    free_.pop_back();
    users_[page] = 1;
    s.pages.push_back(page);
  }
  s.length += tokens;
  return true;
}

int32_t KvPages::row(int64_t sequence, int64_t t) const {
  const Sequence& s = sequences_.at(sequence);
  return static_cast<int32_t>(s.pages[t / page_size_] * page_size_ + t % page_size_);
}

void CachedBatch::clear() {
  tokens_.clear();
  positions_.clear();
  cache_rows_.clear();
  kv_lengths_.clear();
  added_.clear();
  cu_seqlens_.assign(1, 0);
  pages_.clear();
}

bool CachedBatch::add(KvPages& pages, int64_t sequence, std::span<const int32_t> tokens) {
  const int64_t first = pages.length(sequence), count = static_cast<int64_t>(tokens.size());
  if (count == 0) throw Error(ErrorKind::internal, "no tokens of a sequence");
  if (added_.contains(sequence)) throw Error(ErrorKind::internal, "a sequence twice in one batch");
  if (!pages.append(sequence, count)) return false;
  added_.insert(sequence);
  for (int64_t i = 0; i < count; ++i) {
    tokens_.push_back(tokens[i]);
    positions_.push_back(static_cast<int32_t>(first + i));
    cache_rows_.push_back(pages.row(sequence, first + i));
  }
  kv_lengths_.push_back(static_cast<int32_t>(first + count));
  cu_seqlens_.push_back(static_cast<int32_t>(tokens_.size()));
  pages_.emplace_back(pages.pages(sequence).begin(), pages.pages(sequence).end());
  return true;
}

HostBatch CachedBatch::host() {
  size_t longest = 0;
  for (const auto& pages : pages_) longest = std::max(longest, pages.size());
  page_table_.assign(pages_.size() * longest, 0);
  for (size_t s = 0; s < pages_.size(); ++s) std::copy(pages_[s].begin(), pages_[s].end(), &page_table_[s * longest]);
  const int64_t N = tokens(), S = sequences();
  HostBatch batch;
  batch.tokens = {tokens_.data(), {N}};
  batch.positions = {positions_.data(), {N}};
  batch.cu_seqlens = {cu_seqlens_.data(), {S + 1}};
  batch.cache_rows = {cache_rows_.data(), {N}};
  batch.page_table = {page_table_.data(), {S, static_cast<int64_t>(longest)}};
  batch.kv_lengths = {kv_lengths_.data(), {S}};
  return batch;
}

}  // namespace keel
