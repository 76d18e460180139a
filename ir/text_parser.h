// The recursive-descent parser behind readText; private to the text reader.
#pragma once

#include "ir/model.h"
#include "ir/text_lexer.h"

namespace kvopt {

/// Parses into a model. Functions return the first error.
class TextParser {
public:
  TextParser(llvm::StringRef text, llvm::StringRef fileName, Model& target)
      : lexer(text, fileName), model(target) {}

  llvm::Error parseModel();
  llvm::Expected<Function*> parseFunction();
  llvm::Error expectEnd();

private:
  struct TypedName {
    Token at;
    std::string name;
    std::optional<TensorType> type;
  };
  static constexpr unsigned maxDepth = 64;

  // Small pieces.
  llvm::Error expect(char punctuation);
  llvm::Expected<std::string> name(const char* what);
  llvm::Expected<std::string> optionalName();
  llvm::Expected<int64_t> integer();
  llvm::Expected<std::string> string();
  llvm::Error opsetImports(OpsetImports& imports);
  llvm::Error stringPairs(Metadata& metadata);

  // Types and tensors.
  bool startsType() const;
  llvm::Expected<TensorType> type();
  llvm::Expected<Dim> extent();
  llvm::Expected<TensorRef> tensorContents(const TensorType& tensorType);
  llvm::Error element(ElementType elementType, std::vector<std::byte>& bytes);
  llvm::Expected<TensorRef> rawContents(const TensorType& tensorType,
                                        llvm::ArrayRef<int64_t> shape);

  // Attributes.
  llvm::Error attributeList(Graph& graph, Node* owner, OpName op,
                            std::vector<NamedAttribute>& attributes);
  llvm::Expected<Attribute> attributeValue(Graph& graph, Node* owner, AttributeKind declared);
  llvm::Expected<Attribute> listValue(Graph& graph, Node* owner, AttributeKind declared);
  llvm::Expected<float> floatNumber();

  // Graphs.
  llvm::Error modelHeader();
  llvm::Error graphBody(Graph& graph);
  llvm::Expected<TypedName> typedName();
  llvm::Error inputs(Graph& graph);
  llvm::Error initializers(Graph& graph, std::vector<TypedName>& valueInfos);
  llvm::Error nodes(Graph& graph);
  llvm::Error node(Graph& graph);
  llvm::Expected<OpName> operatorName(std::string& storage, std::string& overload);
  llvm::Error defineOutputs(Graph& graph, llvm::ArrayRef<TypedName> outputs);
  llvm::Error checkNew(const Graph& graph, const Token& at, llvm::StringRef valueName);

  TextLexer lexer;
  Model& model;
  unsigned depth = 0;
};

} // namespace kvopt
