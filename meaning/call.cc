// Reading of nodes for definitions.
#include "meaning/call.h"

#include "ir/graph.h"
#include "support/format.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace kvopt::meaning {

Call::Call(Formulas& formulas, const ir::Node& node, int64_t opset, std::vector<Tensor> operands,
           Host host)
    : formulas_(formulas), node_(node), opset_(opset), operands_(std::move(operands)),
      host_(std::move(host)), results_(node.results().size()) {}

Scalar Call::number(double value, ir::ElementType type) const {
  switch (sortOf(type)) {
  case Sort::Boolean:
    return boolean(value != 0);
  case Sort::Integer:
    return integer(static_cast<int64_t>(value));
  case Sort::Real:
    break;
  }
  return real(value);
}

bool Call::wants(unsigned result) const {
  return result < resultCount() && !node_.results()[result].name().empty();
}

Scalars Call::elements(unsigned operand) {
  if (!has(operand)) {
    refuse(formatted("operand {} is missing", operand));
    return {};
  }
  const Tensor& list = operands_[operand];
  if (list.rank() == 0)
    return {list.at({})};
  const std::optional<int64_t> count = list.extent(0).number();
  if (list.rank() != 1 || !count || *count > 4096) {
    refuse(formatted("operand {} is not a list of known length", operand));
    return {};
  }
  Scalars all;
  for (int64_t k = 0; k < *count; ++k)
    all.push_back(list.at({integer(k)}));
  return all;
}

llvm::SmallVector<int64_t> Call::numbers(unsigned operand) {
  llvm::SmallVector<int64_t> all;
  for (Scalar element : elements(operand)) {
    const std::optional<int64_t> number = element.number();
    if (!number)
      refuse(formatted("operand {} is not constant", operand));
    all.push_back(number.value_or(0));
  }
  return all;
}

Scalar Call::single(unsigned operand) const {
  const Scalars first(operands_[operand].rank(), integer(0));
  return operands_[operand].at(first);
}

double Call::realAttribute(llvm::StringRef name, double otherwise) const {
  find(name);
  const ir::Attribute* attribute = node_.attributeOrDefault(name);
  return attribute && attribute->kind() == ir::AttributeKind::Float && !attribute->isReference()
             ? static_cast<double>(attribute->floatValue())
             : otherwise;
}

std::optional<llvm::SmallVector<int64_t>> Call::integersAttribute(llvm::StringRef name) const {
  find(name);
  const std::optional<llvm::ArrayRef<int64_t>> written = node_.intsAttr(name);
  if (!written)
    return std::nullopt;
  return llvm::SmallVector<int64_t>(written->begin(), written->end());
}

std::optional<llvm::SmallVector<double>> Call::realsAttribute(llvm::StringRef name) const {
  find(name);
  const ir::Attribute* attribute = node_.attributeOrDefault(name);
  if (!attribute || attribute->kind() != ir::AttributeKind::Floats || attribute->isReference())
    return std::nullopt;
  const llvm::ArrayRef<float> floats = attribute->floats();
  return llvm::SmallVector<double>(floats.begin(), floats.end());
}

Tensor Call::tensorAttribute(llvm::StringRef name) {
  const ir::Attribute* attribute = find(name);
  if (!attribute || attribute->kind() != ir::AttributeKind::Tensor || attribute->isReference())
    return Tensor();
  return constantTensor(formulas_, *attribute->tensorValue());
}

unsigned Call::axis(int64_t written, size_t rank) {
  const auto count = static_cast<int64_t>(rank);
  const int64_t axis = written < 0 ? written + count : written;
  if (axis < 0 || axis >= count) {
    refuse(formatted("axis {} of a tensor of rank {}", written, rank));
    return 0;
  }
  return static_cast<unsigned>(axis);
}

std::optional<llvm::SmallVector<int64_t>> Call::integers(llvm::StringRef attribute,
                                                         unsigned operand) {
  if (auto written = integersAttribute(attribute))
    return written;
  if (has(operand))
    return numbers(operand);
  return std::nullopt;
}

std::optional<llvm::SmallVector<unsigned>> Call::axes(llvm::StringRef attribute, unsigned operand,
                                                      size_t rank) {
  const std::optional<llvm::SmallVector<int64_t>> written = integers(attribute, operand);
  if (!written)
    return std::nullopt;
  llvm::SmallVector<unsigned> all;
  for (int64_t each : *written)
    all.push_back(axis(each, rank));
  llvm::sort(all);
  if (std::adjacent_find(all.begin(), all.end()) != all.end())
    refuse("an axis occurs twice");
  return all;
}

std::string Call::unreadAttribute() const {
  for (const ir::NamedAttribute& attribute : node_.attributes())
    if (!read_.count(attribute.name))
      return attribute.name;
  return "";
}

void Call::result(unsigned place, Tensor tensor) {
  if (place < results_.size())
    results_[place] = std::move(tensor);
}

Scalar Call::equalExtents(Scalar a, Scalar b, llvm::StringRef what) {
  if (a.expr() == b.expr())
    return a;
  const std::optional<int64_t> x = a.number(), y = b.number();
  if (x && y)
    refuse(formatted("{}: {} and {}", what, *x, *y));
  else
    require(same(a, b), what.str());
  return x ? a : b;
}

Scalars Call::broadcastExtents(llvm::ArrayRef<Tensor> tensors) {
  size_t rank = 0;
  for (const Tensor& tensor : tensors)
    rank = std::max<size_t>(rank, tensor.rank());
  Scalars all(rank, integer(1));
  for (const Tensor& tensor : tensors)
    for (unsigned axis = 0; axis < tensor.rank(); ++axis) {
      Scalar& extent = all[rank - tensor.rank() + axis];
      const Scalar other = tensor.extent(axis);
      if (extent.is(1))
        extent = other;
      else if (!other.is(1))
        extent = equalExtents(extent, other, "extents do not broadcast");
    }
  return all;
}

Tensor Call::elementwise(llvm::ArrayRef<Tensor> operands, ir::ElementType type,
                         std::function<Scalar(llvm::ArrayRef<Scalar>)> f) {
  const std::vector<Tensor> all(operands.begin(), operands.end());
  return Tensor(broadcastExtents(operands), type, [all, f = std::move(f), type](Index index) {
    Scalars elements;
    for (const Tensor& operand : all)
      elements.push_back(operand.at(broadcastIndex(operand, index)));
    return wrapped(f(elements), type);
  });
}

void Call::require(Scalar condition, std::string otherwise) {
  requireAt({}, [condition](Index) { return condition; }, std::move(otherwise));
}

void Call::requireAt(Scalars extents, std::function<Scalar(Index)> condition,
                     std::string otherwise) {
  requirements_.push_back({std::move(extents), std::move(condition), std::move(otherwise)});
}

void Call::refuse(std::string reason) {
  if (reason_.empty())
    reason_ = std::move(reason);
}

Tensor constantTensor(Formulas& formulas, const ir::TensorData& data) {
  Scalars extents;
  for (int64_t extent : data.shape())
    extents.emplace_back(formulas, formulas.integer(extent));
  const ir::ElementType type = data.elementType();
  const Sort sort = sortOf(type);
  constexpr int64_t most = 1 << 20;
  std::vector<Scalar> numbers;
  if (sort == Sort::Real) {
    if (auto values = ir::floatValues(data, most))
      for (double value : *values)
        numbers.emplace_back(formulas, formulas.real(value));
  } else if (auto values = ir::integerValues(data, most)) {
    for (int64_t value : *values)
      numbers.emplace_back(formulas, sort == Sort::Boolean ? formulas.boolean(value != 0)
                                                           : formulas.integer(value));
  }
  if (static_cast<int64_t>(numbers.size()) != data.elementCount())
    return Tensor();
  return Tensor(extents, type, [numbers = std::move(numbers), extents, &formulas](Index index) {
    const std::optional<int64_t> place = flat(formulas, index, extents).number();
    // Only at numbers: a table that is read at formulas is a named value.
    if (place && *place >= 0 && *place < static_cast<int64_t>(numbers.size()))
      return numbers[static_cast<size_t>(*place)];
    return numbers.size() == 1 ? numbers[0] : Scalar(formulas, formulas.unknown(Sort::Integer));
  });
}

} // namespace kvopt::meaning
