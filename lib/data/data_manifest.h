#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace keel::detail {

/// What a reader of a keel-tokenize directory takes from its manifest.json; other keys are for people.
///   {"schema": "keel.tokens/1", "version": "0.1.0", "dtype": "uint16",
///    "tokenizer": {"file": "llama.model", "sha256": "..", "vocab_size": 32000, "eod_id": 2},
///    "shards": [{"name": "train-00000", "tokens": 12, "documents": 2,
///                "bin": {"bytes": 24, "xxh3": ".."}, "idx": {"bytes": 82, "xxh3": ".."}}, ...]}
/// vocab_size is the largest id + 1; eod_id is null or absent when no end-of-document token exists; file names are
/// relative to the directory; xxh3 is 16 hexadecimal digits.
struct DataManifest {
  struct Shard {
    std::string name;
    int64_t tokens = 0, documents = 0;
    int64_t bin_bytes = 0, idx_bytes = 0;
    std::string bin_xxh3, idx_xxh3;
  };
  std::string tokenizer_file, tokenizer_sha256;
  std::optional<int64_t> vocab_size, eod_id;
  std::vector<Shard> shards;
};

/// Reads and checks FOLDER/manifest.json. Throws Error(io) when it is missing, Error(format) with file:line:column
/// otherwise.
DataManifest read_data_manifest(const std::string& folder);

}  // namespace keel::detail
