#include "keel/data/batch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "keel/base/error.h"
#include "keel/checkpoint/safetensors.h"
#include "keel/data/unigram.h"
#include "support/numeric.h"
#include "support/shards.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

/// Buffers between guards, of exactly the size that the contract names.
struct Buffers {
  Guarded<int32_t> tokens, targets, positions, cu_seqlens;
  Guarded<float> weights;
  Buffers(int64_t n, int64_t capacity) : tokens(n), targets(n), positions(n), cu_seqlens(capacity), weights(n) {}
  BatchBuffers views() {
    const auto view = [](auto& buffer) { return HostView<int32_t, 1>(buffer.get(), {buffer.size()}); };
    return {view(tokens), view(targets), view(positions), {weights.get(), {weights.size()}}, view(cu_seqlens)};
  }
  void expect_intact() const {
    EXPECT_TRUE(tokens.intact() && targets.intact() && positions.intact() && cu_seqlens.intact() && weights.intact());
  }
};

struct Batch {
  BatchInfo info;
  std::vector<int32_t> tokens, targets, positions, cu_seqlens;
  std::vector<float> weights;
};

Batch read_batch(const BatchReader& reader, const std::vector<SequenceRef>& sequences) {
  const auto count = static_cast<int64_t>(sequences.size());
  Buffers buffers(count * reader.options().sequence_length, reader.cu_seqlens_capacity(count));
  Batch batch;
  batch.info = reader.read(sequences, buffers.views());
  buffers.expect_intact();
  batch.tokens = buffers.tokens.values();
  batch.targets = buffers.targets.values();
  batch.positions = buffers.positions.values();
  batch.weights = buffers.weights.values();
  batch.cu_seqlens = buffers.cu_seqlens.values();
  batch.cu_seqlens.resize(batch.info.segments + 1);
  return batch;
}

using Documents = std::vector<std::vector<uint16_t>>;

/// The stream as one array: token, whether a document starts here, mask.
struct Flat {
  std::vector<int32_t> tokens;
  std::vector<bool> starts;
  std::vector<uint8_t> mask;
};

Documents random_documents(Random& random, int64_t count) {
  Documents documents(count);
  for (auto& document : documents) {
    document.resize(random.integer(0, 3) == 0 ? random.integer(0, 1) : random.integer(1, 12));
    for (uint16_t& token : document) token = static_cast<uint16_t>(random.integer(1, 96));
    if (!document.empty()) document.back() = 0;  // end of document
  }
  return documents;
}

void append(Flat& flat, const Documents& documents) {
  for (const auto& document : documents) {
    for (size_t i = 0; i < document.size(); ++i) {
      flat.tokens.push_back(document[i]);
      flat.starts.push_back(i == 0);
    }
  }
}

/// What the batch must be, straight from the definition.
void expect_batch(const Batch& batch, const Flat& flat, const std::vector<SequenceRef>& sequences, int64_t length,
                  bool document_mask) {
  int64_t counted = 0;
  std::vector<int32_t> bounds{0};
  for (size_t row = 0; row < sequences.size(); ++row) {
    int32_t position = 0;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t at = static_cast<int64_t>(row) * length + i;
      const int64_t source = sequences[row].index * length + i;
      const bool padding = i >= sequences[row].targets;
      const bool cut = i == 0 || (document_mask && !padding && flat.starts[source]);
      if (cut && at > 0) bounds.push_back(static_cast<int32_t>(at));
      if (cut) position = 0;
      ASSERT_EQ(batch.positions[at], position++) << "row " << row << " token " << i;
      ASSERT_EQ(batch.tokens[at], padding ? 0 : flat.tokens[source]);
      ASSERT_EQ(batch.targets[at], padding ? 0 : flat.tokens[source + 1]);
      const float weight = padding ? 0.0F : static_cast<float>(flat.mask[source + 1]);
      ASSERT_EQ(batch.weights[at], weight);
      counted += weight != 0;
    }
  }
  bounds.push_back(static_cast<int32_t>(sequences.size() * length));
  EXPECT_EQ(batch.cu_seqlens, bounds);
  EXPECT_EQ(batch.info.counted_targets, counted);
  EXPECT_EQ(batch.info.weight_sum, static_cast<double>(counted));
  int64_t longest = 0;
  for (size_t s = 1; s < bounds.size(); ++s) longest = std::max<int64_t>(longest, bounds[s] - bounds[s - 1]);
  EXPECT_EQ(batch.info.longest_segment, longest);
}

TEST(BatchReader, AgreesWithTheDefinition) {
  Random random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const Scratch scratch;
    Flat flat;
    for (const char* stem : {"a", "b", "c"}) {
      const Documents documents = random_documents(random, random.integer(1, 12));
      write_megatron(scratch, stem, documents);
      append(flat, documents);
    }
    if (flat.tokens.size() < 2) continue;
    flat.mask.assign(flat.tokens.size(), 1);
    const TokenStream plain = *open_token_data(scratch.file("")).train;
    if (trial % 2 == 1) {
      for (uint8_t& byte : flat.mask) byte = static_cast<uint8_t>(random.integer(0, 1));
      for (const TokenShard& shard : plain.shards()) {
        scratch.write(std::filesystem::path(shard.path).stem().string() + ".mask",
                      bytes_of_all(flat.mask).substr(shard.first_token, shard.tokens));
      }
    }
    const TokenStream stream = *open_token_data(scratch.file("")).train;
    for (int64_t length : {1, 2, 5, 16}) {
      for (bool document_mask : {false, true}) {
        SCOPED_TRACE("trial " + std::to_string(trial) + " length " + std::to_string(length));
        const BatchReader reader(stream, {.sequence_length = length, .document_mask = document_mask, .vocab_size = 97});
        const auto tokens = static_cast<int64_t>(flat.tokens.size());
        EXPECT_EQ(reader.sequences(), (tokens - 1) / length);
        std::vector<SequenceRef> all;
        for (int64_t i = 0; i < reader.sequences(); ++i) all.push_back({0, i, length});
        std::reverse(all.begin(), all.end());
        if (!all.empty()) expect_batch(read_batch(reader, all), flat, all, length, document_mask);
        for (int64_t targets : {int64_t{1}, length, length + 1, tokens - 1, tokens + 100}) {
          const auto sequences = reader.validation_sequences(targets);
          int64_t sum = 0;
          for (size_t i = 0; i < sequences.size(); ++i) {
            EXPECT_EQ(sequences[i].index, static_cast<int64_t>(i));
            sum += sequences[i].targets;
          }
          EXPECT_EQ(sum, std::min(targets, tokens - 1));
          expect_batch(read_batch(reader, sequences), flat, sequences, length, document_mask);
        }
      }
    }
  }
}

TEST(BatchReader, BoundsFromTheEndOfDocumentToken) {
  const Scratch scratch;
  const std::vector<uint16_t> tokens{3, 0, 4, 5, 0, 0, 6, 7, 8, 0};
  scratch.write("train.bin", bytes_of_all(tokens));
  const TokenStream stream = *open_token_data(scratch.file("train.bin"), DataFormat::nanogpt).train;
  DataOptions options{.sequence_length = 3, .document_mask = true, .vocab_size = 9, .eod_id = 0};
  const BatchReader reader(stream, options);
  const Batch batch = read_batch(reader, {{0, 0, 3}, {0, 1, 3}, {0, 2, 3}});
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{3, 0, 4, 5, 0, 0, 6, 7, 8}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{0, 4, 5, 0, 0, 6, 7, 8, 0}));
  EXPECT_EQ(batch.cu_seqlens, (std::vector<int32_t>{0, 2, 3, 5, 6, 9}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 0, 0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(batch.weights, std::vector<float>(9, 1.0F));  // the first of the next document counts
  options.eod_id.reset();
  const std::string message = message_of(ErrorKind::config, [&] { const BatchReader refused(stream, options); });
  EXPECT_NE(message.find("data.eod_id"), std::string::npos) << message;
}

TEST(BatchReader, LossMaskCanBeIgnored) {
  const Scratch scratch;
  write_megatron(scratch, "p", {{1, 2, 3}});
  scratch.write("p.mask", std::string(3, '\0'));
  const TokenStream stream = *open_token_data(scratch.file("p")).train;
  EXPECT_EQ(read_batch({stream, {.sequence_length = 2, .vocab_size = 9}}, {{0, 0, 2}}).info.counted_targets, 0);
  EXPECT_EQ(read_batch({stream, {.sequence_length = 2, .loss_mask = false, .vocab_size = 9}}, {{0, 0, 2}})
                .info.counted_targets,
            2);
}

TokenStream counting_stream(const Scratch& scratch, const std::string& stem, uint16_t tokens) {
  std::vector<uint16_t> document(tokens);
  for (uint16_t i = 0; i < tokens; ++i) document[i] = i;
  write_megatron(scratch, stem, {document});
  return *open_token_data(scratch.file(stem)).train;
}

/// Windows of the whole stream across shards, and steps across epochs.
TEST(BatchReader, StepsFollowTheOrder) {
  const Scratch scratch;
  const TokenStream stream = counting_stream(scratch, "p", 229);
  const DataOptions options{.sequence_length = 8, .shuffle = true, .seed = 3, .vocab_size = 229};
  const BatchReader reader(stream, options);
  EXPECT_EQ(reader.sequences(), 28);
  std::map<int64_t, int> seen;
  for (int64_t step = 0; step < 21; ++step) {
    const auto sequences = reader.step_sequences(step, 4);
    ASSERT_EQ(sequences.size(), 4U);
    for (int64_t j = 0; j < 4; ++j) {
      const int64_t p = 4 * step + j;
      EXPECT_EQ(sequences[j], (SequenceRef{0, permute(3, p / 28, 28, p % 28), 8}));
      ++seen[sequences[j].index];
    }
  }
  EXPECT_EQ(seen.size(), 28U);
  for (const auto& [index, count] : seen) EXPECT_EQ(count, 3) << index;

  const BatchReader plain(stream, {.sequence_length = 8, .shuffle = false, .vocab_size = 229});
  EXPECT_EQ(plain.step_sequences(9, 3), (std::vector<SequenceRef>{{0, 27, 8}, {0, 0, 8}, {0, 1, 8}}));
}

TEST(BatchReader, MixesSources) {
  const Scratch scratch;
  const std::vector<TokenStream> streams{counting_stream(scratch, "a", 101), counting_stream(scratch, "b", 41)};
  const BatchReader reader(streams, {3, 1}, {.sequence_length = 10, .seed = 1, .vocab_size = 101});
  std::map<std::pair<int64_t, int64_t>, int> seen;
  for (int64_t step = 0; step < 10; ++step) {
    for (const SequenceRef& sequence : reader.step_sequences(step, 8)) ++seen[{sequence.source, sequence.index}];
  }
  // 60 of source 0 (6 epochs of 10), 20 of source 1 (5 epochs of 4)
  EXPECT_EQ(seen.size(), 14U);
  for (const auto& [key, count] : seen) EXPECT_EQ(count, key.first == 0 ? 6 : 5);
  const Batch batch = read_batch(reader, {{1, 3, 10}, {0, 9, 10}});
  EXPECT_EQ(batch.tokens[0], 30);
  EXPECT_EQ(batch.tokens[10], 90);
}

TEST(BatchReader, RefusesWhatDoesNotFit) {
  const Scratch scratch;
  const TokenStream stream = counting_stream(scratch, "p", 10);
  const auto make = [&](const DataOptions& options) { return BatchReader(stream, options); };
  EXPECT_THROW(make({.sequence_length = 0, .vocab_size = 10}), Error);
  const std::string message = message_of(
      ErrorKind::format, [&] { (void)make({.sequence_length = 10, .vocab_size = 10}).step_sequences(0, 1); });
  EXPECT_NE(message.find("10 tokens are too few"), std::string::npos) << message;
  const BatchReader small_vocabulary = make({.sequence_length = 3, .vocab_size = 7});
  EXPECT_NO_THROW(read_batch(small_vocabulary, {{0, 0, 3}}));
  message_of(ErrorKind::format, [&] { read_batch(small_vocabulary, {{0, 1, 3}, {0, 2, 3}}); });
  message_of(ErrorKind::format, [&] { read_batch(make({.sequence_length = 3, .vocab_size = 6}), {{0, 1, 3}}); });
  write_megatron(scratch, "one", {{1}});
  const TokenStream one = *open_token_data(scratch.file("one")).train;
  message_of(ErrorKind::format, [&] { const BatchReader refused(one, {.sequence_length = 3, .vocab_size = 10}); });
}

/// doc_ids and loss_mask of the golden wirings, rebuilt from a shard whose documents end with token 0.
TEST(BatchReader, GoldenPackingAndMask) {
  const auto folder = test_data();
  if (!folder) GTEST_SKIP() << "KEEL_TEST_DATA is not set";
  const SafetensorsFile golden((*folder / "golden/wiring/data.safetensors").string());
  const auto load = [&](const char* name) {
    std::vector<double> values(golden.find(name)->elements);
    golden.read(*golden.find(name), std::span(values));
    return values;
  };
  const auto tokens = load("tokens"), ids = load("doc_ids"), mask = load("loss_mask");
  const int64_t length = golden.find("doc_ids")->shape[2];
  const auto rows = static_cast<int64_t>(ids.size()) / length;
  for (int64_t row = 0; row < rows; ++row) {
    const Scratch scratch;
    Documents documents(1);
    std::string mask_bytes(1, '\1');
    for (int64_t i = 0; i <= length; ++i) {
      documents.back().push_back(static_cast<uint16_t>(tokens[row * (length + 1) + i]));
      if (documents.back().back() == 0 && i < length) documents.emplace_back();
      if (i < length) mask_bytes += static_cast<char>(mask[row * length + i]);
    }
    write_megatron(scratch, "p", documents);
    scratch.write("p.mask", mask_bytes);
    const TokenStream stream = *open_token_data(scratch.file("p")).train;
    const Batch batch =
        read_batch({stream, {.sequence_length = length, .document_mask = true, .vocab_size = 97}}, {{0, 0, length}});
    int64_t segment = 0;
    for (int64_t i = 0; i < length; ++i) {
      segment += i == batch.cu_seqlens[segment + 1];
      ASSERT_EQ(segment, ids[row * length + i]);
      ASSERT_EQ(batch.targets[i], tokens[row * (length + 1) + i + 1]);
      ASSERT_EQ(batch.weights[i], mask[row * length + i]);
    }
  }
}

TEST(Unigram, ByHand) {
  const Scratch scratch;
  write_megatron(scratch, "t", {{0, 0, 0, 1, 1, 2}});
  write_megatron(scratch, "v", {{3, 0, 1, 3, 0}});
  const BatchReader train(*open_token_data(scratch.file("t")).train, {.sequence_length = 2, .vocab_size = 4});
  const TokenStream stream = *open_token_data(scratch.file("v")).train;
  const BatchReader validation(stream, {.sequence_length = 2, .vocab_size = 4});
  // (count + 1) / (6 + 4): 0.4, 0.3, 0.2, 0.1; targets 0 1 3 0
  const UnigramLoss loss = unigram_cross_entropy(train, validation, 100);
  EXPECT_EQ(loss.targets, 4);
  EXPECT_NEAR(loss.nats_per_token, -(2 * std::log(0.4) + std::log(0.3) + std::log(0.1)) / 4, 1e-14);
  EXPECT_NEAR(unigram_cross_entropy(train, validation, 2).nats_per_token, -(std::log(0.4) + std::log(0.3)) / 2, 1e-14);
  scratch.write("v.mask", std::string("\1\0\1\0\0", 5));
  const BatchReader masked(*open_token_data(scratch.file("v")).train, {.sequence_length = 2, .vocab_size = 4});
  EXPECT_EQ(unigram_cross_entropy(train, masked, 100).targets, 1);
  EXPECT_NEAR(unigram_cross_entropy(train, masked, 100).nats_per_token, -std::log(0.3), 1e-14);
}

/// Longer than one internal chunk.
TEST(Unigram, LongStreams) {
  const Scratch scratch;
  Random random(4);
  std::vector<uint16_t> document(200001);
  for (uint16_t& token : document) token = static_cast<uint16_t>(random.integer(0, 9) * random.integer(0, 9));
  write_megatron(scratch, "t", {document});
  const BatchReader reader(*open_token_data(scratch.file("t")).train, {.sequence_length = 64, .vocab_size = 82});
  std::vector<double> counts(82, 1.0);
  for (uint16_t token : document) ++counts[token];
  double sum = 0;
  for (size_t i = 1; i < document.size(); ++i) sum -= std::log(counts[document[i]] / (200001.0 + 82));
  EXPECT_NEAR(unigram_cross_entropy(reader, reader, 1 << 30).nats_per_token, sum / 200000, 1e-10);
}

}  // namespace
}  // namespace keel
