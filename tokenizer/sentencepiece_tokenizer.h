#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "keel/tokenizer/tokenizer.h"

namespace keel {

/// A sentencepiece .model (bpe, unigram, word, char), encoded by the sentencepiece library itself: ids are those of the
/// reference implementation.
///
/// The library takes about 210 bytes of memory for each byte of a text. Where the model allows it, a text is therefore
/// cut in front of spaces and each part encoded alone. That is exact for BPE models with identity normalisation in
/// which no piece has a space after another character (Llama 2, Mistral): no merge can cross such a cut, and the space
/// that is cut off is what the library puts in front of a text anyway. Parts seen before come from a cache (4 MiB an
/// encoder). What cannot be cut may have at most 16 MiB, else TextTooLong; of parts above 1 MiB the whole process
/// encodes one at a time. So encoding needs at most 3.5 GB, and 0.3 GB a thread, however long the documents are.
///
/// A decoder gives back exactly what was encoded, bytes by fallback included, with three exceptions that lie in the
/// model: what its normalisation changed, characters it has no piece for (-> its unknown surface), and U+2581, which it
/// reads as a space. Error(format) naming `name` if the model is damaged.
KEEL_API std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string_view bytes, const std::string& name);

}  // namespace keel
