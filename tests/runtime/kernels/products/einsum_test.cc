// Einsum against plain loops over letters.
#include "tests/runtime/kernels/kernel_harness.h"

#include <map>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// The sum over every assignment of positions to letters; letters and explicit results only.
std::vector<double> plainEinsum(const std::vector<std::string>& terms, const std::string& result,
                                const std::vector<TestTensor>& operands) {
  std::map<char, int64_t> extents;
  for (size_t n = 0; n < terms.size(); ++n)
    for (size_t axis = 0; axis < terms[n].size(); ++axis) {
      int64_t& extent = extents[terms[n][axis]];
      extent = std::max(extent, operands[n].shape()[axis]);
    }
  auto offset = [](const std::string& term, const Extents& shape, std::map<char, int64_t>& at) {
    int64_t sum = 0;
    for (size_t axis = 0; axis < term.size(); ++axis)
      sum = sum * shape[axis] + (shape[axis] == 1 ? 0 : at[term[axis]]);
    return sum;
  };
  Extents shape;
  int64_t count = 1;
  for (char c : result) {
    shape.push_back(extents[c]);
    count *= extents[c];
  }
  std::vector<double> y(static_cast<size_t>(count), 0.0);
  std::map<char, int64_t> at;
  int64_t assignments = 1;
  for (const auto& entry : extents)
    assignments *= entry.second;
  for (int64_t i = 0; i < assignments; ++i) {
    int64_t rest = i;
    for (const auto& entry : extents) {
      at[entry.first] = rest % entry.second;
      rest /= entry.second;
    }
    double term = 1;
    for (size_t n = 0; n < terms.size(); ++n)
      term *= operands[n].get(offset(terms[n], operands[n].shape(), at));
    y[static_cast<size_t>(offset(result, shape, at))] += term;
  }
  return y;
}

struct EinsumCase {
  std::vector<std::string> terms;
  std::string result;
  std::vector<Extents> shapes;
  Extents shape;
};

TEST(Einsum, Letters) {
  const EinsumCase cases[] = {
      {{"ij", "jk"}, "ik", {{3, 4}, {4, 5}}, {3, 5}},
      {{"bhid", "bhjd"}, "bhij", {{2, 3, 4, 5}, {2, 3, 6, 5}}, {2, 3, 4, 6}},
      {{"bhij", "bhjd"}, "bihd", {{2, 3, 4, 6}, {2, 3, 6, 5}}, {2, 4, 3, 5}},
      {{"bshd", "bthd"}, "bhst", {{2, 4, 3, 5}, {2, 6, 3, 5}}, {2, 3, 4, 6}},
      {{"ij", "kl"}, "ljki", {{2, 3}, {4, 5}}, {5, 3, 4, 2}},
      {{"i", "i"}, "", {{7}, {7}}, {}},
      {{"ij", "ij"}, "ij", {{2, 3}, {2, 3}}, {2, 3}},
      {{"ij", "j"}, "i", {{2, 3}, {1}}, {2}},
      {{"ijk", "il"}, "l", {{2, 3, 4}, {2, 5}}, {5}},
      {{"ii", "ij"}, "j", {{3, 3}, {3, 2}}, {2}},
      {{"ij"}, "ji", {{2, 3}}, {3, 2}},
      {{"ij"}, "", {{2, 3}}, {}},
      {{"ii"}, "i", {{3, 3}}, {3}},
      {{"ij", "jk", "kl"}, "il", {{2, 3}, {3, 4}, {4, 2}}, {2, 2}},
      {{"bgqd", "bgd"}, "bgq", {{2, 3, 4, 5}, {2, 3, 5}}, {2, 3, 4}}};
  for (const EinsumCase& c : cases)
    for (ElementType element :
         {ElementType::Float, ElementType::Float16, ElementType::Double, ElementType::Int64}) {
      std::string equation;
      std::vector<TestTensor> operands;
      KernelCall call("Einsum");
      for (size_t n = 0; n < c.terms.size(); ++n) {
        equation += (n == 0 ? "" : ", ") + c.terms[n];
        operands.push_back(randomTensor(element, c.shapes[n], unsigned(n) + 1,
                                        element == ElementType::Int64 ? 9 : 1));
        call.in(operands.back());
      }
      equation += " -> " + c.result;
      SCOPED_TRACE(equation + " " + onnxName(element).str());
      const double tolerance = element == ElementType::Float     ? 1e-5
                               : element == ElementType::Float16 ? 1e-2
                                                                 : 1e-12;
      expectTensor(call.attr("equation", equation.c_str()).threads(2).run(), c.shape,
                   plainEinsum(c.terms, c.result, operands), tolerance);
    }
}

TEST(Einsum, EllipsisAndImplicitResult) {
  const TestTensor a = randomTensor(ElementType::Float, {2, 3, 4, 5}, 1);
  const TestTensor b = randomTensor(ElementType::Float, {3, 5, 6}, 2);
  const std::vector<double> expected = plainEinsum({"xyij", "yjk"}, "xyik", {a, b});
  auto run = [&](const char* equation) {
    return KernelCall("Einsum").in(a).in(b).attr("equation", equation).run();
  };
  expectTensor(run("...ij,...jk->...ik"), {2, 3, 4, 6}, expected, 1e-5);
  expectTensor(run("...ij,...jk"), {2, 3, 4, 6}, expected, 1e-5);
  const TestTensor c = randomTensor(ElementType::Float, {5, 2}, 3);
  expectTensor(KernelCall("Einsum").in(c).attr("equation", "ba").run(), {2, 5},
               plainEinsum({"ba"}, "ab", {c}));
}

TEST(Einsum, Empty) {
  auto run = [](Extents a, Extents b, const char* equation) {
    return KernelCall("Einsum")
        .in(TestTensor(ElementType::Float, std::move(a)))
        .in(TestTensor(ElementType::Float, std::move(b)))
        .attr("equation", equation)
        .run();
  };
  expectTensor(run({2, 0}, {0, 2}, "ij,jk->ik"), {2, 2}, {0, 0, 0, 0});
  expectTensor(run({0, 3}, {3, 2}, "ij,jk->ik"), {0, 2}, {});
  expectTensor(KernelCall("Einsum").in(int64s({})).attr("equation", "i->").run(), {}, {0});
}

TEST(Einsum, Refuses) {
  const TestTensor x = floats({2, 2}, {1, 2, 3, 4});
  auto run = [&](const char* equation) {
    return KernelCall("Einsum").in(x).in(x).attr("equation", equation).run();
  };
  expectError(run("ij->i"), "1 terms for 2 operands");
  expectError(run("ijk,jk->i"), "does not fit a rank of 2");
  expectError(run("ij,jk->z"), "no operand has");
  expectError(run("ij,jk->ii"), "twice");
  expectError(run("i1,jk->i"), "not a term");
  expectError(run("...,..->"), "");
  EXPECT_FALSE(run("...,..->").ok());
  expectError(run("...i,ij->i"), "lacks the operands' ellipsis");
  expectError(
      KernelCall("Einsum").in(x).in(floats({3}, {1, 2, 3})).attr("equation", "ij,j->").run(),
      "extents 2 and 3");
}

} // namespace
} // namespace kvopt
