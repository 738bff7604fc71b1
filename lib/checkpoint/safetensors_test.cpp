#include "keel/checkpoint/safetensors.h"

#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/hash.h"
#include "support/numeric.h"
#include "support/scratch.h"

namespace keel {
namespace {

using namespace keel::testing;  // NOLINT: helpers of tests

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A file of that header, padded with spaces to `length` when given, and data of zeros.
std::string file_of(std::string header, int64_t data_bytes, size_t length = 0) {
  header.resize(std::max(length, header.size()), ' ');
  return bytes_of(static_cast<uint64_t>(header.size())) + header + std::string(static_cast<size_t>(data_bytes), '\0');
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape, int64_t begin,
                  int64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, type, shape, begin, end);
}

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& bytes) const {
    return SafetensorsFile(scratch_.write("x.safetensors", bytes));
  }
  void refuse(const std::string& bytes, const std::string& reason) const {
    const std::string message = message_of(ErrorKind::format, [&] { (void)open(bytes); });
    EXPECT_TRUE(has(message, reason)) << message << "\nwanted: " << reason;
    EXPECT_TRUE(has(message, "x.safetensors")) << message;
  }
  Scratch scratch_;
};

TEST_F(Safetensors, ReadsTheExample) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )";
  ASSERT_EQ(header.size(), 56U);
  std::string bytes = file_of(header, 0) + bytes_of(1.5F) + bytes_of(-2.0F);
  ASSERT_EQ(bytes.size(), 72U);
  const SafetensorsFile file = open(bytes);
  EXPECT_EQ(file.bytes(), 72);
  ASSERT_EQ(file.tensors().size(), 1U);
  const StoredTensor& tensor = file.tensors()[0];
  EXPECT_EQ(tensor.name, "a");
  EXPECT_EQ(tensor.shape, std::vector<int64_t>{2});
  EXPECT_EQ(file.find("a"), &tensor);
  EXPECT_EQ(file.find("b"), nullptr);
  std::vector<float> values(2);
  file.read(tensor, std::span(values));
  EXPECT_EQ(values, (std::vector<float>{1.5F, -2.0F}));
}

/// KB-52
TEST_F(Safetensors, RefusesRangesThatDoNotCoverTheData) {
  refuse(file_of("{" + entry("a", "F32", "[2]", 0, 8) + "," + entry("b", "F32", "[2]", 4, 12) + "}", 12, 112),
         "overlap");
  refuse(file_of("{" + entry("a", "F32", "[1]", 4, 8) + "}", 8, 56), "hole");
  refuse(file_of("{" + entry("a", "F32", "[1]", 0, 4) + "}", 8, 56), "trailing bytes");
  refuse(file_of("{" + entry("a", "F32", "[2]", 0, 8) + "}", 4, 56), "truncated");
  refuse(file_of("{" + entry("a", "F32", "[4611686018427387904,4]", 0, 0) + "}", 0), "size overflow");
  refuse(file_of("{" + entry("a", "F32", "[18446744073709551615]", 0, 0) + "}", 0), "size overflow");
  refuse(file_of("{" + entry("a", "F64", "[2305843009213693951]", 0, 0) + "}", 0), "size overflow");
  refuse(file_of("{" + entry("a", "F4", "[3]", 0, 2) + "}", 2), "size overflow");
  refuse(file_of("{" + entry("a", "F32", "[2]", 8, 0) + "}", 8), "bad range");
  refuse(file_of("{" + entry("a", "F32", "[2]", -8, 0) + "}", 8), "bad header");
  refuse(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8), "bad range");
  refuse(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "bad range");
  refuse(file_of("{" + entry("a", "F32", "[3]", 0, 8) + "}", 8), "size mismatch");
  refuse(file_of("{" + entry("a", "F33", "[2]", 0, 8) + "}", 8), "unknown dtype");
  refuse(file_of("{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("a", "F32", "[1]", 4, 8) + "}", 8), "duplicate");
  refuse(file_of(R"({"__metadata__":{"a":"b","a":"c"}})", 0), "duplicate");
  refuse(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "duplicate");
  refuse(file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "duplicate");
  refuse(file_of("[]", 0), "not an object");
  refuse(file_of(" {}", 0), "not an object");
  refuse(file_of(R"({"__metadata__":{"a":1}})", 0), "metadata is not text");
  refuse(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "is missing");
  refuse(file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "bad header");
  refuse(file_of(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8), "bad header");
  refuse(file_of(R"({"a":3})", 0), "bad header");
  refuse(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), "unknown field");
  refuse(file_of("{", 0), "not valid JSON");
  refuse(file_of("{} x", 0), "not valid JSON");
  refuse(file_of("{\"\xff\":1}", 0), "not valid JSON");
  refuse(file_of("{\"a\":" + std::string(100000, '[') + "}", 0), "bad header");
}

TEST_F(Safetensors, AcceptsAnyOrderEmptyAndScalarTensors) {
  const SafetensorsFile file =
      open(file_of("{" + entry("b", "F32", "[1]", 4, 8) + "," + entry("e", "F32", "[0,4]", 0, 0) + "," +
                       entry("s", "F32", "[]", 0, 4) + "," + entry("z", "U8", "[0]", 8, 8) + "}",
                   8));
  ASSERT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.find("e")->elements, 0);
  EXPECT_EQ(file.find("s")->elements, 1);
  EXPECT_EQ(file.data(*file.find("b")).size(), 4U);
}

#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kMayGrow = (64 + 256) << 20;  // AddressSanitizer keeps up to 256 MiB of freed memory in quarantine
#else
constexpr int64_t kMayGrow = 64 << 20;
#endif

int64_t peak_memory_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

/// KB-53
TEST_F(Safetensors, HeaderLengths) {
  const std::string header = "{" + entry("a", "F32", "[2]", 0, 8) + "}";
  const int64_t before = peak_memory_bytes();
  for (uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{72}, uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100000001}}) {
    std::string bytes = file_of(header, 8, 56);
    bytes.replace(0, 8, bytes_of(length));
    refuse(bytes, "header");
  }
  EXPECT_LT(peak_memory_bytes() - before, kMayGrow);
  refuse("", "0 bytes");
  refuse(std::string(7, '\0'), "7 bytes");
  for (size_t length : {99993, 99994, 100000, 100001}) {
    EXPECT_EQ(open(file_of(header, 8, length)).tensors().size(), 1U) << length;
  }
  const SafetensorsFile metadata = open(file_of(R"({"__metadata__":{"format":"pt","x":""}})", 0));
  EXPECT_EQ(metadata.tensors().size(), 0U);
  EXPECT_EQ(metadata.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"x", ""}}));
  EXPECT_EQ(open(file_of("{}", 0)).tensors().size(), 0U);
  message_of(ErrorKind::io, [&] { (void)SafetensorsFile(scratch_.file("missing")); });
}

/// Value of the bits by the definition of the format.
double half_value(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

TEST_F(Safetensors, WidensEveryHalfExactly) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const char* type : {"F16", "BF16"}) {
    const bool brain = type[0] == 'B';
    const SafetensorsFile file =
        open(file_of("{" + entry("a", type, "[65536]", 0, 131072) + "}", 0) + bytes_of_all(all));
    std::vector<float> floats(65536);
    std::vector<double> doubles(65536);
    file.read(*file.find("a"), std::span(floats));
    file.read(*file.find("a"), std::span(doubles));
    for (size_t i = 0; i < all.size(); ++i) {
      const double wanted = half_value(all[i], brain ? 8 : 5, brain ? 7 : 10);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(floats[i]) && std::isnan(doubles[i])) << i;
        continue;
      }
      ASSERT_EQ(static_cast<double>(floats[i]), wanted) << i;
      ASSERT_EQ(std::signbit(floats[i]), std::signbit(wanted)) << i;
      ASSERT_EQ(doubles[i], wanted) << i;
    }
  }
}

TEST_F(Safetensors, ReadsAPart) {
  const SafetensorsFile file = open(file_of("{" + entry("h", "BF16", "[2,2]", 0, 8) + "}", 0) +
                                    bytes_of_all(std::vector<uint16_t>{0x3F80, 0x4000, 0x4040, 0x4080}));
  std::vector<float> two(2), none;
  file.read(*file.find("h"), 1, std::span(two));
  EXPECT_EQ(two, (std::vector<float>{2, 3}));
  file.read(*file.find("h"), 2, std::span(two));
  EXPECT_EQ(two, (std::vector<float>{3, 4}));
  file.read(*file.find("h"), 4, std::span(none));
  message_of(ErrorKind::internal, [&] { file.read(*file.find("h"), 3, std::span(two)); });
  message_of(ErrorKind::internal, [&] { file.read(*file.find("h"), -1, std::span(two)); });
}

TEST_F(Safetensors, ReadsIntegersAsDoubleOnly) {
  const SafetensorsFile file =
      open(file_of("{" + entry("d", "F64", "[1]", 8, 16) + "," + entry("i", "I32", "[2]", 0, 8) + "}", 0) +
           bytes_of_all(std::vector<int32_t>{-5, 2147483647}) + bytes_of(0.1));
  std::vector<double> doubles(2), one(1);
  std::vector<float> floats(2);
  file.read(*file.find("i"), std::span(doubles));
  EXPECT_EQ(doubles, (std::vector<double>{-5, 2147483647}));
  file.read(*file.find("d"), std::span(one));
  EXPECT_EQ(one[0], 0.1);
  const std::string message = message_of(ErrorKind::format, [&] { file.read(*file.find("i"), std::span(floats)); });
  EXPECT_TRUE(has(message, "tensor 'i' has dtype I32")) << message;
}

TEST_F(Safetensors, WritesWhatTheReferenceWriterWould) {
  const std::vector<float> a{1, 2, 3}, b{4};
  const std::vector<uint8_t> c{7, 8};
  const std::vector<TensorSource> tensors{
      {"m", StoredType::U8, {2}, {std::as_bytes(std::span(c))}},
      float_tensor("z \"q\"", {1, 3}, a),
      {"b", StoredType::F32, {2, 2}, {std::as_bytes(std::span(a)), std::as_bytes(std::span(b))}},
      {"none", StoredType::BF16, {0, 5}, {}},
  };
  int64_t progress = 0;
  const FileRecord record =
      write_safetensors(scratch_.file("w.safetensors"), tensors, [&](int64_t bytes) { progress += bytes; });
  const std::string bytes = get_file(scratch_.file("w.safetensors"));
  std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("z \"q\"":{"dtype":"F32","shape":[1,3],"data_offsets":[16,28]},)"
      R"("none":{"dtype":"BF16","shape":[0,5],"data_offsets":[28,28]},"m":{"dtype":"U8","shape":[2],"data_offsets":[28,30]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(bytes, file_of(header, 0) + bytes_of_all(a) + bytes_of_all(b) + bytes_of_all(a) + bytes_of_all(c));
  EXPECT_EQ(record.name, "w.safetensors");
  EXPECT_EQ(record.bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(progress, record.bytes);
  EXPECT_EQ(safetensors_bytes(tensors), record.bytes);
  EXPECT_EQ(record.xxh3, hex(xxh3(bytes)));
  const SafetensorsFile file(scratch_.file("w.safetensors"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), 4U);
}

TEST_F(Safetensors, ProducedBytesAreWrittenInPieces) {
  constexpr int64_t kElements = (int64_t{1} << 20) + 3;  // more than one piece
  std::vector<int64_t> firsts;
  TensorSource source{.name = "a", .type = StoredType::U16, .shape = {kElements}};
  source.produce = [&](int64_t first, std::span<std::byte> out) {
    firsts.push_back(first);
    for (size_t i = 0; i < out.size() / 2; ++i) {
      const auto value = static_cast<uint16_t>((first + static_cast<int64_t>(i)) % 65521);
      std::memcpy(out.data() + 2 * i, &value, 2);
    }
  };
  (void)write_safetensors(scratch_.file("p"), std::vector<TensorSource>{source});
  EXPECT_EQ(firsts, (std::vector<int64_t>{0, int64_t{1} << 20}));
  const SafetensorsFile file(scratch_.file("p"));
  std::vector<double> values(kElements);
  file.read(*file.find("a"), std::span<double>(values));
  for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(values[i], static_cast<double>(i % 65521));
}

TEST_F(Safetensors, ProducersAreToldWhatComesNext) {
  std::vector<std::string> calls;
  const auto source = [&](const std::string& name, int64_t elements) {
    TensorSource made{.name = name, .type = StoredType::U8, .shape = {elements}};
    made.produce = [&calls, name](int64_t first, std::span<std::byte> out) {
      std::ranges::fill(out, std::byte{1});
      calls.push_back(name + std::to_string(first / kMostProduced));
    };
    made.prepare = [&calls, name](int64_t first, int64_t count) {
      calls.push_back("(" + name + std::to_string(first / kMostProduced) + (count < kMostProduced ? "-)" : ")"));
    };
    return made;
  };
  const std::vector<float> values{1, 2};
  const std::vector<TensorSource> tensors{source("c", 5), source("a", 2 * kMostProduced + 1), source("none", 0),
                                          float_tensor("b", {2}, values)};
  (void)write_safetensors(scratch_.file("p"), tensors);
  EXPECT_EQ(calls, (std::vector<std::string>{"(a0)", "(a1)", "a0", "(a2-)", "a1", "(c0-)", "a2", "c0"}));
  EXPECT_EQ(SafetensorsFile(scratch_.file("p")).tensors().size(), 4U);
}

TEST_F(Safetensors, WriterChecksBeforeItWrites) {
  const std::vector<float> a{1, 2, 3};
  const std::string path = scratch_.file("w.safetensors");
  const auto refuse_to_write = [&](const std::vector<TensorSource>& tensors, const std::string& reason) {
    const std::string message = message_of(ErrorKind::format, [&] { (void)write_safetensors(path, tensors); });
    EXPECT_TRUE(has(message, reason)) << message;
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  refuse_to_write({float_tensor("a", {4}, a)}, "12 bytes for F32 [4]");
  refuse_to_write({float_tensor("a", {3}, a), float_tensor("a", {3}, a)}, "'a' cannot be stored twice");
  refuse_to_write({float_tensor("__metadata__", {3}, a)}, "__metadata__");
  refuse_to_write({float_tensor(std::string(100000000, 'x'), {3}, a)}, "above the limit");
  message_of(ErrorKind::io, [&] {
    (void)write_safetensors(scratch_.file("no/folder"), std::vector<TensorSource>{float_tensor("a", {3}, a)});
  });
  const std::string full = message_of(ErrorKind::io, [&] {
    (void)write_safetensors("/dev/full", std::vector<TensorSource>{float_tensor("a", {3}, a)});
  });
  EXPECT_TRUE(has(full, "No space left")) << full;
}

TEST_F(Safetensors, GoldenFiles) {
  const auto folder = test_data();
  if (!folder) GTEST_SKIP() << "KEEL_TEST_DATA is not set";
  const SafetensorsFile data((*folder / "golden/wiring/data.safetensors").string());
  ASSERT_NE(data.find("tokens"), nullptr);
  EXPECT_EQ(data.find("tokens")->shape, (std::vector<int64_t>{40, 2, 25}));
  EXPECT_EQ(data.find("loss_mask")->type, StoredType::U8);
  // Read and written again, the data part is the same: the order is the reference writer's.
  int64_t files = 0;
  for (const auto& item : std::filesystem::directory_iterator(*folder / "golden/wiring")) {
    if (item.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(item.path().string());
    std::vector<TensorSource> tensors;
    for (const StoredTensor& tensor : file.tensors()) {
      tensors.push_back({tensor.name, tensor.type, tensor.shape, {file.data(tensor)}});
    }
    (void)write_safetensors(scratch_.file("again"), tensors);
    const SafetensorsFile again(scratch_.file("again"));
    for (const StoredTensor& tensor : file.tensors()) {
      const StoredTensor& copy = *again.find(tensor.name);
      ASSERT_TRUE(copy.begin == tensor.begin && copy.end == tensor.end && copy.shape == tensor.shape) << tensor.name;
      ASSERT_EQ(std::memcmp(file.data(tensor).data(), again.data(copy).data(), file.data(tensor).size()), 0);
    }
    ++files;
  }
  EXPECT_GT(files, 50);
}

/// Whatever the bytes: a readable file or an Error, and no memory beyond what the file's size explains.
TEST_F(Safetensors, FuzzedFilesNeverCrash) {
  Random random(99);
  const std::string good = file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "F32", "[2,3]", 0, 24) + "," +
                                       entry("b", "BF16", "[4]", 24, 32) + "," + entry("c", "I64", "[]", 32, 40) + "}",
                                   40);
  const int64_t before = peak_memory_bytes();
  int64_t accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = good;
    for (int64_t k = random.integer(1, 3); k > 0; --k) {
      const size_t at = random.integer(0, static_cast<int64_t>(bytes.size()) - 1);
      switch (random.integer(0, 3)) {
        case 0:
          bytes[at] ^= static_cast<char>(1 << random.integer(0, 7));
          break;
        case 1:
          bytes[at] = "0123456789[]{},:\""[random.integer(0, 16)];
          break;
        case 2:
          bytes.erase(at, random.integer(1, 5));
          break;
        case 3:
          bytes.insert(at, random.integer(1, 5), "0123456789[]{},:\""[random.integer(0, 16)]);
          break;
      }
    }
    try {
      const SafetensorsFile file = open(bytes);
      ++accepted;
      for (const StoredTensor& tensor : file.tensors()) {
        int64_t sum = 0;
        for (std::byte byte : file.data(tensor)) sum += std::to_integer<int>(byte);
        ASSERT_GE(sum, 0);
        if (is_readable_float(tensor.type)) {
          std::vector<float> values(tensor.elements);
          file.read(tensor, std::span(values));
        }
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::format) << error.what();
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_LT(accepted, 3000);
  EXPECT_LT(peak_memory_bytes() - before, kMayGrow);
}

/// More tensors than a deep model has; memory in proportion to the header.
TEST_F(Safetensors, ManyTensors) {
  std::vector<float> value{1};
  std::vector<TensorSource> tensors;
  for (int i = 0; i < 20000; ++i) tensors.push_back(float_tensor(fmt::format("layer.{}.weight", i), {1}, value));
  (void)write_safetensors(scratch_.file("many"), tensors);
  const SafetensorsFile file(scratch_.file("many"));
  EXPECT_EQ(file.tensors().size(), 20000U);
  EXPECT_NE(file.find("layer.19999.weight"), nullptr);
}

}  // namespace
}  // namespace keel
