#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/tokenizer/encode.h"
#include "keel/tokenizer/shard_set.h"

namespace keel {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kManifestSchema = "keel.tokens/1";

/// manifest.json of a data set, without a newline at the end. Nothing in it depends on the time, the machine or the
/// number of workers.
///   {"schema": "keel.tokens/1", "tool", "version", "dtype": "uint16",
///    "tokenizer": {"file": "tokenizer.model", "type", "sha256", "vocab_size", "eod_id", "bos_id", "unk_id", "pad_id"},
///    "append_eod", "prepend_bos", "validation_fraction", "documents", "tokens", "documents_in", "documents_skipped":
///    {}, "part": "1/4" (of a part), "shards": [{"name", "tokens", "documents", "sequences", "bin": {"bytes", "xxh3",
///    "sha256"}, "idx": {..}}], "sources": [{"path", "bytes", "xxh3", "format", "compression", "documents_in",
///    "documents_written", "documents_skipped", "tokens"}]}
/// vocab_size is the largest id + 1; ids a tokenizer lacks are null; file names are relative to the folder.
KEEL_API std::string manifest_text(const EncodeResult& result, const EncodeOptions& options, const Tokenizer& tokenizer,
                                   const std::string& tokenizer_file);

/// What readers take from a manifest.
struct Manifest {
  std::string tokenizer_file, tokenizer_sha256;
  int64_t vocab_size = 0;
  std::optional<int64_t> eod_id = {};
  std::vector<ShardInfo> shards = {};  ///< without sequences and SHA-256
};

/// Error(io) if it is missing, Error(format) with file:line:column.
KEEL_API Manifest read_manifest(const std::filesystem::path& path);

/// `results` of the report keel.tokenize.encode/1.
KEEL_API Json encode_results(const EncodeResult& result);

}  // namespace keel
