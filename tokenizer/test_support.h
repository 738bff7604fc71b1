#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/error.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel::test {

/// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    // In memory where that is possible: thousands of small files go faster.
    std::string name = std::filesystem::is_directory("/dev/shm")
                           ? "/dev/shm/keel-test-XXXXXX"
                           : (std::filesystem::temp_directory_path() / "keel-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error(ErrorKind::io, "cannot create a folder", name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// One gzip member.
inline std::string gzip(std::string_view bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// One zstd frame with a checksum.
inline std::string zstd(std::string_view bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size()));
  ZSTD_freeCCtx(context);
  return out;
}

/// From hexadecimal digits; spaces are passed over.
inline std::string bytes_of_hex(std::string_view digits) {
  std::string out, pair;
  for (char c : digits) {
    if (c == ' ') continue;
    pair.push_back(c);
    if (pair.size() == 2) {
      out.push_back(static_cast<char>(std::stoi(pair, nullptr, 16)));
      pair.clear();
    }
  }
  return out;
}

/// The small model of testdata/README.md.
inline std::string model_m_path() {
  return std::string(KEEL_TOKENIZER_TEST_DATA) + "/m.model";
}
inline std::shared_ptr<const Tokenizer> model_m() {
  static const std::shared_ptr<const Tokenizer> model = load_tokenizer(model_m_path());
  return model;
}

/// The folder of larger test data, "" without one.
inline std::string large_test_data() {
  const char* folder = std::getenv("KEEL_TEST_DATA");
  return folder == nullptr ? "" : folder;
}

/// Expects an Error of this kind whose message holds the text.
template <class Run>
void expect_error(ErrorKind kind, std::string_view text, Run run) {
  try {
    run();
    ADD_FAILURE() << "no error; one with '" << text << "' was expected";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(text), std::string_view::npos) << error.what();
  }
}

/// A copy of `bytes` with a few random changes: bits, bytes, cuts, repeats.
inline std::string mutated(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, 1 + below(8));
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16)));
        break;
      default:
        bytes.replace(at, 1, std::string(1 + below(4), "\0\xFF\x7F\x80"[below(4)]));
        break;
    }
  }
  return bytes;
}

}  // namespace keel::test

/// Ends the test as skipped when there is no larger test data.
#define KEEL_NEEDS_TEST_DATA() \
  if (keel::test::large_test_data().empty()) GTEST_SKIP() << "KEEL_TEST_DATA is not set"
