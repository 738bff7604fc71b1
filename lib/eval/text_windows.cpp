#include "keel/eval/text_windows.h"

#include <algorithm>

#include <fmt/format.h>

#include "keel/base/error.h"

namespace keel {

std::vector<TextWindow> cut_windows(int64_t tokens, const TextWindows& windows) {
  const int64_t length = windows.window - (windows.bos ? 1 : 0);  // tokens of the text in a window
  const int64_t first = windows.bos ? 0 : 1;                      // of them without a prediction
  if (windows.window < 2) {
    throw Error(ErrorKind::config, fmt::format("a window of {} positions predicts nothing", windows.window),
                "--window");
  }
  const bool overlaps = windows.stride && *windows.stride < length;
  const int64_t stride = overlaps ? *windows.stride : length;
  if (windows.stride && (*windows.stride < 1 || *windows.stride > length)) {
    throw Error(ErrorKind::config, fmt::format("a stride of {} for windows of {} tokens", *windows.stride, length),
                "--stride");
  }
  std::vector<TextWindow> cut;
  int64_t done = 0;  // tokens that have been counted, or left out as the first of their window
  for (int64_t begin = 0; done < tokens; begin += stride) {
    const int64_t end = std::min(begin + length, tokens);
    const int64_t scored = overlaps && begin > 0 ? done : begin + first;
    if (scored < end) cut.push_back({begin, scored, end});
    done = end;
  }
  return cut;
}

ScoreRequest window_request(std::span<const int32_t> tokens, const TextWindow& window, const TextWindows& windows) {
  ScoreRequest request;
  if (windows.bos) request.context.push_back(*windows.bos);
  request.context.insert(request.context.end(), tokens.begin() + window.begin, tokens.begin() + window.scored);
  request.continuation.assign(tokens.begin() + window.scored, tokens.begin() + window.end);
  return request;
}

TextScore score_text(Scorer& scorer, std::span<const int32_t> tokens, const TextWindows& windows,
                     const std::function<void(int64_t)>& tick) {
  constexpr int64_t kTokensAtOnce = int64_t{1} << 18;
  TextScore total;
  std::vector<ScoreRequest> requests;
  int64_t at_once = 0, done = 0;
  const auto run = [&] {
    const auto count = [&](int64_t windows_done) {
      if (tick) tick(done + windows_done);
    };
    for (const Score& score : scorer.run(requests, count)) total.log_likelihood += score.log_likelihood;
    done += std::ssize(requests);
    requests.clear();
    at_once = 0;
  };
  for (const TextWindow& window : cut_windows(std::ssize(tokens), windows)) {
    total.tokens += window.end - window.scored;
    at_once += window.end - window.begin;
    requests.push_back(window_request(tokens, window, windows));
    if (at_once >= kTokensAtOnce) run();
  }
  run();
  return total;
}

}  // namespace keel
