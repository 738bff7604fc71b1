#include "keel/eval/perplexity.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <nlohmann/json.hpp>

namespace keel {
Json perplexity_json(double ll, const TextCounts& counts) {
  const auto per = [&](int64_t count) {
    return count > 0 ? -ll / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  };
  const auto put = [ll](Json& json, const char* key, double value) {
    if (std::isnan(value) && !std::isnan(ll)) {  // nothing to divide by
      json[key] = nullptr;
    } else {
      set_number(json, key, value);
    }
  };
  Json json;
  put(json, "nats_per_token", per(counts.tokens));
  put(json, "token_perplexity", std::exp(per(counts.tokens)));
  put(json, "word_perplexity", std::exp(per(counts.words)));
  put(json, "byte_perplexity", std::exp(per(counts.bytes)));
  put(json, "bits_per_byte", per(counts.bytes) / std::numbers::ln2);
  json["tokens"] = counts.tokens;
  json["words"] = counts.words;
  json["bytes"] = counts.bytes;
  return json;
}

}  // namespace keel
