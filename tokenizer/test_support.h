#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <memory>
#include <string>
#include <string_view>

#include "keel/base/error.h"
#include "keel/tokenizer/tokenizer.h"
#include "support/errors.h"
#include "support/scratch.h"

namespace keel::testing {

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

/// The small model of testdata/README.md.
inline std::string model_m_path() {
  return std::string(KEEL_TOKENIZER_TEST_DATA) + "/m.model";
}
inline std::shared_ptr<const Tokenizer> model_m() {
  static const std::shared_ptr<const Tokenizer> model = load_tokenizer(model_m_path());
  return model;
}

}  // namespace keel::testing

/// Ends the test as skipped when there is no larger test data.
#define KEEL_NEEDS_TEST_DATA() \
  if (!keel::testing::test_data()) GTEST_SKIP() << "KEEL_TEST_DATA is not set"
