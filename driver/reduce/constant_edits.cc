// Simpler constants and smaller extents.
#include "driver/reduce/constant_edits.h"

#include "ir/shapes/shape_inference.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <functional>
#include <set>

namespace kvopt::driver {
using namespace ir;

namespace {

constexpr int64_t mostContentBytes = int64_t{16} << 20;
/// Integers with more elements are data and not extents.
constexpr int64_t mostIntegers = 64;

/// Bytes of all elements; -1 if the tensor has no packed form.
int64_t bytesOf(const TensorData& tensor) { return tensor.byteSize().value_or(-1); }

TensorRef orNull(llvm::Expected<TensorRef> tensor) {
  if (tensor)
    return *tensor;
  llvm::consumeError(tensor.takeError());
  return nullptr;
}

/// Gives the initializer other contents. Readers keep its name.
void replaceContents(Graph& graph, Value& initializer, TensorRef contents) {
  const std::string name = initializer.name().str();
  Value& replacement = graph.addConstant(name, std::move(contents));
  initializer.replaceAllUsesWith(replacement);
  graph.removeInitializer(initializer);
  if (replacement.name() != name)
    graph.rename(replacement, name);
}

TensorRef simplerContents(const TensorData& tensor, Contents contents) {
  if (!isFloatingPoint(tensor.elementType()) && !isInteger(tensor.elementType()))
    return nullptr;
  const llvm::ArrayRef<int64_t> extents =
      contents == Contents::Scalar ? llvm::ArrayRef<int64_t>() : tensor.shape();
  if (contents == Contents::Scalar && tensor.shape().empty())
    return nullptr;
  const int64_t count = contents == Contents::Scalar ? 1 : tensor.elementCount();
  auto bytes = checkedByteSize(tensor.elementType(), count);
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return nullptr;
  }
  if (*bytes > mostContentBytes)
    return nullptr;
  return orNull(makeTensor(tensor.elementType(), extents,
                           std::vector<std::byte>(static_cast<size_t>(*bytes))));
}

/// Whether all bytes are zeros. False if they cannot be read.
bool isZero(const TensorData& tensor) {
  if (bytesOf(tensor) < 0 || bytesOf(tensor) > mostContentBytes)
    return false;
  auto bytes = tensor.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return false;
  }
  return llvm::all_of(*bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

/// The part of the tensor at the start of each axis; null if it cannot be cut.
TensorRef croppedTo(const TensorData& tensor, llvm::ArrayRef<int64_t> extents) {
  const auto width = byteWidth(tensor.elementType());
  if (!width || bytesOf(tensor) > mostContentBytes)
    return nullptr;
  auto bytes = tensor.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    return nullptr;
  }
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent; // At most that of the tensor.
  std::vector<std::byte> cropped(static_cast<size_t>(count) * *width);
  llvm::SmallVector<int64_t, 4> index(extents.size(), 0);
  for (int64_t element = 0; element < count; ++element) {
    int64_t from = 0;
    for (size_t axis = 0; axis < extents.size(); ++axis)
      from = from * tensor.shape()[axis] + index[axis];
    std::memcpy(cropped.data() + static_cast<size_t>(element) * *width,
                bytes->data() + static_cast<size_t>(from) * *width, *width);
    for (size_t axis = extents.size(); axis-- > 0;) {
      if (++index[axis] < extents[axis])
        break;
      index[axis] = 0;
    }
  }
  return orNull(makeTensor(tensor.elementType(), extents, std::move(cropped)));
}

/// Division of multiples of one extent.
struct Scaling {
  int64_t extent;
  int64_t smaller;

  int64_t operator()(int64_t number) const {
    return number >= extent && number % extent == 0 ? number / extent * smaller : number;
  }

  /// The type with scaled extents.
  TensorType operator()(const TensorType& type) const {
    if (!type.hasRank())
      return type;
    Shape shape;
    for (const Dim& dim : type.shape())
      shape.push_back(dim.value() ? Dim::fixed((*this)(*dim.value())) : dim);
    return TensorType(type.elementType(), std::move(shape));
  }

  /// The tensor with scaled extents or integers; null if it cannot be changed, and the tensor
  /// itself if nothing changes.
  TensorRef operator()(const TensorRef& tensor) const {
    llvm::SmallVector<int64_t, 4> extents;
    for (int64_t each : tensor->shape())
      extents.push_back((*this)(each));
    if (llvm::ArrayRef<int64_t>(extents) != tensor->shape())
      return croppedTo(*tensor, extents);
    if (tensor->elementType() != ElementType::Int64 || tensor->shape().size() > 1)
      return tensor;
    auto numbers = integerValues(*tensor, mostIntegers);
    if (!numbers)
      return tensor;
    llvm::SmallVector<int64_t, 8> scaled;
    for (int64_t number : *numbers)
      scaled.push_back((*this)(number));
    if (scaled == *numbers)
      return tensor;
    return tensor->shape().empty() ? int64Scalar(scaled.front()) : int64Tensor(scaled);
  }
};

bool scaleConstantNode(Node& node, const Scaling& scaling) {
  const Attribute* value = node.is("Constant") ? node.attribute("value") : nullptr;
  if (!value || value->kind() != AttributeKind::Tensor || value->isReference())
    return true;
  const TensorRef scaled = scaling(value->tensorValue());
  if (scaled && scaled != value->tensorValue())
    node.setAttribute("value", Attribute::ofTensor(scaled));
  return scaled != nullptr;
}

} // namespace

std::vector<std::string> initializerNames(const Graph& graph, int64_t leastBytes) {
  std::vector<std::string> names;
  for (const std::unique_ptr<Value>& value : graph.initializers())
    if (value->initializer() && bytesOf(*value->initializer()) >= leastBytes)
      names.push_back(value->name().str());
  return names;
}

bool turnIntoInputs(Graph& graph, llvm::ArrayRef<std::string> names) {
  bool changes = false;
  for (const std::string& name : names) {
    Value* value = graph.findValue(name);
    if (!value || value->producer() || value->isGraphInput() || !value->initializer() ||
        value->isGraphOutput())
      continue;
    const TensorData& tensor = *value->initializer();
    Value& input = graph.addInput(graph.freshName(name),
                                  TensorType::fixed(tensor.elementType(), tensor.shape()));
    value->replaceAllUsesWith(input);
    graph.removeInitializer(*value);
    graph.rename(input, name);
    changes = true;
  }
  return changes;
}

bool simplify(Graph& graph, llvm::ArrayRef<std::string> names, Contents contents) {
  bool changes = false;
  for (const std::string& name : names) {
    Value* value = graph.findValue(name);
    if (!value || value->producer() || value->isGraphInput() || !value->initializer())
      continue;
    if (contents == Contents::Zeros && isZero(*value->initializer()))
      continue;
    TensorRef simpler = simplerContents(*value->initializer(), contents);
    if (!simpler)
      continue;
    replaceContents(graph, *value, std::move(simpler));
    changes = true;
  }
  return changes;
}

std::vector<int64_t> fixedExtents(const Graph& graph) {
  std::set<int64_t, std::greater<>> extents;
  const auto note = [&](int64_t extent) {
    if (extent > 1)
      extents.insert(extent);
  };
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->type().hasRank())
      for (const Dim& dim : input->type().shape())
        note(dim.value().value_or(0));
  for (const std::unique_ptr<Value>& value : graph.initializers())
    if (value->initializer())
      llvm::for_each(value->initializer()->shape(), note);
  return {extents.begin(), extents.end()};
}

bool scaleExtents(Model& model, int64_t extent, int64_t smaller) {
  const Scaling scaling{extent, smaller};
  Graph& graph = model.graph();
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (input->initializer())
      return false;
    input->setType(scaling(input->type()));
  }
  std::vector<Value*> initializers;
  for (const std::unique_ptr<Value>& value : graph.initializers())
    if (value->initializer())
      initializers.push_back(value.get());
  for (Value* value : initializers) {
    TensorRef scaled = scaling(value->initializer());
    if (!scaled)
      return false;
    if (scaled != value->initializer())
      replaceContents(graph, *value, std::move(scaled));
  }
  bool isPossible = true;
  forEachGraph(graph, [&](Graph& nested) {
    for (Node& node : nested.nodes()) {
      isPossible = isPossible && scaleConstantNode(node, scaling);
      for (Value& result : node.results()) {
        // Outputs keep a declaration, which must agree with the other extents.
        result.setType(result.isGraphOutput() ? scaling(result.type())
                                              : TensorType(result.type().elementType()));
        result.setKnownIntegers(std::nullopt);
      }
    }
  });
  if (!isPossible)
    return false;
  if (llvm::Error error = inferShapes(graph)) {
    llvm::consumeError(std::move(error));
    return false;
  }
  model.markEdited();
  return true;
}

} // namespace kvopt::driver
