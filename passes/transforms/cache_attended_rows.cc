// Caches rows as attention reads them, instead of rows to which each step applies a function: a
// rotation by their positions, a normalization, a product with weights.
//
//   before   present_key = Concat<2>(past_key, k)      o = ai.kvopt.Sdpa(q, f(present_key), …)
//   after    present_key = Concat<2>(past_key, f(k))   o = ai.kvopt.Sdpa(q, present_key, …)
//
// If attention reads a cache through several functions, or f changes the form of rows, one cache
// for each function replaces the cache:
//
//   before   present = Concat<1>(past, x)              o = ai.kvopt.Sdpa(q, f(present), g(present))
//   after    present_key = Concat<2>(past_key, f(x))   present_value = Concat<2>(past_value, g(x))
//            o = ai.kvopt.Sdpa(q, present_key, present_value)
//
// Functions must treat rows separately (passes/analysis/tokens/row_function.h). If they count rows,
// they count the new ones from the number of earlier rows. The contents of the cache change: the
// manifest says `"rows": "attended"`, and names the replaced cache.
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/driven_caches.h"
#include "passes/builders/attention_builder.h"
#include "passes/pass.h"
#include "passes/rows/attended_rows.h"
#include "passes/rows/removed_caches.h"
#include "passes/rows/row_function_writer.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace builders;
using namespace rows;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* cacheAttendedRowsName = "cache-attended-rows";

/// Applies the function before the join. Returns false, with no change, if that is not possible.
bool keepCache(Graph& graph, const AttendedCache& cache, PassContext& context) {
  Rewriter rewriter(graph, cacheAttendedRowsName, context.journal, cache.join->name());
  AttentionBuilder build(rewriter);
  const AttendedRows& attended = cache.reads.front();
  Value& past = cache.past();
  Value& fresh =
      RowFunctionWriter(attended.function, cache.fresh(), rewriter).after(past, cache.axis).write();
  Value& joined = build.concat(past, fresh, cache.axis);
  Value* read = &joined;
  if (!cache.order->empty()) {
    std::vector<int64_t> back(cache.order->size());
    for (size_t axis = 0; axis < back.size(); ++axis)
      back[static_cast<size_t>((*cache.order)[axis])] = static_cast<int64_t>(axis);
    read = &build.transpose(joined, std::move(back));
  }
  if (rewriter.replace({{attended.value, read}, {&cache.join->result(), &joined}}))
    return false;
  eraseDeadChains({rewriter.outdated().begin(), rewriter.outdated().end()}, [](Node&) {});
  context.history.addAttendedRows(cache.input->name());
  return true;
}

/// Replaces a cache by one cache for each function through which attention reads it.
class CacheReplacer {
public:
  CacheReplacer(Graph& replacedGraph, const AttendedCache& replaced, PassContext& passContext)
      : graph(replacedGraph), cache(replaced), context(passContext),
        rewriter(graph, cacheAttendedRowsName, context.journal, cache.join->name()),
        build(rewriter) {}

  /// Returns false, with no change except unread nodes, if the model reads extents of the cache
  /// that no other input has.
  bool run() {
    describeOriginal();
    for (const AttendedRows& rows : cache.reads)
      addInput(rows);
    if (!moveShapeReaders(holders(), rewriter)) {
      rewriter.discard();
      for (Value* past : pasts)
        graph.removeInput(*past);
      return false;
    }
    llvm::SmallVector<Rewriter::Replacement, 2> replacements;
    llvm::SmallVector<Value*, 2> joined;
    for (size_t i = 0; i < cache.reads.size(); ++i) {
      joined.push_back(&joinedRows(cache.reads[i], *pasts[i]));
      replacements.push_back({cache.reads[i].value, joined.back()});
    }
    Node* output = graph.outputs()[cache.output]->producer();
    if (rewriter.replace(replacements))
      llvm_unreachable("new rows do not depend on values computed from all rows");
    replaceOutput(joined);
    removeCaches({cache.input}, {output, cache.join}, rewriter);
    for (const Value* past : pasts) {
      context.history.addAttendedRows(past->name());
      context.history.addReplacement(past->name(), original);
    }
    return true;
  }

private:
  void describeOriginal() {
    const Value& present = *graph.outputs()[cache.output];
    original.past = cache.input->name().str();
    original.present = present.name().str();
    original.sequenceAxis = cache.axis;
    original.dtype = cache.input->type().elementType();
    original.shape = manifestShape(cache.input->type(), &present, cache.axis);
  }

  static std::string nameOf(llvm::StringRef cacheName, const AttendedRows& rows) {
    return (cacheName + (rows.areKeys ? "_key" : "_value")).str();
  }

  void addInput(const AttendedRows& rows) {
    const TensorType& type = rows.value->type();
    Shape shape(type.shape().begin(), type.shape().end());
    shape[rows.axis] = cache.past().type().dim(cache.axis);
    pasts.push_back(&graph.addInput(graph.freshName(nameOf(original.past, rows)),
                                    TensorType(type.elementType(), std::move(shape))));
  }

  /// Values that hold the cache: its input, and the joined rows, converted or not.
  llvm::SmallVector<Value*, 4> holders() const {
    llvm::SmallVector<Value*, 4> values{cache.input, &cache.join->result()};
    if (&cache.past() != cache.input)
      values.push_back(&cache.past());
    return values;
  }

  Value& joinedRows(const AttendedRows& rows, Value& past) {
    Value& fresh =
        RowFunctionWriter(rows.function, cache.fresh(), rewriter).after(past, rows.axis).write();
    return build.concat(past, fresh, rows.axis);
  }

  /// The first cache replaces the output, so that outputs of several layers keep their order.
  void replaceOutput(llvm::ArrayRef<Value*> joined) {
    for (size_t i = 0; i < joined.size(); ++i) {
      if (i == 0)
        graph.setOutput(cache.output, *joined[i]);
      else
        graph.addOutput(*joined[i]);
      graph.rename(*joined[i], graph.freshName(nameOf(original.present, cache.reads[i])));
    }
  }

  Graph& graph;
  const AttendedCache& cache;
  PassContext& context;
  Rewriter rewriter;
  AttentionBuilder build;
  ManifestCache original;
  llvm::SmallVector<Value*, 2> pasts;
};

class CacheAttendedRows final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    if (context.freed) // the model keeps its caches
      return llvm::Error::success();
    Graph& graph = model.graph();
    int64_t count = 0;
    for (const auto& [join, operands] : attentionOperandsByJoin(graph))
      if (const auto cache = findAttendedCache(*join, operands)) {
        const bool isDone = cache->order ? keepCache(graph, *cache, context)
                                         : CacheReplacer(graph, *cache, context).run();
        count += isDone ? 1 : 0;
      }
    if (count == 0)
      return llvm::Error::success();
    context.count(cacheAttendedRowsName, "caches", count);
    graph.eraseDeadNodes();
    restoreOrder(graph);
    model.markEdited();
    return inferShapes(graph);
  }
};

} // namespace

void register_cache_attended_rows(PassRegistry& registry) {
  registry.add(
      {cacheAttendedRowsName,
       "Caches rows as attention reads them, after the functions that are applied to each row.",
       {},
       [](const PassOptions&) {
         return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<CacheAttendedRows>());
       }});
}

} // namespace kvopt::transforms
