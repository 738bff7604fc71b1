#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/data/token_dtype.h"
#include "keel/tokenizer/document.h"
#include "keel/tokenizer/record_reader.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

enum class Split { train = 0, validation = 1 };

struct BlockEncoderOptions {
  DocumentOptions documents = {};
  bool append_eod = true;
  bool prepend_bos = false;
  SpecialText special = SpecialText::plain;
  double validation_fraction = 0;
  int64_t max_sequence_tokens = 0;  ///< longer ones are cut into sequences of so many; 0: never
  bool keep_empty = false;
  bool stop_at_error = true;
  TokenDtype type = TokenDtype::uint16;
};

/// A record that was dropped.
struct DropNotice {
  DropReason reason = DropReason::bad_json;
  int64_t line = 0, byte_offset = 0;
  std::string message = {};
  std::string id = {};
};

/// Whether a field that was named is there at all.
struct FieldUse {
  bool found = false;
  int64_t leading_missing = 0;         ///< records without it before the first one that has it
  std::vector<std::string> seen = {};  ///< fields of the first record without it
};

/// A block of records as tokens.
struct EncodedBlock {
  RecordBlock block;  ///< where it comes from; its bytes are gone

  struct Document {
    int64_t sequences = 0, tokens = 0, text_bytes = 0;
    Split split = Split::train;
  };
  std::vector<Document> documents;
  std::vector<int64_t> lengths;  ///< of the sequences of all documents, in tokens
  std::string tokens[2] = {};    ///< bytes of the tokens of all documents, by split

  int64_t records = 0;  ///< read: documents.size() + drops.total()
  DropCounts drops;
  std::vector<FieldUse> fields;     ///< the text field, then those of the conditions
  std::vector<DropNotice> notices;  ///< the first 100 errors, and the first of each other reason
  int64_t replaced_bytes = 0, replaced_surrogates = 0;
};

/// Parses and encodes blocks; one thread at a time. What it gives is a function of the block and the options alone.
class BlockEncoder {
 public:
  BlockEncoder(const Tokenizer& tokenizer, const BlockEncoderOptions& options, const RecordRule& text_rule);

  /// With stop_at_error the block ends at its first error. Stopped after a signal.
  EncodedBlock encode(RecordBlock block);

 private:
  void add_record(const Record& record, DocumentFormat format, EncodedBlock& out);
  void encode_document(EncodedBlock& out);
  void add_sequence(int64_t tokens, std::vector<int64_t>& lengths) const;
  void append_ids(std::string& bytes) const;
  void note_drop(const Record& record, EncodedBlock& out);
  void note_fields(const Record& record, DocumentFormat format, EncodedBlock& out) const;
  Split split_of(std::string_view text) const;

  const Tokenizer& tokenizer_;
  BlockEncoderOptions options_;
  RecordRule lines_;
  const RecordRule& text_rule_;
  DocumentParser parser_;
  std::unique_ptr<TokenEncoder> encoder_;
  ParsedDocument document_;
  std::vector<int32_t> ids_;
  std::vector<int64_t> sequence_ends_;
};

}  // namespace keel
