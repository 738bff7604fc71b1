#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/base/mapped_file.h"
#include "keel/data/megatron_index.h"
#include "keel/data/token_shards.h"

namespace keel::detail {

/// One shard, open and checked.
struct Shard {
  TokenShard info;
  MappedFile file;
  int64_t data_offset = 0;  ///< bytes before the first token
  std::optional<MegatronIndex> index;
  MappedFile mask;  ///< empty without a mask file

  std::span<const std::byte> tokens(int64_t begin, int64_t count) const {
    const int64_t item = token_dtype_bytes(info.type);
    return file.bytes().subspan(data_offset + begin * item, count * item);
  }
};

/// P.bin with P.idx.
Shard open_megatron_shard(const std::string& bin_path);
/// With llm.c's header.
Shard open_llmc_shard(const std::string& bin_path);
/// Headerless uint16.
Shard open_nanogpt_shard(const std::string& bin_path);
/// True if the file starts with the magic number of an llm.c token shard.
bool is_llmc_shard(const std::string& bin_path);

/// Puts shards one after the other; nullopt when there are none.
std::optional<TokenStream> make_stream(std::vector<Shard> shards);

}  // namespace keel::detail

namespace keel {

struct TokenStream::Impl {
  std::vector<detail::Shard> shards;
  std::vector<TokenShard> infos;
  int64_t tokens = 0;

  /// Index of the shard that holds that token.
  size_t shard_of(int64_t token) const;
};

}  // namespace keel
