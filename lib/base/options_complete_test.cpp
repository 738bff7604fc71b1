#include <gtest/gtest.h>

#include <cstdlib>

#include "keel/base/options.h"
#include "support/child.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

using testing::TempDir;

Tool tool() {
  Tool tool{.name = "keel-tokens", .summary = "it's a test: [of] `quotes` $HOME \\ %"};
  tool.commands = {
      {.name = "encode",
       .summary = "text: 'to' [tokens]",
       .options = {{.name = "INPUT", .type = OptionType::file, .required = true, .repeatable = true},
                   {.name = "-o,--out", .type = OptionType::directory, .help = "It's a folder: $x `y` [z]."},
                   {.name = "--special-in-text", .type = OptionType::choice, .choices = {"plain", "parse"}},
                   {.name = "--bos", .type = OptionType::flag, .negatable = true},
                   {.name = "--workers", .type = OptionType::integer},
                   {.name = "--hush", .type = OptionType::flag, .hidden = true}}},
      {.name = "info", .summary = "counts", .options = {{.name = "DIR", .type = OptionType::directory}}}};
  tool.options = {{.name = "--set",
                   .completions = {"train.steps=", "train.seed=", "schedule.name=", "schedule.name=cosine",
                                   "schedule.name=constant", "schedule.name=wsd"},
                   .repeatable = true}};
  return tool;
}

Tool without_commands() {
  Tool tool{.name = "keel-plain", .summary = "plain"};
  tool.options = {{.name = "SRC", .type = OptionType::file}, {.name = "--set", .completions = {"a.b="}}};
  return tool;
}

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;  // NOLINT: a test
}

/// What a shell prints for a script text.
testing::ChildResult run_shell(const std::string& program, const std::vector<std::string>& arguments) {
  return testing::run_in_child([&] {
    std::vector<char*> pointers = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    ::execvp(program.c_str(), pointers.data());
    return 127;
  });
}

class Completions : public ::testing::TestWithParam<const char*> {};

TEST_P(Completions, PassTheShellsOwnSyntaxCheck) {
  const std::string shell = GetParam();
  if (!has_program(shell)) GTEST_SKIP() << shell << " is not installed";
  const TempDir dir;
  for (const Tool& each : {tool(), without_commands()}) {
    testing::put_file(dir / "script", completion_script(each, shell));
    const auto result = run_shell(shell, {"-n", (dir / "script").string()});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
  }
}

TEST_P(Completions, NameEveryOptionButTheHidden) {
  const std::string shell = GetParam();
  const std::string script = completion_script(tool(), shell);
  for (const char* name : {"out", "special-in-text", "no-bos", "workers", "set", "quiet", "completions"}) {
    const std::string spelled = (shell == "fish" ? "-l " : "--") + std::string(name);
    EXPECT_NE(script.find(spelled), std::string::npos) << spelled;
  }
  EXPECT_EQ(script.find("hush"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Shells, Completions, ::testing::Values("bash", "zsh", "fish"),
                         [](const auto& shell) { return std::string(shell.param); });

/// The words that bash offers for the last of `words`, one a line.
std::string bash_offers(const Tool& tool, const std::vector<std::string>& words) {
  const TempDir dir;
  std::string script = completion_script(tool, "bash") + "cd " + dir.path().string() +
                       "\nmkdir folder; touch file.txt\n" + "compopt() { :; }\nCOMP_WORDS=(";
  for (const std::string& word : words) script += "'" + word + "' ";
  script += ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_" + tool.name + "\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  script.replace(script.rfind("_" + tool.name), tool.name.size() + 1,
                 tool.name == "keel-tokens" ? "_keel_tokens" : "_keel_plain");
  testing::put_file(dir / "run", script);
  return run_shell("bash", {(dir / "run").string()}).out;
}

TEST(BashCompletions, OfferWhatFits) {
  if (!has_program("bash")) GTEST_SKIP() << "bash is not installed";
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", ""}), "encode\ninfo\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "en"}), "encode\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--spec"}), "--special-in-text\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "info", "--spec"}), "\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--special-in-text", "pa"}), "parse\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--special-in-text", "=", "pl"}), "plain\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--special-in-text", "="}), "plain\nparse\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "f"}), "file.txt\nfolder\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--out", "f"}), "folder\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "info", "f"}), "folder\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "train.st"}), "train.steps=\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "sched"}), "schedule.name=\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "schedule.name", "="}), "cosine\nconstant\nwsd\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "schedule.name", "=", "co"}), "cosine\nconstant\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "=", "schedule.name", "=", "w"}), "wsd\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "schedule.name=w"}), "schedule.name=wsd\n")
      << "COMP_WORDBREAKS without =";
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "train.steps", "=", ""}), "\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--set", "train.steps", "=", "3", "--spec"}),
            "--special-in-text\n");
  EXPECT_EQ(bash_offers(tool(), {"keel-tokens", "encode", "--workers", ""}), "\n");
  EXPECT_EQ(bash_offers(without_commands(), {"keel-plain", "f"}), "file.txt\nfolder\n");
  EXPECT_EQ(bash_offers(without_commands(), {"keel-plain", "--log-level", "w"}), "warning\n");
}

/// What a line becomes when Tab is pressed at its end, in an interactive zsh.
std::string zsh_completed(const Tool& tool, const std::string& line) {
  const TempDir dir;
  testing::put_file(dir / ("_" + tool.name), completion_script(tool, "zsh"));
  testing::put_file(
      dir / "init",
      "fpath=(" + dir.path().string() + " $fpath); autoload -Uz compinit; compinit -D -u\n" +
          "show() { print -r -- \"<$BUFFER>\"; BUFFER=; zle accept-line }; zle -N show; bindkey ^X show\n");
  testing::put_file(dir / "run",
                    "zmodload zsh/zpty; zpty shell 'TERM=dumb zsh -f -i'\n"
                    "zpty -w shell 'source " +
                        (dir / "init").string() + "; print rea''dy'\n" +
                        "zpty -r shell out '*ready*'\n"
                        "zpty -n -w shell '" +
                        line + "'$'\\t\\x18'\n" +
                        "zpty -r shell out '*<*>*'\n"
                        "print -r -- ${${out##*<}%%>*}\n");
  return run_shell("timeout", {"20", "zsh", "-f", (dir / "run").string()}).out;
}

TEST(ZshCompletions, CompleteWhatFits) {
  if (!has_program("zsh")) GTEST_SKIP() << "zsh is not installed";
  EXPECT_EQ(zsh_completed(tool(), "keel-tokens inf"), "keel-tokens info \n");
  EXPECT_EQ(zsh_completed(tool(), "keel-tokens encode --special-in-text pa"),
            "keel-tokens encode --special-in-text parse \n");
  EXPECT_EQ(zsh_completed(tool(), "keel-tokens encode --set sched"), "keel-tokens encode --set schedule.name=\n");
  EXPECT_EQ(zsh_completed(tool(), "keel-tokens encode --set schedule.name=w"),
            "keel-tokens encode --set schedule.name=wsd \n");
  EXPECT_EQ(zsh_completed(tool(), "keel-tokens encode --set=schedule.name=cos"),
            "keel-tokens encode --set=schedule.name=cosine \n");
}

TEST(FishCompletions, OfferWhatFits) {
  if (!has_program("fish")) GTEST_SKIP() << "fish is not installed";
  const TempDir dir;
  testing::put_file(dir / "script.fish", completion_script(tool(), "fish"));
  const auto offers = [&](const std::string& line) {
    const std::string command = "source " + (dir / "script.fish").string() + "; complete -C '" + line + "'";
    const auto result = run_shell("fish", {"--no-config", "-c", command});
    EXPECT_EQ(result.err, "");
    return result.out;
  };
  EXPECT_EQ(offers("keel-tokens inf"), "info\tcounts\n");
  EXPECT_EQ(offers("keel-tokens encode --special-in-text pa"), "parse\n");
  EXPECT_EQ(offers("keel-tokens encode --ou"), "--out\tIt's a folder: $x `y` [z].\n");
  EXPECT_EQ(offers("keel-tokens info --ou"), "");
  EXPECT_EQ(offers("keel-tokens encode --set train."), "train.seed=\ntrain.steps=\n");
  EXPECT_EQ(offers("keel-tokens encode --set schedule.name=co"), "schedule.name=constant\nschedule.name=cosine\n");
  EXPECT_EQ(offers("keel-tokens encode --set=schedule.name=w"), "--set=schedule.name=wsd\n");
  EXPECT_EQ(offers("keel-tokens encode --set train.steps="), "");
}

}  // namespace
}  // namespace keel
