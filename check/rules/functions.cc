// Rules of functions of single elements.
#include "check/rules/elementwise.h"

#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvopt::check {
namespace {

/// The function of a known number; null for a function that is always unknown.
double (*knownFunction(llvm::StringRef name))(double) {
  using Function = double (*)(double);
  return llvm::StringSwitch<Function>(name)
      .Case("Sqrt", [](double x) { return std::sqrt(x); })
      .Case("Sin", [](double x) { return std::sin(x); })
      .Case("Cos", [](double x) { return std::cos(x); })
      .Case("Tanh", [](double x) { return std::tanh(x); })
      .Case("Erf", [](double x) { return std::erf(x); })
      .Case("Log", [](double x) { return std::log(x); })
      .Case("Abs", [](double x) { return std::abs(x); })
      .Case("Floor", [](double x) { return std::floor(x); })
      .Case("Ceil", [](double x) { return std::ceil(x); })
      .Case("Round", [](double x) { return std::nearbyint(x); })
      .Case("Sign", [](double x) { return x != x ? x : double((x > 0) - (x < 0)); })
      .Case("Relu", [](double x) { return std::max(x, 0.0); })
      .Case("Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); })
      .Default(nullptr);
}

/// The growths of Abs, Relu and Sign, which change where the operand does its sign.
void traceSign(Call& call, const Tensor& operand, Tensor& result) {
  const llvm::StringRef name = call.node.op().type();
  Growths& growths = call.math.growths;
  traceEach(call, operand, result, [&](Growths::Number x) -> GrowthId {
    if (name == "Sign" || (name == "Relu" && x.value <= 0))
      return growths.at(x.id).isTraced() ? fixedGrowth : x.id;
    const GrowthId own = x.value < 0 ? growths.product(x, {fixedGrowth, -1}) : x.id;
    return growths.bound({own, std::abs(x.value)}, {fixedGrowth, 0}, true);
  });
}

/// The operand of a function of one element, with the bias that some operators add to it.
Ref biased(Call& call) {
  constexpr unsigned bias = 1;
  const bool hasBias = call.node.op() == ir::OpName("com.microsoft::FastGelu") && call.in(bias);
  return hasBias ? addReals(call, call.real(0), call.real(bias)) : call.in(0);
}

Results unary(Call& call) {
  const Ref a = biased(call);
  if (!a)
    return call.fail("its operands do not fit");
  const llvm::StringRef name = call.node.op().type();
  if (a->isInteger()) {
    if (name != "Abs" && name != "Sign" && name != "Relu")
      return call.unsupported("its operand is an integer");
    call.noteThreshold(a, integerScalar(0), /*meets=*/name == "Sign");
    auto result = std::make_shared<Tensor>(*a);
    traceSign(call, *a, *result);
    for (int64_t& value : result->integers)
      value = name == "Abs"    ? (value < 0 ? int64_t(0 - uint64_t(value)) : value)
              : name == "Relu" ? std::max<int64_t>(value, 0)
                               : (value > 0) - (value < 0);
    return {result};
  }
  const bool isSign = name == "Abs" || name == "Relu" || name == "Sign";
  const bool isRounding = name == "Floor" || name == "Ceil" || name == "Round";
  const bool isReal = call.math.isBySizes && !a->growths.empty() && !isSign && !isRounding;
  if (isReal && (name == "Sqrt" || name == "Log"))
    call.noteThreshold(a, knownScalar(0), /*meets=*/true); // no number beyond
  if (areKnown(call) && !isReal)
    if (auto function = knownFunction(name)) {
      auto result = std::make_shared<Tensor>(*a);
      if (isSign) {
        call.noteThreshold(a, knownScalar(0), /*meets=*/name == "Sign");
        traceSign(call, *a, *result);
      } else if (isRounding) {
        traceRounding(call, *a, *result);
      } else {
        untraceAll(call, *a, *result);
      }
      for (double& value : result->known)
        value = stored(function(value), a->type);
      return {result};
    }
  if (name == "Floor" && !call.math.floors.isEmpty()) {
    const uint64_t floor = nameHash(name);
    return {mapReals(call, {a}, a->shape, [&](llvm::ArrayRef<Exact> x) {
      const Exact* upper = call.math.floors.floorOf(x[0]);
      return upper ? *upper : call.field().unknown(floor, {x[0]});
    })};
  }
  std::string identity = name.str();
  for (const char* parameter : {"alpha", "beta", "gamma", "approximate"})
    if (const ir::Attribute* value = call.attribute(parameter)) {
      identity += value->kind() == ir::AttributeKind::Float
                      ? " " + std::to_string(std::bit_cast<uint32_t>(value->floatValue()))
                      : " " + call.text(parameter, "");
    }
  return {unknownOf(call, identity, a)};
}

} // namespace

void addFunctionRules(RuleTable& rules) {
  for (const char* name : {"Sqrt",
                           "Sin",
                           "Cos",
                           "Tanh",
                           "Erf",
                           "Log",
                           "Abs",
                           "Floor",
                           "Ceil",
                           "Round",
                           "Sign",
                           "Relu",
                           "Sigmoid",
                           "Gelu",
                           "Softplus",
                           "Elu",
                           "HardSigmoid",
                           "HardSwish",
                           "LeakyRelu",
                           "Mish",
                           "com.microsoft::Gelu",
                           "com.microsoft::FastGelu",
                           "com.microsoft::QuickGelu"})
    rules[name] = unary;
}

} // namespace kvopt::check
