// Forward walk from the inputs that change.
#include "passes/analysis/cache/unchanged_keys.h"

#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/driven_caches.h"
#include "passes/analysis/scores/attention_like.h"
#include "passes/analysis/scores/attention_weights.h"
#include "passes/analysis/scores/quantized_products.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Keys and values of one attention, and its number of query rows.
struct ReadRows {
  llvm::SmallVector<const Value*, 4> keysAndValues;
  Dim rows;
};

/// The second factors of the products that weigh values with `probabilities`.
llvm::SmallVector<const Value*, 2> weighedValues(const Value& probabilities) {
  constexpr size_t mostValues = 64;
  llvm::SmallVector<const Value*, 16> pending{&probabilities};
  llvm::DenseSet<const Value*> seen{&probabilities};
  llvm::SmallVector<const Value*, 2> values;
  for (size_t next = 0; next < pending.size() && next < mostValues; ++next)
    for (const Use& use : pending[next]->uses()) {
      const Node& user = use.user();
      if (const Value* factor = secondFactor(user)) {
        if (use.operandIndex() == 0)
          values.push_back(factor);
      } else if (!user.is("Shape")) {
        for (const Value& result : user.results())
          if (seen.insert(&result).second)
            pending.push_back(&result);
      }
    }
  return values;
}

ReadRows rowsReadBySoftmax(const Node& softmax) {
  const Value* keys = keysOfScores(softmax);
  const llvm::SmallVector<const Value*, 2> values = weighedValues(softmax.result());
  const TensorType& type = softmax.result().type();
  if (!keys || values.empty() || !type.hasRank() || type.rank() < 2)
    return {};
  ReadRows read;
  read.keysAndValues.push_back(keys);
  read.keysAndValues.append(values.begin(), values.end());
  read.rows = type.dim(-2);
  return read;
}

ReadRows rowsReadByOperator(const Node& attention) {
  enum : unsigned { Query, Key, Values };
  const bool hasRows =
      attention.is("Attention") || attention.op() == OpName("com.microsoft::MultiHeadAttention");
  if (!hasRows || !attention.operand(Query) || !attention.operand(Key) ||
      !attention.operand(Values) || llvm::any_of(fusedCaches(attention), [&](const auto& cache) {
        return attention.operand(cache.first) != nullptr;
      }))
    return {};
  const TensorType& type = attention.operand(Query)->type();
  if (!type.hasRank() || type.rank() < 3)
    return {};
  return {{attention.operand(Key), attention.operand(Values)}, type.dim(-2)};
}

} // namespace

bool UnchangedKeys::areReadBy(const Node& attention) {
  if (&attention.graph() != &graph)
    return false;
  const ReadRows read =
      isSoftmax(attention) ? rowsReadBySoftmax(attention) : rowsReadByOperator(attention);
  if (read.keysAndValues.empty() || read.rows.isUnknown())
    return false;
  const llvm::DenseSet<const Value*>& ofStep = changingWith(read.rows);
  return llvm::none_of(read.keysAndValues,
                       [&](const Value* rows) { return ofStep.contains(rows); });
}

const llvm::DenseSet<const Value*>& UnchangedKeys::changingWith(const Dim& rows) {
  auto [entry, isNew] = changing.try_emplace(rows.str());
  llvm::DenseSet<const Value*>& values = entry->second;
  if (!isNew)
    return values;
  llvm::DenseSet<const Value*> returned;
  for (const ManifestCache& cache : cachesByDataFlow(graph, {}))
    returned.insert(graph.findValue(cache.past));
  for (const auto& input : graph.inputs()) {
    const TensorType& type = input->type();
    if (returned.contains(input.get()) || !type.hasRank() ||
        llvm::any_of(type.shape(), [&](const Dim& extent) { return extent.isKnownEqual(rows); }))
      values.insert(input.get());
  }
  for (const Node& node : graph.nodes())
    if (!node.is("Shape") &&
        (!node.subgraphs().empty() || llvm::any_of(node.operands(), [&](const Use& use) {
          return use.value() && values.contains(use.value());
        })))
      for (const Value& result : node.results())
        values.insert(&result);
  return values;
}

} // namespace kvopt::analysis
