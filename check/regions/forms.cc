// Equality of tensors by contents.
#include "check/regions/forms.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/xxhash.h"

#include <cstring>

namespace kvopt::check {
namespace {

bool isSame(const Exact& a, const Exact& b) {
  return a.p == b.p && a.q == b.q && a.status == b.status && a.hasExponent == b.hasExponent &&
         a.level == b.level && a.isVague == b.isVague;
}

bool isSame(const Tensor& a, const Tensor& b) {
  auto areSame = [](const Exact& x, const Exact& y) { return isSame(x, y); };
  return a.kind == b.kind && a.type == b.type && a.shape == b.shape && a.isHollow == b.isHollow &&
         a.isSpecial == b.isSpecial && a.isToken == b.isToken && a.isConstant == b.isConstant &&
         a.isWeight == b.isWeight && a.tableAxes == b.tableAxes && a.isFixed == b.isFixed &&
         a.growths == b.growths && a.extentGrowths == b.extentGrowths && a.integers == b.integers &&
         a.known.size() == b.known.size() &&
         // Bits, as a comparison of numbers does not tell zeros apart.
         (a.known.empty() ||
          std::memcmp(a.known.data(), b.known.data(), a.known.size() * sizeof(double)) == 0) &&
         std::equal(a.reals.begin(), a.reals.end(), b.reals.begin(), b.reals.end(), areSame);
}

template <class Number> uint64_t hashOf(const std::vector<Number>& numbers) {
  return llvm::xxHash64(llvm::StringRef(reinterpret_cast<const char*>(numbers.data()),
                                        numbers.size() * sizeof(Number)));
}

size_t hashOf(const Tensor& tensor) {
  uint64_t reals = 0;
  for (const Exact& element : tensor.reals)
    reals = (reals ^ element.p ^ uint64_t(element.q) << 32 ^ uint64_t(element.status) << 61) *
            0x9E3779B97F4A7C15u;
  return llvm::hash_combine(
      int(tensor.kind), int(tensor.type), tensor.isHollow, tensor.isSpecial,
      llvm::hash_combine_range(tensor.shape.begin(), tensor.shape.end()),
      llvm::hash_combine_range(tensor.extentGrowths.begin(), tensor.extentGrowths.end()),
      hashOf(tensor.integers), hashOf(tensor.known), reals);
}

} // namespace

Ref patternOf(const Ref& tensor) {
  if (!tensor || !tensor->isReal() || tensor->isHollow)
    return tensor;
  auto pattern = std::make_shared<Tensor>(*tensor);
  for (Exact& element : pattern->reals) {
    if (!element.isNumber())
      element = {0, 0, element.status, true, element.level, element.isVague};
    else if (element.isZero())
      element = {0, 0, Status::Number, element.hasExponent};
    else
      element = {1, 1};
  }
  return pattern;
}

Ref hollowed(const Ref& tensor) {
  if (!tensor || !tensor->isReal() || tensor->isHollow)
    return tensor;
  const bool isSpecial =
      llvm::any_of(tensor->reals, [](const Exact& element) { return !element.isNumber(); });
  return hollowTensor(tensor->shape, isSpecial, tensor->type, tensor->extentGrowths);
}

Ref Forms::tensor(const Ref& contents) {
  if (!contents || kept.count(contents.get()))
    return contents;
  const size_t hash = hashOf(*contents);
  const auto [first, last] = tensors.equal_range(hash);
  for (auto known = first; known != last; ++known)
    if (isSame(*known->second, *contents))
      return known->second;
  tensors.emplace(hash, contents);
  kept.insert(contents.get());
  return contents;
}

const Form* Forms::form(const Form& contents) {
  Form own;
  Key key;
  for (size_t i = 0; i < contents.size(); ++i) {
    const bool isLast = i > 0 && contents[i] == contents[i - 1];
    own.push_back(isLast ? own.back() : tensor(contents[i]));
    key.push_back(addressOf(own.back().get()));
  }
  auto& known = forms[std::move(key)];
  if (!known)
    known = std::make_unique<Form>(std::move(own));
  return known.get();
}

} // namespace kvopt::check
