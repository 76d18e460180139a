// Kernels of the operators whose definitions say that they are elementwise: each element of the
// result depends on those at its place only, in the same way at every place.
#include "ir/elementwise.h"
#include "tests/runtime/kernels/kernel_harness.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvopt {
using namespace ir;

namespace {

constexpr int64_t rows = 3, columns = 4;

/// Operands of the required formals: [rows, columns], but for the bias of com.microsoft's
/// activations, which has one element for each column.
std::vector<TestTensor> operandsOf(const OpDef& definition) {
  std::vector<TestTensor> operands;
  for (unsigned i = 0; i < definition.minOperands(); ++i) {
    const bool isTruth = definition.elementFunction == ElementFunction::Logic ||
                         (i == 0 && definition.elementFunction == ElementFunction::Choice);
    const bool isBits = definition.name.type().startswith("Bitwise");
    const bool isBias = i > 0 && !definition.name.isOnnx();
    TestTensor operand(isTruth  ? ElementType::Bool
                       : isBits ? ElementType::Int32
                                : ElementType::Float,
                       isBias ? runtime::Extents{columns} : runtime::Extents{rows, columns});
    for (int64_t e = 0; e < operand.count(); ++e)
      operand.set(e, isTruth ? static_cast<double>((e + i) % 2)
                             : 0.25 + 0.5 * static_cast<double>((e * 5 + i * 7) % 11));
    operands.push_back(std::move(operand));
  }
  return operands;
}

std::vector<double> resultOf(const OpDef& definition, const std::vector<TestTensor>& operands) {
  const std::string name = definition.name.str();
  KernelCall call(name.c_str(), std::max<int64_t>(definition.since, 18));
  for (const TestTensor& operand : operands)
    call.in(operand);
  if (definition.findAttribute("to"))
    call.attr("to", static_cast<int>(ElementType::Int32));
  if (definition.findAttribute("fmod"))
    call.attr("fmod", 1);
  const KernelResult result = call.run();
  EXPECT_EQ(result.error, "");
  std::vector<double> values =
      result.ok() ? result.outputs.front().values() : std::vector<double>();
  // The inverse cosine of a number beyond 1 is not a number, and not equal to itself.
  for (double& value : values)
    if (std::isnan(value))
      value = std::numeric_limits<double>::max();
  return values;
}

/// Every operand in reverse order.
std::vector<TestTensor> reversed(const std::vector<TestTensor>& operands) {
  std::vector<TestTensor> result;
  for (const TestTensor& operand : operands) {
    result.push_back(operand.clone());
    for (int64_t e = 0; e < operand.count(); ++e)
      result.back().set(e, operand.get(operand.count() - 1 - e));
  }
  return result;
}

/// Changes one element after another: other places of the result stay.
void expectNoOtherPlaceDepends(const OpDef& definition, const std::vector<TestTensor>& operands,
                               const std::vector<double>& expected) {
  for (size_t i = 0; i < operands.size(); ++i)
    for (int64_t e = 0; e < operands[i].count(); ++e) {
      std::vector<TestTensor> changed = operands;
      changed[i] = operands[i].clone();
      const bool isTruth = changed[i].element() == ElementType::Bool;
      changed[i].set(e, isTruth ? 1 - changed[i].get(e) : changed[i].get(e) + 0.375);
      const std::vector<double> found = resultOf(definition, changed);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t place = 0; place < found.size(); ++place) {
        const bool isItsPlace = static_cast<int64_t>(place) % operands[i].count() == e;
        EXPECT_TRUE(isItsPlace || found[place] == expected[place])
            << "operand " << i << ", element " << e << ", place " << place;
      }
    }
}

TEST(ElementwiseKernels, ComputeEveryPlaceApartAndAlike) {
  unsigned checked = 0;
  for (const OpDef* definition : testOperators().all()) {
    const int64_t version = std::max<int64_t>(definition->since, 18);
    const bool isNewest = testOperators().find(definition->name, version) == definition;
    if (!definition->elementFunction || !isNewest || !testKernels().find(definition->name, version))
      continue;
    SCOPED_TRACE(definition->name.str());
    const std::vector<TestTensor> operands = operandsOf(*definition);
    const std::vector<double> expected = resultOf(*definition, operands);
    ASSERT_EQ(expected.size(), static_cast<size_t>(rows * columns));
    expectNoOtherPlaceDepends(*definition, operands, expected);
    std::vector<double> backwards = resultOf(*definition, reversed(operands));
    std::reverse(backwards.begin(), backwards.end());
    EXPECT_EQ(backwards, expected);
    ++checked;
  }
  EXPECT_GT(checked, 40u);
}

TEST(ElementwiseKernels, OthersDependOnOtherPlaces) {
  const TestTensor x = operandsOf(*testOperators().find("Neg", 18)).front();
  TestTensor changed = x.clone();
  changed.set(0, 9);
  const KernelResult before = KernelCall("Softmax").in(x).run();
  const KernelResult after = KernelCall("Softmax").in(changed).run();
  EXPECT_NE(before.outputs.front().get(1), after.outputs.front().get(1));
}

} // namespace
} // namespace kvopt
