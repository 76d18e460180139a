// Values of a node in a block are one number, a ramp (a row of integers), or a list.
#include "meaning/numbers/loops.h"

#include "meaning/numbers/element_access.h"
#include "support/format.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kvopt::meaning {

namespace {

// Integers wrap: a part of a choice that is not taken may be any number.
int64_t added(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t multiplied(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

} // namespace

/// The values of a node in a block. Booleans are the integers 0 and 1.
struct Loops::Lanes {
  enum class Kind : uint8_t { Uniform, Ramp, List };

  Kind kind = Kind::Uniform;
  int64_t whole = 0; ///< of all lanes, or of the first one of a ramp
  int64_t step = 0;  ///< of a ramp
  double real = 0;
  std::vector<int64_t> wholes;
  std::vector<double> reals;

  bool isUniform() const { return kind == Kind::Uniform; }
  int64_t at(size_t lane) const {
    return kind == Kind::Uniform ? whole
           : kind == Kind::Ramp  ? added(whole, multiplied(step, static_cast<int64_t>(lane)))
                                 : wholes[lane];
  }
  double realAt(size_t lane) const { return kind == Kind::Uniform ? real : reals[lane]; }
  /// Calls f with each lane and its integer, or its real.
  template <class F> void forEach(size_t lanes, F f) const {
    int64_t value = whole;
    const int64_t by = kind == Kind::Ramp ? step : 0;
    if (kind == Kind::List)
      for (size_t lane = 0; lane < lanes; ++lane)
        f(lane, wholes[lane]);
    else
      for (size_t lane = 0; lane < lanes; ++lane, value = added(value, by))
        f(lane, value);
  }
  template <class F> void forReals(size_t lanes, F f) const {
    if (kind == Kind::List)
      for (size_t lane = 0; lane < lanes; ++lane)
        f(lane, reals[lane]);
    else
      for (size_t lane = 0; lane < lanes; ++lane)
        f(lane, real);
  }
  void setUniform(int64_t value) {
    kind = Kind::Uniform;
    whole = value;
  }
  void setReal(double value) {
    kind = Kind::Uniform;
    real = value;
  }
  int64_t* list(size_t lanes) {
    kind = Kind::List;
    if (wholes.size() < lanes)
      wholes.resize(lanes);
    return wholes.data();
  }
  double* realList(size_t lanes) {
    kind = Kind::List;
    if (reals.size() < lanes)
      reals.resize(lanes);
    return reals.data();
  }
};

struct Loops::Step {
  Op op = Op::Integer;
  Sort sort = Sort::Integer;
  uint16_t detail = 0;
  int64_t value = 0;
  llvm::SmallVector<uint32_t, 3> operands;
  llvm::ArrayRef<int64_t> coefficients;
  llvm::SmallVector<uint32_t, 2> levels; ///< of the indices that it reads; 0 is the block
  Array array;                           ///< of an element
  uint64_t time = 0;                     ///< of the values
  Lanes lanes;
};

Loops::~Loops() = default;

Loops::Loops(const Formulas& formulas, Expr element, llvm::ArrayRef<Expr> indices,
             llvm::ArrayRef<int64_t> extents, const Find& find)
    : formulas_(formulas), indices_(indices.begin(), indices.end()),
      extents_(extents.begin(), extents.end()) {
  for (int64_t extent : extents)
    count_ *= extent;
  changed_.assign(2, 1);
  bound_.assign(2, 0);
  root_ = compile(element, find);
  for (Expr index : indices_)
    indexSteps_.push_back(numbers_.count(index.id()) ? numbers_[index.id()]
                                                     : std::numeric_limits<uint32_t>::max());
}

uint32_t Loops::compile(Expr root, const Find& find) {
  const Arena& arena = formulas_.arena();
  llvm::SmallVector<Expr> open{root};
  while (!open.empty()) {
    const Expr next = open.back();
    if (numbers_.count(next.id())) {
      open.pop_back();
      continue;
    }
    const Node& node = arena[next];
    const bool isLeaf = node.op == Op::Index;
    const size_t before = open.size();
    if (!isLeaf)
      for (Expr operand : arena.operands(next))
        if (!numbers_.count(operand.id()))
          open.push_back(operand);
    if (open.size() > before)
      continue;
    open.pop_back();
    Step step;
    step.op = node.op;
    step.sort = node.sort;
    step.detail = node.detail;
    step.value = node.value;
    step.coefficients = arena.coefficients(next);
    if (!isLeaf)
      for (Expr operand : arena.operands(next))
        step.operands.push_back(numbers_[operand.id()]);
    for (Expr index : arena.variables(next)) {
      const Node& read = arena[index];
      const uint32_t level = read.op == Op::Bound ? static_cast<uint32_t>(read.value) : 0;
      if (!llvm::is_contained(step.levels, level))
        step.levels.push_back(level);
      if (level >= changed_.size()) {
        changed_.resize(level + 1, 1);
        bound_.resize(level + 1, 0);
      }
      if (read.op == Op::Index && !llvm::is_contained(indices_, index))
        reason_ = "an index that is not one of the result";
    }
    if (node.op == Op::Symbol)
      reason_ = "a size that is not known";
    else if (node.op == Op::Unknown)
      reason_ = "a part that is not known";
    else if (node.op == Op::Element) {
      const Array* array = find(node.value);
      if (!array || widthInMemory(array->type) == 0)
        reason_ = formatted("the value '{}' has no numbers", formulas_.names()[node.value].name);
      else
        step.array = *array;
    }
    if (node.op == Op::Reduce || node.op == Op::Last) {
      const auto level = static_cast<size_t>(node.value);
      if (level >= changed_.size()) {
        changed_.resize(level + 1, 1);
        bound_.resize(level + 1, 0);
      }
    }
    numbers_[next.id()] = static_cast<uint32_t>(steps_.size());
    steps_.push_back(std::move(step));
    if (steps_.size() > mostSteps && reason_.empty()) {
      reason_ = "a formula that is too long";
      break;
    }
  }
  return reason_.empty() ? numbers_[root.id()] : 0;
}

// Blocks.

void Loops::forBlocks(llvm::function_ref<bool(int64_t first, size_t count)> use) {
  if (count_ == 0)
    return;
  // Elements of few results one by one: then a reduction is what is done in blocks.
  const int64_t row = extents_.empty() ? 1 : extents_.back();
  const auto most = static_cast<int64_t>(mostLanes);
  int64_t size = count_ <= 16 ? 1 : most;
  const bool isByRows = count_ > 16 && row >= 64;
  for (int64_t first = 0; first < count_;) {
    // A block within one row reads other indices as one number.
    int64_t count = std::min(size, count_ - first);
    if (isByRows)
      count = std::min(count, row - first % row);
    setIndices(first, static_cast<size_t>(count));
    if (!use(first, static_cast<size_t>(count)))
      return;
    first += count;
  }
}

void Loops::setIndices(int64_t first, size_t count) {
  lanes_ = count;
  changed_[0] = ++clock_;
  int64_t size = 1;
  for (size_t axis = extents_.size(); axis-- > 0; size *= extents_[axis]) {
    if (indexSteps_[axis] == std::numeric_limits<uint32_t>::max())
      continue;
    Step& step = steps_[indexSteps_[axis]];
    step.time = clock_;
    const int64_t extent = extents_[axis];
    const int64_t start = first / size % extent,
                  end = (first + static_cast<int64_t>(count) - 1) / size;
    if (first / size == end) {
      step.lanes.setUniform(start);
    } else if (size == 1 && start + static_cast<int64_t>(count) <= extent) {
      step.lanes.kind = Lanes::Kind::Ramp;
      step.lanes.whole = start;
      step.lanes.step = 1;
    } else {
      int64_t* list = step.lanes.list(count);
      int64_t value = start, inner = first % size;
      for (size_t lane = 0; lane < count; ++lane) {
        list[lane] = value;
        if (++inner == size) {
          inner = 0;
          if (++value == extent)
            value = 0;
        }
      }
    }
  }
}

bool Loops::isCurrent(const Step& step) const {
  if (step.time == 0)
    return false;
  return llvm::all_of(step.levels, [&](uint32_t level) { return changed_[level] <= step.time; });
}

void Loops::bind(uint32_t level, int64_t value) {
  bound_[level] = value;
  changed_[level] = ++clock_;
}

Loops::Lanes& Loops::evaluate(uint32_t number) {
  Step& step = steps_[number];
  if (!isCurrent(step)) {
    compute(step);
    step.time = clock_;
  }
  return step.lanes;
}

namespace {

int64_t quotientOf(int64_t a, int64_t b) {
  if (b == 0)
    return 0;
  if (b == -1)
    return multiplied(a, -1);
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t remainderOf(int64_t a, int64_t b) {
  return b == 0 ? 0 : added(a, multiplied(-1, multiplied(b, quotientOf(a, b))));
}

int64_t wrappedTo(ir::ElementType type, int64_t value) {
  using Type = ir::ElementType;
  switch (type) {
  case Type::UInt4:
    return value & 15;
  case Type::Int4:
    return ((value & 15) ^ 8) - 8;
  case Type::UInt8:
    return static_cast<uint8_t>(value);
  case Type::Int8:
    return static_cast<int8_t>(value);
  case Type::UInt16:
    return static_cast<uint16_t>(value);
  case Type::Int16:
    return static_cast<int16_t>(value);
  case Type::UInt32:
    return static_cast<uint32_t>(value);
  case Type::Int32:
    return static_cast<int32_t>(value);
  default:
    return value;
  }
}

/// Rounded towards zero; what does not fit is the lowest integer, as on x86.
int64_t truncated(double value) {
  if (!(value > -0x1p63 && value < 0x1p63))
    return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

uint64_t bitsOf(double value) { return std::bit_cast<uint64_t>(value); }
double fromBits(uint64_t bits) { return std::bit_cast<double>(bits); }

double functionOf(Function function, double a, double b) {
  switch (function) {
  case Function::Add:
    return a + b;
  case Function::Multiply:
    return a * b;
  case Function::Divide:
    return a / b;
  // Zeros differ in their signs only, and a sum with what is not a number is none.
  case Function::Minimum:
    return std::islessgreater(a, b) ? std::min(a, b)
           : a != b                 ? a + b
                                    : fromBits(bitsOf(a) | bitsOf(b));
  case Function::Maximum:
    return std::islessgreater(a, b) ? std::max(a, b)
           : a != b                 ? a + b
                                    : fromBits(bitsOf(a) & bitsOf(b));
  case Function::Power:
    return std::pow(a, b);
  case Function::Remainder:
    return std::fmod(a, b);
  case Function::Absolute:
    return std::abs(a);
  case Function::Sign:
    return std::isnan(a) ? a : static_cast<double>((a > 0) - (a < 0));
  case Function::Floor:
    return std::floor(a);
  case Function::Ceiling:
    return std::ceil(a);
  case Function::Round:
    return std::nearbyint(a);
  case Function::SquareRoot:
    return std::sqrt(a);
  case Function::Exponential:
    return std::exp(a);
  case Function::Logarithm:
    return std::log(a);
  case Function::Sine:
    return std::sin(a);
  case Function::Cosine:
    return std::cos(a);
  case Function::Tangent:
    return std::tan(a);
  case Function::ArcSine:
    return std::asin(a);
  case Function::ArcCosine:
    return std::acos(a);
  case Function::ArcTangent:
    return std::atan(a);
  case Function::HyperbolicSine:
    return std::sinh(a);
  case Function::HyperbolicCosine:
    return std::cosh(a);
  case Function::HyperbolicTangent:
    return std::tanh(a);
  case Function::InverseHyperbolicSine:
    return std::asinh(a);
  case Function::InverseHyperbolicCosine:
    return std::acosh(a);
  case Function::InverseHyperbolicTangent:
    return std::atanh(a);
  case Function::ErrorFunction:
    return std::erf(a);
  }
  return 0;
}

} // namespace

/// Calls f with each lane and its reals.
template <class F> void Loops::withReals(const Lanes& a, const Lanes& b, size_t lanes, F f) {
  const double *x = a.reals.data(), *y = b.reals.data();
  if (a.isUniform())
    for (size_t lane = 0; lane < lanes; ++lane)
      f(lane, a.real, b.realAt(lane));
  else if (b.isUniform())
    for (size_t lane = 0; lane < lanes; ++lane)
      f(lane, x[lane], b.real);
  else
    for (size_t lane = 0; lane < lanes; ++lane)
      f(lane, x[lane], y[lane]);
}

/// Writes the function of each lane, with a loop for each function.
void Loops::applyTo(double* list, Function function, const Lanes& a, const Lanes& b, size_t lanes) {
  auto loops = [&]<size_t... number>(std::index_sequence<number...>) {
    auto loop = [&](auto chosen) {
      if (static_cast<size_t>(function) == chosen)
        withReals(a, b, lanes, [=](size_t lane, double x, double y) {
          list[lane] = functionOf(static_cast<Function>(chosen()), x, y);
        });
    };
    (loop(std::integral_constant<size_t, number>()), ...);
  };
  loops(std::make_index_sequence<static_cast<size_t>(Function::ErrorFunction) + 1>());
}

template <class F> void Loops::combine(Step& step, F f) {
  // Values of operands stay where they are: no step is moved.
  evaluate(step.operands[0]);
  bool isUniform = steps_[step.operands[0]].lanes.isUniform();
  for (uint32_t operand : llvm::drop_begin(step.operands))
    isUniform &= evaluate(operand).isUniform();
  Lanes& first = steps_[step.operands[0]].lanes;
  if (isUniform) {
    int64_t all = first.whole;
    for (uint32_t operand : llvm::drop_begin(step.operands))
      all = f(all, steps_[operand].lanes.whole);
    return step.lanes.setUniform(all);
  }
  int64_t* list = step.lanes.list(lanes_);
  first.forEach(lanes_, [&](size_t lane, int64_t value) { list[lane] = value; });
  for (uint32_t operand : llvm::drop_begin(step.operands))
    steps_[operand].lanes.forEach(
        lanes_, [&](size_t lane, int64_t value) { list[lane] = f(list[lane], value); });
}

/// The quotient or remainder of a ramp, which counts up to the divisor.
bool Loops::divideRamp(Step& step) {
  const Lanes& a = evaluate(step.operands[0]);
  const Lanes& b = evaluate(step.operands[1]);
  const int64_t by = b.whole, last = a.at(lanes_ - 1);
  if (a.kind != Lanes::Kind::Ramp || !b.isUniform() || a.step < 0 || a.step > by ||
      last < a.whole || by > int64_t(1) << 62)
    return false;
  int64_t quotient = quotientOf(a.whole, by), rest = remainderOf(a.whole, by);
  const bool isQuotient = step.op == Op::Quotient;
  if (quotientOf(last, by) == quotient) {
    step.lanes.setUniform(quotient);
    if (!isQuotient) {
      step.lanes.kind = Lanes::Kind::Ramp;
      step.lanes.whole = rest;
      step.lanes.step = a.step;
    }
    return true;
  }
  int64_t* list = step.lanes.list(lanes_);
  for (size_t lane = 0; lane < lanes_; ++lane, rest += a.step) {
    if (rest >= by) {
      rest -= by;
      ++quotient;
    }
    list[lane] = isQuotient ? quotient : rest;
  }
  return true;
}

void Loops::compute(Step& step) {
  switch (step.op) {
  case Op::Integer:
  case Op::Boolean:
    return step.lanes.setUniform(step.value);
  case Op::Real:
    return step.lanes.setReal(std::bit_cast<double>(step.value));
  case Op::Bound: {
    const auto level = static_cast<uint32_t>(step.value);
    if (level != laneLevel_)
      return step.lanes.setUniform(bound_[level]);
    step.lanes.kind = Lanes::Kind::Ramp;
    step.lanes.whole = bound_[level];
    step.lanes.step = 1;
    return;
  }
  case Op::Symbol:
  case Op::Index:
  case Op::Unknown:
    return;
  case Op::Polynomial:
    return computePolynomial(step);
  case Op::Product:
    return computeProduct(step);
  case Op::Wide:
    return step.detail == 0 ? combine(step, added) : combine(step, multiplied);
  case Op::Quotient:
  case Op::Remainder:
    if (divideRamp(step))
      return;
    return step.op == Op::Quotient ? combine(step, quotientOf) : combine(step, remainderOf);
  case Op::Minimum:
    return combine(step, [](int64_t a, int64_t b) { return std::min(a, b); });
  case Op::Maximum:
    return combine(step, [](int64_t a, int64_t b) { return std::max(a, b); });
  case Op::And:
    return combine(step, [](int64_t a, int64_t b) { return a & b; });
  case Op::Or:
    return combine(step, [](int64_t a, int64_t b) { return a | b; });
  case Op::Wrapped:
  case Op::NonNegative:
  case Op::Zero:
  case Op::Not: {
    if (const Op sum = steps_[step.operands[0]].op;
        (step.op == Op::NonNegative || step.op == Op::Zero) &&
        (sum == Op::Polynomial || sum == Op::Wide))
      return compareSum(step);
    const Lanes& a = evaluate(step.operands[0]);
    auto f = [&](int64_t value) -> int64_t {
      return step.op == Op::Wrapped ? wrappedTo(static_cast<ir::ElementType>(step.detail), value)
             : step.op == Op::NonNegative ? value >= 0
             : step.op == Op::Zero        ? value == 0
                                          : 1 - value;
    };
    if (a.isUniform())
      return step.lanes.setUniform(f(a.whole));
    int64_t* list = step.lanes.list(lanes_);
    a.forEach(lanes_, [&](size_t lane, int64_t value) { list[lane] = f(value); });
    return;
  }
  case Op::Truncated: {
    const Lanes& a = evaluate(step.operands[0]);
    if (a.isUniform())
      return step.lanes.setUniform(truncated(a.real));
    int64_t* list = step.lanes.list(lanes_);
    for (size_t lane = 0; lane < lanes_; ++lane)
      list[lane] = truncated(a.reals[lane]);
    return;
  }
  case Op::Compared: {
    const Lanes& a = evaluate(step.operands[0]);
    const Lanes& b = evaluate(step.operands[1]);
    auto compare = [&](auto f) {
      if (a.isUniform() && b.isUniform())
        return step.lanes.setUniform(f(a.real, b.real));
      int64_t* list = step.lanes.list(lanes_);
      withReals(a, b, lanes_, [=](size_t lane, double x, double y) { list[lane] = f(x, y); });
    };
    return step.detail == 0   ? compare(std::less<>())
           : step.detail == 1 ? compare(std::less_equal<>())
                              : compare(std::equal_to<>());
  }
  case Op::FromInteger: {
    const Lanes& a = evaluate(step.operands[0]);
    if (a.isUniform())
      return step.lanes.setReal(static_cast<double>(a.whole));
    double* list = step.lanes.realList(lanes_);
    a.forEach(lanes_, [&](size_t lane, int64_t value) { list[lane] = static_cast<double>(value); });
    return;
  }
  case Op::Function:
    return computeFunction(step);
  case Op::Element:
    return computeElement(step);
  case Op::Select:
    return computeSelect(step);
  case Op::Reduce:
    return computeReduction(step);
  case Op::Last:
    return computeLast(step);
  }
}

void Loops::computePolynomial(Step& step) {
  bool isStraight = true, isUniform = true;
  int64_t base = 0, slope = 0;
  for (auto [operand, coefficient] : llvm::zip(step.operands, step.coefficients)) {
    const Lanes& next = evaluate(operand);
    isUniform &= next.isUniform();
    isStraight &= next.kind != Lanes::Kind::List;
    base = added(base, multiplied(coefficient, next.whole));
    if (next.kind == Lanes::Kind::Ramp)
      slope = added(slope, multiplied(coefficient, next.step));
  }
  if (isUniform)
    return step.lanes.setUniform(base);
  if (isStraight) {
    step.lanes.kind = Lanes::Kind::Ramp;
    step.lanes.whole = base;
    step.lanes.step = slope;
    return;
  }
  int64_t* list = step.lanes.list(lanes_);
  std::fill(list, list + lanes_, 0);
  for (auto [operand, coefficient] : llvm::zip(step.operands, step.coefficients)) {
    steps_[operand].lanes.forEach(lanes_, [&, by = coefficient](size_t lane, int64_t value) {
      list[lane] = added(list[lane], multiplied(by, value));
    });
  }
}

namespace {

__extension__ using Wide = __int128;

} // namespace

/// A bound of all values that a sum goes through; its parts are evaluated.
double Loops::magnitude(uint32_t number) {
  const Step& part = steps_[number];
  double all = 0;
  if (part.op == Op::Polynomial) {
    for (size_t k = 0; k < part.operands.size(); ++k)
      all += std::abs(static_cast<double>(part.coefficients[k])) * magnitude(part.operands[k]);
  } else if (part.op == Op::Wide) {
    const double a = magnitude(part.operands[0]), b = magnitude(part.operands[1]);
    all = part.detail == 0 ? a + b : a * b;
  } else {
    const Lanes& lanes = evaluate(number);
    const size_t step = lanes.kind == Lanes::Kind::List ? 1 : std::max<size_t>(lanes_ - 1, 1);
    for (size_t lane = 0; lane < lanes_; lane += step)
      all = std::max(all, std::abs(static_cast<double>(lanes.at(lane))));
  }
  return all;
}

/// A difference of two integers may not fit: its sign is that of the sum in 128 bits.
void Loops::compareSum(Step& step) {
  const bool isZero = step.op == Op::Zero;
  if (magnitude(step.operands[0]) < 0x1p62) {
    const Lanes& sum = evaluate(step.operands[0]);
    const int64_t first = sum.at(0), last = sum.at(lanes_ - 1);
    if (sum.isUniform() ||
        (!isZero && sum.kind == Lanes::Kind::Ramp && (first >= 0) == (last >= 0)))
      return step.lanes.setUniform(isZero ? first == 0 : first >= 0);
    int64_t* list = step.lanes.list(lanes_);
    sum.forEach(lanes_,
                [&](size_t lane, int64_t value) { list[lane] = isZero ? value == 0 : value >= 0; });
    return;
  }
  std::function<Wide(uint32_t, size_t)> valueOf = [&](uint32_t number, size_t lane) -> Wide {
    const Step& part = steps_[number];
    if (part.op == Op::Wide) {
      const Wide a = valueOf(part.operands[0], lane), b = valueOf(part.operands[1], lane);
      return part.detail == 0 ? a + b : a * b;
    }
    if (part.op != Op::Polynomial)
      return part.lanes.at(lane);
    Wide all = 0;
    for (size_t k = 0; k < part.operands.size(); ++k)
      all += part.coefficients[k] * valueOf(part.operands[k], lane);
    return all;
  };
  int64_t* list = step.lanes.list(lanes_);
  for (size_t lane = 0; lane < lanes_; ++lane) {
    const Wide all = valueOf(step.operands[0], lane);
    list[lane] = isZero ? all == 0 : all >= 0;
  }
}

void Loops::computeProduct(Step& step) {
  // A ramp times numbers is a ramp.
  int64_t scale = 1;
  const Lanes* ramp = nullptr;
  bool isStraight = true;
  for (uint32_t operand : step.operands) {
    const Lanes& next = evaluate(operand);
    if (next.isUniform())
      scale = multiplied(scale, next.whole);
    else if (next.kind == Lanes::Kind::Ramp && !ramp)
      ramp = &next;
    else
      isStraight = false;
  }
  if (!isStraight)
    return combine(step, multiplied);
  if (!ramp)
    return step.lanes.setUniform(scale);
  step.lanes.kind = Lanes::Kind::Ramp;
  step.lanes.whole = multiplied(scale, ramp->whole);
  step.lanes.step = multiplied(scale, ramp->step);
}

void Loops::computeFunction(Step& step) {
  const auto function = static_cast<Function>(step.detail);
  const Lanes& a = evaluate(step.operands[0]);
  const Lanes* b = step.operands.size() > 1 ? &evaluate(step.operands[1]) : nullptr;
  if (a.isUniform() && (!b || b->isUniform()))
    return step.lanes.setReal(functionOf(function, a.real, b ? b->real : 0));
  applyTo(step.lanes.realList(lanes_), function, a, b ? *b : a, lanes_);
}

void Loops::computeElement(Step& step) {
  // Places beyond an axis are those of choices that are not taken: any element will do there.
  const Array& array = step.array;
  const bool isReal = step.sort == Sort::Real;
  int64_t elements = 1;
  for (int64_t extent : array.extents)
    elements *= extent;
  int64_t base = 0, slope = 0;
  bool isStraight = true;
  for (size_t axis = 0; axis < array.extents.size(); ++axis) {
    const Lanes& index = evaluate(step.operands[axis]);
    const int64_t extent = array.extents[axis];
    const int64_t lastLane = static_cast<int64_t>(lanes_) - 1;
    const int64_t first = index.whole, end = index.kind == Lanes::Kind::Ramp
                                                 ? added(first, multiplied(index.step, lastLane))
                                                 : first;
    isStraight &=
        index.kind != Lanes::Kind::List && first >= 0 && first < extent && end >= 0 && end < extent;
    base = added(multiplied(base, extent), first);
    slope = added(multiplied(slope, extent), index.kind == Lanes::Kind::Ramp ? index.step : 0);
  }
  if (elements == 0)
    return isReal ? step.lanes.setReal(0) : step.lanes.setUniform(0);
  size_t count = isStraight && slope == 0 ? 1 : lanes_;
  std::array<int64_t, mostLanes> places;
  if (!isStraight) {
    std::fill(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count), 0);
    bool isUniform = true;
    for (size_t axis = 0; axis < array.extents.size(); ++axis) {
      const Lanes& index = steps_[step.operands[axis]].lanes;
      isUniform &= index.isUniform();
      const int64_t extent = array.extents[axis];
      index.forEach(count, [&](size_t lane, int64_t value) {
        places[lane] = places[lane] * extent + std::clamp<int64_t>(value, 0, extent - 1);
      });
    }
    if (isUniform)
      count = 1;
  }
  if (isReal) {
    double* list = step.lanes.realList(lanes_);
    isStraight ? loadReals(array.type, array.data, base, slope, count, list)
               : loadReals(array.type, array.data, places.data(), count, list);
    if (count == 1)
      step.lanes.setReal(list[0]);
  } else {
    int64_t* list = step.lanes.list(lanes_);
    isStraight ? loadIntegers(array.type, array.data, base, slope, count, list)
               : loadIntegers(array.type, array.data, places.data(), count, list);
    if (count == 1)
      step.lanes.setUniform(list[0]);
  }
}

void Loops::computeSelect(Step& step) {
  const Lanes& condition = evaluate(step.operands[0]);
  bool isSame = true;
  const int64_t first = condition.at(0);
  if (!condition.isUniform())
    for (size_t lane = 1; lane < lanes_ && isSame; ++lane)
      isSame = condition.at(lane) == first;
  const bool isReal = step.sort == Sort::Real;
  if (isSame) {
    const Lanes& chosen = evaluate(step.operands[first != 0 ? 1 : 2]);
    step.lanes.kind = chosen.kind;
    step.lanes.whole = chosen.whole;
    step.lanes.step = chosen.step;
    step.lanes.real = chosen.real;
    if (chosen.kind == Lanes::Kind::List) {
      if (isReal)
        std::copy_n(chosen.reals.begin(), lanes_, step.lanes.realList(lanes_));
      else
        std::copy_n(chosen.wholes.begin(), lanes_, step.lanes.list(lanes_));
    }
    return;
  }
  const Lanes& a = evaluate(step.operands[1]);
  const Lanes& b = evaluate(step.operands[2]);
  if (isReal) {
    double* list = step.lanes.realList(lanes_);
    withReals(a, b, lanes_, [&, is = condition.wholes.data()](size_t lane, double x, double y) {
      list[lane] = is[lane] ? x : y;
    });
  } else {
    int64_t* list = step.lanes.list(lanes_);
    b.forEach(lanes_, [&](size_t lane, int64_t value) { list[lane] = value; });
    a.forEach(lanes_, [&, is = condition.wholes.data()](size_t lane, int64_t value) {
      list[lane] = is[lane] ? value : list[lane];
    });
  }
}

namespace {

double neutralReal(Reduction reduction) {
  switch (reduction) {
  case Reduction::Product:
    return 1;
  case Reduction::Minimum:
    return std::numeric_limits<double>::infinity();
  case Reduction::Maximum:
    return -std::numeric_limits<double>::infinity();
  default:
    return 0;
  }
}

int64_t neutralWhole(Reduction reduction) {
  switch (reduction) {
  case Reduction::Product:
  case Reduction::All:
    return 1;
  case Reduction::Minimum:
    return std::numeric_limits<int64_t>::max();
  case Reduction::Maximum:
    return std::numeric_limits<int64_t>::min();
  default:
    return 0;
  }
}

int64_t reducedWhole(Reduction reduction, int64_t a, int64_t b) {
  switch (reduction) {
  case Reduction::Sum:
    return added(a, b);
  case Reduction::Product:
    return multiplied(a, b);
  case Reduction::Minimum:
    return std::min(a, b);
  case Reduction::Maximum:
    return std::max(a, b);
  case Reduction::Any:
    return a | b;
  case Reduction::All:
    return a & b;
  }
  return a;
}

/// The function of two reals of which a reduction is made.
Function functionOf(Reduction reduction) {
  switch (reduction) {
  case Reduction::Sum:
    return Function::Add;
  case Reduction::Product:
    return Function::Multiply;
  case Reduction::Minimum:
    return Function::Minimum;
  default:
    return Function::Maximum;
  }
}

} // namespace

void Loops::computeReduction(Step& step) {
  const Lanes extents = evaluate(step.operands[0]);
  const auto reduction = static_cast<Reduction>(step.detail);
  const auto level = static_cast<uint32_t>(step.value);
  const bool isReal = step.sort == Sort::Real;
  if (extents.isUniform() && lanes_ == 1 && extents.whole >= 32 && laneLevel_ == 0)
    return computeSums(step, extents.whole);
  int64_t most = extents.at(0);
  for (size_t lane = 1; lane < lanes_ && !extents.isUniform(); ++lane)
    most = std::max(most, extents.at(lane));
  Lanes totals;
  std::fill_n(totals.realList(lanes_), lanes_, neutralReal(reduction));
  std::vector<double>& reals = totals.reals;
  std::vector<int64_t> wholes(isReal ? 0 : lanes_, neutralWhole(reduction));
  for (int64_t k = 0; k < most; ++k) {
    bind(level, k);
    const Lanes& body = evaluate(step.operands[1]);
    if (extents.isUniform() && isReal) {
      applyTo(reals.data(), functionOf(reduction), totals, body, lanes_);
      continue;
    }
    for (size_t lane = 0; lane < lanes_; ++lane) {
      if (!extents.isUniform() && k >= extents.at(lane))
        continue;
      if (isReal)
        reals[lane] = functionOf(functionOf(reduction), reals[lane], body.realAt(lane));
      else
        wholes[lane] = reducedWhole(reduction, wholes[lane], body.at(lane));
    }
  }
  if (isReal)
    std::copy_n(reals.begin(), lanes_, step.lanes.realList(lanes_));
  else
    std::copy(wholes.begin(), wholes.end(), step.lanes.list(lanes_));
  if (lanes_ == 1 && isReal)
    step.lanes.setReal(reals[0]);
  else if (lanes_ == 1)
    step.lanes.setUniform(wholes[0]);
}

/// For one element, in blocks of the reduction's index.
void Loops::computeSums(Step& step, int64_t extent) {
  const auto reduction = static_cast<Reduction>(step.detail);
  const auto level = static_cast<uint32_t>(step.value);
  const bool isReal = step.sort == Sort::Real;
  double real = neutralReal(reduction);
  int64_t whole = neutralWhole(reduction);
  laneLevel_ = level;
  for (int64_t k = 0; k < extent; k += static_cast<int64_t>(mostLanes)) {
    lanes_ = static_cast<size_t>(std::min<int64_t>(mostLanes, extent - k));
    bind(level, k);
    const Lanes& body = evaluate(step.operands[1]);
    if (isReal)
      body.forReals(lanes_, [&](size_t, double value) {
        real = functionOf(functionOf(reduction), real, value);
      });
    else
      body.forEach(lanes_,
                   [&](size_t, int64_t value) { whole = reducedWhole(reduction, whole, value); });
  }
  laneLevel_ = 0;
  lanes_ = 1;
  // What was made for many values of the index is not used again.
  bind(level, 0);
  if (isReal)
    step.lanes.setReal(real);
  else
    step.lanes.setUniform(whole);
}

void Loops::computeLast(Step& step) {
  const Lanes extents = evaluate(step.operands[0]);
  const auto level = static_cast<uint32_t>(step.value);
  const bool isReal = step.sort == Sort::Real;
  int64_t most = extents.at(0);
  for (size_t lane = 1; lane < lanes_; ++lane)
    most = std::max(most, extents.at(lane));
  std::vector<bool> isFound(lanes_, false);
  std::vector<double> reals(isReal ? lanes_ : 0);
  std::vector<int64_t> wholes(isReal ? 0 : lanes_);
  size_t left = lanes_;
  auto take = [&](const Lanes& from, size_t lane) {
    if (isReal)
      reals[lane] = from.realAt(lane);
    else
      wholes[lane] = from.at(lane);
    isFound[lane] = true;
    --left;
  };
  for (int64_t k = most - 1; k >= 0 && left > 0; --k) {
    bind(level, k);
    const Lanes& condition = evaluate(step.operands[2]);
    const Lanes* body = nullptr;
    for (size_t lane = 0; lane < lanes_; ++lane) {
      if (isFound[lane] || k >= extents.at(lane) || !condition.at(lane))
        continue;
      if (!body)
        body = &evaluate(step.operands[1]);
      take(*body, lane);
    }
  }
  if (left > 0) {
    const Lanes& otherwise = evaluate(step.operands[3]);
    for (size_t lane = 0; lane < lanes_; ++lane)
      if (!isFound[lane])
        take(otherwise, lane);
  }
  if (isReal) {
    std::copy(reals.begin(), reals.end(), step.lanes.realList(lanes_));
    if (lanes_ == 1)
      step.lanes.setReal(reals[0]);
  } else {
    std::copy(wholes.begin(), wholes.end(), step.lanes.list(lanes_));
    if (lanes_ == 1)
      step.lanes.setUniform(wholes[0]);
  }
}

void Loops::store(ir::ElementType type, std::byte* data) {
  forBlocks([&](int64_t first, size_t count) {
    const Lanes& values = evaluate(root_);
    const bool isList = values.kind == Lanes::Kind::List;
    if (steps_[root_].sort == Sort::Real) {
      std::array<double, mostLanes> list;
      if (!isList)
        std::fill_n(list.begin(), count, values.real);
      storeReals(type, data, first, isList ? values.reals.data() : list.data(), count);
    } else {
      std::array<int64_t, mostLanes> list;
      if (!isList)
        values.forEach(count, [&](size_t lane, int64_t value) { list[lane] = value; });
      storeIntegers(type, data, first, isList ? values.wholes.data() : list.data(), count);
    }
    return true;
  });
}

bool Loops::holdsEverywhere() {
  bool holds = true;
  forBlocks([&](int64_t, size_t count) {
    const Lanes& values = evaluate(root_);
    for (size_t lane = 0; lane < count; ++lane)
      holds &= values.at(lane) != 0;
    return holds;
  });
  return holds;
}

int64_t Loops::single() {
  int64_t value = 0;
  forBlocks([&](int64_t, size_t) {
    value = evaluate(root_).at(0);
    return false;
  });
  return value;
}

} // namespace kvopt::meaning
