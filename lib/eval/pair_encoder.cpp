#include "keel/eval/pair_encoder.h"

#include <algorithm>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/eval/python_text.h"

namespace keel {

PairEncoder::PairEncoder(std::shared_ptr<const Tokenizer> tokenizer, const PairEncoderOptions& options)
    : tokenizer_(std::move(tokenizer)), encoder_(tokenizer_->make_encoder()), options_(options) {
  using Bos = PairEncoderOptions::Bos;
  if (options.bos == Bos::on && !tokenizer_->bos_id()) {
    throw Error(ErrorKind::usage, "the tokenizer has no BOS token", "--compat-bos");
  }
  if (options.bos == Bos::on || (options.bos == Bos::tokenizer && tokenizer_->adds_bos())) bos_ = tokenizer_->bos_id();
  prefix_ = options.prefix_token_id ? options.prefix_token_id
                                    : (tokenizer_->bos_id() ? tokenizer_->bos_id() : tokenizer_->eos_id());
  if (prefix_ && (*prefix_ < 0 || *prefix_ >= tokenizer_->vocab_size())) {
    throw Error(ErrorKind::usage, fmt::format("{} is no id of the tokenizer", *prefix_), "--prefix-token-id");
  }
  if (bos_) bos_text_ = tokenizer_->piece(*bos_);
}

PairEncoder::~PairEncoder() = default;

std::vector<int32_t> PairEncoder::encode_text(const std::string& text, bool with_bos) {
  std::vector<int32_t> ids;
  if (with_bos && bos_ && !text.starts_with(bos_text_)) ids.push_back(*bos_);
  encoder_->encode(text, ids, SpecialText::parse);
  return ids;
}

ScoreRequest PairEncoder::encode(const std::string& context, const std::string& continuation) {
  ScoreRequest request;
  if (context.empty()) {
    if (!prefix_) throw Error(ErrorKind::format, "an empty context, and the tokenizer has neither BOS nor EOS");
    request.context = {*prefix_};
    request.continuation = encode_text(continuation, false);
    if (!request.continuation.empty() && request.continuation.front() == *prefix_) {
      request.continuation.erase(request.continuation.begin());
    }
  } else {
    const std::string_view kept = python_rstrip(context);
    const std::string moved = context.substr(kept.size()) + continuation;
    if (last_ids_.empty() || last_context_ != kept) {
      last_context_ = kept;
      last_ids_ = encode_text(last_context_, true);
    }
    request.context = last_ids_;
    const std::vector<int32_t> whole = encode_text(last_context_ + moved, true);
    const size_t shared = std::min(whole.size(), request.context.size());
    request.continuation.assign(whole.begin() + static_cast<std::ptrdiff_t>(shared), whole.end());
    if (request.continuation.empty() && options_.encode_empty_alone) request.continuation = encode_text(moved, false);
  }
  if (request.continuation.empty()) {
    throw Error(
        ErrorKind::format,
        fmt::format("the continuation {} adds no token to its context", python_repr(std::string_view(continuation))),
        "", "the tokenizer merges it with what comes before; --empty-continuation alone encodes it by itself");
  }
  if (request.context.empty()) throw Error(ErrorKind::format, "the context has no token");
  return request;
}

}  // namespace keel
