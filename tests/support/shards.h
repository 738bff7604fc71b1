#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "support/scratch.h"

namespace keel::testing {

/// The bytes of a Megatron index with these sequence lengths and document array.
inline std::string megatron_index(uint8_t code, int64_t item, const std::vector<int32_t>& lengths,
                                  const std::vector<int64_t>& documents) {
  std::vector<int64_t> pointers;
  int64_t bytes = 0;
  for (const int32_t length : lengths) {
    pointers.push_back(bytes);
    bytes += length * item;
  }
  return std::string("MMIDIDX\0\0", 9) + bytes_of(uint64_t{1}) + bytes_of(code) +
         bytes_of(static_cast<uint64_t>(lengths.size())) + bytes_of(static_cast<uint64_t>(documents.size())) +
         bytes_of_all(lengths) + bytes_of_all(pointers) + bytes_of_all(documents);
}

/// One sequence a document.
inline std::vector<int64_t> one_each(size_t documents) {
  std::vector<int64_t> array(documents + 1);
  std::iota(array.begin(), array.end(), 0);
  return array;
}

/// A uint16 shard STEM.bin and STEM.idx of these documents, one sequence each (none when empty).
inline void write_megatron(const Scratch& scratch, const std::string& stem,
                           const std::vector<std::vector<uint16_t>>& documents) {
  std::string bin;
  std::vector<int32_t> lengths;
  std::vector<int64_t> array{0};
  for (const auto& document : documents) {
    bin += bytes_of_all(document);
    if (!document.empty()) lengths.push_back(static_cast<int32_t>(document.size()));
    array.push_back(static_cast<int64_t>(lengths.size()));
  }
  scratch.write(stem + ".bin", bin);
  scratch.write(stem + ".idx", megatron_index(8, 2, lengths, array));
}

/// An llm.c shard with that header.
inline std::string llmc_shard(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of_all(header) + tokens;
}

}  // namespace keel::testing
