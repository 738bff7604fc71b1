#include <glob.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/hash.h"
#include "keel/base/suggest.h"
#include "keel/data/data_manifest.h"
#include "keel/data/token_shards.h"
#include "token_stream.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
using detail::Shard;

constexpr std::array<std::pair<DataFormat, std::string_view>, 5> kFormats{{{DataFormat::automatic, "auto"},
                                                                           {DataFormat::keel, "keel"},
                                                                           {DataFormat::megatron, "megatron"},
                                                                           {DataFormat::llmc, "llmc"},
                                                                           {DataFormat::nanogpt, "nanogpt"}}};

/// What the user named, taken apart: the .bin files in name order.
struct Files {
  std::vector<std::string> bins;
  bool several = false;  ///< a folder or a pattern, so that names tell the splits
};

bool is_file(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(path, code);
}

bool is_folder(const std::string& path) {
  std::error_code code;
  return fs::is_directory(path, code);
}

std::string index_of(const std::string& bin) {
  return fs::path(bin).replace_extension(".idx").string();
}

std::vector<std::string> bins_in_folder(const std::string& folder) {
  std::vector<std::string> bins;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    const fs::path& path = entry->path();
    if (path.extension() == ".bin") bins.push_back(path.string());
    if (path.extension() == ".idx") require_file(fs::path(path).replace_extension(".bin"));
  }
  if (code) throw system_error("cannot read folder", folder, code.value());
  std::sort(bins.begin(), bins.end());
  return bins;
}

std::vector<std::string> bins_of_pattern(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> bins;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      fs::path path(found.gl_pathv[i]);
      if (path.extension() == ".idx" || path.extension() == ".mask") path.replace_extension(".bin");
      bins.push_back(path.string());
    }
  }
  ::globfree(&found);
  std::sort(bins.begin(), bins.end());
  bins.erase(std::unique(bins.begin(), bins.end()), bins.end());
  return bins;
}

Files find_files(const std::string& path) {
  if (is_folder(path)) return {bins_in_folder(path), true};
  if (is_file(path + ".bin") || is_file(path + ".idx")) {
    require_file(path + ".bin");
    return {{path + ".bin"}};
  }
  if (is_file(path)) {
    const fs::path named(path);
    if (named.extension() != ".idx") return {{path}};
    require_file(fs::path(named).replace_extension(".bin"));
    return {{fs::path(named).replace_extension(".bin").string()}};
  }
  if (path.find_first_of("*?[") != std::string::npos) {
    Files files{bins_of_pattern(path), true};
    if (files.bins.empty()) throw Error(ErrorKind::io, "no file matches", path);
    return files;
  }
  throw Error(ErrorKind::io, "no such data: neither a folder, a file nor a prefix of .bin and .idx files", path);
}

/// Whether one of the words of the file's name, between - _ and . , says validation.
bool is_validation_name(const std::string& path) {
  std::string word;
  for (const char c : fs::path(path).stem().string() + ".") {
    if (c != '-' && c != '_' && c != '.') {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "val" || word == "valid" || word == "validation") return true;
    word.clear();
  }
  return false;
}

DataFormat recognise(const std::string& bin) {
  if (is_file(index_of(bin))) return DataFormat::megatron;
  if (detail::is_llmc_shard(bin)) return DataFormat::llmc;
  if (fs::path(bin).extension() == ".bin" && fs::file_size(bin) == 0) {
    throw Error(ErrorKind::format, "0 bytes and no .idx file beside it", bin);
  }
  throw Error(ErrorKind::format, "not a token shard: no .idx file beside it and no llm.c header", bin,
              "say --data-format nanogpt if it is headerless uint16 tokens");
}

Shard open_shard(const std::string& bin, DataFormat format) {
  switch (format) {
    case DataFormat::llmc:
      return detail::open_llmc_shard(bin);
    case DataFormat::nanogpt:
      return detail::open_nanogpt_shard(bin);
    default:
      return detail::open_megatron_shard(bin);
  }
}

/// Splits with tokens; a split without any is as good as absent.
void set_streams(TokenData& data, std::vector<Shard> train, std::vector<Shard> val) {
  data.train = detail::make_stream(std::move(train));
  data.val = detail::make_stream(std::move(val));
  if (data.train && data.train->tokens() == 0) data.train.reset();
  if (data.val && data.val->tokens() == 0) data.val.reset();
  if (!data.train && !data.val) throw Error(ErrorKind::format, "the data has no tokens", data.path);
}

void refuse_unlisted(const std::string& folder, const DataManifest& manifest) {
  const std::vector<std::string> names = unlisted_shard_files(folder, manifest);
  if (names.empty()) return;
  throw Error(ErrorKind::format, "not in the manifest of its folder", (fs::path(folder) / names.front()).string());
}

/// All files of the tokenizer, read once.
std::vector<FileContent> read_tokenizer_files(const fs::path& main, const std::string& sha256) {
  std::vector<FileContent> files{{main.filename().string(), read_file(main)}};
  if (sha256_hex(files.front().bytes) != sha256) {
    throw Error(ErrorKind::format, "not the tokenizer of the manifest: its SHA-256 differs", main.string());
  }
  const auto add = [&](const char* name) {
    const fs::path path = main.parent_path() / name;
    if (is_file(path)) files.push_back({name, read_file(path)});
  };
  if (main.filename() == "vocab.json") add("merges.txt");
  if (main.extension() == ".json") {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) add(name);
  }
  return files;
}

TokenData open_keel_folder(const std::string& path) {
  TokenData data;
  data.path = path;
  data.format = DataFormat::keel;
  data.manifest_path = (fs::path(path) / kManifestName).string();
  DataManifest manifest = read_data_manifest(path);
  refuse_unlisted(path, manifest);
  std::sort(manifest.shards.begin(), manifest.shards.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<Shard> train, val;
  for (const auto& recorded : manifest.shards) {
    Shard shard = detail::open_megatron_shard((fs::path(path) / (recorded.name + ".bin")).string());
    require_as_recorded(manifest, recorded, *shard.index, shard.file);
    shard.info.xxh3 = recorded.bin.xxh3;
    (recorded.name.starts_with("val-") ? val : train).push_back(std::move(shard));
  }
  if (manifest.tokenizer) {
    data.vocab_size = manifest.tokenizer->vocab_size;
    data.eod_id = manifest.tokenizer->eod_id;
    data.tokenizer_path = (fs::path(path) / manifest.tokenizer->file).string();
    data.tokenizer_sha256 = manifest.tokenizer->sha256;
    data.tokenizer_files = read_tokenizer_files(data.tokenizer_path, data.tokenizer_sha256);
  }
  set_streams(data, std::move(train), std::move(val));
  return data;
}

}  // namespace

DataFormat data_format(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [format, text] : kFormats) {
    if (text == name) return format;
    known.emplace_back(text);
  }
  throw Error(ErrorKind::usage, fmt::format("unknown data format '{}'", name), "--data-format",
              suggestion(name, known));
}

std::string_view to_string(DataFormat format) {
  for (const auto& [known, text] : kFormats) {
    if (known == format) return text;
  }
  throw Error(ErrorKind::internal, "unknown data format");
}

TokenData open_token_data(const std::string& path, DataFormat format) {
  std::error_code code;
  const bool has_manifest = fs::exists(fs::path(path) / kManifestName, code);
  if (format == DataFormat::keel || (format == DataFormat::automatic && has_manifest)) return open_keel_folder(path);
  const Files files = find_files(path);
  if (files.bins.empty()) throw Error(ErrorKind::format, "no token shards (.bin files) in this folder", path);
  TokenData data;
  data.path = path;
  data.format = format == DataFormat::automatic ? recognise(files.bins[0]) : format;
  std::vector<Shard> train, val;
  for (const std::string& bin : files.bins) {
    if (format == DataFormat::automatic && recognise(bin) != data.format) {
      throw Error(ErrorKind::format,
                  fmt::format("{} shards beside {} shards", to_string(recognise(bin)), to_string(data.format)), bin);
    }
    const bool validation = files.several && is_validation_name(bin);
    (validation ? val : train).push_back(open_shard(bin, data.format));
  }
  set_streams(data, std::move(train), std::move(val));
  return data;
}

}  // namespace keel
