// Memory of contestants, and their computations.
#include "bench/attention_contest.h"

#include "bench/bench_context.h"
#include "runtime/attention/attention_call.h"
#include "runtime/memory/page_memory.h"
#include "support/format.h"
#include "support/half.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

constexpr int64_t coldBytes = 300'000'000;
constexpr int64_t mostLayers = 400; // more layers take engines long to load
constexpr int64_t warmLayers = 16;  // spreads the cost of calling an engine
constexpr int64_t prefillLayers = 4;
constexpr int64_t spareRows = 64;

/// Numbers in [-1/2, 1/2) that f16 represents exactly and that depend on seed and position.
void fillWithNumbers(const TensorView& tensor, uint32_t seed) {
  for (int64_t i = 0, count = tensor.elementCount(); i < count; ++i) {
    uint32_t bits = (static_cast<uint32_t>(i) ^ seed * 0x85EBCA6Bu) * 0x9E3779B1u;
    bits = (bits ^ bits >> 15) * 0x85EBCA77u;
    const float number = static_cast<float>(bits >> 24) / 256 - 0.5f;
    if (tensor.element == ElementType::Float)
      tensor.as<float>()[i] = number;
    else
      tensor.as<uint16_t>()[i] = floatToF16(number);
  }
}

CachePair makePair(const ContestCase& given, int64_t rows) {
  const AttentionShape& shape = given.shape;
  return {OwnedTensor(given.element, {1, shape.kvHeads, rows, shape.keyWidth}),
          OwnedTensor(given.element, {1, shape.kvHeads, rows, shape.valueWidth})};
}

/// Copies the first `rows` rows of every head.
void copyRows(const OwnedTensor& from, const OwnedTensor& to, int64_t rows) {
  for (int64_t head = 0; head < from.view().shape[1]; ++head)
    std::memcpy(to.row(head, 0), from.row(head, 0), static_cast<size_t>(rows * from.rowBytes()));
}

/// View of tensor [1,S,H,D] as [1,H,S,D].
TensorView headsFirst(const OwnedTensor& tensor) {
  TensorView view = tensor.view();
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

class Ours final : public Contestant {
public:
  Ours(const ContestMemory& shared, const Node& node, ThreadPool& pool)
      : memory(shared), context(node, pool), rows{shared.given.rows} {}

  llvm::Error turn() override {
    for (int64_t layer = 0; layer < memory.given.layers(); ++layer) {
      const CachePair& cache = memory.cache(layer);
      append(cache.key, memory.key);
      append(cache.value, memory.value);
      AttentionOperands operands;
      operands.query = headsFirst(memory.query);
      operands.key = cache.key.view();
      operands.value = cache.value.view();
      operands.totalLengths = rows;
      operands.causal = !memory.given.isDecode();
      operands.scale =
          static_cast<float>(1 / std::sqrt(static_cast<double>(memory.given.shape.keyWidth)));
      if (llvm::Error error =
              runAttention(context, operands, headsFirst(memory.outs[static_cast<size_t>(layer)])))
        return error;
    }
    return llvm::Error::success();
  }

private:
  void append(const OwnedTensor& cache, const OwnedTensor& fresh) const {
    const ContestCase& given = memory.given;
    for (int64_t row = 0; row < given.newRows; ++row)
      for (int64_t head = 0; head < given.shape.kvHeads; ++head)
        std::memcpy(cache.row(head, given.rows - given.newRows + row), fresh.row(row, head),
                    static_cast<size_t>(fresh.rowBytes()));
  }

  const ContestMemory& memory;
  BenchContext context;
  std::vector<int64_t> rows;
};

class Baseline final : public Contestant {
public:
  explicit Baseline(OnnxRuntimeSession opened) : session(std::move(opened)) {}

  llvm::Error turn() override { return session.run(); }

  llvm::Error bind(const BaselineModel& model, const ContestMemory& memory) {
    const BaselineExtents extents = extentsOf(model);
    llvm::Error error = llvm::Error::success();
    const auto input = [&](const std::string& name, const TensorView& tensor) {
      if (!error)
        error = session.bindInput(name, tensor);
    };
    const auto output = [&](const std::string& name, const TensorView& tensor) {
      if (!error)
        error = session.bindOutput(name, tensor);
    };
    const auto as = [&](const OwnedTensor& tensor, const std::vector<int64_t>& shape) {
      return TensorView::contiguous(model.element, shape, tensor.view().data);
    };
    input("query", as(memory.query, extents.query));
    input("key", as(memory.key, extents.key));
    input("value", as(memory.value, extents.value));
    if (isInPlace(model.spelling)) {
      const bool isNarrow = model.spelling == BaselineSpelling::GroupQuery;
      const ElementType element = isNarrow ? ElementType::Int32 : ElementType::Int64;
      const auto number = [&](const char* name, int64_t content, std::vector<int64_t> shape) {
        lengths.emplace_back(element, shape);
        const TensorView& view = lengths.back().view();
        if (isNarrow)
          *view.as<int32_t>() = static_cast<int32_t>(content);
        else
          *view.as<int64_t>() = content;
        input(name, view);
      };
      number("row", model.rows - 1, {1});
      number("rows", model.rows, isNarrow ? std::vector<int64_t>{} : std::vector<int64_t>{1});
    }
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      const auto index = static_cast<size_t>(layer % memory.given.cacheCount());
      const auto& pasts = isInPlace(model.spelling) ? memory.caches : memory.pasts;
      const auto& presents = isInPlace(model.spelling) ? memory.caches : memory.presents;
      input(formatted("past_key_{}", layer), as(pasts[index].key, extents.pastKey));
      input(formatted("past_value_{}", layer), as(pasts[index].value, extents.pastValue));
      output(formatted("out_{}", layer), as(memory.outs[static_cast<size_t>(layer)], extents.out));
      output(formatted("present_key_{}", layer), as(presents[index].key, extents.presentKey));
      output(formatted("present_value_{}", layer), as(presents[index].value, extents.presentValue));
    }
    return error;
  }

  /// Runs all layers once. Checks that the last row is at its place, and that the results equal the
  /// existing ones.
  llvm::Error check(const BaselineModel& model, const ContestMemory& memory) {
    std::vector<float> expected;
    for (const OwnedTensor& out : memory.outs)
      for (int64_t i = 0; i < out.view().elementCount(); ++i)
        expected.push_back(out.number(i));
    for (const OwnedTensor& out : memory.outs) // NaN
      std::memset(out.view().data, 0xff, static_cast<size_t>(out.view().byteSize()));
    const CachePair& last = (isInPlace(model.spelling) ? memory.caches : memory.presents).back();
    const int64_t head = model.shape.kvHeads - 1;
    std::byte* row = last.key.row(head, model.rows - 1);
    const auto rowBytes = static_cast<size_t>(last.key.rowBytes());
    std::memset(row, 0, rowBytes);
    if (llvm::Error error = session.run())
      return error;
    if (std::memcmp(row, memory.key.row(model.newRows - 1, head), rowBytes) != 0)
      return unsupported("the last row is not in the cache's memory");
    // Sums of numbers below 1/2 with weights that sum to 1; f16 has 11 bits.
    const float tolerance = model.element == ElementType::Float ? 1e-5f : 2e-3f;
    const float* wanted = expected.data();
    for (const OwnedTensor& out : memory.outs)
      for (int64_t i = 0; i < out.view().elementCount(); ++i, ++wanted)
        if (!(std::abs(out.number(i) - *wanted) <= tolerance))
          return unsupported("a result is {} instead of {}", out.number(i), *wanted);
    return llvm::Error::success();
  }

private:
  OnnxRuntimeSession session;
  std::vector<OwnedTensor> lengths;
};

} // namespace

int64_t ContestCase::layers() const {
  if (!isDecode())
    return prefillLayers;
  return warm ? warmLayers : std::clamp<int64_t>(coldBytes / validBytes() + 1, 2, mostLayers);
}

double ContestCase::operations() const {
  // Row i of S sees T - S + i + 1 keys.
  const double pairs = static_cast<double>(newRows) *
                       (static_cast<double>(rows) - (static_cast<double>(newRows) - 1) / 2);
  return 2 * pairs * static_cast<double>(shape.queryHeads * (shape.keyWidth + shape.valueWidth));
}

int64_t ContestCase::capacity() const { return rows + spareRows; }

OwnedTensor::OwnedTensor(ElementType element, llvm::ArrayRef<int64_t> shape) {
  int64_t bytes = TensorView::contiguous(element, shape, nullptr).byteSize();
  memory = llvm::cantFail(Buffer::zeros(std::make_shared<Allocator>(), static_cast<size_t>(bytes)));
  if (memory->size() >= largePageBytes)
    preferLargePages(memory->data(), memory->size());
  tensor = TensorView::contiguous(element, shape, memory->data());
}

float OwnedTensor::number(int64_t index) const {
  return tensor.element == ElementType::Float ? tensor.as<float>()[index]
                                              : f16ToFloat(tensor.as<uint16_t>()[index]);
}

ContestMemory::ContestMemory(const ContestCase& description) : given(description) {
  const AttentionShape& shape = given.shape;
  query = OwnedTensor(given.element, {1, given.newRows, shape.queryHeads, shape.keyWidth});
  key = OwnedTensor(given.element, {1, given.newRows, shape.kvHeads, shape.keyWidth});
  value = OwnedTensor(given.element, {1, given.newRows, shape.kvHeads, shape.valueWidth});
  for (int64_t layer = 0; layer < given.layers(); ++layer)
    outs.push_back(
        OwnedTensor(given.element, {1, given.newRows, shape.queryHeads, shape.valueWidth}));
  uint32_t seed = 1;
  for (const OwnedTensor* tensor : {&query, &key, &value})
    fillWithNumbers(tensor->view(), seed++);
  for (int64_t i = 0; i < given.cacheCount(); ++i) {
    caches.push_back(makePair(given, given.capacity()));
    pasts.push_back(makePair(given, given.rows - given.newRows));
    presents.push_back(makePair(given, given.rows));
    for (OwnedTensor CachePair::*side : {&CachePair::key, &CachePair::value}) {
      fillWithNumbers((caches.back().*side).view(), seed++);
      copyRows(caches.back().*side, pasts.back().*side, given.rows - given.newRows);
      // Otherwise the first turn would pay for untouched pages.
      copyRows(caches.back().*side, presents.back().*side, given.rows);
    }
  }
}

std::unique_ptr<Contestant> makeOurs(const ContestMemory& memory, const Node& node,
                                     ThreadPool& pool) {
  return std::make_unique<Ours>(memory, node, pool);
}

llvm::Expected<std::unique_ptr<Contestant>>
makeBaseline(const OnnxRuntime& runtime, BaselineSpelling spelling, const ContestMemory& memory,
             unsigned threads, bool spins, const OpRegistry& ops) {
  const ContestCase& given = memory.given;
  const BaselineModel model{spelling,   given.shape,   given.element,   given.layers(),
                            given.rows, given.newRows, given.capacity()};
  if (std::string why = whyImpossible(model); !why.empty())
    return unsupported("{}", why);
  llvm::SmallString<128> path;
  if (std::error_code code = llvm::sys::fs::createTemporaryFile("kvopt-baseline", "onnx", path))
    return ioError("cannot make a temporary file: {}", code.message());
  const llvm::FileRemover remover(path);
  if (llvm::Error error = writeBaselineModel(model, ops, path.str().str()))
    return error;
  auto session = runtime.open(path.str().str(), threads, spins);
  if (!session)
    return session.takeError();
  auto baseline = std::make_unique<Baseline>(std::move(*session));
  if (llvm::Error error = baseline->bind(model, memory))
    return error;
  if (llvm::Error error = baseline->check(model, memory))
    return error;
  return baseline;
}

} // namespace kvopt
