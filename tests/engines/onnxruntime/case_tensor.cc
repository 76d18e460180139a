// Numbers of tensors.
#include "tests/engines/onnxruntime/case_tensor.h"

#include "support/half.h"

#include <cstring>
#include <functional>
#include <numeric>
#include <random>

namespace kvopt {
using namespace ir;

namespace {

int64_t bytesOf(ElementType element) { return static_cast<int64_t>(*byteWidth(element)); }

} // namespace

int64_t CaseTensor::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

double CaseTensor::get(int64_t index) const {
  const std::byte* at = bytes.data() + index * bytesOf(element);
  const auto load = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (element) {
  case ElementType::Float:
    return double{load(float())};
  case ElementType::Float16:
    return double{f16ToFloat(load(uint16_t()))};
  case ElementType::BFloat16:
    return double{bf16ToFloat(load(uint16_t()))};
  default:
    return load(int8_t());
  }
}

void CaseTensor::set(int64_t index, double number) {
  std::byte* at = bytes.data() + index * bytesOf(element);
  const auto store = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  const auto narrow = static_cast<float>(number);
  switch (element) {
  case ElementType::Float:
    return store(narrow);
  case ElementType::Float16:
    return store(floatToF16(narrow));
  case ElementType::BFloat16:
    return store(floatToBf16(narrow));
  case ElementType::Int64:
    return store(static_cast<int64_t>(number));
  default:
    return store(static_cast<int8_t>(number));
  }
}

CaseTensor randomOf(ElementType element, std::vector<int64_t> shape, unsigned seed, double spread) {
  CaseTensor tensor = filledWith(element, std::move(shape), 0);
  std::mt19937 random(seed);
  std::normal_distribution<double> any(0, spread);
  std::uniform_int_distribution<int> code(-127, 127);
  for (int64_t i = 0; i < tensor.count(); ++i)
    tensor.set(i, element == ElementType::Int8 ? code(random) : any(random));
  return tensor;
}

CaseTensor filledWith(ElementType element, std::vector<int64_t> shape, double number) {
  CaseTensor tensor{element, std::move(shape), {}};
  tensor.bytes.resize(static_cast<size_t>(tensor.count() * bytesOf(element)));
  for (int64_t i = 0; i < tensor.count(); ++i)
    tensor.set(i, number);
  return tensor;
}

CaseTensor lengthsOf(std::vector<int64_t> lengths) {
  CaseTensor tensor = filledWith(ElementType::Int64, {static_cast<int64_t>(lengths.size())}, 0);
  for (size_t i = 0; i < lengths.size(); ++i)
    std::memcpy(tensor.bytes.data() + i * sizeof lengths[i], &lengths[i], sizeof lengths[i]);
  return tensor;
}

} // namespace kvopt
