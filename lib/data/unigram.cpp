#include "keel/data/unigram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/base/error.h"

namespace keel {
namespace {

constexpr int64_t kChunk = int64_t{1} << 16;

void count_tokens(const TokenStream& stream, std::vector<int64_t>& counts, const std::function<void()>& tick) {
  std::vector<int32_t> chunk(kChunk);
  for (int64_t begin = 0; begin < stream.tokens(); begin += kChunk) {
    if (tick) tick();
    const int64_t end = std::min(begin + kChunk, stream.tokens());
    stream.read(begin, end, {chunk.data(), {end - begin}}, static_cast<int64_t>(counts.size()));
    for (int64_t i = 0; i < end - begin; ++i) ++counts[chunk[i]];
  }
}

}  // namespace

UnigramLoss unigram_cross_entropy(const BatchReader& train, const BatchReader& validation, int64_t tokens,
                                  const std::function<void()>& tick) {
  const int64_t vocab = train.options().vocab_size;
  if (validation.options().vocab_size != vocab) throw Error(ErrorKind::internal, "two vocabularies");
  std::vector<int64_t> counts(static_cast<size_t>(vocab), 0);
  int64_t total = vocab;
  for (int64_t source = 0; source < train.sources(); ++source) {
    count_tokens(train.stream(source), counts, tick);
    total += train.stream(source).tokens();
  }
  const TokenStream& stream = validation.stream(0);
  const int64_t end = 1 + std::min(tokens, stream.tokens() - 1);
  std::vector<int32_t> chunk(kChunk);
  std::vector<uint8_t> mask(kChunk, 1);
  UnigramLoss loss;
  double sum = 0;
  for (int64_t begin = 1; begin < end; begin += kChunk) {
    if (tick) tick();
    const int64_t count = std::min(kChunk, end - begin);
    stream.read(begin, begin + count, {chunk.data(), {count}}, vocab);
    if (validation.options().loss_mask) stream.read_mask(begin, begin + count, {mask.data(), {count}});
    for (int64_t i = 0; i < count; ++i) {
      if (mask[i] == 0) continue;
      sum += std::log(static_cast<double>(total)) - std::log(static_cast<double>(counts[chunk[i]] + 1));
      ++loss.targets;
    }
  }
  if (loss.targets > 0) loss.nats_per_token = sum / static_cast<double>(loss.targets);
  return loss;
}

}  // namespace keel
