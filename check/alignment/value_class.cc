// Digests of parts.
#include "check/alignment/value_class.h"

#include <cstring>

namespace kvopt::check {

void ClassHash::text(llvm::StringRef part) {
  number(part.size());
  hash.update(part);
}

void ClassHash::number(uint64_t value) {
  uint8_t raw[sizeof(value)];
  std::memcpy(raw, &value, sizeof(value));
  hash.update(llvm::ArrayRef<uint8_t>(raw));
}

void ClassHash::add(const ValueClass& part) {
  number(part.bits[0]);
  number(part.bits[1]);
}

ValueClass ClassHash::take() {
  ValueClass result;
  const auto digest = hash.final();
  std::memcpy(result.bits.data(), digest.data(), sizeof(result.bits));
  return result;
}

ValueClass classOf(llvm::StringRef kind, llvm::ArrayRef<ValueClass> parts,
                   llvm::ArrayRef<uint64_t> numbers) {
  ClassHash hash;
  hash.text(kind);
  for (uint64_t value : numbers)
    hash.number(value);
  hash.number(parts.size());
  for (const ValueClass& part : parts)
    hash.add(part);
  return hash.take();
}

} // namespace kvopt::check
