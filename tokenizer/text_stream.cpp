#include "keel/tokenizer/text_stream.h"

#include <algorithm>

namespace keel {
namespace {

/// Length of the longest end of `text` that `stop` begins with, the whole of `stop` apart.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::unique_ptr<TokenDecoder> decoder, std::vector<std::string> stops,
                       std::span<const int32_t> prompt)
    : decoder_(std::move(decoder)), stops_(std::move(stops)) {
  std::string shown;
  for (int32_t id : prompt) decoder_->append(id, shown);
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

bool TextStream::give_out(std::string& text) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  if (first != std::string::npos) {
    text += pending_.substr(0, first);
    pending_.clear();
    return false;
  }
  size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, overlap(pending_, stop));
  text += pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return true;
}

bool TextStream::append(int32_t id, std::string& text) {
  decoder_->append(id, pending_);
  return give_out(text);
}

void TextStream::finish(std::string& text) {
  decoder_->finish(pending_);
  if (!give_out(text)) return;
  text += pending_;
  pending_.clear();
}

}  // namespace keel
