#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "cuda_on_cpu/launch.h"
#include "emulation.h"
#include "sanitizers.h"

namespace cuda_on_cpu {
namespace {

constexpr size_t kPage = 4096, kLarge = size_t{4} << 20;

/// Addresses for device memory. What is freed is not used again before the end is reached, so that late use shows.
struct AddressSpace {
  char* base = nullptr;
  size_t bytes = 0;
  size_t next = 0;
};

std::map<const char*, Allocation> allocations;
AddressSpace space;
size_t in_use = 0;
int accesses = 0;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

bool reserve_addresses() {
  if (space.base != nullptr) return true;
  for (size_t bytes = 4 * rounded(cuda_on_cpu_options()->memory_bytes, kPage) + (size_t{1} << 30);
       bytes > cuda_on_cpu_options()->memory_bytes; bytes /= 2) {
    void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    space = {static_cast<char*>(memory), bytes, 0};
    return true;
  }
  return false;
}

/// An unused range of addresses from `from` on.
char* gap_after(size_t from, size_t bytes) {
  size_t at = from;
  for (auto it = allocations.lower_bound(space.base + from); at + bytes <= space.bytes; ++it) {
    if (it == allocations.end() || it->first >= space.base + space.bytes) return space.base + at;
    if (space.base + at + bytes <= it->first) return space.base + at;
    at = std::max(at, static_cast<size_t>(it->first - space.base) + it->second.mapped + kPage);
  }
  return nullptr;
}

char* take_addresses(size_t bytes) {
  if (!reserve_addresses()) return nullptr;
  char* found = gap_after(space.next, bytes + kPage);
  if (found == nullptr) found = gap_after(0, bytes + kPage);
  if (found != nullptr) space.next = static_cast<size_t>(found - space.base) + bytes + kPage;
  return found;
}

void give_back(const Allocation& allocation) {
  switch (allocation.kind) {
    case MemoryKind::device:
    case MemoryKind::managed:
      in_use -= allocation.mapped;
      mmap(allocation.base, allocation.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0);
      poison(allocation.base, allocation.mapped);
      break;
    case MemoryKind::pinned:
      std::free(allocation.base);
      break;
    case MemoryKind::registered:
      break;
  }
}

void protect_device_memory(int protection) {
  for (const auto& [base, allocation] : allocations) {
    if (allocation.kind == MemoryKind::device) mprotect(allocation.base, allocation.mapped, protection);
  }
}

char* allocate_pages(size_t bytes, MemoryKind kind, size_t& mapped) {
  mapped = rounded(bytes, kPage);
  if (mapped < bytes || in_use + mapped > cuda_on_cpu_options()->memory_bytes) return nullptr;
  char* base = take_addresses(mapped);
  if (base == nullptr || mprotect(base, mapped, PROT_READ | PROT_WRITE) != 0) return nullptr;
  in_use += mapped;
  if (mapped >= kLarge) madvise(base, mapped, MADV_HUGEPAGE);  // it is touched whole at once
  unpoison(base, bytes);
  fill_with_nan(base, bytes);
  poison(base + bytes, mapped - bytes + kPage);
  if (kind == MemoryKind::device && cuda_on_cpu_options()->guard && accesses == 0) mprotect(base, mapped, PROT_NONE);
  return base;
}

}  // namespace

void* allocate(size_t bytes, MemoryKind kind) {
  constexpr size_t kAlignment = 256;
  size_t mapped = 0;
  char* base = nullptr;
  if (kind == MemoryKind::pinned) {
    // One more, so that a pointer just behind it is not that of another allocation.
    base = static_cast<char*>(std::aligned_alloc(kAlignment, rounded(bytes + 1, kAlignment)));
    if (base != nullptr) std::memset(base, 0xff, bytes);
  } else {
    base = allocate_pages(bytes, kind, mapped);
  }
  if (base != nullptr) allocations[base] = {base, bytes, mapped, kind};
  return base;
}

bool free_allocation(void* base, bool (*accepts)(MemoryKind)) {
  const auto found = allocations.find(static_cast<const char*>(base));
  if (found == allocations.end() || !accepts(found->second.kind)) return false;
  give_back(found->second);
  allocations.erase(found);
  return true;
}

bool register_memory(void* base, size_t bytes) {
  auto* start = static_cast<char*>(base);
  const auto next = allocations.lower_bound(start);
  if (next != allocations.end() && next->first < start + bytes) return false;
  if (find_allocation(start) != nullptr) return false;
  allocations[start] = {start, bytes, 0, MemoryKind::registered};
  return true;
}

const Allocation* find_allocation(const void* pointer) {
  const auto* address = static_cast<const char*>(pointer);
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin()) return nullptr;
  --it;
  return address < it->second.base + it->second.bytes ? &it->second : nullptr;
}

bool holds(const Allocation& allocation, const void* pointer, size_t bytes) {
  const auto* address = static_cast<const char*>(pointer);
  return address >= allocation.base && bytes <= allocation.bytes &&
         address <= allocation.base + (allocation.bytes - bytes);
}

bool is_device_pointer(const void* pointer) {
  return pointer == nullptr || find_allocation(pointer) != nullptr ||
         find_allocation(static_cast<const char*>(pointer) - 1) != nullptr;
}

size_t device_bytes_in_use() {
  return in_use;
}

size_t device_bytes_asked_for() {
  size_t sum = 0;
  for (const auto& [base, allocation] : allocations) {
    const bool is_of_device = allocation.kind == MemoryKind::device || allocation.kind == MemoryKind::managed;
    if (is_of_device) sum += allocation.bytes;
  }
  return sum;
}

void free_all() {
  for (const auto& [base, allocation] : allocations) give_back(allocation);
  allocations.clear();
}

DeviceAccess::DeviceAccess() {
  if (accesses++ == 0 && cuda_on_cpu_options()->guard) protect_device_memory(PROT_READ | PROT_WRITE);
}
DeviceAccess::~DeviceAccess() {
  if (--accesses == 0 && cuda_on_cpu_options()->guard) protect_device_memory(PROT_NONE);
}

void fill_with_nan(void* memory, size_t bytes) {
  auto* byte = static_cast<unsigned char*>(memory);
  for (; bytes % 8 != 0; --bytes) byte[bytes - 1] = 0xff;
  using Bytes8 = uint64_t __attribute__((may_alias));
  auto* word = static_cast<Bytes8*>(memory);
  for (size_t i = 0; i < bytes / 8; ++i) word[i] = ~uint64_t{0};
}

}  // namespace cuda_on_cpu
