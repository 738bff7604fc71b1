#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/data/megatron_index.h"
#include "keel/data/token_dtype.h"

namespace keel {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kManifestSchema = "keel.tokens/1";

/// What the manifest.json of a data set says that its readers use (docs/schemas/keel.tokens.1.json has the rest):
///   {"schema": "keel.tokens/1", "version": "0.1.0", "dtype": "uint16",
///    "tokenizer": {"file": "llama.model", "type", "sha256": "..", "vocab_size": 32000, "eod_id": 2, "bos_id",
///    "unk_id",
///                  "pad_id"}, "documents": 2, "tokens": 12,
///    "shards": [{"name": "train-00000", "tokens": 12, "documents": 2, "sequences": 2,
///                "bin": {"bytes": 24, "xxh3": "..", "sha256": ".."}, "idx": {"bytes": 82, ..}}, ...]}
/// vocab_size is the largest id + 1; an id that the tokenizer lacks is null; file names are relative to the folder.
/// What is optional here may be absent or null.
struct DataManifest {
  struct Tokenizer {
    std::string file;
    std::string type = {};
    std::string sha256;
    std::optional<int64_t> vocab_size, eod_id, bos_id, unk_id, pad_id;
  };
  struct File {
    int64_t bytes = 0;
    std::string xxh3;         ///< 16 hexadecimal digits
    std::string sha256 = {};  ///< 64, or "" where it was not recorded
  };
  struct Shard {
    std::string name;  ///< "train-00000"
    int64_t tokens = 0, documents = 0;
    std::optional<int64_t> sequences = {};
    File bin, idx;
  };
  std::optional<TokenDtype> dtype;
  std::optional<Tokenizer> tokenizer;
  std::optional<int64_t> documents, tokens;
  std::vector<Shard> shards;
};

/// Reads FOLDER/manifest.json and checks it in itself: types, names without folders, hashes, no shard twice, totals
/// that are the sums over the shards, special ids within the vocabulary, a vocabulary that fits the dtype. Error(io)
/// when it is missing or no file, Error(format) with file:line:column otherwise.
KEEL_API DataManifest read_data_manifest(const std::filesystem::path& folder);

/// The text of manifest.json; the members of `details`, an object, come last. No newline at the end.
KEEL_API std::string data_manifest_text(const DataManifest& manifest, const Json& details);

/// Error(format) "5 tokens, the manifest says 6 (path of the .bin)" where an opened shard is not what was recorded:
/// sizes, counts, dtype. Reads no tokens.
KEEL_API void require_as_recorded(const DataManifest& manifest, const DataManifest::Shard& recorded,
                                  const MegatronIndex& index, const MappedFile& bin);

/// Size and hashes of a file, by reading all of it. Error(io), Stopped.
KEEL_API DataManifest::File describe_file(const std::filesystem::path& path);

/// Names of the .bin and .idx files of a folder that belong to no shard of the manifest, sorted.
KEEL_API std::vector<std::string> unlisted_shard_files(const std::filesystem::path& folder,
                                                       const DataManifest& manifest);

}  // namespace keel
