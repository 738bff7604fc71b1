#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "keel/base/progress.h"
#include "keel/tokenizer/encode.h"
#include "keel/tokenizer/encoded_block.h"
#include "keel/tokenizer/shard_set.h"

namespace keel {

/// Takes encoded blocks in the order of the input: writes the shards, counts, warns, and decides when it is enough.
class BlockCollector {
 public:
  BlockCollector(const std::vector<InputFile>& inputs, const EncodeOptions& options, TokenDtype type,
                 const std::filesystem::path& folder, Progress& progress);

  /// Error(format) as encode_files says, Error(io).
  void take(const EncodedBlock& block);
  EncodeResult finish();

 private:
  void add_block(const EncodedBlock& block, SourceInfo& source);
  void end_file(const RecordBlock& block, SourceInfo& source);
  void drop_file(const RecordBlock& block, SourceInfo& source);
  void close_source(const SourceInfo& source);
  void commit_shards();
  void refuse_conditions_on_text(const RecordBlock& block) const;
  void note_missing_fields(const EncodedBlock& block);
  void take_notice(int64_t file, const DropNotice& notice);
  void keep_error(int64_t file, const DropNotice& notice);
  void check_errors(int64_t least_records) const;
  std::string first_error() const;
  Error missing_field(size_t field) const;
  Error no_tokens() const;

  /// What a file has given that is not final before its end.
  struct Pending {
    int64_t text_bytes = 0, replaced_bytes = 0, replaced_surrogates = 0;
  };

  const EncodeOptions& options_;
  Progress& progress_;
  ShardSet train_, validation_;
  EncodeResult result_;
  Pending pending_;
  int64_t records_ = 0, errors_ = 0;  // so far, of the file being read too
  int64_t finished_bytes_ = 0;        // of the files before the one being read
  std::vector<FieldUse> fields_;      // the text field, then those of the conditions
  std::array<bool, kDropReasons> warned_{};
};

}  // namespace keel
