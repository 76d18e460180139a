// Attributes from initializer lists, and copies of a node's attributes.
#include "ir/attribute_list.h"

#include "ir/node.h"

namespace kvopt::ir {

Attribute PlainAttribute::attribute() const {
  if (const auto* number = std::get_if<int64_t>(&value))
    return Attribute::ofInt(*number);
  if (const auto* real = std::get_if<float>(&value))
    return Attribute::ofFloat(*real);
  if (const auto* text = std::get_if<std::string>(&value))
    return Attribute::ofString(*text);
  return Attribute::ofInts(std::get<std::vector<int64_t>>(value));
}

AttributeList::operator std::vector<NamedAttribute>() const {
  std::vector<NamedAttribute> attributes;
  attributes.reserve(list.size());
  for (const PlainAttribute& plain : list)
    attributes.push_back({plain.name, plain.attribute()});
  return attributes;
}

std::vector<NamedAttribute> cloneAttributes(const Node& node) {
  std::vector<NamedAttribute> attributes;
  attributes.reserve(node.attributes().size());
  for (const NamedAttribute& attribute : node.attributes())
    attributes.push_back({attribute.name, attribute.value.clone()});
  return attributes;
}

void copyAttributes(const Node& from, Node& to) {
  for (const NamedAttribute& attribute : from.attributes())
    to.setAttribute(attribute.name, attribute.value.clone());
}

} // namespace kvopt::ir
