// A validator for the part of JSON Schema (draft 2020-12) that kvopt's schemas use.
#pragma once

#include <nlohmann/json.hpp>

#include <regex>
#include <set>
#include <string>

namespace kvopt::test {

/// Validates JSON against a schema. Unknown keywords are errors, so that none is ignored.
class JsonSchema {
public:
  explicit JsonSchema(nlohmann::json root) : schema(std::move(root)) {}

  /// The first problem, with the path of the value; empty where there is none.
  std::string problem(const nlohmann::json& value) const { return check(schema, value, ""); }

private:
  using Json = nlohmann::json;

  std::string check(const Json& rule, const Json& value, const std::string& path) const {
    if (rule.is_boolean())
      return rule.get<bool>() ? "" : path + ": is not allowed";
    for (const auto& [keyword, argument] : rule.items())
      if (std::string found = checkKeyword(keyword, argument, value, path); !found.empty())
        return found;
    return "";
  }

  std::string checkKeyword(const std::string& keyword, const Json& argument, const Json& value,
                           const std::string& path) const {
    static const std::set<std::string> annotations{"$schema", "$comment",    "$defs",
                                                   "title",   "description", "default"};
    if (annotations.contains(keyword))
      return "";
    if (keyword == "$ref")
      return check(schema.at(Json::json_pointer(argument.get<std::string>().substr(1))), value,
                   path);
    if (keyword == "properties" || keyword == "items")
      return checkMembers(keyword, argument, value, path);
    if (keyword == "anyOf" || keyword == "oneOf") {
      size_t accepted = 0;
      for (const Json& alternative : argument)
        accepted += check(alternative, value, path).empty() ? 1 : 0;
      const bool isRight = keyword == "oneOf" ? accepted == 1 : accepted > 0;
      return isRight ? "" : path + ": matches " + std::to_string(accepted) + " of " + keyword;
    }
    return isMet(keyword, argument, value) ? "" : path + ": breaks " + keyword;
  }

  std::string checkMembers(const std::string& keyword, const Json& argument, const Json& value,
                           const std::string& path) const {
    if (keyword == "items" && value.is_array())
      for (size_t i = 0; i < value.size(); ++i)
        if (std::string found = check(argument, value[i], path + "/" + std::to_string(i));
            !found.empty())
          return found;
    if (keyword == "properties" && value.is_object())
      for (const auto& [key, rule] : argument.items())
        if (value.contains(key))
          if (std::string found = check(rule, value[key], path + "/" + key); !found.empty())
            return found;
    return "";
  }

  /// A keyword that does not look into the value.
  static bool isMet(const std::string& keyword, const Json& argument, const Json& value) {
    if (keyword == "type")
      return argument.is_array() ? std::any_of(argument.begin(), argument.end(),
                                               [&](const Json& type) { return isA(value, type); })
                                 : isA(value, argument);
    if (keyword == "const")
      return value == argument;
    if (keyword == "enum")
      return std::find(argument.begin(), argument.end(), value) != argument.end();
    if (keyword == "required")
      return !value.is_object() ||
             std::all_of(argument.begin(), argument.end(),
                         [&](const Json& key) { return value.contains(key.get<std::string>()); });
    if (keyword == "minimum")
      return !value.is_number() || value >= argument;
    if (keyword == "minLength")
      return !value.is_string() || value.get<std::string>().size() >= argument.get<size_t>();
    if (keyword == "pattern")
      return !value.is_string() ||
             std::regex_search(value.get<std::string>(), std::regex(argument.get<std::string>()));
    return false; // a keyword that this validator does not know
  }

  static bool isA(const Json& value, const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "boolean" ? value.is_boolean()
           : type == "integer" ? value.is_number_integer()
           : type == "number"  ? value.is_number()
           : type == "null"    ? value.is_null()
                               : false;
  }

  Json schema;
};

} // namespace kvopt::test
