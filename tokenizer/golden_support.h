#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "keel/base/hash.h"
#include "keel/tokenizer/byte_source.h"
#include "keel/tokenizer/test_support.h"
#include "keel/tokenizer/utf8_repair.h"

/// Independent token ids of the larger test data: texts, documents, and what encoders give for them.
namespace keel::testing {

inline std::vector<nlohmann::json> json_lines(const std::string& bytes) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(bytes);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline std::string unpacked(const std::string& path) {
  const auto source = open_source(path);
  std::string bytes, buffer(1 << 16, '\0');
  for (int64_t got; (got = source->read(buffer.data(), static_cast<int64_t>(buffer.size()))) > 0;)
    bytes.append(buffer, 0, static_cast<size_t>(got));
  return bytes;
}

inline std::string from_base64(const std::string& code) {
  const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : code) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return bytes;
}

// `count` letters of an alphabet by a linear congruential generator.
inline std::string lcg_text(uint64_t state, int count, const std::string& alphabet) {
  std::vector<std::string> letters;
  for (size_t i = 0; i < alphabet.size();) {
    size_t size = 1;
    while (i + size < alphabet.size() && (alphabet[i + size] & 0xC0) == 0x80) ++size;
    letters.push_back(alphabet.substr(i, size));
    i += size;
  }
  std::string text;
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += letters[(state >> 33) % letters.size()];
  }
  return text;
}

/// The text of a line of texts.jsonl; bytes that are not UTF-8 as they are.
inline std::string golden_bytes(const nlohmann::json& entry) {
  if (entry.contains("text")) return entry["text"];
  if (entry.contains("b64")) return from_base64(entry["b64"]);
  if (entry.contains("lcg")) return lcg_text(entry["lcg"][0], entry["lcg"][1], entry["lcg"][2]);
  std::string text;
  for (const auto& part : entry["repeat"]) {
    for (int i = 0; i < part[1].get<int>(); ++i) text += part[0].get<std::string>();
  }
  return text;
}

inline std::string golden_text(const nlohmann::json& entry) {
  std::string text;
  append_replacing_invalid_utf8(golden_bytes(entry), text);
  return text;
}

/// `golden` has the ids, or their number and hash.
inline void expect_golden(const nlohmann::json& golden, const std::vector<int32_t>& ids, const std::string& id) {
  if (golden.contains("ids")) {
    EXPECT_EQ(ids, golden["ids"].get<std::vector<int32_t>>()) << id;
    return;
  }
  EXPECT_EQ(static_cast<int64_t>(ids.size()), golden["n"].get<int64_t>()) << id;
  EXPECT_EQ(sha256_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * 4}), golden["sha256"]) << id;
}

/// All texts and documents by their golden ids ("c4:3"), but those in parquet files.
inline std::vector<std::pair<std::string, std::string>> golden_documents() {
  const std::string corpus = testing::test_data()->string() + "/data/corpus/";
  std::vector<std::pair<std::string, std::string>> documents;
  const auto add_lines = [&](const std::string& name, const std::string& path) {
    std::istringstream lines(unpacked(corpus + path));
    int64_t i = 0;
    for (std::string line; std::getline(lines, line); ++i) {
      const bool is_json = path.find("json") != std::string::npos;
      documents.emplace_back(name + ":" + std::to_string(i),
                             is_json ? nlohmann::json::parse(line)["text"].get<std::string>() : line);
    }
  };
  for (const auto& entry : json_lines(testing::get_file(testing::test_data()->string() + "/golden/tokens/texts.jsonl")))
    documents.emplace_back(entry["id"], golden_bytes(entry));
  documents.emplace_back("wikitext:0", testing::get_file(corpus + "wikitext-2-raw/wiki.test.raw"));
  documents.emplace_back("tinyshakespeare:0", testing::get_file(corpus + "tinyshakespeare/input.txt"));
  documents.emplace_back("tinystories:0", testing::get_file(corpus + "tinystories/tinystories_sample.txt"));
  add_lines("c4", "c4/c4-sample.00000-of-00001.json.gz");
  add_lines("cc", "common-crawl/CC-MAIN-20190717121559-20190717143559-00140.jsonl.gz");
  add_lines("dolma", "dolma-cc/cc_en_head-0091.jsonl.gz");
  for (const char* language : {"eng_Latn", "zho_Hans", "deu_Latn", "fra_Latn", "rus_Cyrl"})
    add_lines(language, std::string("flores200/") + language + ".dev");
  const auto japanese = nlohmann::json::parse(testing::get_file(corpus + "fineweb2-jpn/fineweb_100_samples.json"));
  for (size_t i = 0; i < japanese.size(); ++i) documents.emplace_back("jpn:" + std::to_string(i), japanese[i]["text"]);
  return documents;
}

/// The golden lines of a tokenizer by id.
inline std::map<std::string, nlohmann::json> golden_lines(const std::string& name) {
  std::map<std::string, nlohmann::json> by_id;
  const std::string path = testing::test_data()->string() + "/golden/tokens/" + name + ".jsonl";
  for (nlohmann::json& line : json_lines(testing::get_file(path))) by_id[line["id"].get<std::string>()] = line;
  return by_id;
}

}  // namespace keel::testing
