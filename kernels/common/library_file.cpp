#include "keel/kernels/common/library_file.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "keel/base/error.h"

namespace keel {
namespace {

constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

bool read_at(std::ifstream& file, uint64_t offset, void* into, size_t bytes) {
  if (offset > uint64_t{std::numeric_limits<std::streamoff>::max()}) return false;
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes));
  return file.good();
}

uint64_t end_of(uint64_t offset, uint64_t bytes) {
  return offset > kNowhere - bytes ? kNowhere : offset + bytes;
}

/// Where the last of what the headers name ends; kNowhere if these are no headers of a library, or not all there.
uint64_t end_of_library(std::ifstream& file) {
  Elf64_Ehdr header;
  if (!read_at(file, 0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN || header.e_phnum == 0 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return kNowhere;
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!read_at(file, header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr))) return kNowhere;
  uint64_t end = end_of(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize);
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD) end = std::max(end, end_of(segment.p_offset, segment.p_filesz));
  }
  return end;
}

}  // namespace

void require_whole_library(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto there = static_cast<int64_t>(file.tellg());
  const uint64_t wanted = end_of_library(file);
  if (there >= 0 && wanted <= static_cast<uint64_t>(there)) return;
  throw Error(ErrorKind::device,
              wanted == kNowhere ? "this library is damaged: it is no ELF file of a library"
                                 : "this library is damaged: it has " + std::to_string(there) + " of " +
                                       std::to_string(wanted) + " bytes",
              path.string(), "install it again");
}

}  // namespace keel
