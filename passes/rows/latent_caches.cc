// Writer of latent caches.
#include "passes/rows/latent_caches.h"

#include "ir/attribute_list.h"
#include "passes/builders/attention_builder.h"
#include "passes/rows/removed_caches.h"
#include "passes/rows/row_function_writer.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* compressCachesName = "compress-caches";

/// Name of the cache that replaces one with this name.
std::string latentName(llvm::StringRef name) { return (name + "_latent").str(); }

void removeOutput(Graph& graph, const Value& value) {
  for (unsigned slot = static_cast<unsigned>(graph.outputs().size()); slot-- > 0;)
    if (graph.outputs()[slot] == &value)
      graph.removeOutput(slot);
}

class LatentWriter {
public:
  LatentWriter(const AttentionSite& attention, const LatentRows& latentRows, Journal& journal)
      : site(attention), rows(latentRows), graph(attention.node->graph()),
        rewriter(graph, compressCachesName, journal, attention.node->name()), build(rewriter),
        compressedWidth(*rows.compressed->type().dim(2).value()) {}

  Value* run() {
    const TensorType& key = site.key->past->type();
    Value& past =
        graph.addInput(graph.freshName(latentName(site.key->past->name())),
                       TensorType(key.elementType(), Shape{key.dim(0), Dim::fixed(1), key.dim(2),
                                                           Dim::fixed(rows.width())}));
    if (!moveShapeReaders({site.key->past, &site.key->writer->result(), site.value->past,
                           &site.value->writer->result()},
                          rewriter)) {
      rewriter.discard();
      graph.removeInput(past);
      return nullptr;
    }
    Value& joined = build.concat(past, newRows(), 2);
    Value& attended = attention(joined);
    Value& weights =
        RowFunctionWriter(rows.values.moves, matrixRows(rows.values), rewriter).write();
    Value& output = build.node("MatMul", {attended, weights}, {}, "values");
    if (rewriter.replace(site.node->result(), output))
      llvm_unreachable("the result of attention does not depend on later values");
    Node* outputs[] = {site.key->output->producer(), site.value->output->producer()};
    replaceOutputs(joined);
    removeCaches({site.key->past, site.value->past}, outputs, rewriter);
    return &past;
  }

private:
  /// The constant matrix [N,M] as N rows for a product: [1,N,M].
  Value& matrixRows(const ExpandedColumns& columns) { return build.unsqueeze(*columns.weights, 0); }

  /// [B,1,S,N + shared columns].
  Value& newRows() {
    llvm::SmallVector<BuilderOperand, 3> parts{build.unsqueeze(*rows.compressed, 1)};
    for (const KeyColumns& part : rows.keys)
      if (const auto* shared = std::get_if<SharedColumns>(&part.made))
        parts.emplace_back(*shared->rows);
    return parts.size() == 1 ? *parts.front().value
                             : build.node("Concat", parts, attrs({{"axis", 3}}), "latent_rows");
  }

  /// The query that is multiplied with such rows, [B,H,S,N + shared columns].
  Value& absorbedQuery() {
    Value& query = *site.node->operand(0);
    Value* compressed = nullptr;
    llvm::SmallVector<BuilderOperand, 3> shared;
    for (const KeyColumns& part : rows.keys) {
      Value& columns = rows.keys.size() == 1
                           ? query
                           : build.slice(query, 3, part.first, part.first + part.width);
      const auto* expanded = std::get_if<ExpandedColumns>(&part.made);
      if (!expanded) {
        shared.emplace_back(columns);
        continue;
      }
      Value& weights = RowFunctionWriter(expanded->moves, matrixRows(*expanded), rewriter).write();
      Value& product = build.node("MatMul", {columns, build.transpose(weights, {0, 1, 3, 2})}, {},
                                  "absorbed_query");
      compressed = compressed ? &build.node("Add", {*compressed, product}) : &product;
    }
    if (shared.empty())
      return *compressed;
    shared.insert(shared.begin(), *compressed);
    return build.node("Concat", shared, attrs({{"axis", 3}}), "latent_query");
  }

  /// Attention over the cache, [B,H,S,N].
  Value& attention(Value& joined) {
    Value& values =
        compressedWidth == rows.width() ? joined : build.slice(joined, 3, 0, compressedWidth);
    llvm::SmallVector<Value*, 6> operands{&absorbedQuery(), &joined, &values};
    for (const Use& use : site.node->operands())
      if (use.operandIndex() > 2)
        operands.push_back(use.value());
    Node& node = rewriter.createLike(*site.node, operands, "attention");
    node.setMetadata(site.node->metadata());
    return node.result();
  }

  void replaceOutputs(Value& joined) {
    const std::string name = latentName(site.key->output->name());
    for (const SiteCache* cache : {&*site.key, &*site.value})
      removeOutput(graph, *cache->output);
    graph.rename(joined, graph.freshName(name));
    graph.addOutput(joined);
  }

  const AttentionSite& site;
  const LatentRows& rows;
  Graph& graph;
  Rewriter rewriter;
  AttentionBuilder build;
  int64_t compressedWidth;
};

} // namespace

bool readValuesFromKeys(const AttentionSite& site, const ValueColumns& columns, Journal& journal) {
  Graph& graph = site.node->graph();
  Rewriter rewriter(graph, compressCachesName, journal, site.node->name());
  AttentionBuilder build(rewriter);
  if (!moveShapeReaders({site.value->past, &site.value->writer->result()}, rewriter)) {
    rewriter.discard();
    return false;
  }
  Value& keys = site.key->writer->result();
  const bool isAll = keys.type().dim(3).value() == columns.width;
  site.node->setOperand(
      2, isAll ? &keys : &build.slice(keys, 3, columns.first, columns.first + columns.width));
  Value* past = site.value->past;
  Node* output = site.value->output->producer();
  removeOutput(graph, *site.value->output);
  removeCaches({past}, {output}, rewriter);
  return true;
}

Value* cacheCompressedRows(const AttentionSite& site, const LatentRows& rows, Journal& journal) {
  return LatentWriter(site, rows, journal).run();
}

} // namespace kvopt::rows
