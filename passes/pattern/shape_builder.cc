// Shape vectors: constants where extents are fixed, otherwise the Shape of a graph input.
#include "passes/pattern/shape_builder.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::pattern {
using namespace ir;

namespace {

/// Maximum depth of a polynomial; deeper ones cost too many nodes.
constexpr unsigned maxPolynomialDepth = 8;
/// Maximum number of readers of an input that are searched for a reusable Shape.
constexpr unsigned maxSearchedReaders = 64;

/// Axes of extent 1 whose removal turns `wide` into `narrow`; nullopt if no such axes exist.
std::optional<std::vector<int64_t>> insertedUnits(llvm::ArrayRef<Dim> narrow,
                                                  llvm::ArrayRef<Dim> wide) {
  if (narrow.size() >= wide.size())
    return std::nullopt;
  std::vector<int64_t> inserted;
  size_t next = 0;
  for (size_t axis = 0; axis < wide.size(); ++axis) {
    bool canSkip = inserted.size() < wide.size() - narrow.size();
    if (next < narrow.size() && wide[axis].isKnownEqual(narrow[next]))
      ++next;
    else if (canSkip && wide[axis].value() == 1)
      inserted.push_back(static_cast<int64_t>(axis));
    else
      return std::nullopt;
  }
  return inserted;
}

} // namespace

bool isKnownSameShape(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b) {
  return a.size() == b.size() && llvm::all_of(llvm::zip(a, b), [](const auto& pair) {
           return std::get<0>(pair).isKnownEqual(std::get<1>(pair));
         });
}

Value* ShapeBuilder::shapeEntry(Value& input, unsigned axis) {
  Graph& graph = rewriter.graph();
  if (graph.opsetVersion() < 15) {
    Value& whole = rewriter.create("Shape", {&input}, {}, 1, "input_shape").result();
    Value& index = rewriter.constant("axis", int64Tensor({static_cast<int64_t>(axis)}));
    return &rewriter.create("Gather", {&whole, &index}, {}, 1, "extent").result();
  }
  auto start = static_cast<int64_t>(axis);
  unsigned searched = 0;
  for (const Use& use : input.uses()) {
    Node& reader = use.user();
    if (&reader.graph() == &graph && reader.is("Shape") && reader.intAttr("start", 0) == start &&
        reader.intAttr("end", 0) == start + 1) {
      // The Shape depends on the input only, so at the front of the graph every node may read it.
      if (&reader != graph.firstNode())
        graph.moveBefore(reader, graph.firstNode());
      return &reader.result();
    }
    if (++searched == maxSearchedReaders)
      break;
  }
  return &rewriter
              .create("Shape", {&input}, attrs({{"start", start}, {"end", start + 1}}), 1, "extent")
              .result();
}

Value* ShapeBuilder::readInput(const Dim& extent) {
  // A branch also sees the inputs of the enclosing graphs.
  for (const Graph* graph = &rewriter.graph(); graph;
       graph = graph->parentNode() ? &graph->parentNode()->graph() : nullptr)
    for (const std::unique_ptr<Value>& input : graph->inputs()) {
      const TensorType& type = input->type();
      for (unsigned axis = 0; type.hasRank() && axis < type.rank(); ++axis)
        if (type.shape()[axis].isKnownEqual(extent))
          return shapeEntry(*input, axis);
    }
  return nullptr;
}

Value* ShapeBuilder::element(const Dim& extent, unsigned depth) {
  for (const auto& entry : made)
    if (entry.first.isKnownEqual(extent))
      return entry.second;
  Value* value = nullptr;
  if (std::optional<int64_t> constant = extent.value()) {
    value = &rewriter.constant("extent", int64Tensor({*constant}));
  } else if (extent.isUnknown() || depth == maxPolynomialDepth) {
    return nullptr;
  } else if (Value* read = readInput(extent)) {
    value = read;
  } else {
    // extent = symbol * factor + rest, by Horner's scheme.
    Dim symbol = Dim::symbol(extent.symbols().front());
    Dim rest = extent.substitute([&](llvm::StringRef name) {
      return Dim::symbol(name).isKnownEqual(symbol) ? std::optional<Dim>(Dim::fixed(0))
                                                    : std::nullopt;
    });
    std::optional<Dim> factor = (extent - rest).dividedBy(symbol);
    value = readInput(symbol);
    if (!factor || !value)
      return nullptr;
    if (factor->value() != 1) {
      Value* times = element(*factor, depth + 1);
      if (!times)
        return nullptr;
      value = &rewriter.create("Mul", {value, times}, {}, 1, "extent").result();
    }
    if (rest.value() != 0) {
      Value* more = element(rest, depth + 1);
      if (!more)
        return nullptr;
      value = &rewriter.create("Add", {value, more}, {}, 1, "extent").result();
    }
  }
  made.push_back({extent, value});
  return value;
}

Value* ShapeBuilder::vector(llvm::ArrayRef<Dim> extents) {
  llvm::SmallVector<Value*, 6> parts;
  llvm::SmallVector<int64_t, 6> constants;
  auto flush = [&] {
    if (!constants.empty())
      parts.push_back(&rewriter.constant("extents", int64Tensor(constants)));
    constants.clear();
  };
  for (const Dim& extent : extents) {
    if (std::optional<int64_t> constant = extent.value()) {
      constants.push_back(*constant);
      continue;
    }
    flush();
    Value* part = element(extent);
    if (!part)
      return nullptr;
    parts.push_back(part);
  }
  flush();
  if (parts.size() == 1)
    return parts.front();
  if (parts.empty())
    return &rewriter.constant("extents", int64Tensor({}));
  return &rewriter.create("Concat", parts, attrs({{"axis", 0}}), 1, "extents").result();
}

Value* ShapeBuilder::changeUnits(const char* op, Value& data, std::vector<int64_t> axes,
                                 llvm::StringRef hint) {
  if (rewriter.graph().opsetVersion() >= 13) {
    Value& list = rewriter.constant("axes", int64Tensor(axes));
    return &rewriter.create(op, {&data, &list}, {}, 1, hint).result();
  }
  return &rewriter.create(op, {&data}, attrs({{"axes", axes}}), 1, hint).result();
}

Value* ShapeBuilder::reshape(Value& data, llvm::ArrayRef<Dim> extents, llvm::StringRef hint) {
  const TensorType& type = data.type();
  if (type.hasRank() && isKnownSameShape(type.shape(), extents))
    return &data;
  if (type.hasRank())
    if (auto inserted = insertedUnits(type.shape(), extents))
      return changeUnits("Unsqueeze", data, *inserted, hint);
  if (type.hasRank())
    if (auto removed = insertedUnits(extents, type.shape()))
      return changeUnits("Squeeze", data, *removed, hint);
  // Entries of the shape operand of a Reshape without `allowzero`.
  Shape entries;
  llvm::SmallVector<size_t, 4> open;
  bool othersPositive = true;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const Dim& extent = extents[axis];
    bool isPositive = extent.isKnownPositive();
    bool isCopied = !extent.value() && type.hasRank() && axis < type.rank() &&
                    type.shape()[axis].isKnownEqual(extent);
    entries.push_back(isCopied ? Dim::fixed(0) : extent);
    if (!extent.value() && !isCopied)
      open.push_back(axis);
    else
      othersPositive &= isPositive;
  }
  bool isInferred = open.size() == 1 && othersPositive;
  if (isInferred)
    entries[open.front()] = Dim::fixed(-1);
  // An entry that is read at run time may be 0 and must then mean the extent 0.
  bool allowsZero = !isInferred && !open.empty() && rewriter.graph().opsetVersion() >= 14;
  if (allowsZero)
    entries.assign(extents.begin(), extents.end());
  Value* shape = vector(entries);
  if (!shape)
    return nullptr;
  return &rewriter
              .create("Reshape", {&data, shape},
                      allowsZero ? attrs({{"allowzero", 1}}) : AttributeList(), 1, hint)
              .result();
}

Value* ShapeBuilder::expand(Value& data, llvm::ArrayRef<Dim> extents, llvm::StringRef hint) {
  if (data.type().hasRank() && isKnownSameShape(data.type().shape(), extents))
    return &data;
  Value* shape = vector(extents);
  return shape ? &rewriter.create("Expand", {&data, shape}, {}, 1, hint).result() : nullptr;
}

} // namespace kvopt::pattern
