#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "keel/tokenizer/tokenizer.h"

namespace keel {

/// A sentencepiece .model (bpe, unigram, word, char). Ids are those of the reference implementation: the sentencepiece
/// library encodes, except for BPE models with identity normalisation in which no piece has a space after another
/// character (Llama 2, Mistral). No merge of these can cross the place in front of a space that follows another
/// character, so a text is cut there, and each part encoded by our own merger (bpe_merger.h) or taken from a cache of
/// parts seen before (4 MiB an encoder).
///
/// The library takes about 210 bytes of memory for each byte of a text, the merger 60. What cannot be cut may have at
/// most 16 MiB, or 64 MiB with the merger, else TextTooLong; of parts above 1 MiB the whole process encodes one at a
/// time. So encoding needs at most 4 GB, and 0.3 GB a thread, however long the documents are.
///
/// A decoder gives back exactly what was encoded, bytes by fallback included, with three exceptions that lie in the
/// model: what its normalisation changed, characters it has no piece for (-> its unknown surface), and U+2581, which it
/// reads as a space. Error(format) naming `name` if the model is damaged.
/// `adds_bos`, `adds_eos`: what the files beside the model say (it does not itself).
KEEL_API std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string_view bytes, const std::string& name,
                                                                 bool adds_bos = false, bool adds_eos = false);

}  // namespace keel
