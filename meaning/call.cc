// Reading of nodes for definitions.
#include "meaning/call.h"

#include "ir/graph.h"
#include "meaning/expression/printer.h"
#include "support/format.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace kvopt::meaning {

Call::Call(Formulas& formulas, const ir::Node& node, int64_t opset, std::vector<Tensor> operands,
           Host host)
    : formulas_(formulas), node_(node), opset_(opset), operands_(std::move(operands)),
      host_(std::move(host)), results_(node.results().size()),
      types_(node.results().size(), ir::ElementType::Undefined),
      absent_(unknownTensor(formulas, Scalars(4, integer(1)), ir::ElementType::Undefined)) {}

const Tensor& Call::operator[](unsigned operand) const {
  if (has(operand))
    return operands_[operand];
  reject(formatted("operand {} is missing", operand));
  return absent_;
}

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
    reject(formatted("operand {} is missing", operand));
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
  const Tensor& tensor = (*this)[operand];
  return tensor.at(Scalars(tensor.rank(), integer(0)));
}

ir::ElementType Call::typeAttribute(llvm::StringRef name, ir::ElementType otherwise) {
  const int64_t written = integerAttribute(name, static_cast<int64_t>(otherwise));
  if (written >= 0 && written < 1000)
    return static_cast<ir::ElementType>(written);
  refuse(formatted("{} {} is no element type", name, written));
  return ir::ElementType::Undefined;
}

std::string Call::text(unsigned operand) const {
  if (!has(operand))
    return "nothing";
  const Tensor& tensor = operands_[operand];
  std::string all = ir::onnxName(tensor.type()).str();
  for (unsigned axis = 0; axis < tensor.rank(); ++axis)
    all += (axis == 0 ? "[" : ", ") + printed(formulas_, tensor.extent(axis).expr());
  return all + (tensor.rank() ? "]" : "");
}

bool Call::hasRank(unsigned operand, size_t rank) {
  if (!has(operand) || operands_[operand].rank() == rank)
    return true;
  reject(formatted("operand {} is {}, its rank should be {}", operand, text(operand), rank));
  return false;
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
    reject(formatted("axis {} is outside rank {}", written, rank));
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
  if (const auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end())
    reject(formatted("axis {} occurs twice", *twice));
  return all;
}

std::string Call::unreadAttribute() const {
  for (const ir::NamedAttribute& attribute : node_.attributes())
    if (!llvm::is_contained(read_, attribute.name))
      return attribute.name;
  return "";
}

void Call::result(unsigned place, Tensor tensor) {
  if (place < results_.size() && !isRefused())
    results_[place] = std::move(tensor);
}

void Call::type(unsigned place, ir::ElementType type) {
  if (place < types_.size())
    types_[place] = type;
}

void Call::extents(unsigned place, ir::ElementType type, Index extents) {
  result(place, unknownTensor(formulas_, listed(extents), type));
}

void Call::rank(unsigned place, ir::ElementType type, size_t rank) {
  Scalars all;
  for (size_t axis = 0; axis < rank; ++axis)
    all.emplace_back(formulas_, formulas_.unknown(Sort::Integer));
  extents(place, type, all);
}

Scalar Call::equalExtents(Scalar a, Scalar b, llvm::function_ref<std::string()> what) {
  if (a.expr() == b.expr())
    return a;
  const Scalar areEqual = same(a, b);
  const std::optional<bool> known = formulas_.booleanOf(areEqual.expr());
  if (known == false)
    reject(formatted("{}: {} and {}", what(), printed(formulas_, a.expr()),
                     printed(formulas_, b.expr())));
  else if (!known)
    require(areEqual, what());
  return b.number() || formulas_.isOpaque(a.expr()) ? b : a;
}

Scalar Call::broadcastExtent(Scalar a, Scalar b, llvm::function_ref<std::string()> what) {
  if (b.is(1) || a.expr() == b.expr())
    return a;
  if (a.is(1))
    return b;
  const Scalar isOne = same(a, 1), isOtherOne = same(b, 1);
  const bool isWide = formulas_.booleanOf(isOne.expr()) == false;
  const bool isOtherWide = formulas_.booleanOf(isOtherOne.expr()) == false;
  if (isWide && isOtherWide)
    return equalExtents(a, b, what);
  if (isWide)
    return a;
  return isOtherWide ? b : select(isOne, b, a);
}

Scalars Call::broadcastExtents(llvm::ArrayRef<Tensor> tensors) {
  size_t rank = 0;
  for (const Tensor& tensor : tensors)
    rank = std::max<size_t>(rank, tensor.rank());
  Scalars all(rank, integer(1));
  for (unsigned k = 0; k < tensors.size(); ++k) {
    const Tensor& tensor = tensors[k];
    const bool isOperand = has(k) && operands_[k].isSame(tensor);
    const auto what = [&] {
      return isOperand ? formatted("operand {} of type {} does not broadcast", k, text(k))
                       : std::string("extents do not broadcast");
    };
    for (unsigned axis = 0; axis < tensor.rank(); ++axis) {
      Scalar& extent = all[rank - tensor.rank() + axis];
      extent = broadcastExtent(extent, tensor.extent(axis), what);
    }
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
  requireAt(
      {}, [condition](Index) { return condition; }, std::move(otherwise));
}

void Call::requireAt(Scalars extents, std::function<Scalar(Index)> condition,
                     std::string otherwise) {
  requirements_.push_back({std::move(extents), std::move(condition), std::move(otherwise)});
}

void Call::refuse(std::string reason) const {
  if (reason_.empty())
    reason_ = std::move(reason);
}

void Call::reject(std::string reason) const {
  isRejected_ |= reason_.empty();
  refuse(std::move(reason));
}

/// None if they are not numbers, or too many.
static std::vector<Scalar> numbersOf(Formulas& formulas, const ir::TensorData& data) {
  const Sort sort = sortOf(data.elementType());
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
  return numbers;
}

Tensor constantTensor(Formulas& formulas, const ir::TensorData& data) {
  Scalars extents;
  for (int64_t extent : data.shape())
    extents.emplace_back(formulas, formulas.integer(extent));
  const ir::ElementType type = data.elementType();
  const Sort sort = sortOf(type);
  const auto numbers = std::make_shared<std::optional<std::vector<Scalar>>>();
  return Tensor(extents, type, [=, &formulas, &data](Index index) {
    if (!*numbers)
      *numbers = numbersOf(formulas, data);
    // Only at numbers: a table that is read at formulas is a named value.
    const std::optional<int64_t> place = flat(formulas, index, extents).number();
    if (place && *place >= 0 && *place < static_cast<int64_t>((*numbers)->size()))
      return (**numbers)[static_cast<size_t>(*place)];
    return (*numbers)->size() == 1 ? (**numbers)[0] : Scalar(formulas, formulas.unknown(sort));
  });
}

} // namespace kvopt::meaning
