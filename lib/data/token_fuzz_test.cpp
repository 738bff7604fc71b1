#include "keel/data/token_shards.h"
#include "support/keel_folder.h"
#include "support/numeric.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

/// Opens and reads everything that opening allows; only Error may come out.
void use_all(const std::string& path) {
  try {
    const TokenData data = open_token_data(path);
    for (const auto& stream : {data.train, data.val}) {
      if (!stream || stream->tokens() > 100000) continue;
      if (stream->has_documents()) (void)stream->document_starts(0, stream->tokens());
      (void)all_tokens(*stream);
    }
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
  }
}

std::string mutate(std::string bytes, Random& random) {
  const int64_t changes = random.integer(1, 4);
  for (int64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t at = random.integer(0, static_cast<int64_t>(bytes.size()) - 1);
    switch (random.integer(0, 4)) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << random.integer(0, 7));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.next());
        break;
      case 2:
        bytes.erase(at, random.integer(1, 9));
        break;
      case 3:
        bytes.insert(at, random.integer(1, 9), static_cast<char>(random.next()));
        break;
      case 4:
        bytes.replace(at, 8, bytes_of(random.next() >> random.integer(0, 63)));
        break;
    }
  }
  return bytes;
}

TEST(Fuzz, MutatedShardsNeverCrash) {
  const Scratch scratch;
  Random random(20260101);
  const std::string llmc = llmc_shard(20240520, 1, 5, kExampleTokens);
  for (int i = 0; i < 1500; ++i) {
    scratch.write("p.idx", mutate(kExampleIndex, random));
    scratch.write("p.bin", i % 4 == 0 ? mutate(kExampleTokens, random) : kExampleTokens);
    use_all(scratch.file("p"));
    scratch.write("l/l.bin", i % 2 == 0 ? mutate(llmc.substr(0, 16), random) + llmc.substr(16) : mutate(llmc, random));
    use_all(scratch.file("l/l.bin"));
  }
}

TEST(Fuzz, MutatedManifestsNeverCrash) {
  const KeelFolder folder;
  Random random(7);
  for (int i = 0; i < 1500; ++i) {
    folder.scratch.write("manifest.json", mutate(folder.manifest, random));
    use_all(folder.scratch.file(""));
  }
}

}  // namespace
}  // namespace keel
