// ValueClass: values that are computed in the same way have the same digest.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/SHA256.h"

#include <array>
#include <cstdint>
#include <functional>

namespace kvopt::check {

/// A digest of how a value is computed from inputs and constants.
struct ValueClass {
  std::array<uint64_t, 2> bits{};

  bool operator==(const ValueClass&) const = default;
  bool operator<(const ValueClass& other) const { return bits < other.bits; }
};

/// Hashes parts into a class. Texts are hashed with their lengths.
class ClassHash {
public:
  void text(llvm::StringRef part);
  void number(uint64_t value);
  void add(const ValueClass& part);
  /// Contents whose length the parts before them determine.
  void bytes(llvm::ArrayRef<uint8_t> contents) { hash.update(contents); }
  ValueClass take();

private:
  llvm::SHA256 hash;
};

/// A class from texts and numbers.
ValueClass classOf(llvm::StringRef kind, llvm::ArrayRef<ValueClass> parts,
                   llvm::ArrayRef<uint64_t> numbers = {});

} // namespace kvopt::check

template <> struct std::hash<kvopt::check::ValueClass> {
  size_t operator()(const kvopt::check::ValueClass& value) const noexcept {
    return static_cast<size_t>(value.bits[0]);
  }
};
