// Models in ONNX's text format, which kvopt's exporter converts to files.
#include "bench/baseline_models.h"

#include "ir/onnx/export.h"
#include "ir/text/reader.h"
#include "support/format.h"

#include <cmath>
#include <fmt/ranges.h>

namespace kvopt {
using namespace ir;

const char* spellingName(BaselineSpelling spelling) {
  switch (spelling) {
  case BaselineSpelling::GroupQuery:
    return "GroupQueryAttention, one buffer";
  case BaselineSpelling::Scatter:
    return "TensorScatter + Attention-24";
  case BaselineSpelling::PastPresent:
    return "Attention-23";
  case BaselineSpelling::Concat:
    return "Concat graph";
  }
  return "";
}

bool isInPlace(BaselineSpelling spelling) {
  return spelling == BaselineSpelling::GroupQuery || spelling == BaselineSpelling::Scatter;
}

std::string whyImpossible(const BaselineModel& model) {
  if (model.spelling == BaselineSpelling::GroupQuery &&
      model.shape.keyWidth != model.shape.valueWidth)
    return "keys and values must be of one width";
  const bool isCausal = model.spelling == BaselineSpelling::GroupQuery ||
                        model.spelling == BaselineSpelling::PastPresent;
  if (model.newRows != 1 && !isCausal)
    return "it would need a mask";
  return "";
}

namespace {

/// Whether the rows of all heads are adjacent. With one row, heads may be an axis instead.
bool hasHeadsInColumns(const BaselineModel& model) {
  return model.spelling == BaselineSpelling::GroupQuery || model.newRows != 1;
}

} // namespace

BaselineExtents extentsOf(const BaselineModel& model) {
  const AttentionShape& shape = model.shape;
  const int64_t heads = shape.queryHeads, groups = shape.kvHeads;
  const int64_t keys = shape.keyWidth, values = shape.valueWidth;
  const int64_t past = isInPlace(model.spelling) ? model.capacity : model.rows - model.newRows;
  const int64_t present = isInPlace(model.spelling) ? model.capacity : model.rows;
  BaselineExtents extents{{1, heads, 1, keys},        {1, groups, 1, keys},
                          {1, groups, 1, values},     {1, heads, 1, values},
                          {1, groups, past, keys},    {1, groups, past, values},
                          {1, groups, present, keys}, {1, groups, present, values}};
  if (hasHeadsInColumns(model)) {
    extents.query = {1, model.newRows, heads * keys};
    extents.key = {1, model.newRows, groups * keys};
    extents.value = {1, model.newRows, groups * values};
    extents.out = {1, model.newRows, heads * values};
  }
  return extents;
}

namespace {

class BaselineText {
public:
  explicit BaselineText(const BaselineModel& baseline)
      : model(baseline), extents(extentsOf(baseline)) {}

  std::string text() const {
    std::string inputs = formatted("{} query, {} key, {} value", type(extents.query),
                                   type(extents.key), type(extents.value));
    if (model.spelling == BaselineSpelling::GroupQuery)
      inputs += ", int32[1] row, int32 rows";
    else if (model.spelling == BaselineSpelling::Scatter)
      inputs += ", int64[1] row, int64[1] rows";
    std::string outputs, nodes;
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      inputs += formatted(",\n  {} past_key_{}, {} past_value_{}", type(extents.pastKey), layer,
                          type(extents.pastValue), layer);
      outputs += formatted("{}{} out_{}, {} present_key_{}, {} present_value_{}",
                           layer == 0 ? "" : ",\n  ", type(extents.out), layer,
                           type(extents.presentKey), layer, type(extents.presentValue), layer);
      nodes += nodesOf(layer);
    }
    return formatted("<ir_version: 10, opset_import: [\"\" : {}, \"com.microsoft\" : 1]>\n"
                     "attention ({})\n => ({})\n{}{{\n{}}}\n",
                     opset(), inputs, outputs, constants(), nodes);
  }

private:
  std::string type(const std::vector<int64_t>& shape) const {
    return formatted("{}[{}]", onnxName(model.element).str(), joinedText(shape, ", "));
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(model.shape.keyWidth)); }
  bool repeatsGroups() const { return model.shape.queryHeads != model.shape.kvHeads; }

  int opset() const {
    switch (model.spelling) {
    case BaselineSpelling::Scatter:
      return 24;
    case BaselineSpelling::PastPresent:
      return 23;
    default:
      return 21;
    }
  }

  std::string constants() const {
    if (model.spelling != BaselineSpelling::Concat)
      return "";
    const AttentionShape& shape = model.shape;
    const int64_t times = shape.queryHeads / shape.kvHeads;
    return formatted(" <{} scale = {{{}}}, int64[1] two = {{2}},\n"
                     "  int64[5] key_times = {{1, {groups}, {times}, {rows}, {keys}}},\n"
                     "  int64[5] value_times = {{1, {groups}, {times}, {rows}, {values}}},\n"
                     "  int64[4] keys = {{1, {heads}, {rows}, {keys}}},\n"
                     "  int64[4] values = {{1, {heads}, {rows}, {values}}}>\n",
                     onnxName(model.element).str(), scale(), named("groups", shape.kvHeads),
                     named("times", times), named("rows", model.rows),
                     named("keys", shape.keyWidth), named("values", shape.valueWidth),
                     named("heads", shape.queryHeads));
  }

  std::string nodesOf(int64_t layer) const {
    switch (model.spelling) {
    case BaselineSpelling::GroupQuery:
      return formatted(
          "  out_{i}, present_key_{i}, present_value_{i} = com.microsoft.GroupQueryAttention\n"
          "    <num_heads = {heads}, kv_num_heads = {groups}, scale = {scale}>\n"
          "    (query, key, value, past_key_{i}, past_value_{i}, row, rows)\n",
          named("i", layer), named("heads", model.shape.queryHeads),
          named("groups", model.shape.kvHeads), named("scale", scale()));
    case BaselineSpelling::Scatter:
      return formatted("  present_key_{i} = TensorScatter <axis = 2> (past_key_{i}, key, row)\n"
                       "  present_value_{i} = TensorScatter <axis = 2> (past_value_{i}, value, "
                       "row)\n"
                       "  out_{i} = Attention <scale = {scale}>\n"
                       "    (query, present_key_{i}, present_value_{i}, , , , rows)\n",
                       named("i", layer), named("scale", scale()));
    case BaselineSpelling::PastPresent:
      return formatted("  out_{i}, present_key_{i}, present_value_{i} = Attention\n"
                       "    <scale = {scale}{more}> (query, key, value, , past_key_{i}, "
                       "past_value_{i})\n",
                       named("i", layer), named("scale", scale()), named("more", headsAndOrder()));
    case BaselineSpelling::Concat:
      return concatNodes(layer);
    }
    return "";
  }

  std::string headsAndOrder() const {
    if (!hasHeadsInColumns(model))
      return "";
    return formatted(", q_num_heads = {}, kv_num_heads = {}, is_causal = 1", model.shape.queryHeads,
                     model.shape.kvHeads);
  }

  std::string concatNodes(int64_t layer) const {
    std::string nodes;
    for (const char* side : {"key", "value"}) {
      nodes +=
          formatted("  present_{0}_{1} = Concat <axis = 2> (past_{0}_{1}, {0})\n", side, layer);
      if (repeatsGroups())
        nodes += formatted("  {0}_apart_{1} = Unsqueeze (present_{0}_{1}, two)\n"
                           "  {0}_wide_{1} = Expand ({0}_apart_{1}, {0}_times)\n"
                           "  {0}_heads_{1} = Reshape ({0}_wide_{1}, {0}s)\n",
                           side, layer);
    }
    const char* source = repeatsGroups() ? "" : "present_";
    const char* suffix = repeatsGroups() ? "_heads" : "";
    return nodes + formatted("  turned_{0} = Transpose <perm = [0, 1, 3, 2]> ({1}key{2}_{0})\n"
                             "  products_{0} = MatMul (query, turned_{0})\n"
                             "  scores_{0} = Mul (products_{0}, scale)\n"
                             "  weights_{0} = Softmax <axis = -1> (scores_{0})\n"
                             "  out_{0} = MatMul (weights_{0}, {1}value{2}_{0})\n",
                             layer, source, suffix);
  }

  const BaselineModel& model;
  BaselineExtents extents;
};

} // namespace

llvm::Error writeBaselineModel(const BaselineModel& model, const OpRegistry& ops,
                               const std::string& path) {
  auto read = readText(BaselineText(model).text(), ops, spellingName(model.spelling));
  if (!read)
    return read.takeError();
  return exportModel(**read, path);
}

} // namespace kvopt
