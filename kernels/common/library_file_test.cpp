#include "keel/kernels/common/library_file.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include <gtest/gtest.h>

#include "keel/base/files.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace keel {
namespace {

/// libstdc++, as any library.
std::string some_library() {
  Dl_info found{};
  dladdr(reinterpret_cast<const void*>(&std::terminate), &found);
  return read_file(found.dli_fname);
}

class LibraryFile : public ::testing::Test {
 protected:
  void expect_damaged(const std::string& bytes, const std::string& text) {
    testing::put_file(path_, bytes);
    testing::expect_error(ErrorKind::device, text, [&] { require_whole_library(path_); });
    testing::expect_error(ErrorKind::device, path_.string() + "): install it again",
                          [&] { require_whole_library(path_); });
  }

  testing::TempDir dir_;
  const std::filesystem::path path_ = dir_ / "libkeel_cuda.so";
  const std::string whole_ = some_library();
};

TEST_F(LibraryFile, AWholeOneIsFine) {
  testing::put_file(path_, whole_);
  require_whole_library(path_);
}

TEST_F(LibraryFile, OneThatIsCutIsNot) {
  for (const size_t bytes : {whole_.size() - 1, whole_.size() / 2, size_t{4096}}) {
    expect_damaged(whole_.substr(0, bytes),
                   "it has " + std::to_string(bytes) + " of " + std::to_string(whole_.size()) + " bytes");
  }
  for (const size_t bytes : {0, 3, 63, 100}) expect_damaged(whole_.substr(0, bytes), "it is no ELF file of a library");
}

TEST_F(LibraryFile, HeadersThatLeadNowhere) {
  const auto with = [&](auto change) {
    std::string bytes = whole_;
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    Elf64_Phdr segments[16];
    const size_t count = std::min<size_t>(header.e_phnum, 16);
    std::memcpy(segments, bytes.data() + header.e_phoff, count * sizeof(Elf64_Phdr));
    char* const table = bytes.data() + header.e_phoff;
    change(header, segments[0]);
    std::memcpy(table, segments, count * sizeof(Elf64_Phdr));
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  };
  const std::string no_library = "it is no ELF file of a library";
  expect_damaged(with([](Elf64_Ehdr& h, auto&) { h.e_ident[1] = 'e'; }), no_library);
  expect_damaged(with([](Elf64_Ehdr& h, auto&) { h.e_type = ET_CORE; }), no_library);
  expect_damaged(with([](Elf64_Ehdr& h, auto&) { h.e_phentsize = 1; }), no_library);
  expect_damaged(with([](Elf64_Ehdr& h, auto&) { h.e_phoff = ~uint64_t{0}; }), no_library);
  expect_damaged(with([](auto&, Elf64_Phdr& s) { s = {.p_type = PT_LOAD, .p_offset = ~uint64_t{0}, .p_filesz = 2}; }),
                 no_library);
  expect_damaged(with([](auto&, Elf64_Phdr& s) { s = {.p_type = PT_LOAD, .p_filesz = uint64_t{1} << 40}; }),
                 "of 1099511627776 bytes");
  expect_damaged("not a library, though of more bytes than the header of one: a page of an installer's complaint",
                 no_library);
}

}  // namespace
}  // namespace keel
