// ai.kvopt's attention over caches: latent rows are keys whose columns are values, in every place
// and whatever is stored of rows.
#include "ir/ops/kvopt/cache_operator.h"
#include "support/four_bit_row.h"
#include "tests/runtime/kernels/kernel_harness.h"

#include <map>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

constexpr int64_t latentSlots = 8, latentWidth = 64, firstValue = 32, valueColumns = 32;
constexpr int64_t latentBatches = 2, latentHeads = 2;

/// Columns [first, first + count) of rows.
TestTensor rowColumns(const TensorView& rows, int64_t first, int64_t count) {
  Extents shape = rows.shape;
  shape.back() = count;
  TestTensor result(rows.element, shape);
  const auto bytes = static_cast<size_t>(*byteWidth(rows.element));
  for (int64_t row = 0; row < result.count() / count; ++row)
    std::memcpy(result.data() + static_cast<size_t>(row * count) * bytes,
                rows.data + static_cast<size_t>(row * rows.shape.back() + first) * bytes,
                static_cast<size_t>(count) * bytes);
  return result;
}

/// The values in latent rows, which may be four-bit codes.
TestTensor latentValuesOf(const TestTensor& rows) {
  if (rows.element() != ElementType::UInt8)
    return rowColumns(rows.view(), firstValue, valueColumns);
  const int64_t bytes = FourBitRow{valueColumns}.bytes();
  return rowColumns(rows.view(), rows.shape().back() - bytes, bytes);
}

/// Rows whose largest number is among their values, so that these have the scale of the row.
TestTensor randomRows(ElementType element, int64_t count, unsigned seed) {
  TestTensor rows = randomTensor(element, {latentBatches, latentHeads, count, latentWidth}, seed,
                                 element == ElementType::Int8 ? 100 : 1);
  for (int64_t row = 0; row < rows.count() / latentWidth; ++row)
    rows.set(row * latentWidth + firstValue + row % valueColumns,
             element == ElementType::Int8 ? 101 : 1);
  return rows;
}

TestTensor randomFourBitRows(int64_t count, unsigned seed) {
  const FourBitRow row{latentWidth};
  TestTensor rows(ElementType::UInt8, {latentBatches, latentHeads, count, row.bytes()});
  std::mt19937 generator(seed);
  auto number = [&](unsigned from, unsigned to) { return from + generator() % (to - from + 1); };
  for (int64_t i = 0; i < rows.count(); ++i)
    rows.set(i, i % row.groupBytes() == row.halfGroup() ? number(1, FourBitRow::largestMultiplier)
                                                        : 16 * number(1, 15) + number(1, 15));
  return rows;
}

/// One step of a latent operator, and the same of the operator with keys and values.
class LatentStep {
public:
  LatentStep(const CacheOperator& latentOperator, ElementType element, int64_t newRows)
      : latent(latentOperator), separate(latentOperator), rows(newRows) {
    separate.sharing = CacheSharing::KeysAndValues;
    const bool areCodes = latent.hasCodes() && latent.isInBlocks();
    setBoth(
        CacheOperator::query, CacheOperator::query,
        randomTensor(ElementType::Float, {latentBatches, 2 * latentHeads, rows, latentWidth}, 1));
    setRows(CacheOperator::fresh(0), CacheOperator::fresh(0), CacheOperator::fresh(1),
            randomRows(areCodes ? ElementType::Int8 : element, rows, 2));
    if (latent.isInBlocks())
      setBlocks(element);
    else
      setPast(element);
  }

  KernelResult run(const CacheOperator& op) const {
    const std::string name = op.name().str();
    KernelCall call(name.c_str());
    const auto& operands = op.isLatent() ? ofLatent : ofSeparate;
    for (unsigned i = 0; i <= operands.rbegin()->first; ++i)
      operands.count(i) ? call.in(operands.at(i)) : call.absent();
    call.attr("scale", 0.1).attr("causal", 1).results(op.resultCount());
    if (op.isLatent())
      call.attr("v_offset", static_cast<int>(firstValue))
          .attr("v_width", static_cast<int>(valueColumns));
    return call.run();
  }

  void expectSame() const {
    const KernelResult one = run(latent), two = run(separate);
    ASSERT_EQ(one.error, "");
    ASSERT_EQ(two.error, "");
    EXPECT_TRUE(one.outputs[0].sameBytes(two.outputs[0]));
    if (latent.isInBlocks())
      return;
    const TestTensor& present = one.outputs[latent.present(0)];
    EXPECT_TRUE(present.sameBytes(two.outputs[separate.present(0)]));
    EXPECT_TRUE(latentValuesOf(present).sameBytes(two.outputs[separate.present(1)]));
    EXPECT_FALSE(present.sameBytes(ofLatent.at(latent.past(0))));
    if (!latent.hasCodes())
      return;
    for (unsigned side : {0u, 1u})
      EXPECT_TRUE(
          one.outputs[latent.presentScale(0)].sameBytes(two.outputs[separate.presentScale(side)]));
  }

private:
  void setBoth(unsigned latentOperand, unsigned separateOperand, const TestTensor& tensor) {
    ofLatent[latentOperand] = tensor;
    ofSeparate[separateOperand] = tensor;
  }
  /// Rows, and their values beside them.
  void setRows(unsigned latentOperand, unsigned keys, unsigned values, const TestTensor& tensor) {
    setBoth(latentOperand, keys, tensor);
    ofSeparate[values] = latentValuesOf(tensor);
  }
  void setScales(unsigned latentOperand, unsigned keys, unsigned values, int64_t count,
                 unsigned seed) {
    TestTensor scales =
        randomTensor(ElementType::Float, {latentBatches, latentHeads, count, 1}, seed);
    setBoth(latentOperand, keys, scales);
    ofSeparate[values] = scales;
  }

  void setPast(ElementType element) {
    const TestTensor past = latent.code == &fourBitRows ? randomFourBitRows(latentSlots, 3)
                                                        : randomRows(element, latentSlots, 3);
    const bool isInt8 = latent.code == &int8Rows;
    setRows(latent.past(0), separate.past(0), separate.past(1),
            isInt8 ? randomRows(ElementType::Int8, latentSlots, 3) : past);
    if (latent.hasCodes())
      setScales(latent.pastScale(0), separate.pastScale(0), separate.pastScale(1), latentSlots, 4);
    // A ring has wrapped.
    setBoth(latent.pastLength(), separate.pastLength(), int64s({latent.isRing() ? 13.0 : 5.0}));
  }

  void setBlocks(ElementType element) {
    const std::vector<int64_t> counts{4, 0, 3};
    for (unsigned i = 0; i < counts.size(); ++i) {
      const auto each = static_cast<unsigned>(counts.size());
      setRows(latent.block(0, each) + i, separate.block(0, each) + i, separate.block(1, each) + i,
              randomRows(latent.hasCodes() ? ElementType::Int8 : element, counts[i], 5 + i));
      if (latent.hasCodes())
        setScales(latent.scaleBlock(0, each) + i, separate.scaleBlock(0, each) + i,
                  separate.scaleBlock(1, each) + i, counts[i], 15 + i);
    }
    if (latent.hasCodes())
      setScales(latent.freshScale(0), separate.freshScale(0), separate.freshScale(1), rows, 4);
  }

  CacheOperator latent, separate;
  int64_t rows;
  std::map<unsigned, TestTensor> ofLatent, ofSeparate;
};

TEST(CacheOperators, LatentRowsAreKeysWithValuesAmongTheirColumns) {
  size_t count = 0;
  for (const CacheOperator& named : CacheOperator::all()) {
    if (!named.isLatent())
      continue;
    ++count;
    std::vector<CacheOperator> forms{named};
    if (named.hasCodes() && !named.isInBlocks())
      forms.push_back({named.place, &fourBitRows, named.sharing});
    for (const CacheOperator& op : forms)
      for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::Int8})
        for (int64_t rows : {1, 3}) {
          // Rows of int8 are the numbers that they are, in one tensor.
          if (element == ElementType::Int8 && (op.hasCodes() || op.isInBlocks()))
            continue;
          SCOPED_TRACE(formatted("{}{} of {}, {} rows", op.name().str(),
                                 op.code == &fourBitRows ? " of four bits" : "",
                                 onnxName(element).str(), rows));
          LatentStep(op, element, rows).expectSame();
        }
  }
  EXPECT_GE(count, 3u);
}

} // namespace
} // namespace kvopt
