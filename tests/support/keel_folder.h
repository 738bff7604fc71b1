#pragma once

#include <cstdint>
#include <string>

#include "keel/base/hash.h"
#include "support/open_data.h"

namespace keel::testing {

/// A shard as manifest.json describes it.
inline std::string shard_entry(const Scratch& scratch, const std::string& name, int64_t tokens, int64_t documents) {
  const std::string bin = get_file(scratch.file(name + ".bin")), idx = get_file(scratch.file(name + ".idx"));
  return R"({"name": ")" + name + R"(", "tokens": )" + std::to_string(tokens) + R"(, "documents": )" +
         std::to_string(documents) + R"(, "bin": {"bytes": )" + std::to_string(bin.size()) + R"(, "xxh3": ")" +
         hex(xxh3(bin)) + R"("}, "idx": {"bytes": )" + std::to_string(idx.size()) + R"(, "xxh3": ")" + hex(xxh3(idx)) +
         R"("}})";
}

/// A small data set of keel-tokenize.
struct KeelFolder {
  Scratch scratch;
  std::string manifest;

  KeelFolder() {
    write_megatron(scratch, "train-00000", {{5, 6, 2}, {7, 2}});
    write_megatron(scratch, "train-00001", {{8, 2}});
    write_megatron(scratch, "val-00000", {{9, 2}});
    scratch.write("m.model", "tokenizer");
    manifest = R"({"schema": "keel.tokens/1", "extra": 1, "tokenizer": {"file": "m.model", "sha256": ")" +
               sha256_hex("tokenizer") + R"(", "vocab_size": 330, "eod_id": 2}, "shards": [)" +
               shard_entry(scratch, "val-00000", 2, 1) + ", " + shard_entry(scratch, "train-00001", 2, 1) + ", " +
               shard_entry(scratch, "train-00000", 5, 2) + "]}";
    scratch.write("manifest.json", manifest);
  }
  std::string refuse_with(const std::string& old_text, const std::string& new_text) const {
    std::string changed = manifest;
    changed.replace(changed.find(old_text), old_text.size(), new_text);
    scratch.write("manifest.json", changed);
    return open_error(ErrorKind::format, scratch.file(""));
  }
};

}  // namespace keel::testing
