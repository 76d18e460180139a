// Named values of a definition are computed when they are read first.
#include "meaning/numbers/node_numbers.h"

#include "ir/graph.h"
#include "meaning/numbers/element_access.h"
#include "support/diagnostic.h"
#include <algorithm>
#include <numeric>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

using Extents = llvm::SmallVector<int64_t, 6>;

constexpr int64_t mostElements = int64_t(1) << 31;
constexpr int64_t mostSingle = 32; ///< elements that are made one by one

int64_t countOf(llvm::ArrayRef<int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t(1), std::multiplies<>());
}

/// One use of an operator with numbers for its operands.
class NodeNumbers {
public:
  NodeNumbers(const ir::Node& node, int64_t opset, llvm::ArrayRef<const Array*> operands)
      : node_(node),
        call_(formulas_, node, opset, tensorsOf(operands),
              [this](const Tensor& value, bool isRounded) { return named(value, isRounded); }) {}

  llvm::Error compute(Define define, Allocate allocate) {
    if (llvm::Error error = read(define))
      return error;
    for (const Requirement& requirement : call_.requirements())
      if (llvm::Error error = check(requirement))
        return error;
    for (unsigned k = 0; k < call_.resultCount(); ++k) {
      if (!call_.wants(k))
        continue;
      const Tensor& result = call_.results()[k];
      if (!result)
        return refusal(formatted("result {} is not defined", k));
      const std::optional<Extents> extents = numbersOf(result.extents());
      if (!extents)
        return refusal(reason_);
      llvm::Expected<std::byte*> data = allocate(k, result.type(), *extents);
      if (!data)
        return data.takeError();
      if (*data && !store(result, *extents, result.type(), *data))
        return refusal(reason_);
    }
    return llvm::Error::success();
  }

  std::optional<Extents> extents(Define define, unsigned result) {
    if (llvm::Error error = read(define)) {
      llvm::consumeError(std::move(error));
      return std::nullopt;
    }
    const Tensor& tensor = call_.results()[result];
    return tensor ? numbersOf(tensor.extents()) : std::nullopt;
  }

private:
  llvm::Error read(Define define) {
    for (const auto& [value, array] : arrays_)
      if (isBeyondIntegers(*array))
        return refusal("an integer of 2^63 or more");
    define(call_);
    if (call_.isRefused())
      return refusal(call_.reason());
    if (const std::string unread = call_.unreadAttribute(); !unread.empty())
      return refusal(formatted("the attribute '{}' is not defined", unread));
    return llvm::Error::success();
  }

  /// A value that the definition wants computed once, and its numbers when they are there.
  struct Value {
    Tensor tensor;
    Array array;
    std::vector<std::byte> bytes;
    bool isRounded = false, isComputed = false;
  };

  llvm::Error refusal(const std::string& reason) const {
    return unsupported("{}", reason).node(node_.name(), node_.op().type());
  }

  std::vector<Tensor> tensorsOf(llvm::ArrayRef<const Array*> operands) {
    std::vector<Tensor> all;
    for (const Array* operand : operands)
      all.push_back(operand ? tensorOf(*operand) : Tensor());
    return all;
  }

  /// Elements of memory. Where indices are numbers, so is the element.
  Tensor tensorOf(const Array& array) {
    Scalars extents;
    for (int64_t extent : array.extents)
      extents.emplace_back(formulas_, formulas_.integer(extent));
    const int64_t value = formulas_.named({"operand", rangeOf(array.type)});
    arrays_[value] = &array;
    return Tensor(extents, array.type, [this, &array, value](Index index) -> Scalar {
      int64_t place = 0;
      bool isKnown = array.data != nullptr;
      llvm::SmallVector<Expr, 6> exprs;
      for (size_t axis = 0; axis < index.size(); ++axis) {
        const std::optional<int64_t> number = index[axis].number();
        isKnown &= number && *number >= 0 && *number < array.extents[axis];
        place = isKnown ? place * array.extents[axis] + *number : 0;
        exprs.push_back(index[axis].expr());
      }
      const Sort sort = sortOf(array.type);
      if (!isKnown)
        return {formulas_, formulas_.element(value, sort, exprs)};
      if (sort == Sort::Real) {
        double number = 0;
        loadReals(array.type, array.data, &place, 1, &number);
        return {formulas_, formulas_.real(number)};
      }
      int64_t number = 0;
      loadIntegers(array.type, array.data, &place, 1, &number);
      return {formulas_,
              sort == Sort::Boolean ? formulas_.boolean(number != 0) : formulas_.integer(number)};
    });
  }

  /// Formulas have signed integers of 64 bits.
  static bool isBeyondIntegers(const Array& array) {
    if (array.type != Type::UInt64 || !array.data)
      return false;
    const auto* elements = reinterpret_cast<const uint64_t*>(array.data);
    return std::any_of(elements, elements + countOf(array.extents),
                       [](uint64_t element) { return element >> 63 != 0; });
  }

  static Range rangeOf(Type type) {
    const unsigned bits = ir::bitWidth(type).value_or(64);
    if (sortOf(type) != Sort::Integer || bits >= 64)
      return {};
    const bool isSigned =
        type == Type::Int4 || type == Type::Int8 || type == Type::Int16 || type == Type::Int32;
    const int64_t count = int64_t(1) << bits;
    return isSigned ? Range{-count / 2, count / 2 - 1} : Range{0, count - 1};
  }

  Tensor named(const Tensor& tensor, bool isRounded) {
    const int64_t value = formulas_.named({"value", {}});
    values_[value].tensor = tensor;
    values_[value].isRounded = isRounded;
    const Sort sort = sortOf(tensor.type());
    return Tensor(Scalars(tensor.extents().begin(), tensor.extents().end()), tensor.type(),
                  [this, value, sort](Index index) -> Scalar {
                    llvm::SmallVector<Expr, 6> exprs;
                    for (Scalar each : index)
                      exprs.push_back(each.expr());
                    return {formulas_, formulas_.element(value, sort, exprs)};
                  });
  }

  /// The numbers of a named value or operand; null if they cannot be computed.
  const Array* find(int64_t number) {
    if (auto operand = arrays_.find(number); operand != arrays_.end())
      return operand->second->data || countOf(operand->second->extents) == 0 ? operand->second
                                                                             : nullptr;
    auto found = values_.find(number);
    if (found == values_.end())
      return nullptr;
    Value& value = found->second;
    if (!value.isComputed) {
      const Sort sort = sortOf(value.tensor.type());
      const std::optional<Extents> extents = numbersOf(value.tensor.extents());
      if (!extents)
        return nullptr;
      value.array.type = value.isRounded         ? value.tensor.type()
                         : sort == Sort::Real    ? Type::Double
                         : sort == Sort::Integer ? Type::Int64
                                                 : Type::Bool;
      value.array.extents.assign(extents->begin(), extents->end());
      value.bytes.resize(static_cast<size_t>(countOf(*extents)) * widthInMemory(value.array.type));
      value.array.data = value.bytes.data();
      if (!store(value.tensor, *extents, value.array.type, value.bytes.data()))
        return nullptr;
      value.isComputed = true;
    }
    return &value.array;
  }

  std::optional<Extents> numbersOf(Index extents) {
    Extents all;
    int64_t count = 1;
    for (Scalar extent : extents) {
      std::optional<int64_t> number = extent.number();
      if (!number) {
        Loops loops(formulas_, extent.expr(), {}, {}, [this](int64_t v) { return find(v); });
        if (!loops.isComplete()) {
          note(loops.reason());
          return std::nullopt;
        }
        number = loops.single();
      }
      if (*number < 0 || __builtin_mul_overflow(count, *number, &count) || count > mostElements) {
        note(formatted("an extent of {}", *number));
        return std::nullopt;
      }
      all.push_back(*number);
    }
    return all;
  }

  /// Indices for extents; the facts that they exist hold in `path`.
  Scalars indicesOf(llvm::ArrayRef<int64_t> extents) {
    Scalars all;
    for (int64_t extent : extents)
      all.emplace_back(formulas_, extent == 1 ? formulas_.integer(0)
                                              : formulas_.index("i", formulas_.integer(extent)));
    return all;
  }

  bool store(const Tensor& tensor, llvm::ArrayRef<int64_t> extents, Type type, std::byte* data) {
    if (widthInMemory(type) == 0) {
      note(formatted("elements of type {}", ir::onnxName(type)));
      return false;
    }
    if (countOf(extents) == 0 || storeEach(tensor, extents, type, data))
      return true;
    const Scalars indices = indicesOf(extents);
    const Scalar element = tensor.at(indices);
    if (element.sort() != sortOf(type)) {
      note(formatted("elements that are no {}", ir::onnxName(type)));
      return false;
    }
    llvm::SmallVector<Expr, 6> exprs;
    for (Scalar index : indices)
      exprs.push_back(index.expr());
    Loops loops(formulas_, element.expr(), exprs, extents, [this](int64_t v) { return find(v); });
    if (formulas_.arena().isFull()) {
      note("a formula that is too long");
      return false;
    }
    if (!loops.isComplete()) {
      note(loops.reason());
      return false;
    }
    loops.store(type, data);
    return true;
  }

  /// Stores the elements of a small result that are numbers as soon as they are made. False if one
  /// is not.
  bool storeEach(const Tensor& tensor, llvm::ArrayRef<int64_t> extents, Type type,
                 std::byte* data) {
    const int64_t count = countOf(extents);
    Scalars index(extents.size());
    for (int64_t place = 0; place < count && count <= mostSingle; ++place) {
      int64_t rest = place;
      for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis])
        index[axis] = Scalar(formulas_, formulas_.integer(rest % extents[axis]));
      const Expr element = tensor.at(index).expr();
      std::optional<int64_t> number = formulas_.integerOf(element);
      if (const std::optional<bool> boolean = formulas_.booleanOf(element))
        number = *boolean;
      if (number)
        storeIntegers(type, data, place, &*number, 1);
      else if (const std::optional<double> real = formulas_.realOf(element))
        storeReals(type, data, place, &*real, 1);
      else
        return false;
    }
    return count <= mostSingle;
  }

  llvm::Error check(const Requirement& requirement) {
    const std::optional<Extents> extents = numbersOf(requirement.extents);
    if (!extents)
      return refusal(reason_);
    if (countOf(*extents) == 0)
      return llvm::Error::success();
    const Scalars indices = indicesOf(*extents);
    const Expr condition = requirement.condition(indices).expr();
    if (std::optional<bool> known = formulas_.booleanOf(condition); known == true)
      return llvm::Error::success();
    llvm::SmallVector<Expr, 6> exprs;
    for (Scalar index : indices)
      exprs.push_back(index.expr());
    Loops loops(formulas_, condition, exprs, *extents, [this](int64_t v) { return find(v); });
    if (!loops.isComplete())
      return refusal(loops.reason());
    if (!loops.holdsEverywhere())
      return invalid("{}", requirement.otherwise).node(node_.name(), node_.op().type());
    return llvm::Error::success();
  }

  void note(const std::string& reason) {
    if (reason_.empty())
      reason_ = reason;
  }

  const ir::Node& node_;
  Formulas formulas_;
  std::map<int64_t, const Array*> arrays_;
  std::map<int64_t, Value> values_;
  std::string reason_;
  Call call_;
};

} // namespace

llvm::Error computeNode(Define define, const ir::Node& node, int64_t opset,
                        llvm::ArrayRef<const Array*> operands, Allocate allocate) {
  return NodeNumbers(node, opset, operands).compute(define, allocate);
}

StoredArray::StoredArray(Type elementType, llvm::ArrayRef<int64_t> shape)
    : Array{elementType, Extents(shape.begin(), shape.end()), nullptr} {
  count = static_cast<size_t>(countOf(shape));
  bytes.resize(count * widthInMemory(type));
  data = bytes.data();
}

namespace {

int64_t opsetOf(const ir::Node& node) { return node.graph().opsetVersion(node.op().domain()); }

} // namespace

std::optional<StoredArray> computeResult(const ir::Node& node, unsigned result,
                                         llvm::ArrayRef<const Array*> operands, double limit) {
  const Define define = definitions().find(node.op(), opsetOf(node));
  if (!define)
    return std::nullopt;
  StoredArray stored;
  llvm::Error error = computeNode(
      define, node, opsetOf(node), operands,
      [&](unsigned k, Type type, llvm::ArrayRef<int64_t> extents) -> llvm::Expected<std::byte*> {
        if (k != result)
          return nullptr;
        if (static_cast<double>(countOf(extents)) > limit)
          return unsupported("too many elements");
        stored = StoredArray(type, extents);
        return stored.bytes.data();
      });
  if (!error)
    return stored;
  llvm::consumeError(std::move(error));
  return std::nullopt;
}

std::optional<Extents> computeExtents(const ir::Node& node, unsigned result,
                                      llvm::ArrayRef<const Array*> operands) {
  const Define define = definitions().find(node.op(), opsetOf(node));
  return define ? NodeNumbers(node, opsetOf(node), operands).extents(define, result) : std::nullopt;
}

} // namespace kvopt::meaning
