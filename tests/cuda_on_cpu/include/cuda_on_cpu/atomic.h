#pragma once

// Atomic operations of the types that CUDA has them for. Relaxed, as CUDA's are; the order of threads is any order.

#include <type_traits>

#include "thread.h"

namespace cuda_on_cpu {

template <class T, class... Types>
concept OneOf = (std::is_same_v<T, Types> || ...);
template <class T>
concept AtomicInteger = OneOf<T, int, unsigned, unsigned long long>;

/// *memory = change(*memory), atomically; returns what was there before.
template <class T, class Change>
T atomic_change(T* memory, Change change) {
  T old, next;
  __atomic_load(memory, &old, __ATOMIC_RELAXED);
  do {
    next = change(old);
  } while (!__atomic_compare_exchange(memory, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  see_fences();
  return old;
}

}  // namespace cuda_on_cpu

template <class T>
requires(cuda_on_cpu::AtomicInteger<T> || cuda_on_cpu::OneOf<T, float, double>) T
    atomicAdd(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T old) { return static_cast<T>(old + value); });
}
template <cuda_on_cpu::OneOf<int, unsigned> T>
T atomicSub(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T old) { return static_cast<T>(old - value); });
}
template <class T>
requires(cuda_on_cpu::AtomicInteger<T> || cuda_on_cpu::OneOf<T, long long>) T
    atomicMax(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T old) { return old < value ? value : old; });
}
template <class T>
requires(cuda_on_cpu::AtomicInteger<T> || cuda_on_cpu::OneOf<T, long long>) T
    atomicMin(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T old) { return value < old ? value : old; });
}
template <cuda_on_cpu::AtomicInteger T>
T atomicAnd(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T old) { return static_cast<T>(old & value); });
}
template <cuda_on_cpu::AtomicInteger T>
T atomicOr(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T old) { return static_cast<T>(old | value); });
}
template <cuda_on_cpu::AtomicInteger T>
T atomicXor(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T old) { return static_cast<T>(old ^ value); });
}
template <class T>
requires(cuda_on_cpu::AtomicInteger<T> || cuda_on_cpu::OneOf<T, float>) T
    atomicExch(T* memory, std::type_identity_t<T> value) {
  return cuda_on_cpu::atomic_change(memory, [=](T) { return value; });
}
template <class T>
requires(cuda_on_cpu::AtomicInteger<T> || cuda_on_cpu::OneOf<T, unsigned short>) T
    atomicCAS(T* memory, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  __atomic_compare_exchange(memory, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  cuda_on_cpu::see_fences();
  return expected;
}
/// ((old >= limit) ? 0 : old + 1)
inline unsigned atomicInc(unsigned* memory, unsigned limit) {
  return cuda_on_cpu::atomic_change(memory, [=](unsigned old) { return old >= limit ? 0 : old + 1; });
}
/// ((old == 0 || old > limit) ? limit : old - 1)
inline unsigned atomicDec(unsigned* memory, unsigned limit) {
  return cuda_on_cpu::atomic_change(memory, [=](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}
