// A new operator that only moves data: my.engine::SwapAxes<first, second>(x). Its definition
// describes the movement of axes, so that all code that traces data supports it: here recovery,
// from the keys of an attention back to their cache. In the tree it would be the file
// ir/ops/swap_axes.cc.
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/pass_manager.h"
#include "passes/targets/target.h"
#include "support/diagnostic.h"

#include <cstdio>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

/// Equivalent `perm` of a Transpose; nullopt if the node does not name two axes of `type`.
std::optional<llvm::SmallVector<unsigned, 4>> swappedAxes(const Node& node,
                                                          const TensorType& type) {
  if (!type.hasRank())
    return std::nullopt;
  auto first = normalizedAxis(node.intAttr("first", -2), type.rank());
  auto second = normalizedAxis(node.intAttr("second", -1), type.rank());
  if (!first || !second)
    return std::nullopt;
  llvm::SmallVector<unsigned, 4> order;
  for (unsigned axis = 0; axis < type.rank(); ++axis)
    order.push_back(axis == *first ? *second : axis == *second ? *first : axis);
  return order;
}

llvm::Error inferSwapAxes(ShapeContext& context) {
  const TensorType& type = context.type(0);
  if (!type.hasRank()) {
    context.setResult(0, type);
    return llvm::Error::success();
  }
  auto order = swappedAxes(context.node(), type);
  if (!order)
    return context.error("first or second is outside of the operand's axes");
  Shape shape;
  for (unsigned axis : *order)
    shape.push_back(type.shape()[axis]);
  context.setResult(0, TensorType(type.elementType(), std::move(shape)));
  return llvm::Error::success();
}

void readSwapAxes(const Value& result, Movement& movement) {
  const Node& node = *result.producer();
  movement.axes = swappedAxes(node, node.operand(movement.data)->type());
}

void defineSwapAxes(OpRegistry& registry) {
  define(registry, "my.engine::SwapAxes", 1)
      .in("x")
      .out("y")
      .attr("first", int64_t{-2})
      .attr("second", int64_t{-1})
      .moves(MovementKind::Permutation, readSwapAxes)
      .shape(inferSwapAxes);
}

// In caches, the sequence precedes the heads; attention reads heads first.
constexpr const char* text = R"(
<ir_version: 8, opset_import: ["" : 17, "my.engine" : 1]>
decoder (float[B, 4, S, 16] q, float[B, S, 4, 16] k, float[B, S, 4, 16] v,
         float[B, P, 4, 16] past_key, float[B, P, 4, 16] past_value)
  => (float[B, 4, S, 16] y, float[B, "P + S", 4, 16] present_key,
      float[B, "P + S", 4, 16] present_value)
<float scale = {0.25}>
{
  present_key = Concat <axis = 1> (past_key, k)
  present_value = Concat <axis = 1> (past_value, v)
  keys = my.engine.SwapAxes <first = 1, second = 2> (present_key)
  kt = my.engine.SwapAxes (keys)
  values = my.engine.SwapAxes <first = 2, second = 1> (present_value)
  scores = MatMul (q, kt)
  scaled = Mul (scores, scale)
  weights = Softmax <axis = -1> (scaled)
  y = MatMul (weights, values)
}
)";

/// Checks that the cache is `past`, with the sequence first.
llvm::Error expectCache(const std::optional<SiteCache>& cache, llvm::StringRef past) {
  if (!cache || cache->past->name() != past)
    return invalid("the cache '{}' was not found", past);
  std::printf("cache %s %s\n", past.str().c_str(), cache->layout.text().c_str());
  if (cache->layout.text() != "BSHD" || cache->axis != 1)
    return invalid("the layout of '{}' is {}", past, cache->layout.text());
  return llvm::Error::success();
}

llvm::Error run() {
  OpRegistry ops;
  registerAll(ops);
  defineSwapAxes(ops);
  RuleRegistry rules;
  registerAll(rules);
  PassRegistry passes;
  registerAll(passes);
  TargetRegistry targets;
  registerAll(targets);

  auto model = readText(text, ops);
  if (!model)
    return model.takeError();
  PassContext context(rules, targets);
  PassManager manager(passes, {});
  if (llvm::Error error =
          manager.addPipeline("infer-shapes,normalize,raise-attention,detect-sites"))
    return error;
  if (llvm::Error error = manager.run(**model, context))
    return error;
  if (context.sites.size() != 1)
    return invalid("{} attentions were found, not one", context.sites.size());
  const AttentionSite& site = context.sites.front();
  if (site.failure)
    return invalid("{}", site.failure->str());
  if (llvm::Error error = expectCache(site.key, "past_key"))
    return error;
  return expectCache(site.value, "past_value");
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
