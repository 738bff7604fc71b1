#include "keel/base/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::error_of;

ConfigSchema schema() {
  return ConfigSchema({
      {.path = "model.hidden_size", .type = ConfigType::integer, .minimum = 1},
      {.path = "train.steps", .type = ConfigType::integer, .unit = "updates", .minimum = 1},
      {.path = "train.micro_batch_sequences",
       .type = ConfigType::integer,
       .initial = "\"auto\"",
       .minimum = 1,
       .choices = {"auto"}},
      {.path = "train.memory_limit", .type = ConfigType::size},
      {.path = "train.time_limit", .type = ConfigType::duration},
      {.path = "optimizer.learning_rate", .type = ConfigType::real, .minimum = 0, .above_minimum = true},
      {.path = "optimizer.clip", .type = ConfigType::real, .initial = "1.0", .minimum = 0},
      {.path = "optimizer.betas", .type = ConfigType::real_list, .initial = "[0.9, 0.95]", .minimum = 0, .maximum = 1},
      {.path = "optimizer.classes.norm.eps", .type = ConfigType::real},
      {.path = "schedule.name", .type = ConfigType::choice, .initial = "\"cosine\"", .choices = {"cosine", "wsd"}},
      {.path = "data.path", .type = ConfigType::text},
      {.path = "data.shuffle", .type = ConfigType::boolean, .initial = "true"},
      {.path = "data.mixture", .type = ConfigType::any},
      {.path = "checkpoint.at", .type = ConfigType::integer_list, .minimum = 1, .choices = {"log2"}},
      {.path = "sample.prompts", .type = ConfigType::text_list},
  });
}

JsonDocument document(const std::string& text, const std::string& name = "c.json") {
  return {text, name, ErrorKind::config};
}

Config with_file(const std::string& text) {
  Config config(schema());
  config.apply(document(text), ConfigLayer::file);
  return config;
}

TEST(Config, StartsWithDefaults) {
  const Config config(schema());
  EXPECT_EQ(config.real("optimizer.clip"), 1.0);
  EXPECT_EQ(config.reals("optimizer.betas"), (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(config.text("schedule.name"), "cosine");
  EXPECT_TRUE(config.boolean("data.shuffle"));
  EXPECT_TRUE(config.is_word("train.micro_batch_sequences"));
  EXPECT_EQ(config.origin("optimizer.clip").text(), "default");
  EXPECT_FALSE(config.is_given("optimizer.clip"));
  EXPECT_FALSE(config.has("train.steps"));
  EXPECT_EQ(config.find_integer("train.steps"), std::nullopt);
  KEEL_EXPECT_ERROR(config.integer("train.steps"), ErrorKind::config,
                    "train.steps must be given: --set train.steps=...");
}

TEST(Config, ReadsEveryType) {
  const Config config = with_file(R"({"train": {"steps": 1e3, "micro_batch_sequences": 4, "memory_limit": "8GB",
      "time_limit": "1h30m"}, "optimizer": {"learning_rate": 1, "betas": [0, 1], "classes": {"norm": {"eps": 1e-9}}},
      "data": {"path": "d", "shuffle": false, "mixture": [{"path": "x", "weight": 2}]},
      "checkpoint": {"at": [1, 8]}, "sample": {"prompts": ["a", "b"]}})");
  EXPECT_EQ(config.integer("train.steps"), 1000);
  EXPECT_EQ(config.integer("train.micro_batch_sequences"), 4);
  EXPECT_FALSE(config.is_word("train.micro_batch_sequences"));
  EXPECT_EQ(config.integer("train.memory_limit"), 8'000'000'000);
  EXPECT_EQ(config.real("train.time_limit"), 5400);
  EXPECT_EQ(config.real("optimizer.learning_rate"), 1.0);
  EXPECT_EQ(config.real("optimizer.classes.norm.eps"), 1e-9);
  EXPECT_EQ(config.text("data.path"), "d");
  EXPECT_FALSE(config.boolean("data.shuffle"));
  EXPECT_EQ(config.value("data.mixture")[0]["weight"].get<int>(), 2);
  EXPECT_EQ(config.integers("checkpoint.at"), (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(config.texts("sample.prompts"), (std::vector<std::string>{"a", "b"}));
}

TEST(Config, SaysWhereEveryMistakeIs) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"train": {"stpes": 1}})", "unknown config key 'train.stpes' (c.json:1:12): did you mean 'train.steps'?"},
      {R"({"steps": 1})", "unknown config key 'steps' (c.json:1:2): did you mean 'train.steps'?"},
      {R"({"optimzer": {}})", "unknown config key 'optimzer' (c.json:1:2): did you mean 'optimizer'?"},
      {R"({"train": {"wholly_unknown": 1}})", "unknown config key 'train.wholly_unknown' (c.json:1:12)"},
      {R"({"train": {"steps": 0}})", "train.steps must be an integer of at least 1, found 0 (c.json:1:21)"},
      {R"({"train": {"steps": 1.5}})", "train.steps must be an integer of at least 1, found 1.5 (c.json:1:21)"},
      {R"({"train": {"steps": "9"}})", "train.steps must be an integer of at least 1, found '9' (c.json:1:21)"},
      {R"({"train": {"steps": 18446744073709551615}})",
       "train.steps must be an integer of at least 1, found 18446744073709551615 (c.json:1:21)"},
      {R"({"train": {"micro_batch_sequences": "atuo"}})",
       "train.micro_batch_sequences must be an integer of at least 1, or auto, found 'atuo' (c.json:1:37): did you "
       "mean "
       "'auto'?"},
      {R"({"train": {"memory_limit": "8XB"}})",
       "train.memory_limit must be a size such as 4096, 8GB or 512MiB, found '8XB' (c.json:1:28)"},
      {R"({"train": {"time_limit": -1}})",
       "train.time_limit must be a duration such as 90, 30m or 2h30m, found -1 (c.json:1:26)"},
      {R"({"optimizer": {"learning_rate": 0}})",
       "optimizer.learning_rate must be a number above 0, found 0 (c.json:1:33)"},
      {R"({"optimizer": {"betas": [0.9, 1.5]}})",
       "optimizer.betas must be a list of numbers from 0 to 1, found [0.9,1.5] (c.json:1:25)"},
      {R"({"schedule": {"name": "cosin"}})", "unknown schedule.name 'cosin' (c.json:1:23): did you mean 'cosine'?"},
      {R"({"schedule": {"name": 3}})", "schedule.name must be one of cosine, wsd, found 3 (c.json:1:23)"},
      {R"({"data": {"shuffle": 1}})", "data.shuffle must be true or false, found 1 (c.json:1:22)"},
      {R"({"data": {"path": 1}})", "data.path must be a text, found 1 (c.json:1:19)"},
      {R"({"train": 3})", "train must be an object with keys (c.json:1:11)"},
      {R"([1])", "the config must be an object with keys (c.json:1:1)"},
      {R"({"train.steps": 1, "train": {"steps": 2}})", "train.steps is given twice (c.json:1:39)"},
  };
  for (const auto& [text, line] : cases) {
    SCOPED_TRACE(text);
    KEEL_EXPECT_ERROR(with_file(text), ErrorKind::config, line);
  }
}

TEST(Config, NullMeansAbsent) {
  Config config(schema());
  config.apply(document(R"({"train": {"steps": 5}, "optimizer": {"clip": 2}})", "recipe:r"), ConfigLayer::recipe);
  config.apply(document(R"({"train": {"steps": null}, "optimizer": {"clip": null}, "data": null})"), ConfigLayer::file);
  EXPECT_FALSE(config.has("train.steps"));
  EXPECT_EQ(config.real("optimizer.clip"), 1.0);
  EXPECT_EQ(config.origin("optimizer.clip").text(), "default");
}

TEST(Config, PrecedenceDoesNotDependOnTheOrderOfCalls) {
  const auto apply_layer = [](Config& config, int layer) {
    switch (layer) {
      case 0:
        config.apply(document(R"({"optimizer": {"clip": 2}})", "recipe:r"), ConfigLayer::recipe);
        break;
      case 1:
        config.apply(document("{\"optimizer\":\n {\"clip\": 3}}"), ConfigLayer::file);
        break;
      case 2:
        config.apply_set("optimizer.clip=4");
        break;
      default:
        config.apply_flag("optimizer.clip", "5", "--clip");
    }
  };
  const std::vector<std::string> texts = {"default", "recipe:r", "c.json:2", "--set", "flag --clip"};
  const std::vector<std::string> places = {"default", "recipe:r:1:24", "c.json:2:11", "--set optimizer.clip=4",
                                           "--clip"};
  for (unsigned layers = 0; layers < 16; ++layers) {
    for (const bool rising : {true, false}) {
      Config config(schema());
      size_t highest = 0;
      for (int step = 0; step < 4; ++step) {
        const int layer = rising ? step : 3 - step;
        if ((layers >> layer & 1U) == 0) continue;
        apply_layer(config, layer);
        highest = std::max(highest, static_cast<size_t>(layer) + 1);
      }
      EXPECT_EQ(config.real("optimizer.clip"), static_cast<double>(highest) + 1);
      EXPECT_EQ(config.origin("optimizer.clip").text(), texts[highest]);
      EXPECT_EQ(config.where("optimizer.clip"), places[highest]);
    }
  }
}

TEST(Config, SetTakesJsonOrText) {
  Config config(schema());
  config.apply_set("train.steps=1e3");
  config.apply_set("data.path=a=b c");
  config.apply_set("optimizer.betas=0.8,0.9");
  config.apply_set("checkpoint.at=[2, 4]");
  config.apply_set("schedule.name=\"wsd\"");
  config.apply_set("train.memory_limit=2GiB");
  config.apply_set("train.time_limit=90");
  config.apply_set("sample.prompts=one,two");
  config.apply_set("data.shuffle=false");
  EXPECT_EQ(config.integer("train.steps"), 1000);
  EXPECT_EQ(config.text("data.path"), "a=b c");
  EXPECT_EQ(config.reals("optimizer.betas"), (std::vector<double>{0.8, 0.9}));
  EXPECT_EQ(config.integers("checkpoint.at"), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(config.text("schedule.name"), "wsd");
  EXPECT_EQ(config.integer("train.memory_limit"), int64_t{2} << 30);
  EXPECT_EQ(config.real("train.time_limit"), 90);
  EXPECT_EQ(config.texts("sample.prompts"), (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE(config.boolean("data.shuffle"));
  config.apply_set("data.path=123");
  EXPECT_EQ(config.text("data.path"), "123") << "a path may look like a number";
  config.apply_set("checkpoint.at=log2");
  EXPECT_TRUE(config.is_word("checkpoint.at"));
  config.apply_set("checkpoint.at=7");
  EXPECT_EQ(config.integers("checkpoint.at"), (std::vector<int64_t>{7}));
  config.apply_set("train.steps=null");
  EXPECT_FALSE(config.has("train.steps"));
}

TEST(Config, SetRefusesWithTheArgument) {
  Config config(schema());
  KEEL_EXPECT_ERROR(config.apply_set("train.stpes=1"), ErrorKind::config,
                    "unknown config key 'train.stpes' (--set train.stpes=1): did you mean 'train.steps'?");
  KEEL_EXPECT_ERROR(config.apply_set("train.steps"), ErrorKind::config,
                    "--set takes KEY=VALUE (--set train.steps): as in --set train.steps=100");
  KEEL_EXPECT_ERROR(config.apply_set("train.steps=x"), ErrorKind::config,
                    "train.steps must be an integer of at least 1, found 'x' (--set train.steps=x)");
  KEEL_EXPECT_ERROR(config.apply_set("train.steps=1x"), ErrorKind::config,
                    "train.steps must be an integer of at least 1, found '1x' (--set train.steps=1x)");
  KEEL_EXPECT_ERROR(config.apply_set("optimizer.betas=0.9,x"), ErrorKind::config,
                    "optimizer.betas must be a list of numbers from 0 to 1, found [0.9,\"x\"] (--set "
                    "optimizer.betas=0.9,x)");
  KEEL_EXPECT_ERROR(config.apply_set("optimizer.clip=nan"), ErrorKind::config,
                    "optimizer.clip must be a number of at least 0, found 'nan' (--set optimizer.clip=nan)");
  KEEL_EXPECT_ERROR(config.apply_set("schedule.name="), ErrorKind::config,
                    "unknown schedule.name '' (--set schedule.name=): one of cosine, wsd");
}

TEST(Config, KnowsPlacesInsideLists) {
  const Config config = with_file("{\"data\": {\"mixture\": [\n  {\"path\": \"x\",\n   \"weight\": -1}]}}");
  EXPECT_EQ(config.where("data.mixture"), "c.json:1:22");
  EXPECT_EQ(config.where("data.mixture", "/0/weight"), "c.json:3:14");
  EXPECT_EQ(config.where("data.mixture", "/9"), "c.json:1:22");
  EXPECT_STREQ(config.error("data.mixture", "bad", "mend it").what(), "bad (c.json:1:22): mend it");
}

TEST(Config, ReadsFilesAndPartsOfThem) {
  const testing::TempDir dir;
  testing::put_file(dir / "run.json", R"({"tool": "x", "config": {"train": {"steps": 7}}})");
  Config config(schema());
  config.apply_file(dir / "run.json", ConfigLayer::file, "/config");
  EXPECT_EQ(config.integer("train.steps"), 7);
  EXPECT_EQ(config.where("train.steps"), (dir / "run.json").string() + ":1:45");
  EXPECT_EQ(error_of([&] { config.apply_file(dir / "run.json", ConfigLayer::file, "/none"); }).kind(),
            ErrorKind::config);
  EXPECT_EQ(error_of([&] { config.apply_file(dir / "none.json"); }).kind(), ErrorKind::io);
  testing::put_file(dir / "torn.json", R"({"train": {"steps")");
  EXPECT_EQ(error_of([&] { config.apply_file(dir / "torn.json"); }).kind(), ErrorKind::config);
}

TEST(Config, PrintsAndReadsBackEqual) {
  Config config = with_file(R"({"optimizer": {"learning_rate": 0.1}, "model": {"hidden_size": 64}})");
  config.apply_set("train.steps=10");
  EXPECT_EQ(json_text(config.to_json()),
            R"({"model":{"hidden_size":64},"train":{"steps":10,"micro_batch_sequences":"auto"},)"
            R"("optimizer":{"learning_rate":0.1,"clip":1.0,"betas":[0.9,0.95]},"schedule":{"name":"cosine"},)"
            R"("data":{"shuffle":true}})");
  EXPECT_TRUE(differences(config, with_file(config.print(false))).empty());
  EXPECT_EQ(config.print(true), R"(model.hidden_size = 64                # c.json:1
train.steps = 10                      # --set
train.micro_batch_sequences = "auto"  # default
optimizer.learning_rate = 0.1         # c.json:1
optimizer.clip = 1.0                  # default
optimizer.betas = [0.9,0.95]          # default
schedule.name = "cosine"              # default
data.shuffle = true                   # default
)");
}

TEST(Config, DifferencesNameBothValues) {
  Config before(schema());
  before.apply_set("train.steps=10");
  Config after = before;
  after.apply_set("train.steps=20");
  after.apply_set("data.path=d");
  const auto found = differences(before, after);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key, "train.steps");
  EXPECT_EQ(found[0].before, "10");
  EXPECT_EQ(found[0].after, "20");
  EXPECT_EQ(found[1].before, "absent");
  EXPECT_EQ(found[1].after, "\"d\"");
  EXPECT_EQ(before.integer("train.steps"), 10) << "a copy is independent";
}

TEST(Config, ValuesOfTheProgramHaveAnOrigin) {
  Config config(schema());
  config.apply_value("model.hidden_size", 64, {ConfigLayer::file, "data/manifest.json", {}});
  EXPECT_EQ(config.integer("model.hidden_size"), 64);
  EXPECT_EQ(config.where("model.hidden_size"), "data/manifest.json");
  EXPECT_EQ(error_of([&] { config.apply_value("model.hidden_size", 0, {}); }).kind(), ErrorKind::config);
}

TEST(Config, OurOwnMistakesAreInternalErrors) {
  Config config(schema());
  EXPECT_EQ(error_of([&] { (void)config.has("train.stpes"); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { (void)config.text("optimizer.clip"); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { (void)config.integer("train.micro_batch_sequences"); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { ConfigSchema twice({{.path = "a"}, {.path = "a"}}); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] { ConfigSchema group({{.path = "a.b"}, {.path = "a"}}); }).kind(), ErrorKind::internal);
  EXPECT_EQ(error_of([&] {
              ConfigSchema bad({{.path = "a", .type = ConfigType::integer, .initial = "0", .minimum = 1}});
            }).kind(),
            ErrorKind::internal);
}

TEST(ConfigSchema, AtNamesTheNearest) {
  const ConfigSchema known = schema();
  EXPECT_EQ(known.at("train.steps").unit, "updates");
  EXPECT_EQ(known.find("train"), nullptr);
  EXPECT_TRUE(known.is_group("optimizer.classes"));
  EXPECT_FALSE(known.is_group("optimizer.clip"));
  KEEL_EXPECT_ERROR(known.at("optimizer.cilp", "here"), ErrorKind::config,
                    "unknown config key 'optimizer.cilp' (here): did you mean 'optimizer.clip'?");
}

TEST(Config, AGroupIsNoSetting) {
  Config config(schema());
  KEEL_EXPECT_ERROR(config.apply_set("schedule=3"), ErrorKind::config,
                    "'schedule' is a group of keys, not a setting (--set schedule=3): its keys are schedule.name");
  KEEL_EXPECT_ERROR(config.apply_set("optimizer=3"), ErrorKind::config,
                    "'optimizer' is a group of keys, not a setting (--set optimizer=3): its keys are "
                    "optimizer.learning_rate, optimizer.clip, optimizer.betas, optimizer.classes.*");
}

TEST(Config, OddKeysAreNamedWhole) {
  KEEL_EXPECT_ERROR(with_file("{\"tr\\u0000ain\\u001b\\n\": 1}"), ErrorKind::config,
                    "unknown config key 'tr\\x00ain\\x1b\\n' (c.json:1:2)");
  Config config(schema());
  const std::string key(1000, 'k');
  KEEL_EXPECT_ERROR(config.apply_set(key + "=1"), ErrorKind::config,
                    "unknown config key '" + std::string(60, 'k') + "...' (--set " + std::string(200, 'k') + "...)");
}

}  // namespace
}  // namespace keel
