#pragma once

#include <memory>
#include <optional>
#include <string>

#include "keel/tokenizer/tokenizer.h"
#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// Which ids have a special meaning, and what is put around a text by default.
struct SpecialIds {
  std::optional<int32_t> bos, eos, unk, pad;
  bool adds_bos = false, adds_eos = false;
};

/// Byte pair encoding by the rules of a Hugging Face tokenizer ("byte-level-bpe", or "bpe" for vocabularies of
/// characters), with the ids that the `tokenizers` crate gives without its post-processor. Text that is not valid UTF-8
/// is encoded with U+FFFD for each maximal ill-formed part. As in the crate, a character that the vocabulary cannot
/// spell, without byte fallback and unknown piece, gives no id.
///
/// A decoder leaves special tokens out. Bytes by fallback that are not UTF-8 become U+FFFD for each maximal ill-formed
/// part, of a byte-level vocabulary as well.
///
/// Merging takes 60 bytes of memory a byte of a word; one may have 64 MiB, else TextTooLong.
/// Error(usage) naming `name` for split patterns that cannot be matched.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerSpec spec, const SpecialIds& ids, const std::string& name);

}  // namespace keel
