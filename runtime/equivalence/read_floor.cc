// Memory that a decode step reads, and the fastest way to read it.
#include "runtime/equivalence/read_floor.h"

#include "ir/graph.h"
#include "runtime/exec/execution_plan.h"
#include "runtime/simd/stream_read.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <atomic>
#include <chrono>

namespace kvopt::runtime {
using namespace ir;
using namespace simd;

int64_t MemorySpans::bytes() const {
  int64_t total = 0;
  for (std::span<const std::byte> piece : pieces)
    total += static_cast<int64_t>(piece.size());
  return total;
}

namespace {

bool isLookup(const Use& use) {
  const Node& reader = use.user();
  llvm::StringRef name = reader.op().type();
  return (name == "Gather" || name == "GatherBlockQuantized") && use.operandIndex() == 0 &&
         reader.intAttr(name == "Gather" ? "axis" : "gather_axis", 0) == 0;
}

/// A scalar is not a table: its only row is always read.
bool isTable(const Value& value, const TensorData& contents) {
  return !contents.shape().empty() && contents.shape()[0] > 1 &&
         llvm::all_of(value.uses(), isLookup);
}

int64_t totalBytes(llvm::ArrayRef<TensorRef> constants) {
  int64_t total = 0;
  for (const TensorRef& constant : constants)
    total += constant->byteSize().value_or(0);
  return total;
}

std::vector<TensorRef> constantsOf(const Graph& graph) {
  std::vector<TensorRef> found;
  for (const Node* node : liveNodes(graph)) {
    for (const Use& use : node->operands()) {
      if (!use.value())
        continue;
      TensorRef contents = use.value()->constantRef();
      if (contents && contents->byteSize().value_or(0) > 0 && !isTable(*use.value(), *contents))
        found.push_back(std::move(contents));
    }
    std::optional<std::vector<TensorRef>> least;
    for (const NamedAttribute& attribute : node->attributes())
      for (const std::unique_ptr<Graph>& branch : attribute.value.graphs()) {
        std::vector<TensorRef> within = constantsOf(*branch);
        if (!least || totalBytes(within) < totalBytes(*least))
          least = std::move(within);
      }
    if (least)
      found.insert(found.end(), least->begin(), least->end());
  }
  return found;
}

/// Adds a strided view's elements in as few pieces as possible.
void addPieces(const TensorView& view, MemorySpans& spans) {
  if (view.elementCount() == 0)
    return;
  // Axes from `inner` on are contiguous.
  unsigned inner = view.rank();
  int64_t run = 1;
  while (inner > 0 && (view.strides[inner - 1] == run || view.shape[inner - 1] == 1))
    run *= view.shape[--inner];
  const auto width = static_cast<int64_t>(*byteWidth(view.element));
  Extents index(inner, 0);
  for (;;) {
    int64_t offset = 0;
    for (unsigned axis = 0; axis < inner; ++axis)
      offset += index[axis] * view.strides[axis];
    spans.pieces.push_back({view.data + offset * width, static_cast<size_t>(run * width)});
    unsigned axis = inner;
    while (axis > 0 && ++index[axis - 1] == view.shape[axis - 1])
      index[--axis] = 0;
    if (axis == 0)
      return;
  }
}

} // namespace

llvm::Expected<WeightSpans> weightSpans(const Graph& graph) {
  WeightSpans weights;
  llvm::DenseSet<const std::byte*> seen;
  for (TensorRef& constant : constantsOf(graph)) {
    llvm::Expected<std::span<const std::byte>> bytes = constant->bytes();
    if (!bytes)
      return bytes.takeError();
    if (!seen.insert(bytes->data()).second)
      continue;
    weights.spans.pieces.push_back(*bytes);
    weights.constants.push_back(std::move(constant));
  }
  return weights;
}

llvm::Expected<MemorySpans> cacheSpans(const Session& session) {
  MemorySpans spans;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const ManifestCache& cache = session.cacheInfo(i);
    llvm::Expected<Tensor> rows = session.cacheRows(i);
    if (!rows)
      return rows.takeError();
    if (rows->owner)
      spans.owners.push_back(rows->owner);
    const TensorView& view = rows->view;
    const auto axis = static_cast<unsigned>(cache.sequenceAxis);
    int64_t end = std::min(view.shape[axis], session.length());
    int64_t begin = cache.window > 0 ? std::max<int64_t>(0, end - cache.window) : 0;
    addPieces(sliceAxis(view, axis, begin, end), spans);
  }
  return spans;
}

double readSeconds(llvm::ArrayRef<const MemorySpans*> spans, ThreadPool& pool) {
  // Enough pieces for all threads to end at about the same time, but few enough for long sequential
  // reads.
  constexpr size_t leastPiece = size_t{1} << 16;
  size_t total = 0;
  for (const MemorySpans* part : spans)
    total += static_cast<size_t>(part->bytes());
  const size_t share = std::max(leastPiece, total / (size_t{8} * pool.threads()) + 1);
  std::vector<std::span<const std::byte>> pieces;
  for (const MemorySpans* part : spans)
    for (std::span<const std::byte> piece : part->pieces)
      for (; !piece.empty(); piece = piece.subspan(std::min(share, piece.size())))
        pieces.push_back(piece.first(std::min(share, piece.size())));

  std::atomic<uint64_t> folded{0};
  auto start = std::chrono::steady_clock::now();
  pool.parallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    std::span<const std::byte> piece = pieces[static_cast<size_t>(i)];
    folded.fetch_xor(streamRead(piece.data(), piece.size()), std::memory_order_relaxed);
  });
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

} // namespace kvopt::runtime
