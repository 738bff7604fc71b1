#pragma once

#include <string>

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/data/data_manifest.h"
#include "keel/tokenizer/encode.h"

namespace keel {

/// What the shards are, for manifest.json and its readers. The tokenizer is beside them as `tokenizer_file`.
KEEL_API DataManifest manifest_of(const EncodeResult& result, const Tokenizer& tokenizer,
                                  const std::string& tokenizer_file);

/// The members of manifest.json that are for people: the tool, the options that shape the tokens, what became of each
/// input file. Nothing in it depends on the time, the machine or the number of workers.
KEEL_API Json manifest_details(const EncodeResult& result, const EncodeOptions& options);

/// `results` of the report keel.tokenize.encode/1.
KEEL_API Json encode_results(const EncodeResult& result);

}  // namespace keel
