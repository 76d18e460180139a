// Replacement of GroupQueryAttention over codes by the same over numbers.
#include "passes/unrounding/quantized_groups.h"

#include "ir/ops/contrib/group_query_operands.h"
#include "ir/text/reader.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::unrounding {
using namespace ir;

namespace {

/// Number of operands that a composed operator may have: all before the weights of norms.
constexpr unsigned operandCount = gqa::QueryNormWeight;

constexpr const char* quantizationAttributes[] = {"k_quant_type", "v_quant_type",
                                                  "kv_cache_bit_width"};

/// Numbers that past and new codes of one side represent. `side` is key or value; scales of the
/// shape `shape` broadcast to rows [B,G,S,D].
std::string sideText(const char* side, const std::string& shape, int64_t bits) {
  const char* unpack = bits == 8 ? R"(
    {0}_past_codes = Cast <to = 1> (past_{0})
)"
                                 : R"(
    {0}_bytes = Cast <to = 1> (past_{0})
    {0}_over_sixteen = Div ({0}_bytes, sixteen)
    {0}_upper = Floor ({0}_over_sixteen)
    {0}_upper_bits = Mul ({0}_upper, sixteen)
    {0}_lower = Sub ({0}_bytes, {0}_upper_bits)
    {0}_lower_column = Unsqueeze ({0}_lower, column_axis)
    {0}_upper_column = Unsqueeze ({0}_upper, column_axis)
    {0}_pairs = Concat <axis = 4> ({0}_lower_column, {0}_upper_column)
    {0}_stored_codes = Reshape ({0}_pairs, rows_shape)
    {0}_past_codes = Sub ({0}_stored_codes, eight)
)";
  const char* common = R"(
    {0}_scales = Reshape ({0}_scale, rest)
    {0}_has_no_scale = Equal ({0}_scales, zero)
    {0}_divisors = Where ({0}_has_no_scale, one, {0}_scales)
    {0}_inverses = Reciprocal ({0}_divisors)
    {0}_numbers = Cast <to = 1> ({0}_new)
    {0}_quotients = Mul ({0}_numbers, {0}_inverses)
    {0}_rounded = Round ({0}_quotients)
    {0}_not_above = Min ({0}_rounded, largest)
    {0}_new_codes = Max ({0}_not_above, lowest)
    {0}_new_rows = Mul ({0}_new_codes, {0}_scales)
    {0}_scales_shape = Constant <value_ints = [{1}]> ()
    {0}_head_scales = Reshape ({0}_scales, {0}_scales_shape)
    {0}_head_inverses = Reshape ({0}_inverses, {0}_scales_shape)
    {0}_past_rows = Mul ({0}_past_codes, {0}_head_scales)
)";
  return formattedAs(unpack, side) + formattedAs(common, side, shape);
}

/// Rows after a batch row's own rows are those of the past.
std::string presentText(const char* side, int64_t bits) {
  const char* rounded = R"(
    {0}_present_quotients = Mul ({0}_present_rows, {0}_head_inverses)
    {0}_present_rounded = Round ({0}_present_quotients)
    {0}_present_not_above = Min ({0}_present_rounded, largest)
    {0}_present_codes = Max ({0}_present_not_above, lowest)
)";
  const char* kept = R"(
    {0}_past_bytes = Cast <to = 1> (past_{0})
    {0}_nothing = Sub ({0}_stored, {0}_stored)
    {0}_past_and_nothing = Concat <axis = 2> ({0}_past_bytes, {0}_nothing)
    {0}_stored_shape = Shape ({0}_stored)
    {0}_rows = Gather ({0}_stored_shape, row_axis)
    {0}_earlier = Slice ({0}_past_and_nothing, zero_index, {0}_rows, row_axis)
    {0}_row_count = Squeeze ({0}_rows, zero_index)
    {0}_row = Range (first, {0}_row_count, second)
    {0}_is_own = Less ({0}_row, lengths)
    {0}_is_own_row = Unsqueeze ({0}_is_own, head_axes)
    {0}_bytes_of_rows = Where ({0}_is_own_row, {0}_stored, {0}_earlier)
    present_{0} = Cast <to = {1}> ({0}_bytes_of_rows)
)";
  const char* bytes = "    {0}_stored = Identity ({0}_present_codes)\n";
  const char* nibbles = R"(
    {0}_to_store = Add ({0}_present_codes, eight)
    {0}_as_pairs = Reshape ({0}_to_store, pairs_shape)
    {0}_even = Gather <axis = 4> ({0}_as_pairs, first)
    {0}_odd = Gather <axis = 4> ({0}_as_pairs, second)
    {0}_odd_bits = Mul ({0}_odd, sixteen)
    {0}_stored = Add ({0}_even, {0}_odd_bits)
)";
  const auto element = static_cast<int32_t>(bits == 8 ? ElementType::Int8 : ElementType::UInt8);
  return formattedAs(rounded, side) + formattedAs(bits == 8 ? bytes : nibbles, side) +
         formattedAs(kept, side, element);
}

/// Attributes that are independent of codes.
std::string attributesText(const Node& node) {
  std::string text;
  for (const NamedAttribute& attribute : node.attributes()) {
    if (llvm::is_contained(quantizationAttributes, attribute.name))
      continue;
    const char* comma = text.empty() ? "" : ", ";
    if (attribute.value.kind() == AttributeKind::Int)
      text += formatted("{}{} = {}", comma, attribute.name, attribute.value.intValue());
    else if (attribute.value.kind() == AttributeKind::Float)
      text += formatted("{}{} = {:.9e}", comma, attribute.name, attribute.value.floatValue());
  }
  return text;
}

/// Columns of a head; nullopt if they are not known.
std::optional<int64_t> headWidth(const Node& node) {
  const int64_t heads = node.intAttr("num_heads", 0), groups = node.intAttr("kv_num_heads", 0);
  // Without an operand for keys, the query's operand holds queries, keys and values.
  const int64_t all = node.operand(gqa::Key) ? heads : heads + 2 * groups;
  const TensorType& type = node.operand(gqa::Query)->type();
  const auto columns = type.hasRank() && type.rank() == 3 ? type.dim(2).value() : std::nullopt;
  return columns && all > 0 && *columns % all == 0 ? std::optional(*columns / all) : std::nullopt;
}

/// Queries, and new keys and values of one operand.
std::string partsText(const Node& node) {
  const int64_t width = headWidth(node).value_or(0);
  const int64_t keys = node.intAttr("num_heads", 0) * width;
  const int64_t values = keys + node.intAttr("kv_num_heads", 0) * width;
  return formatted(R"(
    first_key = Constant <value_ints = [{}]> ()
    first_value = Constant <value_ints = [{}]> ()
    end_of_values = Constant <value_ints = [{}]> ()
    query_part = Slice (query, zero_index, first_key, row_axis)
    key_new = Slice (query, first_key, first_value, row_axis)
    value_new = Slice (query, first_value, end_of_values, row_axis)
    query_numbers = Cast <to = 1> (query_part)
)",
                   keys, values, 2 * values - keys);
}

std::string definitionText(const std::string& name, const Node& node, int64_t opset) {
  const int64_t bits = codeBits(node);
  const int64_t groups = node.intAttr("kv_num_heads", 0);
  constexpr const char* names[operandCount] = {
      "query",   "key_new", "value_new", "past_key", "past_value", "last",      "total",
      "cosines", "sines",   "positions", "bias",     "sinks",      "key_scale", "value_scale"};
  std::string formals, actuals;
  for (unsigned i = 0; i < operandCount; ++i) {
    const bool isGiven = node.operand(i) != nullptr;
    formals +=
        formatted("{}{}", i == 0 ? "" : ", ", isGiven ? names[i] : formatted("absent_{}", i));
    if (i >= gqa::KeyScale)
      continue;
    std::string actual = isGiven ? names[i] : "";
    if (i == gqa::Query || ((i == gqa::Bias || i == gqa::HeadSink) && isGiven))
      actual += "_numbers";
    else if (i == gqa::Key || i == gqa::Key + 1)
      actual = i == gqa::Key ? "key_new_rows" : "value_new_rows";
    else if (i == gqa::PastKey || i == gqa::PastKey + 1)
      actual = i == gqa::PastKey ? "key_past_rows" : "value_past_rows";
    actuals += (i == 0 ? "" : ", ") + actual;
  }
  while (endsWith(actuals, ", "))
    actuals.resize(actuals.size() - 2);
  std::string body = formatted(R"(
    rest = Constant <value_ints = [-1]> ()
    zero = Constant <value_float = 0.0> ()
    one = Constant <value_float = 1.0> ()
    eight = Constant <value_float = 8.0> ()
    sixteen = Constant <value_float = 16.0> ()
    largest = Constant <value_float = {}> ()
    lowest = Constant <value_float = {}> ()
    column_axis = Constant <value_ints = [4]> ()
    rows_shape = Constant <value_ints = [0, 0, 0, -1]> ()
    pairs_shape = Constant <value_ints = [0, 0, 0, -1, 2]> ()
    first = Constant <value_int = 0> ()
    second = Constant <value_int = 1> ()
    zero_index = Constant <value_ints = [0]> ()
    row_axis = Constant <value_ints = [2]> ()
    head_axes = Constant <value_ints = [1, 3]> ()
    length_shape = Constant <value_ints = [-1, 1]> ()
    last_position = Cast <to = 7> (last)
    own_length = Add (last_position, second)
    lengths = Reshape (own_length, length_shape)
)",
                               bits == 8 ? "127.0" : "7.0", bits == 8 ? "-128.0" : "-8.0");
  body += node.operand(gqa::Key) ? "    query_numbers = Cast <to = 1> (query)\n" : partsText(node);
  for (unsigned operand : {gqa::Bias, gqa::HeadSink})
    if (node.operand(operand))
      body += formatted("    {0}_numbers = Cast <to = 1> ({0})\n", names[operand]);
  const std::pair<const char*, const char*> sides[] = {{"key", "k_quant_type"},
                                                       {"value", "v_quant_type"}};
  for (const auto& [side, type] : sides) {
    const bool perColumn = node.stringAttr(type, "NONE").equals_insensitive("PER_CHANNEL");
    body += sideText(side, perColumn ? formatted("1, {}, 1, -1", groups) : "1, 1, 1, 1", bits);
  }
  body += formatted("    attended, key_present_rows, value_present_rows = "
                    "com.microsoft.GroupQueryAttention <{}> ({})\n"
                    "    output = Cast <to = {}> (attended)\n",
                    attributesText(node), actuals,
                    static_cast<int32_t>(node.operand(gqa::Query)->type().elementType()));
  body += presentText("key", bits) + presentText("value", bits);
  return formatted("<domain: \"ai.kvopt\", opset_import: [\"\" : {}, \"com.microsoft\" : 1]>\n"
                   "{} ({}) => (output, present_key, present_value) {{{}}}\n",
                   opset, name, formals, body);
}

/// Scales of keys (0) or values (1); nullopt if they are not constant.
std::optional<llvm::SmallVector<double, 8>> scalesOf(const Node& node, unsigned side) {
  constexpr int64_t mostScales = int64_t{1} << 24;
  const Value* scale = node.operand(gqa::KeyScale + side);
  const TensorData* data = scale ? scale->constant() : nullptr;
  return data ? floatValues(*data, mostScales) : std::nullopt;
}

/// Whether the node has pasts and presents of both sides.
bool hasCaches(const Node& node) {
  return node.operand(gqa::PastKey) && node.operand(gqa::PastKey + 1) &&
         node.results().size() >= 3 &&
         llvm::none_of(node.results().take_front(3), [](const Value& r) { return r.isAbsent(); });
}

} // namespace

int64_t codeBits(const Node& node) {
  return node.definition() && node.is("com.microsoft::GroupQueryAttention") &&
                 !node.stringAttr("k_quant_type", "NONE").equals_insensitive("NONE")
             ? node.intAttr("kv_cache_bit_width", 0)
             : 0;
}

int64_t groupCodeBits(const Model& model) {
  for (const Node& node : model.graph().nodes())
    if (const int64_t bits = codeBits(node))
      return bits;
  return 0;
}

llvm::Error unquantizeGroups(Model& model, Manifest& manifest) {
  for (Node& node : model.graph().nodes()) {
    if (codeBits(node) == 0)
      continue;
    if (!hasCaches(node) || node.stringAttr("v_quant_type", "NONE").equals_insensitive("NONE"))
      return invalid("{}: codes of keys and values need pasts and presents of both",
                     node.describe());
    const ElementType element = node.operand(gqa::Query)->type().elementType();
    const std::optional<int64_t> width = headWidth(node);
    for (unsigned side : {0u, 1u}) {
      Value& past = *node.operand(gqa::PastKey + side);
      for (Value* value : {&past, &node.result(1 + side)}) {
        const TensorType& type = value->type();
        Shape shape(type.shape().begin(), type.shape().end());
        if (!shape.empty() && width)
          shape.back() = Dim::fixed(*width);
        value->setType(TensorType(element, std::move(shape)));
      }
      for (ManifestCache& cache : manifest.caches)
        if (cache.past == past.name()) {
          cache.dtype = element;
          if (width && !cache.shape.empty())
            cache.shape.back() = *width;
        }
    }
    for (unsigned operand : {gqa::KeyScale + 0u, gqa::KeyScale + 1u})
      if (operand < node.operands().size())
        node.setOperand(operand, nullptr);
    for (const char* name : quantizationAttributes)
      node.removeAttribute(name);
  }
  return llvm::Error::success();
}

bool hasFiniteScales(const Node& node) {
  for (unsigned side : {0u, 1u})
    if (const auto scales = scalesOf(node, side))
      if (!llvm::all_of(*scales, [](double scale) { return std::isfinite(scale); }))
        return false;
  return true;
}

std::string groupObstacle(const Node& node) {
  if (node.intAttr("do_rotary", 0) == 1 || node.operands().size() > operandCount)
    return formatted("{}: the operator itself rotates or normalizes the keys before it rounds them",
                     node.describe());
  if (!node.operand(gqa::Key) && !headWidth(node))
    return formatted("{}: the width of its heads is not known", node.describe());
  if (!hasCaches(node))
    return formatted("{}: it has no pasts and presents of keys and values", node.describe());
  for (unsigned side : {0u, 1u})
    if (!scalesOf(node, side))
      return formatted("{}: its scales are not constants", node.describe());
  return "";
}

llvm::Expected<DefinedGroup> defineGroup(Model& model, Node& node) {
  if (std::string obstacle = groupObstacle(node); !obstacle.empty())
    return unsupported("{}", obstacle);
  DefinedGroup made;
  const auto scales = scalesOf(node, 1);
  for (double number : *scales)
    made.largestValue = std::max(made.largestValue, std::fabs(number));
  made.largestValue *= codeBits(node) == 8 ? 127 : 7;
  const std::string name = formatted("GroupQueryAttentionDefinition_{}", model.functions.size());
  auto function = readFunctionText(definitionText(name, node, model.graph().opsetVersion()), model);
  if (!function)
    return function.takeError();
  model.opsets.try_emplace(kvoptDomain, 1);
  llvm::SmallVector<Value*, 14> operands;
  for (unsigned i = 0; i < operandCount; ++i)
    operands.push_back(node.operand(i));
  made.definition = &model.graph().createFresh(OpName(kvoptDomain, (*function)->name), operands, 3,
                                               &node, "defined");
  return made;
}

} // namespace kvopt::unrounding
