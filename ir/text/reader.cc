// Reader of ONNX's textual syntax: models, their headers and functions.
#include "ir/text/reader.h"

#include "ir/text/parser.h"
#include "support/format.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::ir {

llvm::Error TextParser::readModel() {
  bool read = readModelHeader() && readGraph(model.graph());
  while (read && !cursor.atEnd())
    read = readFunction();
  return read ? llvm::Error::success() : cursor.takeError();
}

llvm::Expected<Function*> TextParser::readOnlyFunction() {
  size_t known = model.functions.size();
  bool read = readFunction() && (cursor.atEnd() || cursor.unexpected("the end of the function"));
  if (read)
    return model.functions.back().get();
  model.functions.resize(known);
  return cursor.takeError();
}

bool TextParser::readModelHeader() {
  Header header{model.opsets,
                {{"producer_name", &model.producerName},
                 {"producer_version", &model.producerVersion},
                 {"domain", &model.domain},
                 {"doc_string", &model.docString}},
                {{"ir_version", &model.irVersion}, {"model_version", &model.modelVersion}},
                &model.metadata};
  return readHeader(std::move(header));
}

bool TextParser::readHeader(Header header) {
  if (!cursor.accept('<'))
    return !cursor.failed();
  llvm::StringSet<> seen;
  do {
    std::string key;
    size_t place = cursor.offset();
    if (!cursor.identifier(key, "a key of the header"))
      return false;
    if (!seen.insert(key).second)
      return cursor.fail(place, fmt::format("`{}` is given twice", key));
    if (!cursor.expect(':', "after a header's key") || !readHeaderEntry(key, place, header))
      return false;
  } while (cursor.accept(','));
  return cursor.expect('>', "after the header");
}

bool TextParser::readHeaderEntry(llvm::StringRef key, size_t place, Header& header) {
  if (key == "opset_import")
    return readOpsets(header.opsets);
  if (key == "metadata_props" && header.metadata)
    return readPairs(*header.metadata);
  std::string known = "opset_import";
  for (auto& [name, text] : header.texts) {
    if (key == name)
      return cursor.string(*text, "a quoted string");
    known += ", " + name.str();
  }
  for (auto& [name, number] : header.numbers) {
    if (key == name)
      return cursor.integer(*number, "a number");
    known += ", " + name.str();
  }
  return cursor.fail(place, fmt::format("`{}` is no key of this header", key), "known: " + known);
}

bool TextParser::readOpsets(OpsetImports& opsets) {
  if (!cursor.expect('[', "before operator sets"))
    return false;
  while (!cursor.peek().is(']')) {
    std::string domain;
    int64_t version = 0;
    size_t place = cursor.offset();
    if (!cursor.string(domain, "a quoted domain") || !cursor.expect(':', "after a domain") ||
        !cursor.integer(version, "a version"))
      return false;
    if (!opsets.try_emplace(domain, version).second)
      return cursor.fail(place, fmt::format("domain '{}' is imported twice", domain));
    if (!cursor.accept(','))
      break;
  }
  return cursor.expect(']', "after operator sets");
}

bool TextParser::readPairs(Metadata& metadata) {
  if (!cursor.expect('[', "before metadata"))
    return false;
  while (!cursor.peek().is(']')) {
    auto& [key, value] = metadata.emplace_back();
    if (!cursor.string(key, "a quoted key") || !cursor.expect(':', "after a metadata key") ||
        !cursor.string(value, "a quoted value"))
      return false;
    if (!cursor.accept(','))
      break;
  }
  return cursor.expect(']', "after metadata");
}

bool TextParser::readFunction() {
  auto made = std::make_unique<Function>(model.context(), "", "");
  if (!readHeader({made->opsets,
                   {{"domain", &made->domain},
                    {"overload", &made->overload},
                    {"doc_string", &made->docString}},
                   {},
                   nullptr}))
    return false;
  size_t place = cursor.offset();
  if (!cursor.name(made->name, "a function's name"))
    return false;
  for (const std::unique_ptr<Function>& other : model.functions)
    if (other->name == made->name && other->domain == made->domain &&
        other->overload == made->overload)
      return cursor.fail(place, fmt::format("function '{}' is defined twice", made->name));
  function = made.get();
  model.functions.push_back(std::move(made));
  Graph& body = function->body;
  std::vector<TypedName> outputs, types;
  if (!readFunctionAttributes(*function) || !readInputs(body) || !cursor.expectArrow() ||
      !readTypedNames(outputs) || !readDeclarations(body, types, /*initializers=*/false) ||
      !readNodes(body) || !setTypes(body, types) || !addOutputs(body, outputs))
    return false;
  function = nullptr;
  model.markEdited();
  return true;
}

bool TextParser::readFunctionAttributes(Function& target) {
  if (!cursor.accept('<'))
    return !cursor.failed();
  llvm::StringSet<> seen;
  while (!cursor.peek().is('>')) {
    std::string name;
    size_t place = cursor.offset();
    if (!cursor.name(name, "an attribute's name"))
      return false;
    if (!seen.insert(name).second)
      return cursor.fail(place, fmt::format("attribute '{}' is given twice", name));
    if (cursor.peek().is(':') || cursor.peek().is('=')) {
      Attribute value;
      if (!readAttribute(name, nullptr, value))
        return false;
      target.defaults.push_back({name, std::move(value)});
    } else {
      target.attributes.push_back(name);
    }
    if (!cursor.accept(','))
      break;
  }
  return cursor.expect('>', "after a function's attributes");
}

llvm::Expected<std::unique_ptr<Model>> readText(llvm::StringRef text, const OpRegistry& registry,
                                                llvm::StringRef fileName) {
  auto model = std::make_unique<Model>(registry);
  TextParser parser(*model, text, fileName);
  if (llvm::Error error = parser.readModel())
    return error;
  model->markEdited();
  return model;
}

llvm::Expected<Function*> readFunctionText(llvm::StringRef text, Model& model) {
  return TextParser(model, text, "<function>").readOnlyFunction();
}

} // namespace kvopt::ir
