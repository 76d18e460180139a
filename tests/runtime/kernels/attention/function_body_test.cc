// The function bodies of kvopt's operators, executed, against the kernels of the operators.
#include "ir/ops/kvopt/cache_function_body.h"

#include "ir/ops/kvopt/quantized_function_body.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "tests/runtime/kernels/quantized_attention_case.h"
#include "tests/runtime/kernels/quantized_ring_case.h"
#include "tests/runtime/kernels/ring_attention_case.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

std::string cacheText(llvm::StringRef name, const BodyForm& form,
                      const CacheLayout& key = CacheLayout::ofAttention(), size_t blocks = 0) {
  return cacheFunctionText(*CacheOperator::named(OpName(kvoptDomain, name)), form,
                           {key, CacheLayout::ofAttention(), blocks});
}

constexpr int64_t opsets[] = {13, 17, 18, 23};

struct BodyResult {
  std::string error;
  std::vector<Tensor> outputs;
};

/// A model of one call of `op`, run through the body `text`.
BodyResult runBody(const char* op, const std::string& text, int64_t opset, const AttentionCase& c,
                   llvm::ArrayRef<TestTensor> operands, unsigned resultCount) {
  Model model(testOperators());
  model.opsets = {{"", opset}, {kvoptDomain, 1}};
  BodyResult result;
  llvm::Expected<Function*> function = readFunctionText(text, model);
  if (!function) {
    result.error = llvm::toString(function.takeError());
    return result;
  }
  Graph& graph = model.graph();
  llvm::SmallVector<Value*, 8> values;
  std::vector<TensorView> views;
  for (const TestTensor& operand : operands) {
    values.push_back(&graph.addInput(formatted("x{}", values.size()),
                                     TensorType::fixed(operand.element(), operand.shape())));
    views.push_back(operand.view());
  }
  Node& node = graph.createFresh(op, values, resultCount);
  node.setAttribute("scale", Attribute::ofFloat(c.scale));
  node.setAttribute("causal", Attribute::ofInt(c.causal ? 1 : 0));
  node.setAttribute("window", Attribute::ofInt(c.window));
  node.setAttribute("softcap", Attribute::ofFloat(c.softcap));
  node.setAttribute("mask_boolean", Attribute::ofInt(c.mask == MaskForm::boolean ? 1 : 0));
  for (Value& value : node.results())
    graph.addOutput(value);
  llvm::Expected<std::unique_ptr<Executor>> executor = Executor::create(model, standardKernels());
  if (!executor) {
    result.error = llvm::toString(executor.takeError());
    return result;
  }
  llvm::Expected<std::vector<Tensor>> outputs = (*executor)->run(views);
  if (outputs)
    result.outputs = std::move(*outputs);
  else
    result.error = llvm::toString(outputs.takeError());
  return result;
}

TestTensor neutralMask() { return floats({1, 1, 1, 1}, {0}); }

/// The same elements within `tolerance`.
void expectClose(const Tensor& body, const TestTensor& kernel, double tolerance) {
  ASSERT_EQ(body.view.element, kernel.element());
  ASSERT_EQ(body.view.shape, kernel.shape());
  TestTensor copy(kernel.element(), kernel.shape());
  if (copy.bytes() != 0)
    std::memcpy(copy.data(), body.view.data, copy.bytes());
  for (int64_t i = 0; i < copy.count(); ++i)
    ASSERT_NEAR(copy.get(i), kernel.get(i), tolerance) << "element " << i;
}

double toleranceOf(const AttentionCase& c) {
  return c.element == ElementType::Float ? 1e-5 : c.element == ElementType::Float16 ? 2e-3 : 2e-2;
}

/// Presents are the kernel's byte for byte.
void expectSameRows(const BodyResult& body, const KernelResult& kernel, const AttentionCase& c) {
  ASSERT_EQ(body.error, "");
  ASSERT_EQ(kernel.error, "");
  expectClose(body.outputs[0], kernel.outputs[0], toleranceOf(c));
  for (unsigned i = 1; i < kernel.outputs.size(); ++i) {
    const TestTensor& present = kernel.outputs[i];
    ASSERT_EQ(body.outputs[i].view.shape, present.shape());
    EXPECT_EQ(std::memcmp(body.outputs[i].view.data, present.data(), present.bytes()), 0) << i;
  }
}

/// Body and kernel of InPlaceKvSdpa; the caches' rows beyond the valid ones are NaN.
void expectInPlaceBody(const AttentionCase& c, int64_t opset) {
  SCOPED_TRACE(formatted("opset {}", opset));
  const AttentionProblem p(c);
  const BodyResult body =
      runBody("ai.kvopt::InPlaceKvSdpa", cacheText("InPlaceKvSdpa", {opset, c.element}), opset, c,
              {p.query, p.keyNew, p.valueNew, p.pastKey, p.pastValue, p.pastLength,
               c.mask == MaskForm::none ? neutralMask() : p.mask},
              3);
  expectSameRows(body, p.call(false).run(), c);
}

/// Body and kernel of RingKvSdpa; slots without a row are NaN.
void expectRingBody(const AttentionCase& c, int64_t slots, int64_t opset) {
  SCOPED_TRACE(formatted("opset {}, {} slots, {} rows, past {}", opset, slots, c.rows, c.past[0]));
  const RingProblem p(c, slots);
  const BodyResult body =
      runBody("ai.kvopt::RingKvSdpa", cacheText("RingKvSdpa", {opset, c.element}), opset, c,
              {p.all.query, p.all.keyNew, p.all.valueNew, p.pastKey, p.pastValue, p.all.pastLength,
               c.mask == MaskForm::none ? neutralMask() : p.all.mask},
              3);
  expectSameRows(body, p.call(false).run(), c);
}

/// Body and kernel of Sdpa over all rows of the present of a case without ragged lengths.
void expectSdpaBody(const AttentionCase& given, int64_t opset) {
  SCOPED_TRACE(formatted("opset {}", opset));
  AttentionCase c = given;
  c.capacity = c.longest();
  const AttentionProblem p(c);
  const BodyResult body = runBody(
      "ai.kvopt::Sdpa", sdpaFunctionText({opset, c.element}), opset, c,
      {p.query, p.presentKey, p.presentValue, c.mask == MaskForm::none ? neutralMask() : p.mask},
      1);
  ASSERT_EQ(body.error, "");
  KernelCall call("ai.kvopt::Sdpa");
  call.in(p.query).in(p.presentKey).in(p.presentValue);
  c.mask == MaskForm::none ? call.absent() : call.in(p.mask);
  p.attributes(call);
  const KernelResult kernel = call.run();
  ASSERT_EQ(kernel.error, "");
  expectClose(body.outputs[0], kernel.outputs[0], toleranceOf(c));
}

AttentionCase grouped(int64_t rows, std::vector<int64_t> past) {
  AttentionCase c;
  c.batches = 2;
  c.kvHeads = 2;
  c.group = 3;
  c.rows = rows;
  c.past = std::move(past);
  c.capacity = 12;
  c.width = 8;
  c.valueWidth = 6;
  return c;
}

TEST(FunctionBody, RingAroundItsEnd) {
  for (int64_t opset : opsets)
    for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
      for (int64_t slots : {1, 4, 6})
        for (int64_t rows : {1, 3, 6, 9})
          for (int64_t past : {0, 3, 4, 17}) {
            AttentionCase c = grouped(rows, {past});
            c.causal = mask != MaskForm::boolean;
            c.window = c.causal ? slots : 0;
            c.mask = mask;
            expectRingBody(c, slots, opset);
          }
}

TEST(FunctionBody, PrefillAndDecode) {
  for (int64_t opset : opsets)
    for (bool causal : {false, true})
      for (const AttentionCase& made :
           {grouped(5, {0}), grouped(4, {5}), grouped(1, {7}), grouped(1, {0}), grouped(3, {9})}) {
        AttentionCase c = made;
        c.causal = causal;
        SCOPED_TRACE(formatted("rows {} past {} causal {}", c.rows, c.past[0], causal));
        expectInPlaceBody(c, opset);
        expectSdpaBody(c, opset);
      }
}

TEST(FunctionBody, OptionsAndMasks) {
  for (int64_t opset : opsets)
    for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
      for (int options = 0; options < 16; ++options) {
        AttentionCase c = grouped(3, {6});
        c.mask = mask;
        c.causal = options & 1;
        c.window = options & 2 ? 4 : 0;
        c.softcap = options & 4 ? 1.5f : 0.0f;
        c.maskHead = !(options & 1);
        c.maskBatch = c.maskColumn = !(options & 8);
        SCOPED_TRACE(formatted("mask {} options {}", int(mask), options));
        expectInPlaceBody(c, opset);
        expectSdpaBody(c, opset);
      }
}

TEST(FunctionBody, RaggedBatch) {
  for (int64_t opset : opsets)
    for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
      for (std::vector<int64_t> past : {std::vector<int64_t>{7, 2}, {0, 9}, {4, 4}}) {
        AttentionCase c = grouped(3, past);
        c.mask = mask;
        c.causal = true;
        c.window = past[0] == 7 ? 5 : 0;
        expectInPlaceBody(c, opset);
      }
}

/// Both operators on caches whose invalid rows are NaN, at lengths that differ by batch row.
TEST(FunctionBody, RaggedSdpaAndAppendRows) {
  for (int64_t opset : opsets)
    for (std::vector<int64_t> past : {std::vector<int64_t>{7, 2}, {0, 9}, {4}}) {
      AttentionCase c = grouped(3, past);
      c.causal = true;
      c.window = past[0] == 7 ? 5 : 0;
      const AttentionProblem p(c);
      const BodyResult body =
          runBody("ai.kvopt::Sdpa", sdpaFunctionText({opset, c.element, false, true}), opset, c,
                  {p.query, p.presentKey, p.presentValue, neutralMask(),
                   floats({6}, {0, 0, 0, 0, 0, 0}), p.pastLength},
                  1);
      ASSERT_EQ(body.error, "");
      KernelCall call("ai.kvopt::Sdpa");
      call.in(p.query).in(p.presentKey).in(p.presentValue).absent().absent().in(p.pastLength);
      p.attributes(call);
      const KernelResult kernel = call.run();
      ASSERT_EQ(kernel.error, "");
      expectClose(body.outputs[0], kernel.outputs[0], 1e-5);

      const BodyResult rows =
          runBody("ai.kvopt::AppendRows", appendRowsFunctionText(opset, c.element), opset, c,
                  {p.pastKey, p.keyNew, p.pastLength}, 1);
      ASSERT_EQ(rows.error, "");
      const KernelResult appended =
          KernelCall("ai.kvopt::AppendRows").in(p.pastKey).in(p.keyNew).in(p.pastLength).run();
      ASSERT_EQ(appended.error, "");
      expectClose(rows.outputs[0], appended.outputs[0], 0);
    }
}

TEST(FunctionBody, RowsThatSeeNothingAreZero) {
  for (int64_t opset : opsets)
    for (MaskForm mask : {MaskForm::additive, MaskForm::boolean}) {
      AttentionCase c = grouped(2, {4});
      c.mask = mask;
      c.hideEverything = true;
      expectInPlaceBody(c, opset);
      expectSdpaBody(c, opset);
    }
}

/// Scores that are equal and very negative are a uniform average, not an empty row.
TEST(FunctionBody, FiniteVeryNegativeMask) {
  for (int64_t opset : opsets) {
    AttentionCase c = grouped(2, {3});
    const AttentionProblem p(c);
    TestTensor mask = floats({1, 1, 1, 1}, {-3e38});
    const BodyResult body =
        runBody("ai.kvopt::InPlaceKvSdpa", cacheText("InPlaceKvSdpa", {opset, c.element}), opset, c,
                {p.query, p.keyNew, p.valueNew, p.pastKey, p.pastValue, p.pastLength, mask}, 3);
    ASSERT_EQ(body.error, "");
    KernelCall call("ai.kvopt::InPlaceKvSdpa");
    call.in(p.query).in(p.keyNew).in(p.valueNew).in(p.pastKey).in(p.pastValue).in(p.pastLength);
    call.in(mask).results(3);
    p.attributes(call);
    const KernelResult kernel = call.run();
    ASSERT_EQ(kernel.error, "");
    expectClose(body.outputs[0], kernel.outputs[0], 1e-5);
    EXPECT_NE(kernel.outputs[0].get(0), 0.0);
  }
}

TEST(FunctionBody, SixteenBitCaches) {
  for (int64_t opset : opsets)
    for (ElementType element : {ElementType::Float16, ElementType::BFloat16})
      for (bool mask : {false, true}) {
        AttentionCase c = grouped(3, {6, 1});
        c.element = element;
        c.causal = true;
        c.mask = mask ? MaskForm::boolean : MaskForm::none;
        expectInPlaceBody(c, opset);
        c.past = {5};
        expectSdpaBody(c, opset);
      }
}

/// Scales of invalid rows are NaN.
void expectQuantizedBody(const QuantizedProblem& p, int64_t opset) {
  SCOPED_TRACE(formatted("opset {}", opset));
  const AttentionCase& c = p.c();
  const CacheLayout keyLayout = *CacheLayout::bySequenceAxis(4, c.keyTransposed ? 3 : 2);
  std::vector<TestTensor> operands = {
      p.plain.query,  p.plain.keyNew,     p.plain.valueNew,
      p.key.codes,    p.key.scales,       p.value.codes,
      p.value.scales, p.plain.pastLength, c.mask == MaskForm::none ? neutralMask() : p.plain.mask};
  if (c.sinks)
    operands.push_back(p.plain.sinks);
  const BodyResult body =
      runBody("ai.kvopt::InPlaceQuantizedKvSdpa",
              cacheText("InPlaceQuantizedKvSdpa", {opset, c.element, c.sinks}, keyLayout), opset, c,
              operands, 5);
  expectSameRows(body, p.call(false).run(), c);
}

TEST(FunctionBody, CachesOfInt8) {
  for (const int64_t opset : opsets) {
    SCOPED_TRACE(formatted("opset {}", opset));
    AttentionCase c;
    c.scale = 0.01f;
    c.causal = true;
    const std::vector<TestTensor> operands = {randomTensor(ElementType::Float, {2, 4, 3, 8}, 1),
                                              randomCodes({2, 2, 3, 8}, 2),
                                              randomCodes({2, 2, 3, 8}, 3),
                                              randomCodes({2, 2, 12, 8}, 4),
                                              randomCodes({2, 2, 12, 8}, 5),
                                              int64s({6, 2}),
                                              neutralMask()};
    BodyForm form{opset, ElementType::Float};
    form.int8Caches = true;
    const BodyResult body =
        runBody("ai.kvopt::InPlaceKvSdpa", cacheText("InPlaceKvSdpa", form), opset, c, operands, 3);
    ASSERT_EQ(body.error, "");
    KernelCall call("ai.kvopt::InPlaceKvSdpa");
    for (const TestTensor& operand : operands)
      call.in(operand);
    const KernelResult kernel = call.attr("scale", 0.01).attr("causal", 1).results(3).run();
    ASSERT_EQ(kernel.error, "");
    expectClose(body.outputs[0], kernel.outputs[0], 128 * toleranceOf(c));
    expectClose(body.outputs[1], kernel.outputs[1], 0);
    expectClose(body.outputs[2], kernel.outputs[2], 0);
  }
}

TEST(FunctionBody, BlocksOfCodes) {
  for (int64_t opset : opsets)
    for (int options = 0; options < 8; ++options)
      for (int64_t rows : {1, 4}) {
        SCOPED_TRACE(formatted("opset {} options {} rows {}", opset, options, rows));
        AttentionCase c = grouped(rows, {0});
        c.causal = true;
        c.window = options & 1 ? 3 : 0;
        c.sinks = options & 2;
        c.mask = options & 4 ? MaskForm::boolean : MaskForm::none;
        c.maskColumn = false;
        // Blocks of three rows and of none.
        const TestTensor query =
            randomTensor(c.element, {c.batches, c.heads(), c.rows, c.width}, 1);
        std::vector<TestTensor> operands = {
            query, randomCodes({c.batches, c.kvHeads, rows, c.width}, 2),
            randomCodes({c.batches, c.kvHeads, rows, c.valueWidth}, 3)};
        const AttentionProblem p(c);
        operands.push_back(c.mask == MaskForm::none ? neutralMask() : p.mask);
        operands.push_back(c.sinks ? p.sinks : floats({0}, {}));
        auto scales = [&](int64_t count, unsigned seed) {
          return randomTensor(ElementType::Float, {c.batches, c.kvHeads, count, 1}, seed, 0.01);
        };
        operands.push_back(scales(rows, 4));
        operands.push_back(scales(rows, 5));
        for (int64_t width : {c.width, c.valueWidth})
          for (int64_t count : {3, 0})
            operands.push_back(randomCodes({c.batches, c.kvHeads, count, width}, 6));
        for (unsigned side : {7u, 8u})
          for (int64_t count : {3, 0})
            operands.push_back(scales(count, side));
        BodyForm form{opset, c.element, c.sinks};
        const BodyResult body =
            runBody("ai.kvopt::BlockQuantizedKvSdpa",
                    cacheText("BlockQuantizedKvSdpa", form, CacheLayout::ofAttention(), 2), opset,
                    c, operands, 1);
        ASSERT_EQ(body.error, "");
        KernelCall call("ai.kvopt::BlockQuantizedKvSdpa");
        for (size_t i = 0; i < operands.size(); ++i)
          i == 4 && !c.sinks ? call.absent() : call.in(operands[i]);
        p.attributes(call);
        call.attr("mask_boolean", c.mask == MaskForm::boolean ? 1 : 0);
        const KernelResult kernel = call.run();
        ASSERT_EQ(kernel.error, "");
        expectClose(body.outputs[0], kernel.outputs[0], 4 * toleranceOf(c));
      }
}

/// Body and kernel of RingQuantizedKvSdpa; the scales of slots without a row are NaN.
void expectQuantizedRingBody(const AttentionCase& c, int64_t slots, int64_t opset) {
  SCOPED_TRACE(formatted("opset {}, {} slots, {} rows, past {}", opset, slots, c.rows, c.past[0]));
  const QuantizedRingProblem p(c, slots);
  std::vector<TestTensor> operands = p.operands();
  operands.push_back(c.mask == MaskForm::none ? neutralMask() : p.all.plain.mask);
  if (c.sinks)
    operands.push_back(p.all.plain.sinks);
  const CacheLayout keyLayout = *CacheLayout::bySequenceAxis(4, c.keyTransposed ? 3 : 2);
  const BodyResult body =
      runBody("ai.kvopt::RingQuantizedKvSdpa",
              cacheText("RingQuantizedKvSdpa", {opset, c.element, c.sinks}, keyLayout), opset, c,
              operands, 5);
  expectSameRows(body, p.call(false).run(), c);
}

TEST(FunctionBody, RingsOfCodes) {
  for (int64_t opset : opsets)
    for (int64_t slots : {1, 5})
      for (int options = 0; options < 8; ++options)
        for (const AttentionCase& made : {grouped(4, {0}), grouped(1, {7}), grouped(9, {6})}) {
          AttentionCase c = made;
          c.causal = true;
          c.window = slots;
          c.sinks = options & 1;
          c.mask = options & 2 ? MaskForm::boolean : MaskForm::none;
          c.keyTransposed = options & 4;
          expectQuantizedRingBody(c, slots, opset);
        }
}

TEST(FunctionBody, QuantizedCaches) {
  for (int64_t opset : opsets)
    for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
      for (int options = 0; options < 16; ++options)
        for (const AttentionCase& made : {grouped(4, {0}), grouped(1, {7}), grouped(3, {6, 2})}) {
          AttentionCase c = made;
          c.element = element;
          c.causal = options & 1;
          c.sinks = options & 2;
          c.mask = options & 4 ? MaskForm::boolean : MaskForm::none;
          c.keyTransposed = options & 8;
          c.window = options & 1 ? 5 : 0;
          expectQuantizedBody(QuantizedProblem(c), opset);
        }
}

/// What a row is rounded to does not depend on who rounds it.
TEST(FunctionBody, QuantizedRowsOfEveryKind) {
  const double smallest = double{std::numeric_limits<float>::denorm_min()};
  for (int64_t opset : opsets) {
    const QuantizedProblem p(grouped(5, {2}));
    // A row of the value's each: zeros, tiny, large, no numbers.
    const double samples[] = {0, 190 * smallest, 3e38, double{NAN}, -double{INFINITY}};
    TestTensor fresh = p.plain.valueNew;
    for (int64_t row = 0; row < 5; ++row)
      for (int64_t column = 0; column < 6; ++column)
        fresh.set(row * 6 + column, samples[row] / static_cast<double>(column + 1));
    const BodyResult body =
        runBody("ai.kvopt::InPlaceQuantizedKvSdpa",
                cacheText("InPlaceQuantizedKvSdpa", {opset, ElementType::Float}), opset, p.c(),
                {p.plain.query, p.plain.keyNew, p.plain.valueNew, p.key.codes, p.key.scales,
                 p.value.codes, p.value.scales, p.plain.pastLength, neutralMask()},
                5);
    ASSERT_EQ(body.error, "");
    const KernelResult kernel = p.call(false).run();
    ASSERT_EQ(kernel.error, "");
    const TestTensor& codes = kernel.outputs[3];
    EXPECT_EQ(std::memcmp(body.outputs[3].view.data, codes.data(), codes.bytes()), 0);
    const TestTensor& scales = kernel.outputs[4];
    for (int64_t i = 0; i < scales.count(); ++i) {
      const double scale = double{body.outputs[4].view.as<float>()[i]};
      EXPECT_TRUE(scale == scales.get(i) || (std::isnan(scale) && std::isnan(scales.get(i)))) << i;
    }
  }
}

TEST(FunctionBody, MoreQueryRowsThanKeys) {
  for (int64_t opset : opsets) {
    AttentionCase c = grouped(5, {0});
    const AttentionProblem p(c);
    TestTensor key = randomTensor(c.element, {2, 2, 3, 8}, 20);
    TestTensor value = randomTensor(c.element, {2, 2, 3, 6}, 21);
    c.causal = true;
    const BodyResult body = runBody("ai.kvopt::Sdpa", sdpaFunctionText({opset, c.element}), opset,
                                    c, {p.query, key, value, neutralMask()}, 1);
    ASSERT_EQ(body.error, "");
    const KernelResult kernel = KernelCall("ai.kvopt::Sdpa")
                                    .in(p.query)
                                    .in(key)
                                    .in(value)
                                    .attr("scale", 0.5)
                                    .attr("causal", 1)
                                    .run();
    ASSERT_EQ(kernel.error, "");
    expectClose(body.outputs[0], kernel.outputs[0], 1e-5);
  }
}

} // namespace
} // namespace kvopt
