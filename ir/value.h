// Value: one tensor of a graph, with everything that reads it.
#pragma once

#include "ir/tensor.h"
#include "ir/type.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/iterator_range.h"

#include <iterator>
#include <optional>

namespace kvopt::onnx {
class ValueInfoProto;
} // namespace kvopt::onnx

namespace kvopt::ir {

class Graph;
class Node;
class UseIterator;
class Value;

/// One operand slot of a node, linked into the list of its value's readers. An absent optional
/// operand is a Use whose value is null.
class Use {
public:
  Use() = default;
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() { unlink(); }

  Value* value() const { return target; }
  /// The node that reads the value; it may be in a subgraph of the value's graph.
  Node& user() const { return *owner; }
  unsigned operandIndex() const { return index; }

private:
  friend class Node;
  friend class UseIterator;
  friend class Value;
  void link(Value* newTarget);
  void unlink();

  Value* target = nullptr;
  Node* owner = nullptr;
  Use* next = nullptr;
  Use** previousNext = nullptr;
  unsigned index = 0;
};

/// Walks the readers of one value. Relinking the current use is allowed with an early increment
/// only (llvm::make_early_inc_range).
class UseIterator {
public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = Use;
  using difference_type = std::ptrdiff_t;
  using pointer = Use*;
  using reference = Use&;

  UseIterator() = default;
  explicit UseIterator(Use* use) : current(use) {}
  Use& operator*() const { return *current; }
  Use* operator->() const { return current; }
  UseIterator& operator++();
  UseIterator operator++(int) {
    UseIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const UseIterator& other) const { return current == other.current; }
  bool operator!=(const UseIterator& other) const { return current != other.current; }

private:
  Use* current = nullptr;
};

/// A tensor with a name: a graph input, an initializer, or a node's result. Its address is stable
/// for its whole life. Names are unique within a graph at every instant, and differ from the names
/// that are visible from enclosing graphs.
class Value {
public:
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value();

  /// Empty only for an omitted optional result, which nothing may read.
  llvm::StringRef name() const { return valueName; }
  bool isAbsent() const { return valueName.empty(); }

  const TensorType& type() const { return tensorType; }
  void setType(TensorType type) { tensorType = std::move(type); }

  /// The node whose result this is; null for inputs and initializers.
  Node* producer() const { return producerNode; }
  unsigned resultIndex() const { return resultNumber; }
  Graph& graph() const { return *parent; }

  llvm::iterator_range<UseIterator> uses() const { return {UseIterator(firstUse), UseIterator()}; }
  bool hasUses() const { return firstUse != nullptr; }
  /// Exactly one operand slot reads it and it is no graph output.
  bool hasOneUse() const;
  /// Neither read by a node nor a graph output.
  bool isUnused() const { return !firstUse && outputSlots == 0; }
  bool isGraphInput() const { return kind == Kind::Input; }
  /// Of its own graph or of a subgraph that hands it out.
  bool isGraphOutput() const { return outputSlots != 0; }
  bool isInitializer() const { return static_cast<bool>(initializerData) || opaqueInitializer; }

  /// The contents, if they are fixed: an initializer that is no graph input, or the result of a
  /// Constant node. Null otherwise.
  const TensorData* constant() const;
  TensorRef constantRef() const;
  /// The contents of an initializer, also where a graph input of the same name may override them.
  const TensorRef& initializer() const { return initializerData; }

  /// Whether the contents of a constant may be replaced later, without regard to what else is equal
  /// to them now: nothing may read it as just any constant of the same contents.
  bool isReplaceable() const { return replaceable; }
  void setReplaceable() { replaceable = true; }

  /// What is known of the elements of an integer or bool tensor of rank 0 or 1 (row-major, bools as
  /// 0 and 1): constants and results of symbolic shape inference. nullopt if nothing is.
  std::optional<llvm::SmallVector<Dim, 4>> knownIntegers() const;
  void setKnownIntegers(std::optional<llvm::SmallVector<Dim, 4>> elements) {
    inferredIntegers = std::move(elements);
  }

  /// Makes every reader, and every graph output slot, take `replacement` instead. Output slots keep
  /// their name: the replacement takes it over, or is copied by an Identity node where it cannot
  /// (a graph input, another output, a value of an enclosing graph). Output slots of subgraphs that
  /// hand out this value hand out the replacement itself, which must be defined before them.
  void replaceAllUsesWith(Value& replacement);

  /// The message this value was declared by, or null.
  const onnx::ValueInfoProto* source() const { return sourceMessage; }
  void setSource(const onnx::ValueInfoProto* message) { sourceMessage = message; }

private:
  friend class Graph;
  friend class Node;
  friend class Use;
  enum class Kind { Result, Input, Initializer };
  Value() = default;
  void replaceSubgraphOutputs(Value& replacement);
  void replaceOwnOutputs(Value& replacement);

  llvm::StringRef valueName; // owned by the graph's name table
  TensorType tensorType;
  Node* producerNode = nullptr;
  Graph* parent = nullptr;
  Use* firstUse = nullptr;
  unsigned resultNumber = 0;
  unsigned outputSlots = 0;
  Kind kind = Kind::Result;
  bool opaqueInitializer = false; // sparse: declared, contents not interpreted
  bool replaceable = false;
  TensorRef initializerData;
  std::optional<llvm::SmallVector<Dim, 4>> inferredIntegers;
  const onnx::ValueInfoProto* sourceMessage = nullptr;
};

} // namespace kvopt::ir
