#include "keel/model/residual_wiring.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

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

/// Sublayers 0, 1, 2, 3 and the last two of a model with 4 blocks.
TEST(ResidualWiring, EverySchemesRows) {
  constexpr auto vector = LearnedScale::vector;
  const Wiring pre{.inner = rms}, post{.outer = rms}, plain{}, both{.inner = rms, .outer = rms};
  const Wiring keel{.inner = rms, .outer = rms, .a = 8}, skip{.outer = rms, .a = 8};
  const Wiring beta{.in_scale = vector}, beta_post{.outer = rms, .in_scale = vector};
  const Wiring beta_skip{.outer = rms, .a = 8, .in_scale = vector};
  const Wiring pre_beta{.inner = rms, .in_scale = vector};
  const Wiring both_beta{.inner = rms, .outer = rms, .in_scale = vector};
  const Wiring keel_beta{.inner = rms, .outer = rms, .a = 8, .in_scale = vector};
  const Wiring deepnorm{.outer = ln, .a = std::pow(8, 0.25)}, admin{.outer = ln, .skip_scale = vector};
  const Wiring qkv_post{.outer = rms, .qkv = QkvNorm::qkv_head}, qkv_pre{.inner = rms, .qkv = QkvNorm::qkv_head};
  const auto lns = [](int64_t m) { return Wiring{.inner = rms, .ns = std::pow(static_cast<double>(m), -0.5)}; };
  const Wiring sandwich{.inner = rms, .branch = rms}, peri_qk{.branch = rms, .qkv = QkvNorm::qk_full},
      peri{.branch = rms};
  const Wiring rezero{.branch_scale = LearnedScale::block}, layerscale{.inner = rms, .branch_scale = vector};
  const std::map<std::string, std::array<Wiring, 6>> expected{
      {"keel", {pre, both, keel, keel, keel, keel}},
      {"keel_v1", {pre, pre, keel, keel, keel, keel}},
      {"keel_attempt1", {plain, post, skip, skip, skip, skip}},
      {"keel_attempt2", {beta, beta_post, beta_skip, beta_skip, beta_skip, beta_skip}},
      {"keel_attempt3", {pre_beta, both_beta, keel_beta, keel_beta, keel_beta, keel_beta}},
      {"pre", {pre, pre, pre, pre, pre, pre}},
      {"post", {post, post, post, post, post, post}},
      {"deepnorm", {deepnorm, deepnorm, deepnorm, deepnorm, deepnorm, deepnorm}},
      {"hybrid", {qkv_post, plain, qkv_post, plain, qkv_post, plain}},
      {"hybrid_star", {qkv_pre, pre, qkv_post, plain, qkv_post, plain}},
      {"mix", {post, post, pre, pre, pre, pre}},
      {"admin", {admin, admin, admin, admin, admin, admin}},
      {"lns", {lns(1), lns(1), lns(2), lns(2), lns(4), lns(4)}},
      {"sandwich", {sandwich, sandwich, sandwich, sandwich, sandwich, sandwich}},
      {"olmo2", {peri_qk, peri, peri_qk, peri, peri_qk, peri}},
      {"rezero", {rezero, rezero, rezero, rezero, rezero, rezero}},
      {"layerscale", {layerscale, layerscale, layerscale, layerscale, layerscale, layerscale}}};
  ASSERT_EQ(expected.size(), residual_schemes().size());
  for (const auto& [scheme, rows] : expected) {
    const std::array<int64_t, 6> sublayers{0, 1, 2, 3, 6, 7};
    for (size_t i = 0; i < sublayers.size(); ++i) {
      EXPECT_EQ(residual_wiring(scheme, sublayers[i], 4), rows[i]) << scheme << " " << sublayers[i];
    }
  }
}

TEST(ResidualWiring, WhatSchemesAccept) {
  const std::set<std::string> final_norm{"pre", "hybrid",   "hybrid_star", "mix",
                                         "lns", "sandwich", "olmo2",       "layerscale"};
  const std::set<std::string> alpha{"keel", "keel_v1", "keel_attempt1", "keel_attempt2", "keel_attempt3", "deepnorm"};
  for (const ResidualScheme& scheme : residual_schemes()) {
    const std::string name(scheme.name);
    EXPECT_EQ(scheme.final_norm, final_norm.contains(name)) << name;
    EXPECT_EQ(scheme.accepts_alpha, alpha.contains(name)) << name;
    EXPECT_EQ(scheme.accepts_fraction, name == "mix") << name;
    EXPECT_EQ(scheme.profiled_skip, name == "admin") << name;
    bool any_outer = false;
    for (int64_t l = 0; l < 8; ++l) any_outer = any_outer || residual_wiring(name, l, 4).outer != none;
    EXPECT_EQ(scheme.fp32_stream, any_outer) << name;
  }
}

TEST(ResidualWiring, MixRoundsUpButNotForTheLastBitOfAProduct) {
  const auto post_blocks = [](double fraction, int64_t blocks) {
    int64_t count = 0;
    while (count < blocks && residual_wiring("mix", 2 * count, blocks, {.mix_fraction = fraction}).outer == rms)
      ++count;
    return count;
  };
  EXPECT_EQ(post_blocks(0, 4), 0);
  EXPECT_EQ(post_blocks(1, 4), 4);
  EXPECT_EQ(post_blocks(0.25, 3), 1);
  EXPECT_EQ(post_blocks(0.25, 12), 3);
  EXPECT_EQ(post_blocks(0.0625, 32), 2);
  EXPECT_EQ(post_blocks(0.07, 100), 7) << "0.07 * 100 is a bit more than 7";
  EXPECT_EQ(post_blocks(1.0 / 3, 3), 1);
  EXPECT_EQ(post_blocks(0.001, 4), 1);
}

TEST(ResidualWiring, OptionsChangeWhatTheyName) {
  EXPECT_EQ(residual_wiring("keel", 1, 4, {.learnable_alpha = true}), residual_wiring("keel", 1, 4));
  EXPECT_EQ(residual_wiring("keel", 2, 4, {.learnable_alpha = true}).skip_scale, LearnedScale::exponential);
  EXPECT_EQ(residual_wiring("deepnorm", 0, 4, {.learnable_alpha = true}).skip_scale, LearnedScale::exponential);
  EXPECT_EQ(residual_wiring("pre", 0, 4, {.qk_norm = true}).qkv, QkvNorm::qk_head);
  EXPECT_EQ(residual_wiring("pre", 1, 4, {.qk_norm = true}).qkv, QkvNorm::none);
  EXPECT_EQ(residual_wiring("sandwich", 0, 4, {.norm = ln}), (Wiring{.inner = ln, .branch = ln}));
  EXPECT_EQ(residual_wiring("deepnorm", 0, 4, {.norm = rms}).outer, rms);
  EXPECT_TRUE(residual_wiring("admin", 0, 4, {.frozen_skip = true}).frozen_skip);
  for (const char* scheme : {"pre", "mix", "admin"}) {
    EXPECT_THROW(residual_wiring(scheme, 0, 4, {.learnable_alpha = true}), Error) << scheme;
  }
  EXPECT_THROW(residual_wiring("olmo2", 0, 4, {.qk_norm = true}), Error);
  EXPECT_THROW(residual_wiring("hybrid", 1, 4, {.qk_norm = true}), Error);
  EXPECT_THROW(residual_wiring("keel", 0, 4, {.mix_fraction = 0.5}), Error);
  EXPECT_THROW(residual_wiring("mix", 0, 4, {.mix_fraction = 1.01}), Error);
  EXPECT_THROW(residual_wiring("keel", 0, 4, {.frozen_skip = true}), Error);
}

TEST(ResidualWiring, AlphaReplacesTheFullFormsScaleOnly) {
  EXPECT_EQ(residual_wiring("keel", 0, 4, {.alpha = 2.5}).a, 1);
  EXPECT_EQ(residual_wiring("keel", 1, 4, {.alpha = 2.5}).a, 1);
  EXPECT_EQ(residual_wiring("keel", 2, 4, {.alpha = 2.5}).a, 2.5);
  EXPECT_THROW(residual_wiring("pre", 0, 4, {.alpha = 2.5}), Error);
}

TEST(ResidualWiring, AlphaIsA32BitNumberAboveZero) {
  for (const double alpha : {0.0, -1.0, 1e-300, 1e300, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(residual_wiring("keel", 2, 4, {.alpha = alpha}), Error) << alpha;
  }
  EXPECT_EQ(residual_wiring("keel", 2, 4, {.alpha = 1e-30}).a, 1e-30);
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
  EXPECT_GE(table["rows"].size(), 17U);
  for (const auto& [scheme, sizes] : table["rows"].items()) {
    ASSERT_GE(sizes.size(), 6U) << scheme;
    for (const auto& [blocks, rows] : sizes.items()) {
      for (size_t l = 0; l < rows.size(); ++l) {
        const Wiring w = residual_wiring(scheme, static_cast<int64_t>(l), std::stoll(blocks));
        const Json row = {
            to_string(w.inner),    to_string(w.branch),     to_string(w.outer),       w.a, w.b, w.ns, to_string(w.qkv),
            to_string(w.in_scale), to_string(w.skip_scale), to_string(w.branch_scale)};
        EXPECT_EQ(row, rows[l]) << scheme << " blocks " << blocks << " sublayer " << l;
      }
    }
  }
}

}  // namespace
}  // namespace keel
