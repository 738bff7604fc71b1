#include "keel/eval/python_random.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace keel {
namespace {

using Picks = std::vector<int64_t>;

TEST(PythonRandom, DrawsOfCPython) {
  PythonRandom bits(1234);
  for (uint32_t expected : {4150886329U, 3342196574U, 1892932127U, 501869158U}) EXPECT_EQ(bits.next(), expected);
  PythonRandom uniform(1234);
  for (double expected : {0.9664535356921388, 0.4407325991753527, 0.007491470058587191}) {
    EXPECT_EQ(uniform.uniform(), expected);
  }
  // python3 -c "import random; r = random.Random(2**40 + 7); print([r.getrandbits(32) for _ in range(3)])", and seed 0.
  PythonRandom two_words((uint64_t{1} << 40) + 7);
  for (uint32_t expected : {2635837658U, 3209733218U, 3500038837U}) EXPECT_EQ(two_words.next(), expected);
  PythonRandom zero(0);
  for (uint32_t expected : {3626764237U, 1654615998U, 3255389356U}) EXPECT_EQ(zero.next(), expected);
}

TEST(PythonRandom, DrawsBeyondOneBlock) {
  PythonRandom random(5);
  uint32_t last = 0;
  for (int i = 0; i < 2000; ++i) last = random.next();
  EXPECT_EQ(last, 2894893787U);
}

TEST(PythonRandom, SamplesOfBenchmarks) {
  PythonRandom arc(1234);
  EXPECT_EQ(arc.sample(1119, 25), (Picks{902, 239, 15,  185, 71,  171, 201, 726,  484, 35,  63,  32,  708,
                                         991, 949, 304, 186, 374, 234, 29,  1030, 996, 511, 132, 1108}));
  EXPECT_EQ(arc.sample(1119, 25), (Picks{954, 140,  182, 1054, 94,  552, 129, 619, 985, 727, 545, 510, 409,
                                         928, 1085, 39,  1040, 144, 11,  683, 294, 968, 772, 342, 110}));
  PythonRandom gsm8k(1234);
  EXPECT_EQ(gsm8k.sample(7473, 5), (Picks{6374, 3610, 957, 61, 742}));
  EXPECT_EQ(gsm8k.sample(7473, 5), (Picks{7462, 6610, 4769, 286, 5501}));
  EXPECT_EQ(gsm8k.sample(7473, 5), (Picks{5677, 687, 806, 6279, 2905}));
  PythonRandom hellaswag(1234);
  EXPECT_EQ(hellaswag.sample(39905, 11), (Picks{28883, 7657, 490, 5940, 38156, 2288, 5500, 6450, 23241, 15519, 1142}));
}

TEST(PythonRandom, SamplesOfSmallPopulations) {
  PythonRandom random(1234);
  Picks all = random.sample(21, 21);
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(all[i], i);
  EXPECT_EQ(random.sample(5, 0), Picks{});
  // r = random.Random(9); r.sample(range(21), 5), r.sample(range(22), 5), r.sample(range(85), 6), r.sample(range(86), 6)
  PythonRandom edges(9);
  EXPECT_EQ(edges.sample(21, 5), (Picks{14, 19, 11, 8, 4}));
  EXPECT_EQ(edges.sample(22, 5), (Picks{5, 21, 0, 10, 16}));
  EXPECT_EQ(edges.sample(85, 6), (Picks{59, 77, 10, 42, 70, 78}));
  EXPECT_EQ(edges.sample(86, 6), (Picks{5, 48, 21, 57, 54, 20}));
}

}  // namespace
}  // namespace keel
