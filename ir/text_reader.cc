// Models, graphs, nodes and functions in ONNX's textual syntax.
#include "ir/text_reader.h"

#include "ir/op.h"
#include "ir/text_parser.h"

namespace kvopt {

llvm::Error TextParser::expect(char punctuation) {
  if (lexer.takeIf(punctuation))
    return llvm::Error::success();
  return lexer.expected(std::string("'") + punctuation + "'");
}

llvm::Error TextParser::expectEnd() {
  return lexer.peek().kind == Token::Kind::End ? llvm::Error::success()
                                               : lexer.expected("the end of the text");
}

llvm::Expected<std::string> TextParser::name(const char* what) {
  Token::Kind kind = lexer.peek().kind;
  if (kind != Token::Kind::Identifier && kind != Token::Kind::String)
    return lexer.expected(what);
  return lexer.take().text;
}

llvm::Expected<std::string> TextParser::optionalName() {
  const Token& next = lexer.peek();
  if (next.is(',') || next.is(')') || next.is('='))
    return std::string();
  return name("a name");
}

llvm::Expected<int64_t> TextParser::integer() {
  int64_t value = 0;
  if (lexer.peek().kind != Token::Kind::Integer)
    return lexer.expected("an integer");
  llvm::StringRef digits = lexer.peek().text;
  digits.consume_front("+");
  if (digits.getAsInteger(10, value))
    return lexer.error(lexer.peek(), "the integer does not fit in 64 bits");
  lexer.take();
  return value;
}

llvm::Expected<std::string> TextParser::string() {
  if (lexer.peek().kind != Token::Kind::String)
    return lexer.expected("a string");
  return lexer.take().text;
}

llvm::Error TextParser::opsetImports(OpsetImports& imports) {
  if (llvm::Error error = expect('['))
    return error;
  while (!lexer.takeIf(']')) {
    auto domain = string();
    if (!domain)
      return domain.takeError();
    if (llvm::Error error = expect(':'))
      return error;
    auto version = integer();
    if (!version)
      return version.takeError();
    imports[*domain == "ai.onnx" ? "" : *domain] = *version;
    if (!lexer.takeIf(',') && !lexer.peek().is(']'))
      return lexer.expected("',' or ']'");
  }
  return llvm::Error::success();
}

llvm::Error TextParser::stringPairs(Metadata& metadata) {
  if (llvm::Error error = expect('['))
    return error;
  while (!lexer.takeIf(']')) {
    auto key = string();
    if (!key)
      return key.takeError();
    if (llvm::Error error = expect(':'))
      return error;
    auto value = string();
    if (!value)
      return value.takeError();
    metadata.emplace_back(*key, *value);
    if (!lexer.takeIf(',') && !lexer.peek().is(']'))
      return lexer.expected("',' or ']'");
  }
  return llvm::Error::success();
}

llvm::Error TextParser::modelHeader() {
  if (llvm::Error error = expect('<'))
    return error;
  while (!lexer.takeIf('>')) {
    Token at = lexer.peek();
    auto key = name("a key");
    if (!key)
      return key.takeError();
    if (llvm::Error error = expect(':'))
      return error;
    auto takeString = [&](std::string& into) -> llvm::Error {
      auto text = string();
      if (text)
        into = std::move(*text);
      return text ? llvm::Error::success() : text.takeError();
    };
    auto takeInteger = [&](int64_t& into) -> llvm::Error {
      auto value = integer();
      if (value)
        into = *value;
      return value ? llvm::Error::success() : value.takeError();
    };
    llvm::Error error = *key == "ir_version"         ? takeInteger(model.irVersion)
                        : *key == "opset_import"     ? opsetImports(model.opsets)
                        : *key == "producer_name"    ? takeString(model.producerName)
                        : *key == "producer_version" ? takeString(model.producerVersion)
                        : *key == "domain"           ? takeString(model.domain)
                        : *key == "model_version"    ? takeInteger(model.modelVersion)
                        : *key == "doc_string"       ? takeString(model.docString)
                        : *key == "metadata_props"   ? stringPairs(model.metadata)
                                                   : lexer.error(at, "unknown key '" + *key + "'");
    if (error)
      return error;
    if (!lexer.takeIf(',') && !lexer.peek().is('>'))
      return lexer.expected("',' or '>'");
  }
  return llvm::Error::success();
}

llvm::Error TextParser::parseModel() {
  if (lexer.peek().is('<'))
    if (llvm::Error error = modelHeader())
      return error;
  if (llvm::Error error = graphBody(model.graph()))
    return error;
  while (lexer.peek().kind != Token::Kind::End) {
    auto function = parseFunction();
    if (!function)
      return function.takeError();
  }
  return llvm::Error::success();
}

llvm::Error TextParser::checkNew(const Graph& graph, const Token& at, llvm::StringRef valueName) {
  if (graph.findValue(valueName, /*enclosing=*/true))
    return lexer.error(at, ("'" + valueName + "' is defined twice").str());
  return llvm::Error::success();
}

llvm::Expected<TextParser::TypedName> TextParser::typedName() {
  TypedName result;
  if (startsType()) {
    auto parsed = type();
    if (!parsed)
      return parsed.takeError();
    result.type = std::move(*parsed);
  }
  result.at = lexer.peek();
  auto text = name("a name");
  if (!text)
    return text.takeError();
  result.name = std::move(*text);
  return result;
}

llvm::Error TextParser::inputs(Graph& graph) {
  if (llvm::Error error = expect('('))
    return error;
  while (!lexer.takeIf(')')) {
    auto input = typedName();
    if (!input)
      return input.takeError();
    if (llvm::Error error = checkNew(graph, input->at, input->name))
      return error;
    Value& value = graph.addInput(input->name, input->type.value_or(TensorType()));
    if (lexer.takeIf('=')) {
      auto data = tensorContents(value.type());
      if (!data)
        return data.takeError();
      graph.setInputDefault(value, std::move(*data));
    }
    if (!lexer.takeIf(',') && !lexer.peek().is(')'))
      return lexer.expected("',' or ')'");
  }
  return llvm::Error::success();
}

llvm::Error TextParser::initializers(Graph& graph, std::vector<TypedName>& valueInfos) {
  if (!lexer.takeIf('<'))
    return llvm::Error::success();
  while (!lexer.takeIf('>')) {
    auto entry = typedName();
    if (!entry)
      return entry.takeError();
    if (lexer.takeIf('=')) {
      if (!entry->type)
        return lexer.error(entry->at, "an initializer needs a type");
      if (llvm::Error error = checkNew(graph, entry->at, entry->name))
        return error;
      auto data = tensorContents(*entry->type);
      if (!data)
        return data.takeError();
      graph.addInitializer(entry->name, std::move(*data));
    } else {
      valueInfos.push_back(std::move(*entry));
    }
    if (!lexer.takeIf(',') && !lexer.peek().is('>'))
      return lexer.expected("',' or '>'");
  }
  return llvm::Error::success();
}

llvm::Error TextParser::graphBody(Graph& graph) {
  if (++depth > maxDepth)
    return lexer.error(lexer.peek(), "graphs are nested too deeply");
  auto graphName = name("a graph's name");
  if (!graphName)
    return graphName.takeError();
  graph.setName(std::move(*graphName));
  if (llvm::Error error = inputs(graph))
    return error;
  if (lexer.peek().kind != Token::Kind::Arrow)
    return lexer.expected("'=>'");
  lexer.take();
  if (llvm::Error error = expect('('))
    return error;
  std::vector<TypedName> outputs;
  while (!lexer.takeIf(')')) {
    auto output = typedName();
    if (!output)
      return output.takeError();
    outputs.push_back(std::move(*output));
    if (!lexer.takeIf(',') && !lexer.peek().is(')'))
      return lexer.expected("',' or ')'");
  }
  std::vector<TypedName> valueInfos;
  if (llvm::Error error = initializers(graph, valueInfos))
    return error;
  if (llvm::Error error = nodes(graph))
    return error;
  for (const TypedName& info : valueInfos)
    if (Value* value = graph.findValue(info.name); value && info.type)
      value->setType(*info.type);
  if (llvm::Error error = defineOutputs(graph, outputs))
    return error;
  --depth;
  return llvm::Error::success();
}

llvm::Error TextParser::defineOutputs(Graph& graph, llvm::ArrayRef<TypedName> outputs) {
  for (const TypedName& output : outputs) {
    Value* value = graph.findValue(output.name, /*enclosing=*/true);
    if (!value)
      return lexer.error(output.at, "output '" + output.name + "' is defined nowhere");
    if (output.type && value->producer())
      value->setType(*output.type);
    graph.addOutput(*value);
  }
  return llvm::Error::success();
}

llvm::Error TextParser::nodes(Graph& graph) {
  if (llvm::Error error = expect('{'))
    return error;
  while (!lexer.takeIf('}'))
    if (llvm::Error error = node(graph))
      return error;
  return llvm::Error::success();
}

llvm::Expected<OpName> TextParser::operatorName(std::string& storage, std::string& overload) {
  auto part = name("an operator");
  if (!part)
    return part.takeError();
  storage = *part;
  size_t lastDot = std::string::npos;
  while (lexer.takeIf('.')) {
    lastDot = storage.size();
    part = name("an operator");
    if (!part)
      return part.takeError();
    storage += "." + *part;
  }
  if (lexer.takeIf(':')) {
    auto text = name("an overload");
    if (!text)
      return text.takeError();
    overload = std::move(*text);
  }
  llvm::StringRef whole = storage;
  if (lastDot == std::string::npos)
    return OpName("", whole);
  return OpName(whole.take_front(lastDot), whole.drop_front(lastDot + 1));
}

llvm::Error TextParser::node(Graph& graph) {
  std::string label;
  Metadata metadata;
  if (lexer.takeIf('[')) {
    auto text = name("a node's name");
    if (!text)
      return text.takeError();
    label = std::move(*text);
    if (lexer.takeIf(','))
      if (llvm::Error error = stringPairs(metadata))
        return error;
    if (llvm::Error error = expect(']'))
      return error;
  }
  std::vector<Token> resultTokens;
  do {
    Token at = lexer.peek();
    auto result = optionalName();
    if (!result)
      return result.takeError();
    at.text = std::move(*result);
    resultTokens.push_back(std::move(at));
  } while (lexer.takeIf(','));
  if (llvm::Error error = expect('='))
    return error;

  std::string opStorage;
  std::string overload;
  auto op = operatorName(opStorage, overload);
  if (!op)
    return op.takeError();
  std::vector<llvm::StringRef> resultNames;
  for (const Token& token : resultTokens) {
    if (!token.text.empty())
      if (llvm::Error error = checkNew(graph, token, token.text))
        return error;
    for (llvm::StringRef earlier : resultNames)
      if (!earlier.empty() && earlier == token.text)
        return lexer.error(token, "'" + token.text + "' is defined twice");
    resultNames.push_back(token.text);
  }

  // Subgraphs refer to their node, so it exists before its attributes; its results may not be seen
  // by them nor by its operands.
  std::vector<NamedAttribute> attributes;
  llvm::SmallVector<Value*, 8> operands;
  Node& created = graph.create(*op, {}, std::vector<llvm::StringRef>(resultNames.size()));
  if (lexer.peek().is('<'))
    if (llvm::Error error = attributeList(graph, &created, *op, attributes))
      return error;
  if (llvm::Error error = expect('('))
    return error;
  while (!lexer.takeIf(')')) {
    Token at = lexer.peek();
    auto operand = optionalName();
    if (!operand)
      return operand.takeError();
    Value* value = operand->empty() ? nullptr : graph.findValue(*operand, /*enclosing=*/true);
    if (!value && !operand->empty())
      return lexer.error(at, "'" + *operand + "' is not defined before it is read");
    operands.push_back(value);
    if (!lexer.takeIf(',') && !lexer.peek().is(')'))
      return lexer.expected("',' or ')'");
  }
  if (lexer.peek().is('<'))
    if (llvm::Error error = attributeList(graph, &created, *op, attributes))
      return error;

  created.setOperands(operands);
  for (size_t i = 0; i < resultNames.size(); ++i)
    if (!resultNames[i].empty())
      graph.rename(created.result(static_cast<unsigned>(i)), resultNames[i]);
  for (NamedAttribute& attribute : attributes)
    created.setAttribute(attribute.name, std::move(attribute.value));
  if (!label.empty())
    created.setName(std::move(label));
  if (!metadata.empty())
    created.setMetadata(std::move(metadata));
  created.setOverload(std::move(overload));
  return llvm::Error::success();
}

llvm::Expected<Function*> TextParser::parseFunction() {
  std::string domain;
  std::string overload;
  std::string docString;
  OpsetImports imports;
  if (llvm::Error error = expect('<'))
    return error;
  while (!lexer.takeIf('>')) {
    Token at = lexer.peek();
    auto key = name("a key");
    if (!key)
      return key.takeError();
    if (llvm::Error error = expect(':'))
      return error;
    if (*key == "opset_import") {
      if (llvm::Error error = opsetImports(imports))
        return error;
    } else if (*key == "domain" || *key == "overload" || *key == "doc_string") {
      auto text = string();
      if (!text)
        return text.takeError();
      (*key == "domain" ? domain : *key == "overload" ? overload : docString) = std::move(*text);
    } else {
      return lexer.error(at, "unknown key '" + *key + "'");
    }
    if (!lexer.takeIf(',') && !lexer.peek().is('>'))
      return lexer.expected("',' or '>'");
  }
  auto functionName = name("a function's name");
  if (!functionName)
    return functionName.takeError();
  auto function = std::make_unique<Function>(model.context(), domain, *functionName);
  function->overload = std::move(overload);
  function->docString = std::move(docString);
  function->opsets = std::move(imports);
  Graph& body = function->body;
  body.setName(*functionName);
  if (lexer.takeIf('<'))
    while (!lexer.takeIf('>')) {
      auto attribute = name("an attribute's name");
      if (!attribute)
        return attribute.takeError();
      if (lexer.takeIf(':')) {
        auto kind = name("an attribute's type");
        if (!kind)
          return kind.takeError();
        if (llvm::Error error = expect('='))
          return error;
        auto value = attributeValue(body, nullptr, attributeKindFromName(*kind));
        if (!value)
          return value.takeError();
        function->defaults.push_back({std::move(*attribute), std::move(*value)});
      } else {
        function->attributes.push_back(std::move(*attribute));
      }
      if (!lexer.takeIf(',') && !lexer.peek().is('>'))
        return lexer.expected("',' or '>'");
    }
  if (llvm::Error error = inputs(body))
    return error;
  if (lexer.peek().kind != Token::Kind::Arrow)
    return lexer.expected("'=>'");
  lexer.take();
  if (llvm::Error error = expect('('))
    return error;
  std::vector<TypedName> outputs;
  while (!lexer.takeIf(')')) {
    auto output = typedName();
    if (!output)
      return output.takeError();
    outputs.push_back(std::move(*output));
    if (!lexer.takeIf(',') && !lexer.peek().is(')'))
      return lexer.expected("',' or ')'");
  }
  if (llvm::Error error = nodes(body))
    return error;
  if (llvm::Error error = defineOutputs(body, outputs))
    return error;
  model.markEdited();
  model.functions.push_back(std::move(function));
  return model.functions.back().get();
}

llvm::Expected<std::unique_ptr<Model>> readText(llvm::StringRef text, const OpRegistry& registry,
                                                llvm::StringRef fileName) {
  auto model = std::make_unique<Model>(registry);
  TextParser parser(text, fileName, *model);
  if (llvm::Error error = parser.parseModel())
    return error;
  return model;
}

llvm::Expected<Function*> readFunctionText(llvm::StringRef text, Model& model) {
  TextParser parser(text, "<function>", model);
  auto function = parser.parseFunction();
  if (!function)
    return function.takeError();
  if (llvm::Error error = parser.expectEnd())
    return error;
  return function;
}

} // namespace kvopt
