#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "keel/base/error.h"

namespace keel::testing {

/// Runs `body` and returns the Error it throws; fails and returns an internal one if it throws none.
template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no keel::Error was thrown";
  return {ErrorKind::internal, "nothing thrown"};
}

/// Expects an Error of this kind whose line holds the text.
template <class Body>
void expect_error(ErrorKind kind, std::string_view text, Body body) {
  const Error error = error_of(body);
  EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
  EXPECT_NE(std::string_view(error.what()).find(text), std::string_view::npos) << error.what();
}

}  // namespace keel::testing

/// Expects `statement` to throw a keel::Error of `error_kind` whose line is exactly `line`.
#define KEEL_EXPECT_ERROR(statement, error_kind, line)                                   \
  do {                                                                                   \
    const keel::Error keel_thrown = keel::testing::error_of([&] { (void)(statement); }); \
    EXPECT_EQ(std::string(keel_thrown.what()), std::string(line));                       \
    EXPECT_EQ(static_cast<int>(keel_thrown.kind()), static_cast<int>(error_kind));       \
  } while (false)
