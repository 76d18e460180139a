// The definitions of com.microsoft's operators against a table of ONNX Runtime's documentation.
#include "ir/op.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace kvopt {
using namespace ir;

namespace {

using Json = nlohmann::json;

Json documented() {
  std::ifstream file(KVOPT_SOURCE_DIR "/tests/oracle/contrib_operators.json");
  return Json::parse(file);
}

std::vector<std::string> names(const std::vector<Formal>& formals) {
  std::vector<std::string> result;
  for (const Formal& formal : formals)
    result.push_back(formal.name + (formal.arity == Formal::Arity::Optional ? "?" : ""));
  return result;
}

void expectAttribute(const OpDef& definition, const std::string& name, const Json& expected) {
  SCOPED_TRACE(definition.name.str() + " attribute " + name);
  const FormalAttribute* attribute = definition.findAttribute(name);
  ASSERT_TRUE(attribute);
  const std::map<std::string, AttributeKind> kinds = {{"int", AttributeKind::Int},
                                                      {"float", AttributeKind::Float},
                                                      {"string", AttributeKind::String},
                                                      {"ints", AttributeKind::Ints}};
  EXPECT_EQ(attribute->kind, kinds.at(expected["type"]));
  EXPECT_EQ(attribute->required, expected.value("required", false));
  if (!expected.contains("default"))
    return;
  ASSERT_TRUE(attribute->defaultValue);
  if (attribute->kind == AttributeKind::Int)
    EXPECT_EQ(attribute->defaultValue->intValue(), expected["default"].get<int64_t>());
  else if (attribute->kind == AttributeKind::Float)
    EXPECT_EQ(attribute->defaultValue->floatValue(), expected["default"].get<float>());
  else
    EXPECT_EQ(attribute->defaultValue->stringValue(), expected["default"].get<std::string>());
}

TEST(DocumentedOperators, EveryDefinitionHasExactlyTheirOperandsAndAttributes) {
  OpRegistry registry;
  registerAll(registry);
  const Json table = documented();
  ASSERT_EQ(table["version"], "1.30.0");
  const Json& operators = table["operators"];
  for (const OpDef* definition : registry.all()) {
    if (definition->name.domain() != table["domain"].get<std::string>())
      continue;
    const std::string type = definition->name.type().str();
    // ONNX Runtime registers it in ONNX's own domain, without documentation; some exporters write
    // it here.
    if (type == "SimplifiedLayerNormalization")
      continue;
    ASSERT_TRUE(operators.contains(type)) << type << " is not in the table";
    const Json& entry = operators[type];
    EXPECT_EQ(names(definition->operands), entry["inputs"].get<std::vector<std::string>>()) << type;
    EXPECT_EQ(names(definition->results), entry["outputs"].get<std::vector<std::string>>()) << type;
    EXPECT_EQ(definition->attributes.size(), entry["attributes"].size()) << type;
    for (const auto& [name, expected] : entry["attributes"].items())
      expectAttribute(*definition, name, expected);
  }
  for (const auto& [type, entry] : operators.items())
    EXPECT_TRUE(registry.find(OpName("com.microsoft", type), 1)) << type << " has no definition";
}

} // namespace
} // namespace kvopt
