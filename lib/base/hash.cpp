#include "keel/base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/base/signals.h"

namespace keel {
namespace {

template <class Hash>
void update_from_file(Hash& hash, const std::filesystem::path& path) {
  const Descriptor file = open_regular_file(path);
  std::vector<char> block(size_t{1} << 20);
  for (;;) {
    throw_if_stopped();
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got == 0) return;
    if (got < 0) {
      if (errno == EINTR) continue;
      throw system_error("cannot read", path, errno);
    }
    hash.update(block.data(), static_cast<size_t>(got));
  }
}

void require(int success) {
  if (success != 1) throw Error(ErrorKind::internal, "SHA-256 is not available in this OpenSSL");
}

struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
};
using DigestContext = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

struct FreeXxh3 {
  void operator()(XXH3_state_t* state) const noexcept { (void)XXH3_freeState(state); }
};

}  // namespace

std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::string hex(uint64_t value) {
  std::array<std::uint8_t, 8> bytes{};
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (56 - 8 * i));
  return hex(bytes);
}

uint64_t xxh3(const void* data, size_t bytes) noexcept {
  return XXH3_64bits(data, bytes);
}

struct Xxh3::State {
  std::unique_ptr<XXH3_state_t, FreeXxh3> xxh3{XXH3_createState()};
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  if (state_->xxh3 == nullptr) throw std::bad_alloc();
  (void)XXH3_64bits_reset(state_->xxh3.get());
}
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;
Xxh3::~Xxh3() = default;

void Xxh3::update(const void* data, size_t bytes) noexcept {
  (void)XXH3_64bits_update(state_->xxh3.get(), data, bytes);
}

uint64_t Xxh3::digest() const noexcept {
  return XXH3_64bits_digest(state_->xxh3.get());
}

struct Sha256::State {
  DigestContext context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
  require(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr));
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(const void* data, size_t bytes) {
  require(EVP_DigestUpdate(state_->context.get(), data, bytes));
}

Sha256::Digest Sha256::digest() const {
  const DigestContext copy(EVP_MD_CTX_new());
  Digest digest{};
  require(copy != nullptr && EVP_MD_CTX_copy_ex(copy.get(), state_->context.get()) == 1 ? 1 : 0);
  require(EVP_DigestFinal_ex(copy.get(), digest.data(), nullptr));
  return digest;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text.data(), text.size());
  return hex(hash.digest());
}

std::string sha256_of_file(const std::filesystem::path& path) {
  Sha256 hash;
  update_from_file(hash, path);
  return hex(hash.digest());
}

std::string xxh3_of_file(const std::filesystem::path& path) {
  Xxh3 hash;
  update_from_file(hash, path);
  return hex(hash.digest());
}

}  // namespace keel
