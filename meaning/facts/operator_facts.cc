// A definition is run on operands of several ranks until it accepts one, and its formulas are read.
#include "meaning/facts/operator_facts.h"

#include "ir/graph.h"
#include "meaning/definitions.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

namespace kvopt::meaning {

namespace {

constexpr unsigned mostOperands = 64, mostRank = 5;
/// Operand k has the element type of this number plus k.
constexpr int32_t markedTypes = 1000;

using ListOfNumbers = std::optional<llvm::SmallVector<int64_t, 8>>;

/// The integers of a constant list.
ListOfNumbers constantList(const ir::Value& value) {
  constexpr int64_t longest = 64;
  const ir::TensorRef data = value.constantRef();
  return data && data->shape().size() <= 1 ? ir::integerValues(*data, longest) : std::nullopt;
}

ir::ElementType typeOf(const ir::Value& value) {
  const ir::TensorRef data = value.constantRef();
  return data ? data->elementType() : value.type().elementType();
}

std::optional<unsigned> declaredRank(const ir::Value& value) {
  return value.type().hasRank() ? std::optional(value.type().rank()) : std::nullopt;
}

/// What an attempt takes operands for: lists of integers, or tensors of a rank.
struct Attempt {
  bool hasNumbers = false; ///< whether the elements of lists are numbers, 1 where they are unknown
  unsigned firstList = 0;  ///< operands from this one on are lists if they may be integers
  unsigned rank = 0;       ///< of other operands; 0: those that the model declares
};

class Reading {
public:
  Reading(const ir::Node& node, Attempt made)
      : formulas_(Formulas::Reals::Exact, size_t(1) << 14), attempt_(made),
        call_(formulas_, node, node.graph().opsetVersion(node.op().domain()), operandsOf(node),
              [this](const Tensor& value, bool) { return named(value); }) {}

  bool read(Define define) {
    define(call_);
    if (!call_.unreadAttribute().empty())
      return false;
    facts = {Making::Moved, 0, 0, 0, true, {}};
    for (unsigned k = 0; k < call_.resultCount() && !call_.isRefused(); ++k) {
      const Tensor& result = call_.results()[k];
      facts.types.push_back(typeOfResult(result));
      if (result && call_.wants(k))
        noteResult(result);
      else if (call_.wants(k))
        return false;
    }
    for (const Tensor& value : named_)
      noteWindows(value.at(indicesOf(value)).expr());
    facts.shaping |= asNumbers_;
    return !call_.isRefused() && !formulas_.arena().isFull();
  }

  NodeFacts facts;

private:
  std::vector<Tensor> operandsOf(const ir::Node& node) {
    std::vector<Tensor> all;
    for (unsigned k = 0; k < node.operands().size(); ++k)
      all.push_back(node.operand(k) ? operandOf(node, k) : Tensor());
    return all;
  }

  Tensor operandOf(const ir::Node& node, unsigned k) {
    const ir::ElementType type = typeOf(*node.operand(k));
    const ListOfNumbers numbers = constantList(*node.operand(k));
    const bool isUnknown = type == ir::ElementType::Undefined;
    const bool isList =
        numbers || (k >= attempt_.firstList && (isUnknown || sortOf(type) == Sort::Integer));
    const bool isScalar = numbers && node.operand(k)->constantRef()->shape().empty();
    const size_t count = numbers ? numbers->size() : node.results().size();
    const size_t rank = isScalar        ? 0
                        : isList        ? 1
                        : attempt_.rank ? attempt_.rank
                                        : declaredRank(*node.operand(k)).value_or(1);
    Scalars extents;
    for (size_t axis = 0; axis < rank; ++axis)
      extents.emplace_back(formulas_, isList ? formulas_.integer(static_cast<int64_t>(count))
                                             : formulas_.symbol("n"));
    const Sort sort = isUnknown && isList ? Sort::Integer : sortOf(type);
    const int64_t name = formulas_.named({});
    operands_[name] = k;
    auto element = [=, this](Index index) -> Scalar {
      const int64_t place = index.empty() ? 0 : index[0].number().value_or(-1);
      if (isList && attempt_.hasNumbers && place >= 0 && place < static_cast<int64_t>(count)) {
        asNumbers_ |= OperandSet(1) << k;
        const int64_t number = numbers ? (*numbers)[static_cast<size_t>(place)] : 1;
        return {formulas_,
                sort == Sort::Boolean ? formulas_.boolean(number != 0) : formulas_.integer(number)};
      }
      return elementOf(name, sort, index);
    };
    const auto marked = static_cast<ir::ElementType>(markedTypes + static_cast<int32_t>(k));
    return Tensor(std::move(extents), marked, element);
  }

  static NodeFacts::Type typeOfResult(const Tensor& result) {
    const int32_t type = result ? static_cast<int32_t>(result.type()) : 0;
    if (type < markedTypes)
      return {static_cast<ir::ElementType>(type), std::nullopt};
    return {ir::ElementType::Undefined, static_cast<unsigned>(type - markedTypes)};
  }

  /// A value of its own, which is read once.
  Tensor named(const Tensor& value) {
    const int64_t name = formulas_.named({});
    named_.push_back(value);
    return Tensor(listed(value.extents()), value.type(),
                  [this, name, sort = sortOf(value.type())](Index index) {
                    return elementOf(name, sort, index);
                  });
  }

  Scalar elementOf(int64_t name, Sort sort, Index index) {
    llvm::SmallVector<Expr, 6> exprs;
    for (Scalar each : index)
      exprs.push_back(each.expr());
    return {formulas_, formulas_.element(name, sort, exprs)};
  }

  Scalars indicesOf(const Tensor& tensor) {
    Scalars indices;
    for (Scalar extent : tensor.extents())
      indices.emplace_back(formulas_, extent.is(1) ? formulas_.integer(0)
                                                   : formulas_.index("i", extent.expr()));
    return indices;
  }

  void noteResult(const Tensor& result) {
    const Arena& arena = formulas_.arena();
    for (Scalar extent : result.extents())
      arena.forEachPart(extent.expr(), [&](Expr part) {
        if (arena[part].op == Op::Element)
          facts.shaping |= operandsIn(part);
      });
    const Expr element = result.at(indicesOf(result)).expr();
    addMade(element);
    noteWindows(element);
  }

  void noteWindows(Expr element) {
    formulas_.arena().forEachPart(element, [&](Expr part) { facts.isUniform &= !isWindow(part); });
  }

  /// The operand of an element; all of them for a named value.
  OperandSet operandsIn(Expr element) const {
    const auto found = operands_.find(formulas_.arena()[element].value);
    return found == operands_.end() ? NodeFacts::all : OperandSet(1) << found->second;
  }

  /// Whether a place is one index beyond another one.
  bool isWindow(Expr part) const {
    const Arena& arena = formulas_.arena();
    if (arena[part].op != Op::Polynomial)
      return false;
    unsigned rising = 0, falling = 0;
    for (auto [monomial, coefficient] : llvm::zip(arena.operands(part), arena.coefficients(part)))
      if (arena[monomial].op == Op::Index || arena[monomial].op == Op::Bound)
        ++(coefficient > 0 ? rising : falling);
    return std::max(rising, falling) > 1;
  }

  void raise(Making least) { facts.making = std::max(facts.making, least); }
  void addMade(llvm::ArrayRef<Expr> all) {
    for (Expr each : all)
      addMade(each);
  }

  /// Adds what a value is made of, and how.
  void addMade(Expr expr) {
    if (!made_.insert(expr.id()).second)
      return;
    const Arena& arena = formulas_.arena();
    const llvm::ArrayRef<Expr> parts = arena.operands(expr);
    auto isConstant = [&](Expr part) {
      return formulas_.integerOf(part) || formulas_.realOf(part);
    };
    switch (arena[expr].op) {
    case Op::Integer:
    case Op::Boolean:
      return;
    case Op::Real:
      return raise(std::isfinite(*formulas_.realOf(expr)) ? Making::Moved : Making::Computed);
    case Op::Symbol:
    case Op::Index:
    case Op::Bound:
      return raise(Making::Finite);
    case Op::Element:
      facts.made |= operandsIn(expr);
      return raise(operandsIn(expr) == NodeFacts::all ? Making::Computed : Making::Moved);
    case Op::Select: // of 1 and 0 it is a boolean as a number
      return addMade(isConstant(parts[1]) && isConstant(parts[2]) ? parts : parts.drop_front());
    case Op::Last:
      return addMade({parts[1], parts[3]});
    case Op::Function:
      raise(makingOf(static_cast<Function>(arena[expr].detail), parts));
      break;
    case Op::Unknown:
      facts.made |= NodeFacts::all;
      raise(Making::Computed);
      break;
    case Op::Reduce:
      raise(Making::Computed);
      break;
    case Op::Wrapped:
    case Op::Truncated:
    case Op::FromInteger:
      break;
    default: // integers and booleans
      raise(Making::Finite);
    }
    addMade(parts);
  }

  Making makingOf(Function function, llvm::ArrayRef<Expr> parts) {
    auto isFactor = [&](Expr part) { return formulas_.realOf(part).value_or(0) != 0; };
    switch (function) {
    case Function::Add:
      return Making::Summed;
    case Function::Multiply:
      return llvm::any_of(parts, isFactor) ? Making::Summed : Making::Finite;
    case Function::Divide:
      if (isFactor(parts[1]))
        return Making::Summed;
      if (formulas_.arena()[parts[1]].op != Op::Element)
        return Making::Computed;
      facts.divisors |= operandsIn(parts[1]);
      return Making::Finite;
    case Function::Minimum:
    case Function::Maximum:
    case Function::Floor:
    case Function::Ceiling:
    case Function::Round:
    case Function::Sine:
    case Function::Cosine:
    case Function::HyperbolicTangent:
      return Making::Finite;
    default:
      return Making::Computed;
    }
  }

  Formulas formulas_;
  Attempt attempt_;
  std::map<int64_t, unsigned> operands_; ///< by the names of their values
  std::vector<Tensor> named_;
  OperandSet asNumbers_ = 0; ///< operands of which numbers were read
  llvm::DenseSet<uint32_t> made_;
  Call call_;
};

/// Everything that an attempt reads of a node.
std::string keyOf(const ir::Node& node) {
  std::string key;
  llvm::raw_string_ostream out(key);
  out << node.op().str() << ' ' << node.graph().opsetVersion(node.op().domain());
  for (const ir::NamedAttribute& attribute : node.attributes()) {
    const ir::Attribute& value = attribute.value;
    out << ' ' << attribute.name << '='
        << int(value.isReference() ? ir::AttributeKind() : value.kind()) << ':';
    if (value.isReference())
      continue;
    if (value.kind() == ir::AttributeKind::Int)
      out << value.intValue();
    else if (value.kind() == ir::AttributeKind::Float)
      out << value.floatValue();
    else if (value.kind() == ir::AttributeKind::String)
      out << value.stringValue().size() << value.stringValue();
    else if (value.kind() == ir::AttributeKind::Ints)
      llvm::interleave(value.ints(), out, " ");
    else if (value.kind() == ir::AttributeKind::Tensor)
      out << int(value.tensorValue()->elementType());
  }
  for (const ir::Value& result : node.results())
    out << (result.isAbsent() ? '-' : '>');
  for (const ir::Use& use : node.operands()) {
    out << ',' << (use.value() ? int(typeOf(*use.value())) : -1);
    if (const auto rank = use.value() ? declaredRank(*use.value()) : std::nullopt)
      out << 'r' << *rank;
    if (const ListOfNumbers numbers = use.value() ? constantList(*use.value()) : std::nullopt) {
      out << (use.value()->constantRef()->shape().empty() ? ':' : '[');
      llvm::interleave(*numbers, out, " ");
    }
  }
  return out.str();
}

NodeFacts read(const ir::Node& node) {
  const Define define = definitionOf(node);
  if (!define || node.operands().size() > mostOperands)
    return {};
  for (const bool hasNumbers : {false, true})
    for (unsigned firstList : {mostOperands, 1U, 0U})
      for (unsigned rank = 0; rank <= mostRank; ++rank) {
        Reading reading(node, {hasNumbers, firstList, rank});
        if (!reading.read(define))
          continue;
        // What depends on attributes that the caller of a function gives is not known.
        const bool isOfCaller = llvm::any_of(node.attributes(), [](const ir::NamedAttribute& each) {
          return each.value.isReference();
        });
        NodeFacts facts;
        facts.isUniform = reading.facts.isUniform;
        return isOfCaller ? facts : reading.facts;
      }
  return {};
}

} // namespace

const NodeFacts& OperatorFacts::of(const ir::Node& node) {
  const auto [at, isNew] = known_.try_emplace(keyOf(node));
  if (isNew)
    at->second = read(node);
  return at->second;
}

} // namespace kvopt::meaning
