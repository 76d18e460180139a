// Value: one tensor of a graph and the list of its readers.
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

/// One operand of a node, linked into the list of its value's readers. An absent optional operand
/// is a Use with a null value.
class Use {
public:
  Use() = default;
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() { unlink(); }

  Value* value() const { return target; }
  /// Node that reads the value; it may be in a subgraph of the value's graph.
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

/// Iterates over the readers of one value. The current use may be relinked only with an early
/// increment (llvm::make_early_inc_range).
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

/// A named tensor: a graph input, an initializer, or a node's result. Its address is stable. At any
/// time, its name is unique within its graph and differs from the names of enclosing graphs that
/// are visible there.
class Value {
public:
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value();

  /// Empty only for an omitted optional result, which cannot be read.
  llvm::StringRef name() const { return valueName; }
  bool isAbsent() const { return valueName.empty(); }

  const TensorType& type() const { return tensorType; }
  void setType(TensorType type) { tensorType = std::move(type); }

  /// Node that produces this value; null for inputs and initializers.
  Node* producer() const { return producerNode; }
  unsigned resultIndex() const { return resultNumber; }
  Graph& graph() const { return *parent; }

  llvm::iterator_range<UseIterator> uses() const { return {UseIterator(firstUse), UseIterator()}; }
  bool hasUses() const { return firstUse != nullptr; }
  /// Whether exactly one operand reads the value and it is not a graph output.
  bool hasOneUse() const;
  /// Whether the value is neither read by a node nor a graph output.
  bool isUnused() const { return !firstUse && outputSlots == 0; }
  bool isGraphInput() const { return kind == Kind::Input; }
  /// Whether the value is an output of its own graph or of a subgraph that returns it.
  bool isGraphOutput() const { return outputSlots != 0; }
  bool isInitializer() const { return static_cast<bool>(initializerData) || opaqueInitializer; }

  /// Contents that cannot change: those of an initializer that is not a graph input, or of a
  /// Constant node. Otherwise null.
  const TensorData* constant() const;
  TensorRef constantRef() const;
  /// Contents of an initializer, even if a graph input of the same name may override them.
  const TensorRef& initializer() const { return initializerData; }

  /// Whether the contents of a constant may be replaced later, independently of other constants
  /// that are equal now. Such a constant must not be merged with constants of the same contents.
  bool isReplaceable() const { return replaceable; }
  void setReplaceable() { replaceable = true; }

  /// Known elements of an integer or bool tensor of rank 0 or 1 (in row-major order, bools as 0 and
  /// 1), from constants and symbolic shape inference. nullopt if nothing is known.
  std::optional<llvm::SmallVector<Dim, 4>> knownIntegers() const;
  void setKnownIntegers(std::optional<llvm::SmallVector<Dim, 4>> elements) {
    inferredIntegers = std::move(elements);
  }

  /// Makes all readers and graph outputs use `replacement` instead. A graph output keeps its name:
  /// the replacement is renamed, or copied by an Identity node if it cannot be (a graph input,
  /// another output, a value of an enclosing graph). Subgraphs that return this value return the
  /// replacement itself, which must be defined before them.
  void replaceAllUsesWith(Value& replacement);

  /// Message that declares this value, or null.
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
