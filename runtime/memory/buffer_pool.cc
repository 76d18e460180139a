// Free lists by size class, linked through the free memory itself.
#include "runtime/memory/buffer_pool.h"

#include "support/diagnostic.h"
#include "support/memory_error.h"

#include <array>
#include <mutex>
#include <new>

namespace kvopt::runtime {

namespace {

/// Classes are powers of two; from `fineExponent` on there are four per doubling.
constexpr unsigned smallestExponent = 10;
constexpr unsigned fineExponent = 20;
constexpr unsigned stepsPerDoubling = 4;
constexpr unsigned classCount = (64 - smallestExponent) * stepsPerDoubling;

struct SizeClass {
  unsigned index;
  size_t bytes;
};

/// A size beyond the address space has a class of 0 bytes.
SizeClass classOf(size_t bytes) {
  if (bytes <= size_t{1} << smallestExponent)
    return {0, size_t{1} << smallestExponent};
  unsigned exponent = 63 - static_cast<unsigned>(__builtin_clzll(bytes));
  size_t whole = size_t{1} << exponent;
  size_t step = exponent < fineExponent ? whole : whole / stepsPerDoubling;
  size_t steps = (bytes - whole + step - 1) / step;
  size_t rounded = 0;
  if (__builtin_add_overflow(whole, steps * step, &rounded))
    return {0, 0};
  exponent = 63 - static_cast<unsigned>(__builtin_clzll(rounded));
  whole = size_t{1} << exponent;
  auto within = static_cast<unsigned>((rounded - whole) / (whole / stepsPerDoubling));
  return {(exponent - smallestExponent) * stepsPerDoubling + within, rounded};
}

/// Header at the beginning of free memory.
struct FreeBlock {
  FreeBlock* next;
  size_t bytes;
  uint64_t round; // when it was returned
};
static_assert(sizeof(FreeBlock) <= size_t{1} << smallestExponent);

} // namespace

size_t BufferPool::classBytes(size_t bytes) { return bytes == 0 ? 0 : classOf(bytes).bytes; }

class BufferPool::Core {
public:
  explicit Core(std::shared_ptr<Allocator> allocator) : source(std::move(allocator)) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core() {
    releaseOlderThan(UINT64_MAX);
    while (records) {
      Record* next = records->next;
      ::operator delete(records);
      records = next;
    }
  }

  /// Null if memory is short.
  std::byte* take(SizeClass sizeClass, bool& isFresh) {
    std::lock_guard<std::mutex> lock(mutex);
    std::byte* data = nullptr;
    if (FreeBlock* block = free[sizeClass.index]) {
      free[sizeClass.index] = block->next;
      freeTotal -= sizeClass.bytes;
      data = reinterpret_cast<std::byte*>(block);
    } else {
      data = source->allocate(sizeClass.bytes);
      if (!data && freeTotal != 0) {
        releaseOlderThan(UINT64_MAX);
        data = source->allocate(sizeClass.bytes);
      }
      isFresh = true;
    }
    if (data) {
      inUse += sizeClass.bytes;
      peak = std::max(peak, inUse);
    }
    return data;
  }

  void giveBack(std::byte* data, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    inUse -= bytes;
    if (closed)
      return source->release(data, bytes);
    FreeBlock*& first = free[classOf(bytes).index];
    first = new (data) FreeBlock{first, bytes, round};
    freeTotal += bytes;
  }

  /// Memory of a fixed size for the control blocks of shared pointers.
  void* takeRecord(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    assert(recordBytes == 0 || recordBytes == bytes);
    recordBytes = bytes;
    if (!records)
      return ::operator new(std::max(bytes, sizeof(Record)));
    Record* taken = records;
    records = taken->next;
    return taken;
  }
  void giveBackRecord(void* record) {
    std::lock_guard<std::mutex> lock(mutex);
    records = new (record) Record{records};
  }

  void endRound() {
    std::lock_guard<std::mutex> lock(mutex);
    ++round;
    if (round % idleRounds == 0 && round >= 2 * idleRounds)
      releaseOlderThan(round - idleRounds);
  }
  void releaseFree(bool forGood) {
    std::lock_guard<std::mutex> lock(mutex);
    closed |= forGood;
    releaseOlderThan(UINT64_MAX);
  }
  void restartPeak() {
    std::lock_guard<std::mutex> lock(mutex);
    peak = inUse;
  }
  size_t read(const size_t Core::*counter) const {
    std::lock_guard<std::mutex> lock(mutex);
    return this->*counter;
  }

  size_t inUse = 0;
  size_t peak = 0;
  size_t freeTotal = 0;

private:
  struct Record {
    Record* next;
  };

  void releaseOlderThan(uint64_t limit) {
    for (FreeBlock*& first : free)
      for (FreeBlock** link = &first; *link;) {
        FreeBlock* block = *link;
        if (block->round >= limit) {
          link = &block->next;
          continue;
        }
        *link = block->next;
        freeTotal -= block->bytes;
        source->release(reinterpret_cast<std::byte*>(block), block->bytes);
      }
  }

  std::shared_ptr<Allocator> source;
  mutable std::mutex mutex;
  std::array<FreeBlock*, classCount> free{};
  Record* records = nullptr;
  size_t recordBytes = 0;
  uint64_t round = 0;
  bool closed = false;
};

namespace {

/// Allocates the control blocks of shared pointers from a pool.
template <class T, class Core> struct RecordAllocator {
  using value_type = T;
  template <class Other> struct rebind { using other = RecordAllocator<Other, Core>; };

  explicit RecordAllocator(std::shared_ptr<Core> poolCore) : core(std::move(poolCore)) {}
  template <class Other>
  RecordAllocator(const RecordAllocator<Other, Core>& other) : core(other.core) {} // NOLINT
  T* allocate(size_t count) { return static_cast<T*>(core->takeRecord(count * sizeof(T))); }
  void deallocate(T* record, size_t) { core->giveBackRecord(record); }
  friend bool operator==(const RecordAllocator& a, const RecordAllocator& b) {
    return a.core == b.core;
  }
  friend bool operator!=(const RecordAllocator& a, const RecordAllocator& b) { return !(a == b); }

  std::shared_ptr<Core> core;
};

/// Memory that is in use.
template <class Core> struct Lease {
  Lease(Core& poolCore, std::byte* memory, size_t size)
      : core(poolCore), data(memory), bytes(size) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { core.giveBack(data, bytes); }

  Core& core; // kept alive by the allocator of the control block
  std::byte* data;
  size_t bytes;
};

} // namespace

BufferPool::BufferPool(std::shared_ptr<Allocator> allocator)
    : core(std::make_shared<Core>(std::move(allocator))) {}

BufferPool::~BufferPool() { core->releaseFree(true); }

llvm::Expected<BufferPool::Memory> BufferPool::take(size_t bytes) {
  SizeClass sizeClass = classOf(bytes);
  Memory memory;
  if (sizeClass.bytes != 0)
    memory.data = core->take(sizeClass, memory.isFresh);
  if (!memory.data)
    return ioError("cannot allocate {} bytes", bytes).as<MemoryError>();
  memory.bytes = sizeClass.bytes;
  memory.owner = std::allocate_shared<Lease<Core>>(RecordAllocator<Lease<Core>, Core>(core), *core,
                                                   memory.data, sizeClass.bytes);
  return memory;
}

size_t BufferPool::bytesInUse() const { return core->read(&Core::inUse); }
size_t BufferPool::peakBytesInUse() const { return core->read(&Core::peak); }
size_t BufferPool::freeBytes() const { return core->read(&Core::freeTotal); }
void BufferPool::restartPeak() { core->restartPeak(); }
void BufferPool::endRound() { core->endRound(); }
void BufferPool::releaseFree() { core->releaseFree(false); }

} // namespace kvopt::runtime
