#pragma once

#include <string>
#include <string_view>

#include "keel/tokenizer/json_node.h"
#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// Reads a Hugging Face tokenizer.json (format version 1.0) with a BPE model. Error(usage) names what it asks for and
/// we do not do, Error(format) what is damaged. `more_added` are added tokens from beside the file; those it has itself
/// are passed over.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& name,
                                   const std::vector<AddedToken>& more_added);

/// The parts of the file.
AddedToken read_added_token(const JsonNode& node);
std::vector<NormalizerStep> read_normalizer(const JsonNode& node);
std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonNode& node);
DecoderRules read_decoder(const JsonNode& node);
void read_post_processor(const JsonNode& node, TokenizerSpec& spec);

}  // namespace keel
