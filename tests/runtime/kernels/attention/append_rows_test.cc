// AppendRows against a plain loop, at lengths that differ by batch row.
#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {
using namespace ir;

namespace {

struct Rows {
  int64_t batches = 2, heads = 3, past = 5, fresh = 2, width = 4;
};

/// The past's rows at and behind each batch row's length are NaN.
TestTensor poisonedPast(const Rows& r, ElementType element, llvm::ArrayRef<double> lengths) {
  TestTensor past = randomTensor(element, {r.batches, r.heads, r.past, r.width}, 1);
  for (int64_t i = 0; i < past.count(); ++i) {
    int64_t batch = i / (r.heads * r.past * r.width);
    double length = lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(batch)];
    if (static_cast<double>(i / r.width % r.past) >= length)
      past.set(i, std::numeric_limits<double>::quiet_NaN());
  }
  return past;
}

std::vector<double> expectedRows(const Rows& r, const TestTensor& past, const TestTensor& fresh,
                                 llvm::ArrayRef<double> lengths) {
  std::vector<double> present;
  for (int64_t batch = 0; batch < r.batches; ++batch)
    for (int64_t head = 0; head < r.heads; ++head)
      for (int64_t row = 0; row < r.past + r.fresh; ++row)
        for (int64_t column = 0; column < r.width; ++column) {
          auto length =
              static_cast<int64_t>(lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(batch)]);
          int64_t plane = batch * r.heads + head;
          if (row < length)
            present.push_back(past.get((plane * r.past + row) * r.width + column));
          else if (row < length + r.fresh)
            present.push_back(fresh.get((plane * r.fresh + row - length) * r.width + column));
          else
            present.push_back(0);
        }
  return present;
}

TEST(AppendRows, PutsFreshRowsBehindEachLength) {
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (const Rows& r : {Rows{}, Rows{2, 1, 5, 0, 4}, Rows{2, 2, 5, 7, 1}})
      for (const std::vector<double>& lengths :
           {std::vector<double>{0}, {5}, {3}, {5, 0}, {2, 4}}) {
        const TestTensor past = poisonedPast(r, element, lengths);
        const TestTensor fresh = randomTensor(element, {r.batches, r.heads, r.fresh, r.width}, 2);
        const KernelResult result = KernelCall("ai.kvopt::AppendRows")
                                        .in(past)
                                        .in(fresh)
                                        .in(int64s(lengths))
                                        .threads(3)
                                        .run();
        expectTensor(result, {r.batches, r.heads, r.past + r.fresh, r.width},
                     expectedRows(r, past, fresh, lengths));
      }
}

TEST(AppendRows, EmptyPast) {
  const TestTensor fresh = randomTensor(ElementType::Float, {1, 2, 3, 4}, 2);
  expectTensor(KernelCall("ai.kvopt::AppendRows")
                   .in(TestTensor(ElementType::Float, {1, 2, 0, 4}))
                   .in(fresh)
                   .in(int64s({0}))
                   .run(),
               {1, 2, 3, 4}, fresh.values());
}

TEST(AppendRows, Refuses) {
  auto error = [](const TestTensor& past, const TestTensor& fresh, const TestTensor& length) {
    return KernelCall("ai.kvopt::AppendRows").in(past).in(fresh).in(length).run();
  };
  const TestTensor past = randomTensor(ElementType::Float, {2, 2, 3, 4}, 1);
  const TestTensor fresh = randomTensor(ElementType::Float, {2, 2, 1, 4}, 2);
  expectError(error(past, fresh, int64s({-1})), "a past length of -1 does not fit 3 rows");
  expectError(error(past, fresh, int64s({0, 4})), "a past length of 4 does not fit 3 rows");
  expectError(error(past, fresh, int64s({0, 0, 0})), "shape [1] or [batch]");
  expectError(error(past, fresh, floats({1}, {0})), "must be int64");
  expectError(error(past, randomTensor(ElementType::Float, {2, 3, 1, 4}, 2), int64s({0})),
              "differ on axis 1");
  expectError(error(past, randomTensor(ElementType::Float16, {2, 2, 1, 4}, 2), int64s({0})),
              "element types");
  expectError(error(past, fresh.reshaped({4, 4}), int64s({0})), "rank 4");
}

} // namespace
} // namespace kvopt
