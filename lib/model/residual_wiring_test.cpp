#include "keel/model/residual_wiring.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "keel/base/json.h"

namespace keel {
namespace {

using enum NormKind;

TEST(ResidualWiring, KeelHasTwoExceptionsAndThenTheFullForm) {
  for (int64_t blocks : {1, 2, 5, 512}) {
    const double L = static_cast<double>(2 * blocks);
    for (int64_t l = 0; l < 2 * blocks; ++l) {
      const Wiring w = residual_wiring("keel", l, blocks);
      EXPECT_EQ(w.inner, rms);
      EXPECT_EQ(w.outer, l == 0 ? none : rms) << l;
      EXPECT_EQ(w.a, l <= 1 ? 1 : L) << l;
      EXPECT_EQ(residual_wiring("keel_v1", l, blocks).outer, l <= 1 ? none : rms) << l;
    }
  }
}

TEST(ResidualWiring, PreAndPostAreTheSameInEverySublayer) {
  for (int64_t l = 0; l < 6; ++l) {
    EXPECT_EQ(residual_wiring("pre", l, 3), Wiring{.inner = rms});
    EXPECT_EQ(residual_wiring("post", l, 3), Wiring{.outer = rms});
  }
  EXPECT_TRUE(residual_scheme("pre").final_norm);
  for (const char* scheme : {"keel", "keel_v1", "post"}) EXPECT_FALSE(residual_scheme(scheme).final_norm) << scheme;
}

TEST(ResidualWiring, AlphaReplacesTheFullFormsScaleOnly) {
  EXPECT_EQ(residual_wiring("keel", 0, 4, {.alpha = 2.5}).a, 1);
  EXPECT_EQ(residual_wiring("keel", 1, 4, {.alpha = 2.5}).a, 1);
  EXPECT_EQ(residual_wiring("keel", 2, 4, {.alpha = 2.5}).a, 2.5);
  EXPECT_THROW(residual_wiring("pre", 0, 4, {.alpha = 2.5}), Error);
}

TEST(ResidualWiring, UnknownSchemesAndSublayersAreRefused) {
  try {
    residual_scheme("kel");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_NE(std::string(error.what()).find("did you mean 'keel'?"), std::string::npos) << error.what();
  }
  EXPECT_THROW(residual_wiring("keel", 8, 4), Error);
  EXPECT_THROW(residual_wiring("keel", -1, 4), Error);
}

/// Every row of every scheme that this build has, against the table made independently.
TEST(ResidualWiring, GoldenTable) {
  const char* data = std::getenv("KEEL_TEST_DATA");
  const std::filesystem::path file = std::filesystem::path(data == nullptr ? "" : data) / "golden/wiring/wiring.json";
  if (data == nullptr || !std::filesystem::exists(file)) GTEST_SKIP() << "KEEL_TEST_DATA has no golden/wiring";
  const Json table = read_json(file, ErrorKind::format).root();
  for (const ResidualScheme& scheme : residual_schemes()) {
    const Json& sizes = table["rows"][std::string(scheme.name)];
    ASSERT_GE(sizes.size(), 6U) << scheme.name;
    for (const auto& [blocks, rows] : sizes.items()) {
      for (size_t l = 0; l < rows.size(); ++l) {
        const Wiring w = residual_wiring(scheme.name, static_cast<int64_t>(l), std::stoll(blocks));
        const Json row = {
            to_string(w.inner),    to_string(w.branch),     to_string(w.outer),       w.a, w.b, w.ns, to_string(w.qkv),
            to_string(w.in_scale), to_string(w.skip_scale), to_string(w.branch_scale)};
        EXPECT_EQ(row, rows[l]) << scheme.name << " blocks " << blocks << " sublayer " << l;
      }
    }
  }
}

}  // namespace
}  // namespace keel
