// AttributeList: attributes with numbers and texts, written as a list.
//
//   rewriter.create("Transpose", {&x}, attrs({{"perm", {0, 2, 1, 3}}}));   // creates a node
//   op("Softmax", {x}, attrs({{"axis", -1}}));                             // matches a node
#pragma once

#include "ir/attribute.h"

#include <concepts>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace kvopt::ir {

class Node;

/// An attribute with a literal value: an integer, a float, a text, or a list of integers.
struct PlainAttribute {
  using Value = std::variant<int64_t, float, std::string, std::vector<int64_t>>;

  template <std::integral Number>
  PlainAttribute(std::string attributeName, Number number)
      : name(std::move(attributeName)), value(static_cast<int64_t>(number)) {}
  template <std::floating_point Number>
  PlainAttribute(std::string attributeName, Number number)
      : name(std::move(attributeName)), value(static_cast<float>(number)) {}
  // A template, so that the braced list {0} does not convert to a null pointer.
  template <class Text>
  requires std::convertible_to<Text, std::string> PlainAttribute(std::string attributeName,
                                                                 Text text)
      : name(std::move(attributeName)), value(std::string(std::move(text))) {}
  PlainAttribute(std::string attributeName, std::vector<int64_t> integers)
      : name(std::move(attributeName)), value(std::move(integers)) {}

  Attribute attribute() const;

  std::string name;
  Value value;
};

/// Result of `attrs`. Converts to the attributes of a new node.
class AttributeList {
public:
  AttributeList() = default;
  explicit AttributeList(std::initializer_list<PlainAttribute> attributes) : list(attributes) {}

  template <class Written> void add(std::string name, Written value) {
    list.emplace_back(std::move(name), std::move(value));
  }
  auto begin() const { return list.begin(); }
  auto end() const { return list.end(); }

  operator std::vector<NamedAttribute>() const; // NOLINT(google-explicit-constructor)

private:
  std::vector<PlainAttribute> list;
};

inline AttributeList attrs(std::initializer_list<PlainAttribute> attributes) {
  return AttributeList(attributes);
}

/// Copies of a node's attributes, for a similar node. Requires a node without subgraphs.
std::vector<NamedAttribute> cloneAttributes(const Node& node);
/// Copies all attributes of `from`, which has no subgraphs, to `to`.
void copyAttributes(const Node& from, Node& to);

} // namespace kvopt::ir
