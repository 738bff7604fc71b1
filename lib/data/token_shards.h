#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/files.h"
#include "keel/base/view.h"
#include "keel/data/token_dtype.h"

namespace keel {

/// What a data set is made of. `automatic` tells the first three apart by their content; nanogpt (headerless uint16) is
/// read only when named, as nothing in such a file can be checked.
enum class DataFormat { automatic, keel, megatron, llmc, nanogpt };

/// automatic is "auto". An unknown name throws Error(usage) with the nearest one.
KEEL_API DataFormat data_format(std::string_view name);
KEEL_API std::string_view to_string(DataFormat format);

/// One file of tokens.
struct TokenShard {
  std::string path;        ///< the .bin file
  std::string index_path;  ///< the .idx file; "" when the format has none
  std::string mask_path;   ///< the loss mask beside it (STEM.mask, one u8 a token); "" when there is none
  int64_t bytes = 0;       ///< size of the .bin file
  int64_t tokens = 0;
  int64_t documents = -1;   ///< -1 when the format has no index
  int64_t first_token = 0;  ///< offset of its first token in the stream
  TokenDtype type = TokenDtype::uint16;
  std::string xxh3;  ///< 16 hex digits of the .bin file as the manifest records it; "" without a manifest
};

/// The tokens of one split, all shards one after the other in name order, memory-mapped. A handle: copies share the
/// mapping. Reading is const and safe from several threads.
class KEEL_API TokenStream {
 public:
  struct Impl;
  explicit TokenStream(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::span<const TokenShard> shards() const;
  int64_t tokens() const;
  /// Whether every shard has a document array.
  bool has_documents() const;
  /// Documents of all shards, empty ones included; -1 without document arrays.
  int64_t documents() const;
  bool has_mask() const;

  /// Tokens [begin, end) of the stream into out (exactly end - begin elements). An id below 0 or not below `limit`
  /// throws Error(format) with file, document, position in the document (both from 0) and id; ids are never clamped.
  void read(int64_t begin, int64_t end, HostView<int32_t, 1> out, int64_t limit) const;

  /// Loss mask bytes of tokens [begin, end); all 1 for shards without a mask file.
  void read_mask(int64_t begin, int64_t end, HostView<uint8_t, 1> out) const;

  /// Stream offsets s with begin <= s < end at which a non-empty document starts, ascending. The start of a shard with
  /// a document array is one. Needs has_documents().
  std::vector<int64_t> document_starts(int64_t begin, int64_t end) const;

  /// XXH3-64 of shard i's .bin (16 hex digits), by reading all of it.
  std::string compute_xxh3(int64_t shard) const;
  /// Reads everything and compares with the recorded hashes; a difference throws Error(format) naming the file. Shards
  /// without a recorded hash pass.
  void verify_hashes() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

/// A data set as `--data` names it.
struct TokenData {
  std::string path;
  DataFormat format = DataFormat::automatic;  ///< the resolved one
  std::optional<TokenStream> train;           ///< absent when there are only validation shards
  std::optional<TokenStream> val;             ///< absent when there are only training shards
  std::optional<int64_t> vocab_size;          ///< the tokenizer's largest id + 1, from the manifest
  std::optional<int64_t> eod_id;              ///< end-of-document token, from the manifest
  std::string tokenizer_path;                 ///< "" when the data has none
  std::string tokenizer_sha256;               ///< as recorded by the manifest; "" when the data has none
  std::vector<FileContent> tokenizer_files;   ///< as they were when their hash was checked, the main one first
  std::string manifest_path;                  ///< ""  when the data has none
};

/// Opens and checks a data set (formats.md 1, 2.1 and 9):
///   - a keel-tokenize directory (manifest.json, train-NNNNN.bin/.idx, val-NNNNN.bin/.idx, tokenizer file);
///   - a Megatron prefix P (P.bin and P.idx), either file's name, or a directory of prefixes;
///   - llm.c shards: a file, a glob or a directory;
///   - with DataFormat::nanogpt a headerless uint16 file, a glob, or a directory with train.bin and val.bin.
/// Without a manifest a file belongs to the validation split when one of its name's words (between - _ .) is val, valid
/// or validation; everything else is training data. A single file or prefix is always training data.
/// Every size, count, pointer and the document array are checked against the files before anything is used.
/// Throws Error(io) for what is missing, Error(format) for what is damaged, foreign or holds no token at all.
KEEL_API TokenData open_token_data(const std::string& path, DataFormat format = DataFormat::automatic);

}  // namespace keel
