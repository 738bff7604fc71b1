#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "keel/base/export.h"

namespace keel {

/// Lower-case hexadecimal.
KEEL_API std::string hex(std::span<const std::uint8_t> bytes);
/// 16 digits, most significant first, as xxhsum prints.
KEEL_API std::string hex(uint64_t value);

/// XXH3, 64 bits, seed 0 (`xxhsum -H3`): fast integrity check of data that may be damaged, not forged.
KEEL_API uint64_t xxh3(const void* data, size_t bytes) noexcept;
inline uint64_t xxh3(std::string_view text) noexcept {
  return xxh3(text.data(), text.size());
}

class KEEL_API Xxh3 {
 public:
  Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  ~Xxh3();
  void update(const void* data, size_t bytes) noexcept;
  /// Of everything so far; more may follow.
  uint64_t digest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// SHA-256 (FIPS 180-4), for files that are named by their content.
class KEEL_API Sha256 {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();
  void update(const void* data, size_t bytes);
  /// Of everything so far; more may follow.
  Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 64 hexadecimal digits. Of files: Error(io), and Stopped on a signal.
KEEL_API std::string sha256_hex(std::string_view text);
KEEL_API std::string sha256_of_file(const std::filesystem::path& path);
/// 16 hexadecimal digits.
KEEL_API std::string xxh3_of_file(const std::filesystem::path& path);

}  // namespace keel
