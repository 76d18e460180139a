// Through the model's messages, without what is large in them.
#include "ir/onnx/model_copy.h"

#include "ir/onnx/import.h"
#include "ir/onnx/writer.h"
#include "support/diagnostic.h"

namespace kvopt::ir {
namespace {

/// Initializers of fewer bytes are copied.
constexpr int64_t leastSharedBytes = 1024;

/// The graph and all within, depth first.
void collectGraphs(const Graph& graph, llvm::SmallVectorImpl<const Graph*>& graphs) {
  graphs.push_back(&graph);
  for (const Node& node : graph.nodes())
    for (const Graph* nested : node.subgraphs())
      collectGraphs(*nested, graphs);
}

/// The contents of `from` that were left out of what `copy` is a copy of; null where none were.
TensorRef leftOutOf(const Value& copy, const Graph& from) {
  const Value* original = from.findValue(copy.name());
  const bool isLarge = copy.initializer() && original && original->initializer() &&
                       original->initializer()->byteSize().value_or(0) >= leastSharedBytes;
  return isLarge ? original->initializer() : nullptr;
}

/// Puts the contents of `from` in the place of those that were left out.
void shareConstants(const Graph& from, Graph& to) {
  for (const std::unique_ptr<Value>& input : to.inputs())
    if (TensorRef data = leftOutOf(*input, from))
      to.setInputDefault(*input, std::move(data));
  llvm::SmallVector<Value*, 16> copies;
  for (const std::unique_ptr<Value>& initializer : to.initializers())
    copies.push_back(initializer.get());
  for (Value* copy : copies) {
    TensorRef data = leftOutOf(*copy, from);
    if (!data)
      continue;
    const std::string name = copy->name().str();
    Value& shared = to.addConstant(name, std::move(data));
    copy->replaceAllUsesWith(shared);
    to.removeInitializer(*copy);
    if (shared.name() != name)
      to.rename(shared, name);
  }
}

} // namespace

llvm::Expected<std::unique_ptr<Model>> copySharingConstants(const Model& model) {
  google::protobuf::Arena arena;
  // The name of no file: nobody reads what is left out before it is there.
  ExternalData leftOut("shared", leastSharedBytes);
  leftOut.takesInline = true;
  auto message = ModelWriter(model, arena, leftOut).write();
  if (!message)
    return message.takeError();
  std::string bytes;
  if (!(*message)->SerializePartialToString(&bytes))
    return ioError("cannot serialize");
  auto copy = importModelBytes(std::as_bytes(std::span<const char>(bytes)), model.folder,
                               model.graph().context().ops(), ModelLimits::none());
  if (!copy)
    return copy;
  llvm::SmallVector<const Graph*, 4> from;
  llvm::SmallVector<const Graph*, 4> to;
  collectGraphs(model.graph(), from);
  collectGraphs((*copy)->graph(), to);
  assert(from.size() == to.size());
  for (size_t i = 0; i < from.size(); ++i)
    shareConstants(*from[i], const_cast<Graph&>(*to[i])); // NOLINT: it is the copy's
  (*copy)->path = model.path;
  return copy;
}

} // namespace kvopt::ir
