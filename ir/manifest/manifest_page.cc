// The keys of manifests as a list, and as a part of docs/manifest.md.
#include "ir/manifest/manifest_reference.h"

#include "support/format.h"

namespace kvopt::ir {

namespace {

constexpr const char* nameOf(FieldType type) {
  switch (type) {
  case FieldType::OfMember:
  case FieldType::Word:
    return "";
  case FieldType::Flag:
    return "true or false";
  case FieldType::Count:
    return "integer";
  case FieldType::CountOrNull:
    return "integer or null";
  case FieldType::Text:
    return "text";
  case FieldType::Name:
    return "name";
  case FieldType::FileName:
    return "file name";
  case FieldType::ElementType:
    return "element type";
  case FieldType::Shape:
    return "list of extents";
  case FieldType::Names:
    return "list of names";
  case FieldType::FileNames:
    return "list of file names";
  case FieldType::Texts:
    return "list of texts";
  case FieldType::Counts:
    return "list of integers";
  case FieldType::Numbers:
    return "list of numbers";
  case FieldType::Object:
    return "object";
  case FieldType::Objects:
    return "list of objects";
  }
  return "";
}

void addKeys(const ManifestObject& object, const std::string& path,
             std::vector<ManifestKey>& keys) {
  for (const ManifestField* field : object.fields()) {
    const std::string name = path + field->key;
    keys.push_back({name, field});
    if (field->object)
      addKeys(field->object(), name + (field->type == FieldType::Objects ? "[]." : "."), keys);
  }
}

/// An object, and the path of the key that has it.
struct PageObject {
  std::string path;
  const ManifestObject* object;
};

std::vector<PageObject> pageObjects() {
  std::vector<PageObject> objects{{"", &manifestObject()}};
  for (const ManifestKey& key : manifestKeys())
    if (key.field->object)
      objects.push_back(
          {key.path + (key.field->type == FieldType::Objects ? "[]" : ""), &key.field->object()});
  return objects;
}

/// The anchor of a heading with this text.
std::string anchorOf(std::string heading) {
  for (char& letter : heading)
    letter = letter == ' ' ? '-' : letter;
  return heading;
}

/// Whether a cell has room for the words of the field.
bool areFew(const std::vector<FieldWord>& words) { return words.size() <= 5; }

std::string valueCell(const ManifestField& field) {
  if (field.words && !areFew(field.words()))
    return formatted("a word of `{}` below", field.key);
  if (!field.object)
    return typeText(field, "`");
  const char* name = field.object().name;
  return formatted("{}[{}](#{})", field.type == FieldType::Objects ? "list of " : "", name,
                   anchorOf(name));
}

std::string fieldTable(const ManifestObject& object) {
  std::string text = "| key | value | present | default | |\n|---|---|---|---|---|\n";
  for (const ManifestField* field : object.fields())
    text += formatted("| `{}` | {} | {} | {} | {} |\n", field->key, valueCell(*field),
                      field->when ? formatted("where {}", field->when) : "always",
                      field->byDefault ? formatted("`{}`", field->byDefault) : "", field->sentence);
  return text;
}

std::string wordTable(const ManifestField& field) {
  std::string text = formatted("\n| `{}` | |\n|---|---|\n", field.key);
  for (const FieldWord& word : field.words())
    text += formatted("| `{}` | {} |\n", word.text, word.meaning);
  return text;
}

/// The keys of caches that spell their storage.
std::string storageTable() {
  std::string text = "| storage | `kind` | `policy` | `one_buffer` | other key | |\n"
                     "|---|---|---|---|---|---|\n";
  for (const StorageSpelling& row : storageSpellings()) {
    const std::string key =
        row.key ? formatted("`{}`{}", row.key, row.needsKey ? "" : " or none") : "";
    const char* buffer = !row.mayBeOneBuffer    ? "`false`"
                         : !row.mayBeTwoTensors ? "`true`"
                                                : "`true`, `false`";
    text += formatted("| {} | `{}` | `{}` | {} | {} | {} |\n", row.name,
                      row.isOnlyRead ? "cross" : "self", row.policy, buffer, key, row.sentence);
  }
  return text;
}

} // namespace

std::string typeText(const ManifestField& field, const std::string& quote) {
  if (field.type == FieldType::Count && field.least > 0)
    return "positive integer";
  if (field.type != FieldType::Word)
    return nameOf(field.type);
  std::string text;
  for (const FieldWord& word : field.words())
    text += formatted("{}{}{}{}", text.empty() ? "" : ", ", quote, word.text, quote);
  return text;
}

std::vector<ManifestKey> manifestKeys() {
  std::vector<ManifestKey> keys;
  addKeys(manifestObject(), "", keys);
  return keys;
}

std::string manifestMarkdown() {
  std::string text;
  for (const auto& [path, object] : pageObjects()) {
    const bool isRoot = *object->name == 0;
    text +=
        formatted("### {}\n\n{}{}\n\n{}", isRoot ? "manifest" : object->name,
                  isRoot ? "" : formatted("`{}`: ", path), object->sentence, fieldTable(*object));
    for (const ManifestField* field : object->fields())
      if (field->words && *field->words().front().meaning != 0)
        text += wordTable(*field);
    text += "\n";
  }
  return text +
         "### storage of a cache\n\nThree keys of a cache, and one that only some have, say "
         "how a program keeps it between two steps.\n\n" +
         storageTable();
}

} // namespace kvopt::ir
