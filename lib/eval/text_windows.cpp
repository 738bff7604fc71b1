#include "keel/eval/text_windows.h"

#include <algorithm>

#include <fmt/format.h>

#include "keel/base/error.h"

namespace keel {
namespace {

/// Tokens [begin, end) of which those from `scored` on count.
ScoreRequest request_of(std::span<const int32_t> tokens, int64_t begin, int64_t scored, int64_t end,
                        const std::optional<int32_t>& bos) {
  ScoreRequest request;
  if (bos) request.context.push_back(*bos);
  request.context.insert(request.context.end(), tokens.begin() + begin, tokens.begin() + scored);
  request.continuation.assign(tokens.begin() + scored, tokens.begin() + end);
  return request;
}

}  // namespace

std::vector<ScoreRequest> text_requests(std::span<const int32_t> tokens, const TextWindows& windows) {
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
  const auto N = static_cast<int64_t>(tokens.size());
  std::vector<ScoreRequest> requests;
  int64_t done = 0;  // tokens that have been counted, or left out as the first of their window
  for (int64_t begin = 0; done < N; begin += stride) {
    const int64_t end = std::min(begin + length, N);
    const int64_t scored = overlaps && begin > 0 ? done : begin + first;
    if (scored < end) requests.push_back(request_of(tokens, begin, scored, end, windows.bos));
    done = end;
  }
  return requests;
}

}  // namespace keel
