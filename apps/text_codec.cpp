#include "text_codec.h"

#include "keel/tokenizer/prompt.h"
#include "keel/tokenizer/text_stream.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

class TokenizerCodec final : public TextCodec {
 public:
  explicit TokenizerCodec(const std::string& path) : tokenizer_(load_tokenizer(path)) {}

  std::vector<int32_t> encode_prompt(const std::string& text) const override {
    return keel::encode_prompt(*tokenizer_, text);
  }

  std::string continuation(std::span<const int32_t> prompt, std::span<const int32_t> tokens) const override {
    TextStream stream(tokenizer_->make_decoder(), {}, prompt);
    std::string text;
    for (int32_t id : tokens) stream.append(id, text);
    stream.finish(text);
    return text;
  }

  std::vector<int32_t> stop_ids() const override {
    if (!tokenizer_->eos_id()) return {};
    return {*tokenizer_->eos_id()};
  }

  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

std::shared_ptr<const TextCodec> open_text_codec(const std::string& tokenizer_path) {
  return std::make_shared<TokenizerCodec>(tokenizer_path);
}

}  // namespace keel
