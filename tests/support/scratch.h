#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel::testing {

/// A temporary folder that tests fill with files by name.
class Scratch : public TempDir {
 public:
  std::string file(const std::string& name) const { return (path() / name).string(); }
  /// put_file; returns the path.
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path target = path() / name;
    std::filesystem::remove(target);  // file systems flush a file that is cut to nothing, which takes milliseconds
    put_file(target, bytes);
    return target.string();
  }
};

/// A value's bytes as they lie in memory.
template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <class T>
std::string bytes_of_all(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// "4d4d 49" -> bytes.
inline std::string from_hex(std::string_view text) {
  std::string bytes, digits;
  for (const char c : text) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes += static_cast<char>(std::stoi(digits, nullptr, 16));
    digits.clear();
  }
  return bytes;
}

/// The folder of larger test data, KEEL_TEST_DATA, if it is there.
inline std::optional<std::filesystem::path> test_data() {
  const char* folder = std::getenv("KEEL_TEST_DATA");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) return std::nullopt;
  return folder;
}

/// The message of the Error that `body` throws; fails the test unless it is one of that kind.
template <class Body>
std::string message_of(ErrorKind kind, Body body) {
  const Error error = error_of(body);
  EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
  return error.what();
}

}  // namespace keel::testing
