#include "keel/base/options.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "keel/base/config.h"
#include "support/child.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::error_of;

ConfigSchema schema() {
  return ConfigSchema({{.path = "train.steps", .type = ConfigType::integer, .unit = "updates", .minimum = 1},
                       {.path = "train.warmup_steps", .type = ConfigType::integer, .initial = "0"},
                       {.path = "train.seed", .type = ConfigType::integer},
                       {.path = "data.shuffle", .type = ConfigType::boolean, .initial = "true"},
                       {.path = "optimizer.betas", .type = ConfigType::real_list, .initial = "[0.9, 0.95]"}});
}

Tool single() {
  Tool tool{.name = "keel-one", .summary = "one job", .examples = {{"keel-one --out d", "does it"}}};
  tool.options = {{.name = "INPUT", .type = OptionType::file, .repeatable = true, .help = "Files to read."},
                  {.name = "-o,--out", .type = OptionType::directory, .required = true, .help = "Where to."},
                  {.name = "--scale", .type = OptionType::real, .initial = "1.5", .minimum = 0, .above_minimum = true},
                  {.name = "--part", .type = OptionType::size, .choices = {"auto"}},
                  {.name = "--wait", .type = OptionType::duration, .initial = "1m"},
                  {.name = "--where", .repeatable = true},
                  {.name = "--tasks", .list = true, .help = "Names."},
                  {.name = "--ids", .type = OptionType::integer, .list = true},
                  {.name = "--mode", .type = OptionType::choice, .initial = "plain", .choices = {"plain", "parse"}},
                  {.name = "--bos", .type = OptionType::flag, .negatable = true},
                  {.name = "--secret", .type = OptionType::flag, .hidden = true}};
  for (const char* key : {"train.steps", "data.shuffle", "optimizer.betas"}) {
    tool.options.push_back(
        option_of_key(schema(), key, "--" + std::string(key).substr(std::string(key).find('.') + 1)));
  }
  tool.options.push_back(seed_option("train.seed"));
  tool.options.push_back(threads_option());
  for (Option& option : config_options(schema())) tool.options.push_back(option);
  for (Option& option : device_options()) tool.options.push_back(option);
  static const ConfigSchema known = schema();
  tool.config = &known;
  return tool;
}

Tool several() {
  Tool tool{.name = "keel-many", .summary = "several jobs"};
  tool.commands = {{.name = "encode",
                    .summary = "text to tokens",
                    .options = {{.name = "INPUT", .type = OptionType::file, .required = true, .repeatable = true},
                                {.name = "--out", .type = OptionType::directory, .required = true}},
                    .examples = {{"keel-many encode a.txt --out d"}}},
                   {.name = "info",
                    .summary = "counts",
                    .options = {{.name = "DIR", .type = OptionType::directory, .required = true},
                                {.name = "--verify", .type = OptionType::flag}},
                    .examples = {{"keel-many info d"}}}};
  tool.options = {threads_option()};
  return tool;
}

Options parse(const Tool& tool, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), tool.name);
  return parse_options(tool, arguments);
}

Options parse_one(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--out", "d"});
  return parse(single(), std::move(arguments));
}

TEST(Options, ReadsEveryType) {
  const Options options = parse_one({"a.txt",  "--scale=2e-1", "--part", "1G",      "--wait", "2h",    "--where",
                                     "x>=3",   "--where",      "y==1",   "--tasks", "a,b",    "--ids", "3,-4",
                                     "--mode", "parse",        "--bos",  "--steps", "7",      "b.txt"});
  EXPECT_EQ(options.texts("INPUT"), (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(options.text("--out"), "d");
  EXPECT_EQ(options.real("--scale"), 0.2);
  EXPECT_EQ(options.integer("--part"), 1'000'000'000);
  EXPECT_EQ(options.real("--wait"), 7200);
  EXPECT_EQ(options.texts("--where"), (std::vector<std::string>{"x>=3", "y==1"}));
  EXPECT_EQ(options.texts("--tasks"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.integers("--ids"), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(options.text("--mode"), "parse");
  EXPECT_TRUE(options.flag("--bos"));
  EXPECT_EQ(options.integer("--steps"), 7);
  EXPECT_EQ(options.arguments().front(), "keel-one");
}

TEST(Options, DefaultsAreNotGiven) {
  const Options options = parse_one({});
  EXPECT_EQ(options.real("--scale"), 1.5);
  EXPECT_EQ(options.real("--wait"), 60);
  EXPECT_EQ(options.text("--mode"), "plain");
  EXPECT_TRUE(options.has("--mode"));
  EXPECT_FALSE(options.is_given("--mode"));
  EXPECT_FALSE(options.has("--steps"));
  EXPECT_FALSE(options.flag("--bos"));
  EXPECT_FALSE(options.is_given("--bos"));
  EXPECT_EQ(options.find_integer("--steps"), std::nullopt);
  EXPECT_TRUE(options.texts("INPUT").empty());
  KEEL_EXPECT_ERROR(options.integer("--steps"), ErrorKind::usage,
                    "--steps must be given: 'keel-one -h' shows how it is called");
}

TEST(Options, FormsOfTheSameThing) {
  EXPECT_EQ(parse(single(), {"-o", "e"}).text("--out"), "e");
  EXPECT_EQ(parse(single(), {"-oe"}).text("--out"), "e");
  EXPECT_EQ(parse(single(), {"--out=e"}).text("--out"), "e");
  EXPECT_EQ(parse(single(), {"--out=e", "--out", "f"}).text("--out"), "f") << "the last one holds";
  EXPECT_TRUE(parse_one({"--no-bos"}).is_given("--bos"));
  EXPECT_FALSE(parse_one({"--bos", "--no-bos"}).flag("--bos"));
  EXPECT_TRUE(parse_one({"--no-bos", "--bos"}).flag("--bos"));
  EXPECT_TRUE(parse_one({"--part", "auto"}).is_word("--part"));
  EXPECT_EQ(parse_one({"-"}).texts("INPUT"), std::vector<std::string>{"-"}) << "the standard stream";
  EXPECT_EQ(parse(single(), {"--out", "d", "--", "--odd-name"}).texts("INPUT"), std::vector<std::string>{"--odd-name"});
  EXPECT_EQ(parse_one({"--where", "-x"}).text("--where"), "-x");
}

TEST(Options, RefusesWithOneHelpfulLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--sclae", "2"}, "unknown option '--sclae': did you mean '--scale'?"},
      {{"--sclae=2"}, "unknown option '--sclae': did you mean '--scale'?"},
      {{"--no-boss"}, "unknown option '--no-boss': did you mean '--no-bos'?"},
      {{"--warmup-steps", "3"}, "unknown option '--warmup-steps': use --set train.warmup_steps=..."},
      {{"--zzzzzzzz"}, "unknown option '--zzzzzzzz': --help lists all options"},
      {{"-x"}, "unknown option '-x': --help lists all options"},
      {{"--scale", "2x"}, "--scale must be a number above 0, found '2x'"},
      {{"--scale", "0"}, "--scale must be a number above 0, found 0"},
      {{"--scale", "nan"}, "--scale must be a number above 0, found 'nan'"},
      {{"--steps", "1.5"}, "--steps must be an integer of at least 1, found 1.5"},
      {{"--steps", ""}, "--steps must be an integer of at least 1, found ''"},
      {{"--part", "5X"}, "--part must be a size such as 4096, 8GB or 512MiB, or auto, found '5X'"},
      {{"--wait", "1m2h"}, "--wait must be a duration such as 90, 30m or 2h30m, found '1m2h'"},
      {{"--mode", "pars"}, "unknown --mode 'pars': did you mean 'parse'?"},
      {{"--ids", "1,x"}, "--ids must be an integer, found 'x'"},
      {{"--scale"}, "--scale needs a value, found the option '--out'"},
      {{"--bos=1"}, "--bos takes no value"},
  };
  for (const auto& [arguments, line] : cases) {
    SCOPED_TRACE(line);
    KEEL_EXPECT_ERROR(parse_one(arguments), ErrorKind::usage, line);
  }
  KEEL_EXPECT_ERROR(parse(single(), {}), ErrorKind::usage, "--out must be given: 'keel-one -h' shows how it is called");
  KEEL_EXPECT_ERROR(parse(single(), {"--out"}), ErrorKind::usage, "--out needs a value: --out DIR");
}

TEST(Options, Commands) {
  const Options options = parse(several(), {"encode", "a", "b", "--threads", "3", "--out", "d"});
  EXPECT_EQ(options.command(), "encode");
  EXPECT_EQ(options.texts("INPUT"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.integer("--threads"), 3);
  EXPECT_EQ(parse(several(), {"--threads", "3", "info", "d"}).integer("--threads"), 3);
  EXPECT_EQ(error_of([&] { (void)options.text("DIR"); }).kind(), ErrorKind::internal);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "no command given: 'keel-many -h' lists them"},
      {{"encod", "a"}, "unknown command 'encod': did you mean 'encode'?"},
      {{"train"}, "unknown command 'train': one of encode, info"},
      {{"encode", "--out", "d"}, "INPUT must be given: 'keel-many encode -h' shows how it is called"},
      {{"encode"}, "INPUT, --out must be given: 'keel-many encode -h' shows how it is called"},
      {{"info", "d", "e"}, "unexpected argument 'e': --help shows what is expected"},
      {{"encode", "a", "--out", "d", "--verify"}, "unknown option '--verify': it belongs to 'keel-many info'"},
      {{"info", "d", "--verfy"}, "unknown option '--verfy': did you mean '--verify'?"},
  };
  for (const auto& [arguments, line] : cases) {
    SCOPED_TRACE(line);
    KEEL_EXPECT_ERROR(parse(several(), arguments), ErrorKind::usage, line);
  }
}

TEST(Options, AnOptionalCommandLeavesTheToolItsArguments) {
  Tool tool{.name = "keel-convert", .summary = "converts"};
  tool.options = {{.name = "SRC", .required = true}, {.name = "DST"}};
  tool.commands = {{.name = "tokens", .options = {{.name = "FROM", .required = true}}}};
  tool.command_required = false;
  EXPECT_EQ(parse(tool, {"a", "b"}).text("DST"), "b");
  EXPECT_EQ(parse(tool, {"a", "b"}).command(), "");
  EXPECT_EQ(parse(tool, {"tokens", "x"}).text("FROM"), "x");
  KEEL_EXPECT_ERROR(parse(tool, {"tokens", "x", "y"}), ErrorKind::usage,
                    "unexpected argument 'y': --help shows what is expected");
  KEEL_EXPECT_ERROR(parse(tool, {}), ErrorKind::usage, "SRC must be given: 'keel-convert -h' shows how it is called");
}

TEST(Options, FillAConfig) {
  Config config(schema());
  parse_one({"--steps", "9", "--set", "train.steps=3", "--set", "train.warmup_steps=2", "--no-shuffle", "--betas",
             "0.8,0.99", "--seed", "5"})
      .apply(config);
  EXPECT_EQ(config.integer("train.steps"), 9) << "a flag wins over --set";
  EXPECT_EQ(config.origin("train.steps").text(), "flag --steps");
  EXPECT_EQ(config.integer("train.warmup_steps"), 2);
  EXPECT_FALSE(config.boolean("data.shuffle"));
  EXPECT_EQ(config.reals("optimizer.betas"), (std::vector<double>{0.8, 0.99}));
  EXPECT_EQ(config.integer("train.seed"), 5);
}

TEST(Options, AMissingSettingNamesItsOption) {
  Config config(schema());
  parse_one({}).apply(config);
  KEEL_EXPECT_ERROR(config.integer("train.steps"), ErrorKind::config,
                    "train.steps must be given: --steps N or --set train.steps=...");
}

TEST(Options, Devices) {
  EXPECT_EQ(device_of(parse_one({})), "auto");
  for (const char* device : {"cpu", "cuda", "cuda:1", "cuda-emulated"}) {
    EXPECT_EQ(device_of(parse_one({"--device", device})), device);
  }
  KEEL_EXPECT_ERROR(device_of(parse_one({"--device", "cdua"})), ErrorKind::usage,
                    "unknown device 'cdua' (--device): did you mean 'cuda'?");
  for (const char* bad : {"cuda:x", "cuda:", "cuda:-1", "cuda:99999999999", "cpu:0", "cuda-emulated:1"}) {
    EXPECT_EQ(error_of([&] { (void)device_of(parse_one({"--device", bad})); }).kind(), ErrorKind::usage) << bad;
  }
}

TEST(Options, Threads) {
  EXPECT_GE(threads_of(parse_one({})), 1);
  EXPECT_EQ(threads_of(parse_one({"--threads", "3"})), 3);
  EXPECT_EQ(error_of([&] { (void)parse_one({"--threads", "-1"}); }).kind(), ErrorKind::usage);
}

TEST(Help, IsOneScreenEndingWithExamples) {
  const std::string text = brief_help(single());
  EXPECT_EQ(text.substr(0, 19), "keel-one: one job\n\n");
  EXPECT_NE(text.find("Usage: keel-one [INPUT...] --out DIR [OPTIONS]\n"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\n\nExamples:\n  keel-one --out d\n      does it\n")) << text;
  EXPECT_EQ(text.find("--secret"), std::string::npos);
  EXPECT_EQ(text.find("--version"), std::string::npos) << "the short help is short";
  EXPECT_NE(brief_help(several()).find("  encode  text to tokens\n"), std::string::npos);
  EXPECT_NE(brief_help(several()).find("Examples:\n  keel-many encode a.txt --out d\n  keel-many info d\n"),
            std::string::npos);
}

TEST(Help, NamesEveryOptionWithItsFacts) {
  const std::string text = full_help(single());
  EXPECT_NE(text.find("Settings (groups and keys"), std::string::npos) << "settings without an option of their own";
  for (const Option& option : single().options) {
    if (option.hidden) continue;
    const std::string name = option.negatable ? "--[no-]" + option.name.substr(2) : option.name;
    EXPECT_NE(text.find(name.substr(name.find(',') + 1)), std::string::npos) << name;
  }
  for (const char* fact :
       {"default: 1.5", "above 0", "or auto", "repeatable", "comma-separated", "unit: updates", "sets train.steps",
        "default: 0.9, 0.95", "required", "General:", "Execution:", "Arguments:"}) {
    EXPECT_NE(text.find(fact), std::string::npos) << fact << "\n" << text;
  }
  EXPECT_EQ(text.find("--secret"), std::string::npos);
  const std::string all = full_help(several());
  for (const char* part : {"keel-many encode", "keel-many info", "--verify", "--threads"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part;
  }
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    widest = std::max(widest, text.find('\n', begin) - begin);
  }
  return widest;
}

TEST(Help, IsWrappedToTheColumns) {
  EXPECT_LE(widest_line(full_help(single())), 100U);
  for (const int columns : {60, 80, 120}) {
    const std::string text = full_help(single(), "", columns);
    EXPECT_LE(widest_line(text), static_cast<size_t>(columns)) << text;
    EXPECT_GT(widest_line(text), static_cast<size_t>(columns) - 15) << text;
    EXPECT_LE(widest_line(brief_help(single(), "", columns)), static_cast<size_t>(columns));
    EXPECT_LE(widest_line(full_help(several(), "", columns)), static_cast<size_t>(columns));
  }
}

TEST(Help, SettingsNameTheirOptions) {
  const std::string text = full_help(single());
  const std::string settings = text.substr(text.find("Settings (groups and keys"));
  EXPECT_NE(settings.find("  train.steps         See --steps.\n"), std::string::npos) << settings;
  EXPECT_NE(settings.find("  train.warmup_steps  "), std::string::npos) << settings;
  Tool tool = several();
  tool.config = single().config;
  EXPECT_EQ(full_help(tool).find("Settings ("), std::string::npos) << "nothing sets them";
  for (Option& option : config_options(schema())) tool.commands[0].options.push_back(option);
  EXPECT_NE(full_help(tool).find("Settings ("), std::string::npos);
  EXPECT_NE(full_help(tool, "encode").find("Settings ("), std::string::npos);
  EXPECT_EQ(full_help(tool, "info").find("Settings ("), std::string::npos);
}

TEST(Help, TheDeclarationAsJson) {
  const Json described = describe_options(several());
  EXPECT_EQ(described["tool"].get<std::string>(), "keel-many");
  EXPECT_EQ(described["commands"][0]["options"][1]["name"].get<std::string>(), "--out");
  EXPECT_TRUE(described["commands"][0]["options"][1]["required"].get<bool>());
}

TEST(Options, AConfigFromAPipeIsReadOnce) {
  const testing::TempDir dir;
  const std::filesystem::path pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { testing::put_file(pipe, "{\"train\": {\"steps\": 4, \"seed\": 8}}"); });
  const Options options = parse_one({"--config", pipe.string(), "--set", "train.seed=9"});
  for (int i = 0; i < 2; ++i) {
    Config config(schema());
    options.apply(config);
    EXPECT_EQ(config.integer("train.steps"), 4);
    EXPECT_EQ(config.integer("train.seed"), 9);
    EXPECT_EQ(config.origin("train.steps").text(), pipe.string() + ":1");
  }
  writer.join();
}

TEST(Options, ADashIsAConfigOnStdin) {
  const testing::TempDir dir;
  testing::put_file(dir / "c.json", "{\"train\": {\"stepz\": 4}}");
  const auto child = testing::run_in_child([&] {
    const int file = ::open((dir / "c.json").c_str(), O_RDONLY);
    (void)::dup2(file, STDIN_FILENO);
    Config config(schema());
    try {
      parse_one({"--config", "-"}).apply(config);
    } catch (const Error& error) {
      return std::string(error.what()) == "unknown config key 'train.stepz' (stdin:1:12): did you mean 'train.steps'?"
                 ? 0
                 : 1;
    }
    return 2;
  });
  EXPECT_EQ(child.code, 0);
}

}  // namespace
}  // namespace keel
