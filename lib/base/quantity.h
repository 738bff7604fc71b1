#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "keel/base/export.h"

/// Numbers as people write them. Parsers take the whole text or give nothing; locale plays no part.
namespace keel {

/// "-12"; also "1e9" or "2.5e3" when the value is whole and at most 2^53.
KEEL_API std::optional<int64_t> parse_integer(std::string_view text);
/// A finite decimal number.
KEEL_API std::optional<double> parse_real(std::string_view text);
/// A size in bytes: a number, perhaps with k, M, G, T, P (powers of 1000), Ki, Mi, Gi, Ti, Pi (powers of 1024), perhaps
/// with a B after it, any case: "1G", "5GB", "512MiB", "1.5k". Whole and at least 0.
KEEL_API std::optional<int64_t> parse_size(std::string_view text);
/// A count, the same but for the B, which stands for 10^9 alone: "100B", "1.5k", "2Mi".
KEEL_API std::optional<int64_t> parse_amount(std::string_view text);
/// Seconds: "90", "1.5", "30s", "20m", "2h", "1d", "1h30m", "HH:MM:SS", "MM:SS", "D-HH:MM:SS" (as Slurm). At least 0.
KEEL_API std::optional<double> parse_duration(std::string_view text);

/// "512 bytes", "1.50 GB" (powers of 1000).
KEEL_API std::string format_bytes(int64_t bytes);
/// Two sizes that are compared, with so many digits that they differ as texts if they do: "3.000 GB", "3.001 GB".
KEEL_API std::pair<std::string, std::string> format_bytes_apart(int64_t a, int64_t b);
/// "950", "12.3k", "1.50M": three digits, for people.
KEEL_API std::string format_count(double count);
/// "0.8 s", "45 s", "12:05", "3:04:05", "2d 03:04:05".
KEEL_API std::string format_duration(double seconds);
/// The shortest text that reads back as the same double: "0.1", "1e-05", "3".
KEEL_API std::string format_real(double value);

}  // namespace keel
