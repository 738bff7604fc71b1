#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace keel {

/// The merging of byte pair encoding: as long as two neighbours make a pair of the table, join those of the lowest
/// rank, of equal ranks the leftmost.
///
/// Immutable once filled. O(n log n) in time, at most 60 bytes of memory a symbol.
class PairJoiner {
 public:
  static constexpr int32_t kNone = -1;    ///< the id of a symbol that joins with nothing
  static constexpr int32_t kJoined = -2;  ///< the id of one that became part of its left neighbour

  struct Symbol {
    int32_t id;
    int32_t begin;           ///< its first byte in the text
    int32_t previous, next;  ///< neighbours, -1 beyond the ends
  };

  /// Memory for one thread, kept from text to text.
  class Workspace {
   public:
    void clear() { symbols_.clear(); }
    void add(int32_t id, int32_t begin) {
      const auto position = static_cast<int32_t>(symbols_.size());
      symbols_.push_back({id, begin, position - 1, position + 1});
    }
    /// In the order of the text; those with id kJoined are to be passed over.
    const std::vector<Symbol>& symbols() const { return symbols_; }

   private:
    friend class PairJoiner;
    struct Candidate {
      int32_t rank;
      int32_t left;  // position of the left symbol
      int32_t left_id, right_id, joined_id;
      // The heap of the standard library has the largest on top.
      bool operator<(const Candidate& other) const {
        return rank > other.rank || (rank == other.rank && left > other.left);
      }
    };
    std::vector<Symbol> symbols_;
    std::vector<int32_t> ranks_, joined_;  // few symbols: what each makes with the next
    std::vector<Candidate> heap_;
  };

  PairJoiner() = default;
  explicit PairJoiner(size_t most_pairs);

  /// left + right = id. The last one said of a pair holds.
  void add(int32_t left, int32_t right, int32_t id, int32_t rank);
  void join(Workspace& workspace) const;

 private:
  struct Join {
    uint64_t pair = ~uint64_t{0};
    int32_t id = kNone;
    int32_t rank = 0;
  };

  const Join* find(int32_t left, int32_t right) const;
  void join_few(Workspace& workspace) const;
  void join_many(Workspace& workspace) const;
  bool look(Workspace& workspace, int32_t left) const;

  std::vector<Join> joins_;  // open addressing, at most half full
};

}  // namespace keel
