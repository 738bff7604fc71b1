#include "keel/tokenizer/prompt.h"

#include <fmt/core.h>

#include "keel/base/error.h"
#include "keel/tokenizer/utf8_repair.h"

namespace keel {

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, PromptBos bos,
                                   SpecialText special, int64_t* lost_bytes) {
  if (const int64_t at = find_invalid_utf8(text); at >= 0) {
    throw Error(ErrorKind::format,
                fmt::format("invalid UTF-8 byte 0x{:02X} at byte {}", static_cast<unsigned char>(text[at]), at));
  }
  if (bos == PromptBos::on && !tokenizer.bos_id()) throw Error(ErrorKind::usage, "the tokenizer has no BOS token");
  if (text.empty()) {
    const auto start = tokenizer.bos_id() && bos != PromptBos::off ? tokenizer.bos_id() : tokenizer.eos_id();
    if (!start) throw Error(ErrorKind::usage, "an empty prompt, and a tokenizer without BOS and EOS to start with");
    return {*start};
  }
  std::vector<int32_t> ids;
  if (bos == PromptBos::on || (bos == PromptBos::automatic && tokenizer.adds_bos())) ids.push_back(*tokenizer.bos_id());
  const std::vector<int32_t> tokens = tokenizer.encode(text, special, lost_bytes);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  return ids;
}

}  // namespace keel
