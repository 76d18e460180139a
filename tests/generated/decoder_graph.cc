// Values of generated decoders that several spellings need.
#include "tests/generated/decoder_graph.h"

#include <cstring>
#include <limits>

namespace kvopt::generated {
using namespace ir;

Value& DecoderGraph::floats(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<float> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return constant(llvm::cantFail(makeTensor(ElementType::Float, shape, std::move(bytes))));
}

Value& DecoderGraph::booleans(llvm::ArrayRef<int64_t> shape, const std::vector<bool>& values) {
  std::vector<std::byte> bytes;
  for (bool value : values)
    bytes.push_back(std::byte{value});
  return constant(llvm::cantFail(makeTensor(ElementType::Bool, shape, std::move(bytes))));
}

Value& DecoderGraph::along(Value& list, int64_t axis, int64_t rank) {
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = -1;
  return op("Reshape", {&list, &constant(int64Tensor(shape))});
}

Value& DecoderGraph::movedAxis(Value& x, int64_t rank, int64_t from, int64_t to) {
  if (from == to)
    return x;
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < rank; ++axis)
    if (axis != from)
      order.push_back(axis);
  order.insert(order.begin() + to, from);
  return transpose(x, order);
}

Value& DecoderGraph::reversed(Value& x, int64_t axis) {
  constexpr int64_t lowest = std::numeric_limits<int64_t>::min();
  return op("Slice", {&x, &ints({-1}), &ints({lowest}), &ints({axis}), &ints({-1})});
}

std::vector<Value*> DecoderGraph::split(Value& x, int64_t axis, llvm::ArrayRef<int64_t> extents) {
  Node& parts = node("Split", {&x, &constant(int64Tensor(extents))}, {{"axis", axis}},
                     (1U << extents.size()) - 1);
  std::vector<Value*> results;
  for (unsigned i = 0; i < extents.size(); ++i)
    results.push_back(&parts.result(i));
  return results;
}

Value& DecoderGraph::padded(Value& x, int64_t axis, Value& before, Value& after) {
  return op("Pad", {&x, &concatLists({&before, &after}), nullptr, &ints({axis})});
}

Value& DecoderGraph::reduced(const char* type, Value& x, int64_t axis, bool keepsAxis) {
  return op(type, {&x, &ints({axis})}, {{"keepdims", static_cast<int64_t>(keepsAxis)}});
}

} // namespace kvopt::generated
