// Buffers of zeros: what allocators count, and pages that change hands.
#include "runtime/memory/buffer.h"
#include "runtime/memory/narrow_codes.h"
#include "support/diagnostic.h"
#include "tests/runtime/memory/resident_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using test::residentPages;
using testing::HasSubstr;

class Zeros : public testing::Test {
protected:
  /// `count` runs of `rows` rows of 512 bytes.
  Tensor tensor(int64_t count, int64_t rows) {
    return llvm::cantFail(Tensor::zeros(allocator, ElementType::Float, {count, rows, 128}));
  }
  std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>();
  test::SmallPagesOnly small;
};

TEST_F(Zeros, AreUntouchedFromASizeOn) {
  for (size_t bytes :
       {size_t{0}, size_t{100}, leastPagedBytes - 1, leastPagedBytes, 8 * leastPagedBytes + 3}) {
    auto buffer = llvm::cantFail(Buffer::zeros(allocator, bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % bufferAlignment, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(allocator->liveBytes(), bytes);
    if (bytes >= leastPagedBytes) {
      EXPECT_EQ(residentPages(buffer->data(), bytes), 0);
    }
    for (size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(buffer->data()[i], std::byte{0});
  }
  EXPECT_EQ(allocator->liveBytes(), 0u);
  EXPECT_EQ(allocator->peakBytes(), 8 * leastPagedBytes + 3);
  EXPECT_EQ(allocator->allocations(), 4u);
}

TEST_F(Zeros, MayBeRefused) {
  allocator = std::make_shared<FailingAllocator>(1);
  auto first = Buffer::zeros(allocator, leastPagedBytes);
  ASSERT_TRUE(static_cast<bool>(first));
  auto second = Buffer::zeros(allocator, leastPagedBytes);
  ASSERT_FALSE(static_cast<bool>(second));
  EXPECT_THAT(takeDiagnostic(second.takeError()).str(), HasSubstr("cannot allocate 1048576 bytes"));
  EXPECT_EQ(allocator->liveBytes(), leastPagedBytes);
  auto tooMany = Buffer::zeros(allocator, SIZE_MAX - 4096);
  EXPECT_FALSE(static_cast<bool>(tooMany));
  llvm::consumeError(tooMany.takeError());
}

TEST_F(Zeros, HandTheirPagesOver) {
  Tensor from = tensor(8, 512);
  for (int64_t i = 0; i < from.view.elementCount(); ++i)
    from.view.as<float>()[i] = static_cast<float>(i + 1);
  Tensor to = tensor(8, 1024);
  const size_t both = static_cast<size_t>(from.view.byteSize() + to.view.byteSize());
  EXPECT_EQ(allocator->liveBytes(), both);
  ASSERT_TRUE(from.movePagesTo(to, 8));
  EXPECT_EQ(residentPages(to.view.data, static_cast<size_t>(to.view.byteSize())),
            from.view.byteSize() / static_cast<int64_t>(pageBytes()));
  from = Tensor();
  EXPECT_EQ(allocator->liveBytes(), both / 3 * 2);
  EXPECT_EQ(allocator->peakBytes(), both);
  for (int64_t run = 0; run < 8; ++run)
    for (int64_t i = 0; i < 1024 * 128; ++i) {
      float expected = i < 512 * 128 ? static_cast<float>(run * 512 * 128 + i + 1) : 0.0f;
      ASSERT_EQ(to.view.as<float>()[run * 1024 * 128 + i], expected);
    }
  to = Tensor();
  EXPECT_EQ(allocator->liveBytes(), 0u);
}

TEST_F(Zeros, KeepTheirPagesWhereTheyCannotGo) {
  Tensor from = tensor(8, 512), to = tensor(8, 1024);
  from.view.as<float>()[5] = 3;
  Tensor sharing = from;
  EXPECT_FALSE(from.movePagesTo(to, 8));
  sharing = Tensor();
  Tensor uneven = tensor(8, 1023);
  EXPECT_FALSE(from.movePagesTo(uneven, 8));
  Tensor few = tensor(8, 16);
  EXPECT_FALSE(few.movePagesTo(to, 8));
  Tensor uninitialised =
      llvm::cantFail(Tensor::create(allocator, ElementType::Float, {8, 512, 128}));
  EXPECT_FALSE(uninitialised.movePagesTo(to, 8));
  EXPECT_EQ(from.view.as<float>()[5], 3);
  EXPECT_EQ(to.view.as<float>()[5], 0);
  EXPECT_TRUE(from.movePagesTo(to, 8));
  EXPECT_EQ(to.view.as<float>()[5], 3);
}

TEST(TensorOfConstant, ElementsOfLessThanAByteTakeOneEach) {
  const auto allocator = std::make_shared<Allocator>();
  struct Row {
    ElementType element;
    std::vector<uint8_t> packed;
    std::vector<int8_t> elements;
  };
  for (const Row& row : {Row{ElementType::Int4, {0x8F, 0x07}, {-1, -8, 7}},
                         Row{ElementType::UInt4, {0x8F, 0x07}, {15, 8, 7}},
                         Row{int2Type, {0xE4, 0x01}, {0, 1, -2, -1, 1}},
                         Row{uint2Type, {0xE4, 0x01}, {0, 1, 2, 3, 1}},
                         Row{ElementType::Float4E2M1, {0xF1}, {1, 15}}}) {
    std::vector<std::byte> bytes;
    for (uint8_t byte : row.packed)
      bytes.push_back(static_cast<std::byte>(byte));
    const auto count = static_cast<int64_t>(row.elements.size());
    const TensorRef constant = llvm::cantFail(makeTensor(row.element, {count}, bytes));
    const Tensor tensor = llvm::cantFail(Tensor::of(allocator, constant));
    EXPECT_EQ(tensor.view.byteSize(), count);
    const auto* first = tensor.view.as<int8_t>();
    EXPECT_EQ(std::vector<int8_t>(first, first + count), row.elements);
    EXPECT_EQ(packedBytes(tensor.view), bytes);
  }
}

} // namespace
} // namespace kvopt
