// Parser of the text reader.
#pragma once

#include "ir/model.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/SmallVector.h"

namespace kvopt::ir {

/// Reads one text. Functions return false after a failure, which the cursor keeps.
class TextParser {
public:
  TextParser(Model& target, llvm::StringRef text, llvm::StringRef fileName)
      : model(target), cursor(text, fileName) {}

  llvm::Error readModel();
  llvm::Expected<Function*> readOnlyFunction();

private:
  /// A name and its position in the text; empty for an absent operand or result.
  struct Name {
    std::string text;
    size_t offset = 0;
  };

  struct TypedName : Name {
    TensorType type;
  };

  /// Values that a `<key: value, …>` header may set.
  struct Header {
    OpsetImports& opsets;
    llvm::SmallVector<std::pair<llvm::StringRef, std::string*>, 8> texts;
    llvm::SmallVector<std::pair<llvm::StringRef, int64_t*>, 2> numbers;
    Metadata* metadata = nullptr;
  };

  /// Elements of one attribute. Only the vector of its kind is filled.
  struct Elements {
    std::vector<float> floats;
    std::vector<int64_t> ints;
    std::vector<std::string> strings;
    std::vector<TensorRef> tensors;
    std::vector<std::unique_ptr<Graph>> graphs;
  };

  bool readModelHeader();
  bool readHeader(Header header);
  bool readHeaderEntry(llvm::StringRef key, size_t place, Header& header);
  bool readOpsets(OpsetImports& opsets);
  bool readPairs(Metadata& metadata);

  bool readGraph(Graph& graph);
  bool readInputs(Graph& graph);
  bool readInput(Graph& graph);
  bool readTypedNames(std::vector<TypedName>& names);
  bool readTypedName(TypedName& name);
  bool readDeclarations(Graph& graph, std::vector<TypedName>& types, bool initializers);
  bool addInitializer(Graph& graph, const TypedName& name, TensorRef data);
  bool addOutputs(Graph& graph, const std::vector<TypedName>& outputs);
  bool setTypes(Graph& graph, const std::vector<TypedName>& types);

  bool readNodes(Graph& graph);
  bool readNode(Graph& graph);
  bool readOperator(OpName& op, std::string& storage);
  bool readNames(std::vector<Name>& names, char end);
  bool readOperands(Node& node);
  bool nameResults(Node& node, const std::vector<Name>& results);

  bool readAttributes(Node& node);
  bool readAttribute(llvm::StringRef name, Node* holder, Attribute& attribute);
  bool readReference(llvm::StringRef name, const Node* holder, AttributeKind kind,
                     Attribute& attribute);
  bool readList(AttributeKind kind, Node* holder, Attribute& attribute);
  bool readElement(AttributeKind expected, Node* holder, AttributeKind& kind, Elements& elements);
  static Attribute makeAttribute(AttributeKind kind, Elements elements);
  bool readFloat(Elements& elements);
  bool readTensor(Elements& elements);
  bool readSubgraph(Node* holder, Elements& elements);

  bool readFunction();
  bool readFunctionAttributes(Function& target);

  bool checkNewName(const Graph& graph, const Name& name);
  Value* findDefined(const Graph& graph, const Name& name);

  Model& model;
  TextCursor cursor;
  Function* function = nullptr; // the function whose body is being read
  unsigned depth = 0;
};

} // namespace kvopt::ir
