// What the lanes of a warp do together.

#include "cuda_on_cpu/warp.h"

#include <bit>

#include "block.h"

namespace cuda_on_cpu {
namespace {

using Requests = const WarpRequest* const*;

template <class Function>
void for_each(unsigned lanes, Function function) {
  for (; lanes != 0; lanes &= lanes - 1) function(static_cast<unsigned>(std::countr_zero(lanes)));
}

template <class T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void write(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// What a lane that is absent would give is undefined on a GPU: NaN here.
template <class T>
void shuffle(Requests requests, unsigned lanes) {
  for_each(lanes, [&](unsigned lane) {
    const unsigned source = requests[lane]->source;
    const bool present = source < warpSize && (lanes >> source & 1) != 0;
    write<T>(requests[lane]->take, present ? read<T>(requests[source]->give) : static_cast<T>(~T{0}));
  });
}

void ballot(Requests requests, unsigned lanes) {
  unsigned votes = 0;
  for_each(lanes, [&](unsigned lane) { votes |= static_cast<unsigned>(read<int>(requests[lane]->give) != 0) << lane; });
  for_each(lanes, [&](unsigned lane) { write(requests[lane]->take, votes); });
}

void match(Requests requests, unsigned lanes) {
  for_each(lanes, [&](unsigned lane) {
    unsigned equal = 0;
    for_each(lanes, [&](unsigned other) {
      const bool same = std::memcmp(requests[lane]->give, requests[other]->give, requests[lane]->bytes) == 0;
      equal |= static_cast<unsigned>(same) << other;
    });
    write(requests[lane]->take, equal);
  });
}

template <class T, class Join>
void reduce(Requests requests, unsigned lanes, Join join) {
  const auto first = static_cast<unsigned>(std::countr_zero(lanes));
  T result = read<T>(requests[first]->give);
  for_each(lanes & (lanes - 1), [&](unsigned lane) { result = join(result, read<T>(requests[lane]->give)); });
  for_each(lanes, [&](unsigned lane) { write(requests[lane]->take, result); });
}

float low_bf16(unsigned pair) {
  return std::bit_cast<float>(pair << 16);
}
float high_bf16(unsigned pair) {
  return std::bit_cast<float>(pair & 0xffff0000U);
}

using Row = float __attribute__((vector_size(32)));

/// The layout of registers is told in kernels/common/device.cuh. Sums run along k, then the old value is added; tensor
/// cores have another order, which nobody tells.
void mma(Requests requests) {
  constexpr int kM = 16, kK = 16;
  float A[kM][kK];
  Row B[kK], D[kM];
  const auto put = [](float* to, unsigned pair) {
    to[0] = low_bf16(pair);
    to[1] = high_bf16(pair);
  };
  for (int lane = 0; lane < warpSize; ++lane) {
    const auto& from = *static_cast<const MmaOperands*>(requests[lane]->give);
    const int g = lane / 4, t = 2 * (lane % 4);
    put(&A[g][t], from.a[0]);
    put(&A[g + 8][t], from.a[1]);
    put(&A[g][t + 8], from.a[2]);
    put(&A[g + 8][t + 8], from.a[3]);
    B[t][g] = low_bf16(from.b[0]);
    B[t + 1][g] = high_bf16(from.b[0]);
    B[t + 8][g] = low_bf16(from.b[1]);
    B[t + 9][g] = high_bf16(from.b[1]);
  }
  for (int i = 0; i < kM; ++i) {
    Row sum{};
    for (int k = 0; k < kK; ++k) sum += A[i][k] * B[k];
    D[i] = sum;
  }
  for (int lane = 0; lane < warpSize; ++lane) {
    const int g = lane / 4, t = 2 * (lane % 4);
    auto* d = static_cast<float*>(requests[lane]->take);
    d[0] += D[g][t];
    d[1] += D[g][t + 1];
    d[2] += D[g + 8][t];
    d[3] += D[g + 8][t + 1];
  }
}

void ldmatrix(Requests requests) {
  constexpr int kMatrices = 4, kSize = 8;
  uint16_t elements[kMatrices][kSize][kSize];
  for (int lane = 0; lane < warpSize; ++lane) {
    std::memcpy(elements[lane / kSize][lane % kSize], requests[lane]->give, sizeof elements[0][0]);
  }
  for (int lane = 0; lane < warpSize; ++lane) {
    const int g = lane / 4, t = 2 * (lane % 4);
    unsigned out[kMatrices];
    for (int i = 0; i < kMatrices; ++i) {
      const auto& m = elements[i];
      const bool transposed = requests[lane]->source != 0;
      out[i] = transposed ? m[t][g] | unsigned{m[t + 1][g]} << 16 : m[g][t] | unsigned{m[g][t + 1]} << 16;
    }
    std::memcpy(requests[lane]->take, out, sizeof out);
  }
}

}  // namespace

void perform(Requests requests, unsigned lanes) {
  const WarpRequest& one = *requests[std::countr_zero(lanes)];
  switch (one.operation) {
    case WarpOperation::barrier:
      return;
    case WarpOperation::shuffle:
      return one.bytes == 4 ? shuffle<uint32_t>(requests, lanes) : shuffle<uint64_t>(requests, lanes);
    case WarpOperation::ballot:
      return ballot(requests, lanes);
    case WarpOperation::match:
      return match(requests, lanes);
    case WarpOperation::add:
      return reduce<unsigned>(requests, lanes, [](unsigned a, unsigned b) { return a + b; });
    case WarpOperation::minimum:
      return reduce<unsigned>(requests, lanes, [](unsigned a, unsigned b) { return b < a ? b : a; });
    case WarpOperation::maximum:
      return reduce<unsigned>(requests, lanes, [](unsigned a, unsigned b) { return a < b ? b : a; });
    case WarpOperation::minimum_signed:
      return reduce<int>(requests, lanes, [](int a, int b) { return b < a ? b : a; });
    case WarpOperation::maximum_signed:
      return reduce<int>(requests, lanes, [](int a, int b) { return a < b ? b : a; });
    case WarpOperation::bit_and:
      return reduce<unsigned>(requests, lanes, [](unsigned a, unsigned b) { return a & b; });
    case WarpOperation::bit_or:
      return reduce<unsigned>(requests, lanes, [](unsigned a, unsigned b) { return a | b; });
    case WarpOperation::bit_xor:
      return reduce<unsigned>(requests, lanes, [](unsigned a, unsigned b) { return a ^ b; });
    case WarpOperation::mma:
      return mma(requests);
    case WarpOperation::ldmatrix:
      return ldmatrix(requests);
  }
}

}  // namespace cuda_on_cpu
