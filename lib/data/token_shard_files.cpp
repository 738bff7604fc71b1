#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "token_file.h"
#include "token_stream.h"

namespace keel::detail {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLlmcHeaderBytes = 1024;

struct LlmcKind {
  int32_t magic, version;
  TokenDtype type;
};
constexpr std::array<LlmcKind, 2> kLlmcKinds{{{20240520, 1, TokenDtype::uint16}, {20240801, 7, TokenDtype::uint32}}};

int32_t header_word(const MappedFile& file, int64_t index) {
  int32_t word;
  std::memcpy(&word, file.bytes().data() + 4 * index, 4);
  return word;
}

/// The kind by magic number alone; nullopt for anything else.
std::optional<LlmcKind> llmc_kind(const MappedFile& file) {
  if (file.size() < 4) return std::nullopt;
  for (const LlmcKind& kind : kLlmcKinds) {
    if (header_word(file, 0) == kind.magic) return kind;
  }
  return std::nullopt;
}

Shard open_shard(const std::string& bin_path) {
  Shard shard;
  shard.file = MappedFile(bin_path);
  shard.info.path = bin_path;
  shard.info.bytes = shard.file.size();
  return shard;
}

/// After info.tokens is known.
void open_mask(Shard& shard) {
  const std::string path = fs::path(shard.info.path).replace_extension(".mask").string();
  if (path == shard.info.path || !fs::exists(path)) return;
  shard.mask = MappedFile(path);
  if (shard.mask.size() != shard.info.tokens) {
    throw Error(ErrorKind::format,
                fmt::format("loss mask of {} bytes for {} tokens, wanted one byte a token", shard.mask.size(),
                            shard.info.tokens),
                path);
  }
  shard.info.mask_path = path;
}

}  // namespace

void require_size(const fs::path& path, int64_t bytes, int64_t wanted, const std::string& because) {
  if (bytes == wanted) return;
  throw Error(ErrorKind::format,
              fmt::format("{}: {} bytes, wanted {} for {}", bytes < wanted ? "truncated" : "trailing bytes", bytes,
                          wanted, because),
              path.string());
}

Shard open_megatron_shard(const std::string& bin_path) {
  Shard shard = open_shard(bin_path);
  shard.info.index_path = fs::path(bin_path).replace_extension(".idx").string();
  shard.index.emplace(shard.info.index_path);
  shard.info.type = shard.index->type();
  shard.info.tokens = shard.index->tokens();
  shard.info.documents = shard.index->documents();
  shard.index->check_bin(shard.file);
  open_mask(shard);
  return shard;
}

bool is_llmc_shard(const std::string& bin_path) {
  return llmc_kind(MappedFile(bin_path)).has_value();
}

Shard open_llmc_shard(const std::string& bin_path) {
  Shard shard = open_shard(bin_path);
  const auto kind = llmc_kind(shard.file);
  if (!kind) throw Error(ErrorKind::format, "not an llm.c token shard: unknown magic number", bin_path);
  if (shard.info.bytes < kLlmcHeaderBytes) {
    require_size(bin_path, shard.info.bytes, kLlmcHeaderBytes, "the header of an llm.c token shard");
  }
  const int32_t version = header_word(shard.file, 1);
  if (version != kind->version) {
    throw Error(ErrorKind::format,
                fmt::format("llm.c token shard {} of version {}, wanted {}", kind->magic, version, kind->version),
                bin_path);
  }
  const int32_t tokens = header_word(shard.file, 2);
  if (tokens < 0) throw Error(ErrorKind::format, fmt::format("llm.c token shard of {} tokens", tokens), bin_path);
  shard.info.type = kind->type;
  shard.info.tokens = tokens;
  shard.data_offset = kLlmcHeaderBytes;
  const int64_t wanted = kLlmcHeaderBytes + tokens * token_dtype_bytes(kind->type);
  require_size(bin_path, shard.info.bytes, wanted,
               fmt::format("the {} {} tokens of its header", tokens, to_string(kind->type)));
  open_mask(shard);
  return shard;
}

Shard open_nanogpt_shard(const std::string& bin_path) {
  Shard shard = open_shard(bin_path);
  shard.info.type = TokenDtype::uint16;
  if (shard.info.bytes % 2 != 0) {
    throw Error(ErrorKind::format, fmt::format("{} bytes are not uint16 tokens", shard.info.bytes), bin_path);
  }
  shard.info.tokens = shard.info.bytes / 2;
  open_mask(shard);
  return shard;
}

std::optional<TokenStream> make_stream(std::vector<Shard> shards) {
  if (shards.empty()) return std::nullopt;
  auto impl = std::make_shared<TokenStream::Impl>();
  for (Shard& shard : shards) {
    shard.info.first_token = impl->tokens;
    if (__builtin_add_overflow(impl->tokens, shard.info.tokens, &impl->tokens)) {
      throw Error(ErrorKind::format, "more than 2^63 tokens", shard.info.path);
    }
    impl->infos.push_back(shard.info);
  }
  impl->shards = std::move(shards);
  return TokenStream(std::move(impl));
}

}  // namespace keel::detail
