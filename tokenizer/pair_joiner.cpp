#include "keel/tokenizer/pair_joiner.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace keel {
namespace {

constexpr size_t kFewSymbols = 32;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ pair >> 32;
}

}  // namespace

PairJoiner::PairJoiner(size_t most_pairs) : joins_(std::bit_ceil(2 * most_pairs + 2)) {}

void PairJoiner::add(int32_t left, int32_t right, int32_t id, int32_t rank) {
  const uint64_t pair = pair_of(left, right);
  size_t at = mix(pair) & (joins_.size() - 1);
  while (joins_[at].id != kNone && joins_[at].pair != pair) at = (at + 1) & (joins_.size() - 1);
  joins_[at] = {pair, id, rank};
}

const PairJoiner::Join* PairJoiner::find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  const uint64_t pair = pair_of(left, right);
  size_t at = mix(pair) & (joins_.size() - 1);
  while (joins_[at].pair != pair) {
    if (joins_[at].id == kNone) return nullptr;
    at = (at + 1) & (joins_.size() - 1);
  }
  return &joins_[at];
}

void PairJoiner::join(Workspace& workspace) const {
  if (workspace.symbols_.size() < 2 || joins_.empty()) return;
  workspace.symbols_.back().next = -1;
  if (workspace.symbols_.size() <= kFewSymbols) {
    join_few(workspace);
  } else {
    join_many(workspace);
  }
}

// Keeps the symbols dense and looks through all of them for the best pair: quickest for a word.
void PairJoiner::join_few(Workspace& workspace) const {
  std::vector<Symbol>& symbols = workspace.symbols_;
  std::vector<int32_t>& ranks = workspace.ranks_;
  std::vector<int32_t>& joined = workspace.joined_;
  const auto look_at = [&](size_t at) {
    const Join* join = at + 1 < symbols.size() ? find(symbols[at].id, symbols[at + 1].id) : nullptr;
    ranks[at] = join == nullptr ? kNoRank : join->rank;
    joined[at] = join == nullptr ? kNone : join->id;
  };
  ranks.resize(symbols.size());
  joined.resize(symbols.size());
  for (size_t at = 0; at < symbols.size(); ++at) look_at(at);
  for (;;) {
    const auto best = static_cast<size_t>(std::min_element(ranks.begin(), ranks.end()) - ranks.begin());
    if (ranks[best] == kNoRank) return;
    symbols[best].id = joined[best];
    const auto next = static_cast<std::ptrdiff_t>(best) + 1;
    symbols.erase(symbols.begin() + next);
    ranks.erase(ranks.begin() + next);
    joined.erase(joined.begin() + next);
    look_at(best);
    if (best > 0) look_at(best - 1);
  }
}

// Adds what the symbol makes with its next to the end of the heap's array.
bool PairJoiner::look(Workspace& workspace, int32_t left) const {
  if (left < 0) return false;
  const Symbol& symbol = workspace.symbols_[left];
  if (symbol.next < 0) return false;
  const int32_t right_id = workspace.symbols_[symbol.next].id;
  const Join* join = find(symbol.id, right_id);
  if (join == nullptr) return false;
  workspace.heap_.push_back({join->rank, left, symbol.id, right_id, join->id});
  return true;
}

void PairJoiner::join_many(Workspace& workspace) const {
  std::vector<Symbol>& symbols = workspace.symbols_;
  std::vector<Workspace::Candidate>& heap = workspace.heap_;
  const auto push = [&](int32_t left) {
    if (look(workspace, left)) std::push_heap(heap.begin(), heap.end());
  };
  heap.clear();
  for (size_t at = 0; at < symbols.size(); ++at) look(workspace, static_cast<int32_t>(at));
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Workspace::Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    // An id only ever changes to that of a longer piece, so equal ids are the same two symbols.
    if (left.id != best.left_id || left.next < 0 || symbols[left.next].id != best.right_id) continue;
    Symbol& right = symbols[left.next];
    left.id = best.joined_id;
    left.next = right.next;
    right.id = kJoined;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    push(left.previous);
    push(best.left);
  }
}

}  // namespace keel
