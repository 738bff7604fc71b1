#include "keel/data/token_shards.h"
#include "support/keel_folder.h"
#include "support/mutate.h"

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

TEST(Fuzz, MutatedShardsNeverCrash) {
  const Scratch scratch;
  Random random(20260101);
  const std::string llmc = llmc_shard(20240520, 1, 5, kExampleTokens);
  for (int i = 0; i < 1500; ++i) {
    scratch.write("p.idx", mutated(kExampleIndex, random));
    scratch.write("p.bin", i % 4 == 0 ? mutated(kExampleTokens, random) : kExampleTokens);
    use_all(scratch.file("p"));
    scratch.write("l/l.bin",
                  i % 2 == 0 ? mutated(llmc.substr(0, 16), random) + llmc.substr(16) : mutated(llmc, random));
    use_all(scratch.file("l/l.bin"));
  }
}

TEST(Fuzz, MutatedManifestsNeverCrash) {
  const KeelFolder folder;
  Random random(7);
  for (int i = 0; i < 1500; ++i) {
    folder.scratch.write("manifest.json", mutated(folder.manifest, random));
    use_all(folder.scratch.file(""));
  }
}

}  // namespace
}  // namespace keel
