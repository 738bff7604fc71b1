#include "keel/data/batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel {
namespace {

void check_options(const DataOptions& options) {
  if (options.sequence_length < 1) {
    throw Error(ErrorKind::config,
                fmt::format("data.sequence_length is {}, wanted at least 1", options.sequence_length));
  }
  if (options.vocab_size < 1) throw Error(ErrorKind::internal, "a batch reader without a vocabulary size");
}

std::string name_of(const TokenStream& stream) {
  return stream.shards().empty() ? "" : stream.shards()[0].path;
}

}  // namespace

BatchReader::BatchReader(TokenStream stream, const DataOptions& options)
    : BatchReader(std::vector<TokenStream>{std::move(stream)}, {1.0}, options) {}

BatchReader::BatchReader(std::vector<TokenStream> streams, const std::vector<double>& weights,
                         const DataOptions& options)
    : streams_(std::move(streams)), options_(options), mixture_(weights) {
  check_options(options_);
  if (streams_.size() != weights.size()) throw Error(ErrorKind::internal, "a mixture with other weights than sources");
  for (size_t k = 0; k < streams_.size(); ++k) {
    const TokenStream& stream = streams_[k];
    if (stream.tokens() < 2) {
      throw Error(ErrorKind::format, fmt::format("{} tokens are too few for one prediction", stream.tokens()),
                  name_of(stream));
    }
    if (options_.document_mask && !stream.has_documents() && !options_.eod_id) {
      throw Error(ErrorKind::config, "data.document_mask needs document bounds, which this data does not have",
                  name_of(stream), "name its end-of-document token with data.eod_id");
    }
    // Source 0 shuffles as the only source would.
    const uint64_t seed = k == 0 ? options_.seed : splitmix64(options_.seed + k);
    orders_.emplace_back(std::max<int64_t>(1, sequences(static_cast<int64_t>(k))), options_.shuffle, seed);
  }
}

int64_t BatchReader::sequences(int64_t source) const {
  return (streams_[source].tokens() - 1) / options_.sequence_length;
}

int64_t BatchReader::cu_seqlens_capacity(int64_t sequences) const {
  return 1 + sequences * (options_.document_mask ? options_.sequence_length : 1);
}

std::vector<SequenceRef> BatchReader::step_sequences(int64_t step, int64_t batch) const {
  std::vector<SequenceRef> chosen;
  chosen.reserve(static_cast<size_t>(batch));
  for (int64_t p = step * batch; p < (step + 1) * batch; ++p) {
    const MixturePlace place = mixture_.at(p);
    if (sequences(place.source) == 0) {
      throw Error(ErrorKind::format,
                  fmt::format("{} tokens are too few for a sequence of {} inputs and as many targets",
                              streams_[place.source].tokens(), options_.sequence_length),
                  name_of(streams_[place.source]));
    }
    chosen.push_back({place.source, orders_[place.source].at(place.position), options_.sequence_length});
  }
  return chosen;
}

std::vector<SequenceRef> BatchReader::validation_sequences(int64_t tokens) const {
  const int64_t length = options_.sequence_length;
  const int64_t targets = std::min(tokens, streams_[0].tokens() - 1);
  std::vector<SequenceRef> chosen;
  for (int64_t i = 0; i * length < targets; ++i) chosen.push_back({0, i, std::min(length, targets - i * length)});
  return chosen;
}

BatchInfo BatchReader::read(std::span<const SequenceRef> sequences, const BatchBuffers& out) const {
  const int64_t length = options_.sequence_length;
  const auto count = static_cast<int64_t>(sequences.size());
  const int64_t tokens = count * length;
  if (out.tokens.size() != tokens || out.targets.size() != tokens || out.positions.size() != tokens ||
      out.weights.size() != tokens || out.cu_seqlens.size() < cu_seqlens_capacity(count) ||
      tokens > std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorKind::internal, fmt::format("batch buffers do not fit {} sequences of {} tokens", count, length));
  }
  BatchInfo info;
  out.cu_seqlens(0) = 0;
  for (int64_t row = 0; row < count; ++row) {
    const SequenceRef& sequence = sequences[row];
    read_tokens(sequence, row * length, out);
    read_weights(sequence, row * length, out, info);
    cut_segments(sequence, row * length, out, info);
  }
  return info;
}

void BatchReader::read_tokens(const SequenceRef& sequence, int64_t at, const BatchBuffers& out) const {
  const int64_t targets = sequence.targets;
  const int64_t begin = sequence.index * options_.sequence_length;
  const TokenStream& stream = streams_[sequence.source];
  if (targets < 1 || targets > options_.sequence_length) throw Error(ErrorKind::internal, "sequence without targets");
  stream.read(begin, begin + targets, out.tokens.slice(at, at + targets), options_.vocab_size);
  // The targets are the inputs one place on; only the last is new.
  std::copy_n(&out.tokens(at) + 1, targets - 1, &out.targets(at));
  stream.read(begin + targets, begin + targets + 1, out.targets.slice(at + targets - 1, at + targets),
              options_.vocab_size);
  const int64_t padding = options_.sequence_length - targets;
  std::fill_n(out.tokens.data() + at + targets, padding, 0);
  std::fill_n(out.targets.data() + at + targets, padding, 0);
}

void BatchReader::read_weights(const SequenceRef& sequence, int64_t at, const BatchBuffers& out,
                               BatchInfo& info) const {
  const int64_t targets = sequence.targets;
  float* weights = out.weights.data() + at;
  std::fill_n(weights, targets, 1.0F);
  std::fill_n(weights + targets, options_.sequence_length - targets, 0.0F);
  const TokenStream& stream = streams_[sequence.source];
  if (options_.loss_mask && stream.has_mask()) {
    const int64_t first_target = sequence.index * options_.sequence_length + 1;
    std::vector<uint8_t> mask(static_cast<size_t>(targets));
    stream.read_mask(first_target, first_target + targets, {mask.data(), {targets}});
    std::copy(mask.begin(), mask.end(), weights);
  }
  for (int64_t i = 0; i < targets; ++i) {
    info.counted_targets += weights[i] != 0;
    info.weight_sum += weights[i];
  }
}

void BatchReader::cut_segments(const SequenceRef& sequence, int64_t at, const BatchBuffers& out,
                               BatchInfo& info) const {
  const auto begin_segment = [&](int64_t offset) {
    const int64_t previous = out.cu_seqlens(info.segments);
    if (offset == previous) return;
    info.longest_segment = std::max(info.longest_segment, offset - previous);
    out.cu_seqlens(++info.segments) = static_cast<int32_t>(offset);
  };
  const int64_t end = at + options_.sequence_length;
  const TokenStream& stream = streams_[sequence.source];
  const int64_t first_cut = info.segments;
  if (options_.document_mask && stream.has_documents()) {
    const int64_t begin = sequence.index * options_.sequence_length;
    for (int64_t start : stream.document_starts(begin, begin + sequence.targets)) begin_segment(at + start - begin);
  } else if (options_.document_mask) {
    for (int64_t i = 1; i < sequence.targets; ++i) {
      if (out.tokens(at + i - 1) == *options_.eod_id) begin_segment(at + i);
    }
  }
  begin_segment(end);
  for (int64_t segment = first_cut; segment < info.segments; ++segment) {
    const int32_t start = out.cu_seqlens(segment);
    for (int32_t i = start; i < out.cu_seqlens(segment + 1); ++i) out.positions(i) = i - start;
  }
}

}  // namespace keel
