// A new rule: x + 0 → x. In the tree it would be the file passes/rules/remove_add_zero.cc; here it
// is registered explicitly, in addition to the built-in rules.
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "passes/pattern/rule_driver.h"
#include "support/diagnostic.h"

#include <cstdio>

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

// before   y = Add(x, 0)   (0 a scalar; in either order)
// after    y = x
class RemoveAddZero final : public Rule {
  Var x{"x"}, zero{"zero"};

public:
  llvm::StringRef name() const override { return "remove-add-zero"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return commutative("Add", {x, constant(zero)}); }

  void constraints(Constraints& c) const override {
    // In ONNX, a scalar changes neither the shape nor the element type of the sum.
    c.require("the constant is a scalar zero", [this](const Match& match) {
      const TensorData& data = *match[zero].constant();
      return data.shape().empty() && scalarValue(data) == 0.0;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    return rewriter.replace(match.root().result(), match[x]);
  }
};

constexpr const char* text = R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x) => (float[n] z)
<float zero = {0.0}, float one = {1.0}>
{
  sum = Add (zero, x)
  shifted = Add (sum, one)
  z = Relu (shifted)
}
)";

llvm::Error run() {
  OpRegistry ops;
  registerAll(ops);
  RuleRegistry rules;
  registerAll(rules);
  rules.add(std::make_unique<RemoveAddZero>());

  auto model = readText(text, ops);
  if (!model)
    return model.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return error;
  Journal journal;
  auto result = applyRules((*model)->graph(), {rules.find("remove-add-zero")}, journal);
  if (!result)
    return result.takeError();
  std::fputs(printText(**model).c_str(), stdout);
  if (result->applications != 1)
    return invalid("the rule was applied {} times, not once", result->applications);
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt

int main() {
  if (llvm::Error error = kvopt::run()) {
    std::fprintf(stderr, "%s\n", kvopt::takeDiagnostic(std::move(error)).str().c_str());
    return 1;
  }
  return 0;
}
