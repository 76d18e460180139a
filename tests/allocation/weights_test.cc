// Weights are read where they are: neither the allocator nor private memory grows with them.
#include "tests/equivalence/rewritten_model.h"
#include "tests/sanitized.h"
#include "tests/support/temporary_folder.h"

#include <fstream>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

/// Protocol buffer fields, as far as a model file needs them.
std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 128; value >>= 7)
    text += static_cast<char>(value | 128);
  return text + static_cast<char>(value);
}
std::string number(unsigned field, uint64_t value) { return varint(field * 8) + varint(value); }
std::string part(unsigned field, const std::string& contents) {
  return varint(field * 8 + 2) + varint(contents.size()) + contents;
}

std::string valueInfo(const std::string& name, unsigned type, const std::string& dims) {
  return part(1, name) + part(2, part(1, number(1, type) + part(2, dims)));
}
std::string entry(const std::string& key, const std::string& value) {
  return part(13, part(1, key) + part(2, value));
}

constexpr int64_t columns = 64;

/// rows = Gather(weights [rows,64], ids) with the weights in a file of their own, from `offset` on.
std::string embeddingModel(int64_t rows, int64_t offset) {
  std::string weights = number(1, static_cast<uint64_t>(rows)) + number(1, columns) + number(2, 1) +
                        part(8, "weights") + entry("location", "weights.bin") +
                        entry("offset", std::to_string(offset)) + number(14, 1);
  std::string open = part(1, part(2, "N"));
  std::string graph =
      part(1, part(1, "weights") + part(1, "ids") + part(2, "y") + part(4, "Gather")) +
      part(2, "g") + part(5, weights) + part(11, valueInfo("ids", 7, open)) +
      part(12, valueInfo("y", 1, open + part(1, number(1, columns))));
  return number(1, 8) + part(7, graph) + part(8, part(1, "") + number(2, 17));
}

/// Kilobytes of memory that belong to nobody else; 0 where the system does not tell.
int64_t privateKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kilobytes = 0; word == "RssAnon:" && status >> kilobytes)
      return kilobytes;
  return 0;
}

class WeightsTest : public testing::Test {
protected:
  struct Use {
    int64_t allocated = 0;
    int64_t privateKilobytes = 0;
  };
  /// Memory that reading one of every 64 rows takes.
  Use use(int64_t rows, int64_t offset) {
    std::ofstream(folder.path("model.onnx"), std::ios::binary) << embeddingModel(rows, offset);
    std::ofstream(folder.path("weights.bin"), std::ios::binary).flush();
    fs::resize_file(folder.path("weights.bin"),
                    static_cast<uintmax_t>(offset + rows * columns * int64_t{sizeof(float)}));
    int64_t before = privateKilobytes();
    auto model = valueOrThrow(importModel(folder.path("model.onnx"), toolkit.ops));
    successOrThrow(inferShapes(model->graph()));
    auto executor = valueOrThrow(Executor::create(*model, toolkit.runner->kernels()));
    for (int64_t row = 0; row < rows; row += 64) {
      TensorView id =
          TensorView::contiguous(ElementType::Int64, {1}, reinterpret_cast<std::byte*>(&row));
      std::vector<Tensor> outputs = valueOrThrow(executor->run(id));
      EXPECT_EQ(outputs[0].view.as<float>()[columns - 1], 0.0f);
    }
    return {static_cast<int64_t>(executor->allocator()->peakBytes()), privateKilobytes() - before};
  }

  TemporaryFolder folder;
  Toolkit toolkit;
};

constexpr int64_t fewRows = 1 << 12;  // 1 MiB
constexpr int64_t manyRows = 1 << 18; // 64 MiB

TEST_F(WeightsTest, AreUsedWhereTheyAre) {
  Use few = use(fewRows, 64);
  Use many = use(manyRows, 64);
  EXPECT_EQ(few.allocated, many.allocated);
  EXPECT_LT(many.allocated, 64 << 10);
#ifndef __SANITIZE_THREAD__ // which keeps notes of every access in private memory
  // AddressSanitizer keeps for a while what was freed.
  EXPECT_LT(many.privateKilobytes, isSanitized ? 32 << 10 : 8 << 10);
#endif
}

/// An offset that is a multiple of the element's size is enough.
TEST_F(WeightsTest, NeedNoMoreAlignmentThanTheirElement) {
  EXPECT_EQ(use(fewRows, 4).allocated, use(manyRows, 4).allocated);
}

/// Any other contents are copied, once.
TEST_F(WeightsTest, AreCopiedWhenTheyAreNotAligned) {
  int64_t difference = use(fewRows, 2).allocated - use(fewRows, 4).allocated;
  EXPECT_EQ(difference, fewRows * columns * int64_t{sizeof(float)});
}

} // namespace
} // namespace kvopt
