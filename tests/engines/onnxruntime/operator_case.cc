// Cases of each operator.
#include "tests/engines/onnxruntime/operator_case.h"

#include "ir/onnx/export.h"
#include "ir/op.h"
#include "ir/ops/kvopt/attention_tile_body.h"
#include "ir/ops/kvopt/cache_function_body.h"
#include "ir/ops/kvopt/quantized_function_body.h"
#include "ir/text/reader.h"
#include "runtime/simd/four_bit_rows.h"
#include "support/format.h"

#include <limits>
#include <numeric>

namespace kvopt {
using namespace ir;

namespace {

constexpr int64_t opset = 21;
constexpr int64_t batches = 2, heads = 4, groups = 2, width = 8, valueWidth = 6;
constexpr ElementType f32 = ElementType::Float, f16 = ElementType::Float16,
                      bf16 = ElementType::BFloat16, i8 = ElementType::Int8;

/// The error of a type of rows, relative to numbers of about 1.
double roundingOf(ElementType element) {
  return element == f16 ? 4e-3 : element == bf16 ? 4e-2 : 1e-5;
}

enum class CaseMask { none, additive, boolean };

/// What all attentions vary.
struct Attention {
  ElementType query = f32;
  ElementType rows = f32;
  int64_t steps = 1; ///< query rows
  CaseMask mask = CaseMask::none;
  bool sinks = false;
  float softcap = 0;
  int64_t window = 0;

  CaseTensor queryTensor() const { return randomOf(query, {batches, heads, steps, width}, 1); }
  std::optional<CaseTensor> sinksTensor() const {
    return sinks ? std::optional(randomOf(f32, {heads}, 3)) : std::nullopt;
  }
  CaseTensor maskTensor(int64_t columns) const {
    if (mask == CaseMask::none)
      return filledWith(f32, {1, 1, 1, 1}, 0);
    const bool isBoolean = mask == CaseMask::boolean;
    CaseTensor tensor = filledWith(isBoolean ? ElementType::Bool : f32,
                                   {batches, 1, steps, columns}, isBoolean ? 1 : 0);
    for (int64_t i = 0; i < tensor.count(); ++i)
      if (i % 3 == 1)
        tensor.set(i, isBoolean ? 0 : i % 2 == 0 ? -0.5 : -std::numeric_limits<double>::infinity());
    return tensor;
  }
  std::string text() const {
    return formatted("query {} rows {} steps {} mask {} sinks {}", dtypeName(query),
                     dtypeName(rows), steps, static_cast<int>(mask), sinks);
  }
  OperatorCase start(const char* op, bool isCausal = true) const {
    OperatorCase made{op + std::string(": ") + text(), std::string("ai.kvopt::") + op, {}, {}};
    made.set("scale", 0.3f);
    made.set("causal", int64_t{isCausal});
    made.set("window", window);
    made.set("softcap", softcap);
    made.set("mask_boolean", int64_t{mask == CaseMask::boolean});
    made.tolerance = std::max(roundingOf(query), roundingOf(f32));
    return made;
  }
  BodyForm form() const {
    BodyForm form;
    form.opset = opset;
    form.element = query;
    form.sinks = sinks;
    return form;
  }
};

std::vector<Attention> attentions(bool withInt8) {
  std::vector<Attention> all;
  for (const auto& [query, rows] : {std::pair(f32, f32), std::pair(f16, f16), std::pair(bf16, bf16),
                                    std::pair(f32, f16), std::pair(f16, f32), std::pair(f32, i8)})
    for (const int64_t steps : {1, 5})
      if (rows != i8 || withInt8)
        all.push_back({query, rows, steps});
  for (const CaseMask mask : {CaseMask::additive, CaseMask::boolean})
    all.push_back({f32, f32, 3, mask, true, 2.0f, 0});
  // More rows than decoding kernels take, and a window.
  all.push_back({f32, f32, 40, CaseMask::none, false, 0, 7});
  return all;
}

/// Attention over blocks with the given numbers of rows.
OperatorCase blockCase(const Attention& a, const CacheOperator& op,
                       const std::vector<int64_t>& each, bool isTransposed = false) {
  OperatorCase made = a.start(op.name().type().str().c_str());
  made.what += formatted(" in {} blocks", each.size());
  const int64_t tokens = std::accumulate(each.begin(), each.end(), a.steps);
  const auto columns = [&](unsigned side) { return side == 0 ? width : valueWidth; };
  const auto rows = [&](int64_t count, unsigned side, unsigned seed) {
    std::vector<int64_t> shape = {batches, groups, count, columns(side)};
    if (isTransposed && side == 0)
      std::swap(shape[2], shape[3]);
    return randomOf(op.hasCodes() ? i8 : a.rows, shape, seed);
  };
  const auto scales = [&](int64_t count, unsigned seed) {
    return randomOf(f32, {batches, groups, count, 1}, seed, 0.01);
  };
  made.operands.emplace_back(a.queryTensor());
  for (unsigned side = 0; side < op.sides(); ++side)
    made.operands.emplace_back(randomOf(op.hasCodes() ? i8 : a.rows,
                                        {batches, groups, a.steps, columns(side)}, 11 + side));
  made.operands.emplace_back(a.maskTensor(tokens));
  made.operands.emplace_back(a.sinksTensor());
  for (unsigned side = 0; side < op.sides() && op.hasCodes(); ++side)
    made.operands.emplace_back(scales(a.steps, 13 + side));
  for (unsigned side = 0; side < op.sides(); ++side)
    for (size_t i = 0; i < each.size(); ++i)
      made.operands.emplace_back(rows(each[i], side, 20 + 8 * side + static_cast<unsigned>(i)));
  for (unsigned side = 0; side < op.sides() && op.hasCodes(); ++side)
    for (size_t i = 0; i < each.size(); ++i) {
      CaseTensor ofBlock = scales(each[i], 40 + 8 * side + static_cast<unsigned>(i));
      if (isTransposed && side == 0)
        std::swap(ofBlock.shape[2], ofBlock.shape[3]);
      made.operands.emplace_back(std::move(ofBlock));
    }
  CacheBody caches;
  caches.blocks = each.size();
  if (isTransposed) {
    caches.key = *CacheLayout::bySequenceAxis(4, 3);
    made.set("key_axis", int64_t{3});
  }
  if (op.isLatent()) {
    made.set("v_offset", int64_t{2});
    made.set("v_width", int64_t{5});
  }
  made.body = cacheFunctionText(op, a.form(), caches);
  if (op.hasCodes())
    made.tolerance *= 4;
  return made;
}

OperatorCase sdpaCase(const Attention& a, int64_t keys, const std::vector<int64_t>& past) {
  OperatorCase made = a.start("Sdpa");
  made.what += formatted(" {} keys {} lengths", keys, past.size());
  // Int8 rows are numbers up to 127.
  if (a.rows == i8) {
    made.attributes[0].second = 0.01f;
    made.tolerance *= 128;
  }
  made.operands = {a.queryTensor(), randomOf(a.rows, {batches, groups, keys, width}, 5),
                   randomOf(a.rows, {batches, groups, keys, valueWidth}, 6), a.maskTensor(keys),
                   a.sinksTensor()};
  BodyForm form = a.form();
  form.lengths = !past.empty();
  if (form.lengths)
    made.operands.emplace_back(lengthsOf(past));
  made.body = sdpaFunctionText(form);
  return made;
}

/// Codes of random rows [batches,groups,keys,columns], and their scales.
std::pair<CaseTensor, CaseTensor> codesOf(const RowCode& code, int64_t keys, int64_t columns,
                                          unsigned seed) {
  const CaseTensor numbers = randomOf(f32, {batches, groups, keys, columns}, seed);
  CaseTensor codes = filledWith(code.element, {batches, groups, keys, code.elementsOf(columns)}, 0);
  CaseTensor scales = filledWith(f32, {batches, groups, keys, 1}, 0);
  if (!code.isPacked())
    codes = randomOf(i8, codes.shape, seed);
  for (int64_t row = 0; row < scales.count(); ++row)
    scales.set(row, code.isPacked()
                        ? double{simd::quantizeFourBitRow(
                              numbers.bytes.data() + row * columns * int64_t{sizeof(float)},
                              simd::FloatStorage::f32, columns,
                              reinterpret_cast<uint8_t*>(codes.bytes.data()) +
                                  row * code.elementsOf(columns))}
                        : 0.01 + 0.001 * static_cast<double>(row % 7));
  return {codes, scales};
}

OperatorCase quantizedCase(const Attention& a, const RowCode& code, std::vector<int64_t> past) {
  constexpr int64_t capacity = 50;
  OperatorCase made = a.start("QuantizedSdpa");
  made.what += std::string(" ") + code.word;
  const auto [key, keyScales] = codesOf(code, capacity, width, 5);
  const auto [value, valueScales] = codesOf(code, capacity, valueWidth, 6);
  made.operands = {
      a.queryTensor(), key, keyScales, value, valueScales, lengthsOf(past), a.maskTensor(capacity),
      a.sinksTensor()};
  made.set("v_width", valueWidth);
  BodyForm form = a.form();
  form.code = &code;
  made.body = quantizedSdpaFunctionText(form);
  made.tolerance *= 4;
  return made;
}

OperatorCase appendCase(ElementType element, int64_t capacity, int64_t steps,
                        std::vector<int64_t> past) {
  OperatorCase made{formatted("AppendRows: {} {} rows", dtypeName(element), capacity),
                    "ai.kvopt::AppendRows",
                    {},
                    {randomOf(element, {batches, groups, capacity, width}, 1),
                     randomOf(element, {batches, groups, steps, width}, 2),
                     lengthsOf(std::move(past))}};
  made.body = appendRowsFunctionText(opset, element);
  // ONNX Runtime has no Where of these types.
  made.doesEngineRunBody = element == f32 || element == f16;
  made.tolerance = 0;
  return made;
}

OperatorCase quantizeCase(ElementType element, std::vector<int64_t> shape) {
  OperatorCase made{formatted("QuantizeRows: {}", dtypeName(element)),
                    "ai.kvopt::QuantizeRows",
                    {},
                    {randomOf(element, std::move(shape), 1)},
                    2};
  made.body = quantizeRowsFunctionText(opset);
  made.tolerance = 0;
  return made;
}

/// The second tile of an attention, or the first.
OperatorCase tileCase(const Attention& a, ElementType state, int64_t keys, bool isFirst) {
  OperatorCase made{
      formatted("AttentionTile: {} state {} keys {}", a.text(), dtypeName(state), keys),
      "ai.kvopt::AttentionTile",
      {},
      {},
      3};
  made.set("scale", 0.3f);
  made.set("softcap", a.softcap);
  CaseTensor mask = filledWith(f32, {1, 1, a.steps, keys}, 0);
  for (int64_t i = 0; i < mask.count(); i += 4)
    mask.set(i, -std::numeric_limits<double>::infinity());
  CaseTensor maximum =
      filledWith(state, {batches, heads, a.steps, state == f16 ? 2 : 1}, isFirst ? 0 : 0.25);
  const double lowest = state == f16 ? -65504.0 : double{std::numeric_limits<float>::lowest()};
  for (int64_t i = 0; isFirst && i < maximum.count(); i += maximum.shape.back())
    maximum.set(i, lowest);
  const std::vector<int64_t> output = {batches, heads, a.steps, valueWidth};
  made.operands = {a.queryTensor(),
                   randomOf(a.rows, {batches, groups, keys, width}, 5),
                   randomOf(a.rows, {batches, groups, keys, valueWidth}, 6),
                   mask,
                   isFirst ? filledWith(state, output, 0) : randomOf(state, output, 7),
                   maximum,
                   filledWith(state, {batches, heads, a.steps, 1}, isFirst ? 0 : 0.0625)};
  made.body = attentionTileFunctionText(opset, state);
  made.tolerance = std::max(roundingOf(a.query), roundingOf(state));
  return made;
}

constexpr CacheOperator blocksOf(const RowCode* code, CacheSharing sharing) {
  return {CachePlace::Blocks, code, sharing};
}

} // namespace

const OpRegistry& caseOperators() {
  static const std::unique_ptr<const OpRegistry> registry = [] {
    auto filled = std::make_unique<OpRegistry>();
    registerAll(*filled);
    return filled;
  }();
  return *registry;
}

std::unique_ptr<Model> OperatorCase::model(bool withBody) const {
  auto made = std::make_unique<Model>(caseOperators());
  made->irVersion = 10;
  made->opsets = {{"", opset}, {kvoptDomain, 1}};
  if (withBody)
    llvm::cantFail(readFunctionText(body, *made));
  Graph& graph = made->graph();
  llvm::SmallVector<Value*, 16> values;
  for (const std::optional<CaseTensor>& operand : operands)
    values.push_back(operand ? &graph.addInput(formatted("x{}", values.size()),
                                               TensorType::fixed(operand->element, operand->shape))
                             : nullptr);
  while (!values.back())
    values.pop_back();
  Node& node = graph.createFresh(OpName(op), values, results);
  for (const auto& [name, value] : attributes) {
    const auto* integer = std::get_if<int64_t>(&value);
    node.setAttribute(name, integer ? Attribute::ofInt(*integer)
                                    : Attribute::ofFloat(std::get<float>(value)));
  }
  for (unsigned i = 0; i < results; ++i) {
    graph.rename(node.result(i), formatted("y{}", i));
    graph.addOutput(node.result(i));
  }
  return made;
}

std::string OperatorCase::modelBytes(bool withBody) const {
  return llvm::cantFail(exportModelBytes(*model(withBody)));
}

std::vector<OperatorCase> operatorCases() {
  std::vector<OperatorCase> all;
  const CacheOperator numbers = blocksOf(nullptr, CacheSharing::KeysAndValues);
  const CacheOperator codes = blocksOf(&int8Rows, CacheSharing::KeysAndValues);
  for (const Attention& a : attentions(false)) {
    all.push_back(blockCase(a, numbers, {3, 0, 70}));
    if (a.query == a.rows)
      all.push_back(blockCase(a, codes, {3, 0, 70}));
  }
  const Attention plain{f32, f32, 3};
  all.push_back(blockCase(plain, numbers, {4, 1, 3}, true));
  all.push_back(blockCase(plain, codes, {4, 1, 3}, true));
  for (const RowCode* code : {static_cast<const RowCode*>(nullptr), &int8Rows})
    all.push_back(blockCase(plain, blocksOf(code, CacheSharing::Latent), {0, 5}));
  for (const Attention& a : attentions(true)) {
    all.push_back(sdpaCase(a, 50, {}));
    all.push_back(sdpaCase(a, 50, {9, 2}));
    for (const RowCode* code : rowCodes())
      if (a.query == a.rows)
        all.push_back(quantizedCase(a, *code, {9, 2}));
  }
  all.push_back(sdpaCase(plain, 3, {0}));
  for (const ElementType element : {f32, f16, bf16, i8}) {
    all.push_back(appendCase(element, 5, 3, {2, 5}));
    all.push_back(appendCase(element, 0, 1, {0}));
  }
  for (const ElementType element : {f32, f16, bf16})
    all.push_back(quantizeCase(element, {2, 3, 5, 33}));
  all.push_back(quantizeCase(f32, {4, 0, 8}));
  // ONNX Runtime reduces and broadcasts empty rows in another way.
  all.back().doesEngineRunBody = false;
  for (const Attention& a : attentions(false))
    for (const ElementType state : {f32, f16})
      for (const bool isFirst : {true, false})
        all.push_back(tileCase(a, state, isFirst ? 70 : 16, isFirst));
  all.push_back(tileCase(plain, f32, 0, false));
  all.back().doesEngineRunBody = false;
  return all;
}

OperatorCase appendInPlaceCase(int64_t past, int64_t valid, int64_t fresh, int64_t columns) {
  OperatorCase made = appendCase(f32, past, fresh, {valid});
  made.operands[0] = randomOf(f32, {1, 1, past, columns}, 1);
  made.operands[1] = randomOf(f32, {1, 1, fresh, columns}, 2);
  return made;
}

std::vector<std::pair<OperatorCase, std::string>> wrongCases() {
  const Attention plain{f32, f32, 3};
  const CacheOperator numbers = blocksOf(nullptr, CacheSharing::KeysAndValues);
  OperatorCase unequal = blockCase(plain, numbers, {4, 3});
  unequal.operands.back() = randomOf(f32, {batches, groups, 2, valueWidth}, 9);
  return {{unequal, "block 1 has 3 rows of keys and 2 of values"},
          {appendCase(f32, 5, 3, {2, 6}), "a past length of 6 does not fit 5 rows"},
          {appendCase(f32, 5, 3, {-1}), "a past length of -1"},
          {sdpaCase(plain, 8, {6, 1}), "exceed the capacity of 8 rows"},
          {quantizedCase(plain, int8Rows, {48, 1}), "exceed the capacity of 50 rows"}};
}

} // namespace kvopt
