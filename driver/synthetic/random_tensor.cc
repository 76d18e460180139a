// SplitMix64 by position, and tensors of numbers and of codes.
#include "driver/synthetic/random_tensor.h"

#include "support/half.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>

namespace kvopt::driver {
using namespace ir;

namespace {

constexpr uint64_t splitMixStep = 0x9E3779B97F4A7C15u;

/// The output function of SplitMix64 (Steele, Lea, Flood 2014), with Stafford's constants.
constexpr uint64_t mixed(uint64_t state) {
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return state ^ (state >> 31);
}

constexpr uint64_t fourWords(uint64_t key, int64_t index) {
  return mixed(key + (static_cast<uint64_t>(index) + 1) * splitMixStep);
}

/// Calls store(i, word) for i in [0, count), with the words from `first` on, a multiple of four.
template <class Store> void forEachWord(uint64_t key, int64_t first, int64_t count, Store store) {
  assert(first % 4 == 0);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const uint64_t words = fourWords(key, (first + i) / 4);
    store(i, static_cast<uint16_t>(words));
    store(i + 1, static_cast<uint16_t>(words >> 16));
    store(i + 2, static_cast<uint16_t>(words >> 32));
    store(i + 3, static_cast<uint16_t>(words >> 48));
  }
  for (unsigned shift = 0; i < count; ++i, shift += 16)
    store(i, static_cast<uint16_t>(fourWords(key, (first + i) / 4) >> shift));
}

constexpr size_t pieceBytes = size_t{1} << 21;

/// Contents that are computed piece by piece, and kept as a whole only if a caller requests them as
/// a whole.
class ComputedTensor : public TensorData {
public:
  llvm::Expected<std::span<const std::byte>> bytes() const override {
    std::call_once(once, [&] {
      contents.resize(static_cast<size_t>(*byteSize()));
      fill(0, contents);
    });
    return std::span<const std::byte>(contents);
  }

  llvm::Error stream(ByteSink sink) const override {
    const auto total = static_cast<size_t>(*byteSize());
    const size_t width = *byteWidth(elementType());
    std::vector<std::byte> piece(std::min(total, pieceBytes));
    for (size_t done = 0; done < total;) {
      const std::span<std::byte> part(piece.data(), std::min(piece.size(), total - done));
      fill(static_cast<int64_t>(done / width), part);
      if (llvm::Error error = sink(part))
        return error;
      done += part.size();
    }
    return llvm::Error::success();
  }

protected:
  ComputedTensor(ElementType type, llvm::ArrayRef<int64_t> shape, uint64_t sequence)
      : TensorData(type, llvm::SmallVector<int64_t, 4>(shape.begin(), shape.end()),
                   llvm::cantFail(checkedElementCount(shape))),
        key(sequence) {
    assert(byteSize() && "the caller has checked the size");
  }

  /// Computes the elements from `first` on, a multiple of 8.
  virtual void fill(int64_t first, std::span<std::byte> out) const = 0;

  const uint64_t key;

private:
  mutable std::once_flag once;
  mutable std::vector<std::byte> contents;
};

class RandomNumbers final : public ComputedTensor {
public:
  RandomNumbers(ElementType type, llvm::ArrayRef<int64_t> shape, uint64_t sequence, double middle,
                double deviation)
      : ComputedTensor(type, shape, sequence), centre(static_cast<float>(middle)),
        step(static_cast<float>(deviation * std::sqrt(3.0) / 65536)) {}

private:
  float number(uint16_t word) const {
    const float product = static_cast<float>(2 * static_cast<int>(word) - 65535) * step;
    return centre + product;
  }

  void fill(int64_t first, std::span<std::byte> out) const override {
    if (elementType() == ElementType::Float)
      return fillFloats(first, out);
    const uint16_t* rounded = roundedNumbers().data();
    auto* to = reinterpret_cast<uint16_t*>(out.data());
    forEachWord(key, first, static_cast<int64_t>(out.size() / 2),
                [&](int64_t i, uint16_t word) { to[i] = rounded[word]; });
  }

  void fillFloats(int64_t first, std::span<std::byte> out) const {
    auto* to = reinterpret_cast<float*>(out.data());
    forEachWord(key, first, static_cast<int64_t>(out.size() / 4),
                [&](int64_t i, uint16_t word) { to[i] = number(word); });
  }

  const std::vector<uint16_t>& roundedNumbers() const {
    std::call_once(tableOnce, [&] {
      table.resize(65536);
      for (size_t word = 0; word < table.size(); ++word) {
        const float value = number(static_cast<uint16_t>(word));
        table[word] =
            elementType() == ElementType::Float16 ? floatToF16(value) : floatToBf16(value);
      }
    });
    return table;
  }

  const float centre;
  const float step;
  mutable std::once_flag tableOnce;
  mutable std::vector<uint16_t> table;
};

class RandomCodes final : public ComputedTensor {
public:
  RandomCodes(llvm::ArrayRef<int64_t> shape, uint64_t sequence)
      : ComputedTensor(ElementType::UInt8, shape, sequence) {}

private:
  void fill(int64_t first, std::span<std::byte> out) const override {
    for (size_t i = 0; i < out.size(); i += 8) {
      uint64_t codes = fourWords(key, (first + static_cast<int64_t>(i)) / 8);
      for (size_t j = i; j < std::min(out.size(), i + 8); ++j, codes >>= 8)
        out[j] = static_cast<std::byte>(codes & 0xFF);
    }
  }
};

} // namespace

TensorRef randomNumbers(ElementType type, llvm::ArrayRef<int64_t> shape, uint64_t key,
                        double centre, double deviation) {
  assert(type == ElementType::Float || type == ElementType::Float16 ||
         type == ElementType::BFloat16);
  return std::make_shared<RandomNumbers>(type, shape, key, centre, deviation);
}

TensorRef randomCodes(llvm::ArrayRef<int64_t> shape, uint64_t key) {
  return std::make_shared<RandomCodes>(shape, key);
}

uint64_t keyOf(uint64_t seed, llvm::StringRef name) {
  // FNV-1a, then mixed, so that similar names or seeds do not give similar keys.
  uint64_t hash = 0xCBF29CE484222325u;
  for (char character : name)
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  return mixed(hash ^ mixed(seed + splitMixStep));
}

} // namespace kvopt::driver
