// The JSON Schema of manifests, made of the tables of their keys.
#include "ir/manifest/field_table.h"
#include "ir/manifest/manifest_reference.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::ir {

namespace {

std::string definitionName(const ManifestObject& object) {
  std::string name = object.name;
  for (char& letter : name)
    letter = letter == ' ' ? '_' : letter;
  return name;
}

OrderedJson listOf(OrderedJson items) { return {{"type", "array"}, {"items", std::move(items)}}; }

OrderedJson nameSchema() { return {{"type", "string"}, {"minLength", 1}}; }

OrderedJson countSchema(int64_t least = 0) { return {{"type", "integer"}, {"minimum", least}}; }

/// Names of files without folders; `.` and `..` are folders.
OrderedJson fileSchema() {
  return {{"type", "string"}, {"pattern", R"(^([^/\\.][^/\\]*|\.[^/\\.][^/\\]*|\.\.[^/\\]+)?$)"}};
}

OrderedJson elementTypeSchema() {
  OrderedJson names = OrderedJson::array();
  constexpr auto last = static_cast<int32_t>(ElementType::Float4E2M1);
  for (int32_t type = 1; type <= last; ++type)
    names.push_back(dtypeName(static_cast<ElementType>(type)).str());
  return {{"enum", std::move(names)}};
}

OrderedJson wordSchema(const std::vector<FieldWord>& words) {
  if (words.size() == 1)
    return {{"const", words.front().text}};
  OrderedJson list = OrderedJson::array();
  for (const FieldWord& word : words)
    list.push_back({{"const", word.text}, {"description", word.meaning}});
  return {{"oneOf", std::move(list)}};
}

OrderedJson typeSchema(const ManifestField& field) {
  switch (field.type) {
  case FieldType::Flag:
    return {{"type", "boolean"}};
  case FieldType::Count:
    return countSchema(field.least);
  case FieldType::CountOrNull:
    return {{"type", OrderedJson::array({"integer", "null"})}, {"minimum", field.least}};
  case FieldType::OfMember:
  case FieldType::Text:
    return {{"type", "string"}};
  case FieldType::Name:
    return nameSchema();
  case FieldType::FileName:
    return fileSchema();
  case FieldType::Word:
    return wordSchema(field.words());
  case FieldType::ElementType:
    return elementTypeSchema();
  case FieldType::Shape:
    return listOf({{"anyOf", OrderedJson::array({countSchema(), nameSchema()})}});
  case FieldType::Names:
    return listOf(nameSchema());
  case FieldType::FileNames:
    return listOf(fileSchema());
  case FieldType::Texts:
    return listOf({{"type", "string"}});
  case FieldType::Counts:
    return listOf(countSchema());
  case FieldType::Numbers:
    return listOf({{"type", "number"}});
  case FieldType::Object:
  case FieldType::Objects:
    break;
  }
  OrderedJson reference;
  reference["$ref"] = "#/$defs/" + definitionName(field.object());
  return field.type == FieldType::Objects ? listOf(std::move(reference)) : reference;
}

OrderedJson fieldSchema(const ManifestField& field) {
  OrderedJson schema;
  schema["description"] = field.sentence;
  if (field.when)
    schema["$comment"] = formatted("Present where {}.", field.when);
  schema.update(typeSchema(field));
  if (field.byDefault)
    schema["default"] = OrderedJson::parse(field.byDefault);
  return schema;
}

/// The keys of a cache that only some storage has.
OrderedJson storageSchema(const StorageSpelling& storage,
                          const std::vector<StorageSpelling>& others) {
  OrderedJson keys = OrderedJson::object();
  keys[keyOf<CacheEntry, &CacheEntry::isOnlyRead>()] = {
      {"const", kindWords[storage.isOnlyRead ? 1 : 0].text}};
  if (!storage.isOnlyRead)
    keys[keyOf<CacheEntry, &CacheEntry::policy>()] = {{"const", storage.policy}};
  if (!storage.mayBeOneBuffer || !storage.mayBeTwoTensors)
    keys[keyOf<CacheEntry, &CacheEntry::oneBuffer>()] = {{"const", storage.mayBeOneBuffer}};
  for (const StorageSpelling& other : others)
    if (other.key && other.key != storage.key)
      keys[other.key] = false;
  OrderedJson schema{
      {"title", storage.name}, {"description", storage.sentence}, {"properties", std::move(keys)}};
  if (storage.needsKey)
    schema["required"] = OrderedJson::array({storage.key});
  return schema;
}

OrderedJson objectSchema(const ManifestObject& object) {
  OrderedJson properties = OrderedJson::object();
  OrderedJson required = OrderedJson::array();
  for (const ManifestField* field : object.fields()) {
    properties[field->key] = fieldSchema(*field);
    if (field->isRequired())
      required.push_back(field->key);
  }
  OrderedJson schema{{"description", object.sentence},
                     {"type", "object"},
                     {"properties", std::move(properties)},
                     {"required", std::move(required)}};
  if (&object != &tableOf<CacheEntry>().info)
    return schema;
  const std::vector<StorageSpelling> storages = storageSpellings();
  for (const StorageSpelling& storage : storages)
    schema["anyOf"].push_back(storageSchema(storage, storages));
  return schema;
}

} // namespace

std::string manifestJsonSchema() {
  OrderedJson root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                   {"title", manifestSchema}};
  root.update(objectSchema(manifestObject()));
  for (const ManifestKey& key : manifestKeys())
    if (key.field->object)
      root["$defs"][definitionName(key.field->object())] = objectSchema(key.field->object());
  return root.dump(2) + "\n";
}

} // namespace kvopt::ir
