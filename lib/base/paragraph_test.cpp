#include "keel/base/paragraph.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

TEST(Paragraph, LinesEndBeforeTheWidth) {
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("one two three", 6), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(wrap("a incomprehensible b", 4), (std::vector<std::string>{"a", "incomprehensible", "b"}));
  EXPECT_EQ(wrap("", 4), std::vector<std::string>{""});
}

TEST(Paragraph, LinesAfterTheFirstAreIndented) {
  EXPECT_EQ(paragraph("one two three", 11, 4), "one two\n    three");
  EXPECT_EQ(paragraph("one", 11, 4), "one");
}

}  // namespace
}  // namespace keel
