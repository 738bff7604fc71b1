#include "keel/base/error.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

TEST(Error, JoinsMessagePlaceAndHint) {
  EXPECT_STREQ(Error(ErrorKind::io, "cannot read").what(), "cannot read");
  EXPECT_STREQ(Error(ErrorKind::io, "cannot read", "a.json").what(), "cannot read (a.json)");
  EXPECT_STREQ(Error(ErrorKind::io, "cannot read", "a.json", "make it").what(), "cannot read (a.json): make it");
  EXPECT_STREQ(Error(ErrorKind::io, "cannot read", "", "make it").what(), "cannot read: make it");
}

TEST(Error, ALongMessageLosesItsEndNotItsPlace) {
  const std::string what =
      Error(ErrorKind::format, std::string(999, 'x') + "\u00e9" + std::string(100'000, 'x'), "a.json").what();
  EXPECT_EQ(what, std::string(999, 'x') + "... (a.json)");
}

TEST(Error, EveryKindHasTheExitCodeOfTheContract) {
  EXPECT_EQ(exit_code(ErrorKind::internal), 1);
  EXPECT_EQ(exit_code(ErrorKind::usage), 2);
  EXPECT_EQ(exit_code(ErrorKind::config), 2);
  EXPECT_EQ(exit_code(ErrorKind::format), 3);
  EXPECT_EQ(exit_code(ErrorKind::shape), 3);
  EXPECT_EQ(exit_code(ErrorKind::io), 4);
  EXPECT_EQ(exit_code(ErrorKind::numeric), 5);
  EXPECT_EQ(exit_code(ErrorKind::device), 6);
  EXPECT_EQ(exit_code(ErrorKind::memory), 6);
}

TEST(Error, KeepsItsKind) {
  EXPECT_EQ(Error(ErrorKind::numeric, "x").kind(), ErrorKind::numeric);
}

TEST(Error, IsOneLineWhateverItNames) {
  const std::string name("a\0b\nc\x1b[2J", 9);
  const char* line = "unknown key 'a\\x00b\\nc\\x1b[2J'";
  EXPECT_STREQ(Error(ErrorKind::config, "unknown key '" + name + "'").what(), line);
  EXPECT_STREQ(Error(ErrorKind::config, "bad", name, name).what(), "bad (a\\x00b\\nc\\x1b[2J): a\\x00b\\nc\\x1b[2J");
}

TEST(Error, PlacesAreAdded) {
  const Error error(ErrorKind::format, "no field x", "", "add it");
  EXPECT_STREQ(error.at("row 3").what(), "no field x (row 3): add it");
  EXPECT_STREQ(error.at("row 3").at("a.jsonl").what(), "no field x (a.jsonl, row 3): add it");
  EXPECT_EQ(error.at("row 3").kind(), ErrorKind::format);
}

}  // namespace
}  // namespace keel
