#include "keel/tokenizer/encode_settings.h"

#include "keel/tokenizer/test_support.h"

namespace keel {
namespace {

TEST(EncodeSettings, AreCheckedWithTheirPlace) {
  const auto resolve = [](const std::vector<std::string>& assignments) {
    Config config(encode_schema());
    for (const std::string& assignment : assignments) config.apply_set(assignment);
    return resolve_encode_options(config, 3);
  };
  const EncodeOptions defaults = resolve({});
  EXPECT_EQ(defaults.workers, 3);
  EXPECT_EQ(defaults.shard_tokens, 1000000000);
  EXPECT_EQ(defaults.documents.max_bytes, int64_t{1} << 30);
  EXPECT_TRUE(defaults.append_eod);
  EXPECT_EQ(defaults.text_rule.kind, RecordRule::Kind::whole);
  EXPECT_EQ(resolve({"shard_tokens=2G"}).shard_tokens, 2000000000);
  EXPECT_EQ(resolve({"part=2/4"}).part, 1);
  EXPECT_EQ(resolve({"on_error=skip", "max_errors=0.1%"}).max_error_fraction, 0.001);
  EXPECT_EQ(resolve({"on_error=skip", "max_errors=10"}).max_errors, 10);
  EXPECT_EQ(resolve({"documents=<|end|>"}).text_rule.mark, "<|end|>");
  EXPECT_EQ(resolve({"where=[\"a>=3\",\"b==x\"]"}).documents.conditions.size(), 2u);
  const auto refused = [&](const std::vector<std::string>& assignments, std::string_view message) {
    testing::expect_error(ErrorKind::config, message, [&] { resolve(assignments); });
  };
  refused({"part=0/4"}, "from 1 to N");
  refused({"part=5/4"}, "from 1 to N");
  refused({"part=2"}, "share");
  refused({"max_errors=10"}, "--on-error skip");
  refused({"on_error=skip", "max_errors=many"}, "neither");
  refused({"on_error=skip", "max_errors=101%"}, "share");
  refused({"format=parquet"}, "parquet");
  refused({"format=json"}, "json");
  refused({"dtype=int16"}, "dtype");
  refused({"text_field="}, "empty field");
  refused({"id_field="}, "empty field");
  refused({"format=txt", "where=[\"a>=3\"]"}, "format is txt");
}

}  // namespace
}  // namespace keel
