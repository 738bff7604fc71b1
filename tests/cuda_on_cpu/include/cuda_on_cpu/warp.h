#pragma once

// What the threads of a warp do together. The last one that arrives does it for all.

#include <type_traits>

#include "thread.h"

namespace cuda_on_cpu {

enum class WarpOperation : uint8_t {
  barrier,
  shuffle,  ///< take = what lane `source` gives
  ballot,   ///< take = bit i is set where lane i gives a non-zero int
  match,    ///< take = the lanes that give the same bytes
  add,      ///< take = the sum of the unsigned that lanes give; likewise the others
  minimum,
  maximum,
  minimum_signed,
  maximum_signed,
  bit_and,
  bit_or,
  bit_xor,
  mma,       ///< give = MmaOperands, take = float[4]
  ldmatrix,  ///< give = 16 bytes of a row, take = unsigned[4]; source = 1: transposed
};

/// What one lane brings to an operation and where its result goes.
struct WarpRequest {
  WarpOperation operation;
  uint8_t source;
  uint8_t bytes;
  unsigned mask;
  const void* give;
  void* take;
};

struct MmaOperands {
  unsigned a[4], b[2];
};

void warp_collective(const WarpRequest& request, Place place);
/// Lanes of the caller's warp that have not ended.
unsigned live_lanes();

/// The types that CUDA's shuffles take.
template <class T>
concept Shuffled = std::is_arithmetic_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);
template <class T>
concept Word = std::is_same_v<T, int> || std::is_same_v<T, unsigned>;

template <class T>
T shuffle(unsigned mask, T value, int source, Place place) {
  T result;
  warp_collective({WarpOperation::shuffle, static_cast<uint8_t>(source), sizeof(T), mask, &value, &result}, place);
  return result;
}
template <class Result, class T>
Result combine(WarpOperation operation, unsigned mask, T value, Place place) {
  Result result;
  warp_collective({operation, 0, sizeof(T), mask, &value, &result}, place);
  return result;
}

/// The first lane of the caller's group of `width` lanes; width is a power of two up to 32.
inline int first_of_group(int width, Place place) {
  if (width < 1 || width > warpSize || (width & (width - 1)) != 0) {
    fail_thread(cudaErrorLaunchFailure, "a shuffle's width is no power of two up to 32", place);
  }
  return self->lane & ~(width - 1);
}

inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Place place = Place::here()) {
  const MmaOperands operands{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  warp_collective({WarpOperation::mma, 0, 0, ~0U, &operands, d}, place);
}

inline void ldmatrix_x4(unsigned (&out)[4], const void* row, bool transposed, Place place = Place::here()) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    fail_thread(cudaErrorMisalignedAddress, "ldmatrix: a row's address is no multiple of 16", place);
  }
  if (!is_shared(row)) fail_thread(cudaErrorInvalidAddressSpace, "ldmatrix: a row is not in shared memory", place);
  uint64_t bytes[2];
  std::memcpy(bytes, row, sizeof bytes);  // here, where a sanitizer sees it
  warp_collective({WarpOperation::ldmatrix, transposed, sizeof bytes, ~0U, bytes, out}, place);
}

}  // namespace cuda_on_cpu

inline void __syncwarp(unsigned mask = 0xffffffffU, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  cuda_on_cpu::warp_collective({cuda_on_cpu::WarpOperation::barrier, 0, 0, mask, nullptr, nullptr}, place);
}
template <cuda_on_cpu::Shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::first_of_group(width, place) | (source & (width - 1)), place);
}
template <cuda_on_cpu::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize,
                  cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const int first = cuda_on_cpu::first_of_group(width, place), lane = cuda_on_cpu::self->lane, from = lane ^ lanes;
  // A lane of an earlier group may be read, one of a later group may not.
  return cuda_on_cpu::shuffle(mask, value, from < first + width ? from : lane, place);
}
template <cuda_on_cpu::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = warpSize,
                 cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const int first = cuda_on_cpu::first_of_group(width, place), lane = cuda_on_cpu::self->lane;
  const bool inside = lanes <= static_cast<unsigned>(lane - first);
  return cuda_on_cpu::shuffle(mask, value, inside ? lane - static_cast<int>(lanes) : lane, place);
}
template <cuda_on_cpu::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = warpSize,
                   cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  const int first = cuda_on_cpu::first_of_group(width, place), lane = cuda_on_cpu::self->lane;
  const bool inside = lanes < static_cast<unsigned>(first + width - lane);
  return cuda_on_cpu::shuffle(mask, value, inside ? lane + static_cast<int>(lanes) : lane, place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::combine<unsigned>(cuda_on_cpu::WarpOperation::ballot, mask, predicate, place);
}
inline int __any_sync(unsigned mask, int predicate, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return __ballot_sync(mask, predicate == 0, place) == 0;
}
inline unsigned __activemask() {
  return cuda_on_cpu::live_lanes();
}
template <cuda_on_cpu::Shuffled T>
unsigned __match_any_sync(unsigned mask, T value, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::combine<unsigned>(cuda_on_cpu::WarpOperation::match, mask, value, place);
}
template <cuda_on_cpu::Word T>
T __reduce_add_sync(unsigned mask, T value, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::combine<T>(cuda_on_cpu::WarpOperation::add, mask, value, place);
}
template <cuda_on_cpu::Word T>
T __reduce_min_sync(unsigned mask, T value, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  using enum cuda_on_cpu::WarpOperation;
  return cuda_on_cpu::combine<T>(std::is_signed_v<T> ? minimum_signed : minimum, mask, value, place);
}
template <cuda_on_cpu::Word T>
T __reduce_max_sync(unsigned mask, T value, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  using enum cuda_on_cpu::WarpOperation;
  return cuda_on_cpu::combine<T>(std::is_signed_v<T> ? maximum_signed : maximum, mask, value, place);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::combine<unsigned>(cuda_on_cpu::WarpOperation::bit_and, mask, value, place);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::combine<unsigned>(cuda_on_cpu::WarpOperation::bit_or, mask, value, place);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  cuda_on_cpu::Place place = cuda_on_cpu::Place::here()) {
  return cuda_on_cpu::combine<unsigned>(cuda_on_cpu::WarpOperation::bit_xor, mask, value, place);
}
