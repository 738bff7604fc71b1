#include "keel/eval/template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "keel/base/error.h"
#include "support/errors.h"

namespace keel {
namespace {

const Json kRow = Json::parse(R"({
  "question": " Why?\u00a0", "answer": "B", "n": "2", "number": 7, "half": 0.5, "yes": true, "nothing": null,
  "choices": {"text": ["red", "it's"], "label": ["A", "B"]},
  "options": [{"name": "x"}, {"name": "y"}], "text": "the  cat\nsat on the mat"
})");

std::string text(const std::string& source) {
  return Template(source, "test").text(kRow);
}
Json value(const std::string& source) {
  return Template(source, "test").value(kRow);
}

TEST(Template, TextStaysAsItIs) {
  EXPECT_EQ(text("Question: {{question}}\nAnswer:\n"), "Question:  Why?\xC2\xA0\nAnswer:\n");
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text("{ } }} {a}"), "{ } }} {a}");
  EXPECT_EQ(text("{{'}}'}}"), "}}");
}

TEST(Template, BenchmarkExpressions) {
  EXPECT_EQ(text("{{question.strip()}}|"), "Why?|");
  EXPECT_EQ(value("{{choices.label.index(answer)}}"), 1);
  EXPECT_EQ(value("{{choices.text}}"), Json::parse(R"(["red", "it's"])"));
  EXPECT_EQ(value("{{[answer, n]}}"), Json::parse(R"(["B", "2"])"));
  EXPECT_EQ(text("{{text.split(' ')[:-1]|join(' ')}}"), "the  cat\nsat on the");
  EXPECT_EQ(text("{{' '+text.split(' ')[-1]}}"), " mat");
  EXPECT_EQ(value("{{options|map(attribute='name')|list}}"), Json::parse(R"(["x", "y"])"));
  EXPECT_EQ(value("{{n|int - 1}}"), 1);
  EXPECT_EQ(text("{{choices.text[0]}}{{choices['text'][-1]}}"), "redit's");
  EXPECT_EQ(value("{{text.split(' ')[1:3]}}"), Json::parse(R"(["", "cat\nsat"])"));
  EXPECT_EQ(text("{{answer ~ number ~ \"\\n\"}}"), "B7\n");
  EXPECT_EQ(value("{{(options|first).name.replace('x', 'yy')|length}}"), 2);
  EXPECT_EQ(value("{{choices.text + ['z']}}"), Json::parse(R"(["red", "it's", "z"])"));
}

TEST(Template, ValuesArePythonsInText) {
  EXPECT_EQ(text("{{choices.text}} {{half}} {{yes}} {{nothing}} {{number}}"), "['red', \"it's\"] 0.5 True None 7");
  EXPECT_EQ(text("{{options}}"), "[{'name': 'x'}, {'name': 'y'}]");
  EXPECT_EQ(value("{{number|string}}"), "7");
}

TEST(Template, MissingOrOtherFieldsAreNamed) {
  const auto fails = [](const std::string& source, const std::string& message) {
    KEEL_EXPECT_ERROR(text(source), ErrorKind::format, message);
  };
  fails("{{questoin}}", "there is no field questoin");
  fails("{{choices.tex}}", "there is no field tex");
  fails("{{number.strip()}}", "strip needs a text, found a number");
  fails("{{choices.label.index('C')}}", "'C' is not one of ['A', 'B']");
  fails("{{choices.text[2]}}", "there is no item 2");
  fails("{{question|int}}", "int needs a whole number, found ' Why?\\xa0'");
}

TEST(Template, WhatIsNotUnderstoodIsRefused) {
  const auto refused = [](const std::string& source, const std::string& message) {
    const Error error = testing::error_of([&] { Template(source, "task.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::config) << source;
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  };
  refused("{% if x %}", "not supported (task.json)");
  refused("{{- x }}", "not supported");
  refused("{{ x", "{{ has no }}");
  refused("{{question.stripp()}}", "there is no method stripp");
  refused("{{question|trimm}}", "there is no filter trimm");
  refused("{{question.split()}}", "split takes 1 arguments, found 0");
  refused("{{a if b}}", "'if b' is not understood");
  refused("{{ }}", "a name is missing");
  refused("{{'a}}", "has no }}");
  refused("{{" + std::string(100, '(') + "a" + std::string(100, ')') + "}}", "nested too deeply");
}

}  // namespace
}  // namespace keel
