// Tables that read and write the JSON objects of manifests: a row for each key.
#pragma once

#include "ir/manifest/manifest_entries.h"
#include "ir/manifest/manifest_words.h"
#include "support/diagnostic.h"
#include "support/json.h"

#include "llvm/ADT/ArrayRef.h"

#include <type_traits>

namespace kvopt::ir {

/// The first problem of a manifest.
class ManifestProblem {
public:
  explicit operator bool() const { return diagnostic.has_value(); }
  /// `object` is the path of the object that has the problem, as in `caches[0]`; empty for the
  /// manifest itself.
  void set(const std::string& object, const std::string& text);
  /// The manifest is valid in another version of its format.
  void setUnsupported(const std::string& text);
  llvm::Error takeError() const;

private:
  std::optional<Diagnostic> diagnostic;
};

/// The value of a key while it is read.
struct FieldValue {
  const OrderedJson& json;
  const ManifestField& field;
  const std::string& object; ///< the path of the object that has the key
  ManifestProblem& problem;

  void fail(const std::string& text) const { problem.set(object, text); }
  /// The path of the value: `caches`, `caches[0].part`.
  std::string path() const;
  /// The entries of a list; without a list, a problem and no entries.
  llvm::ArrayRef<OrderedJson> entries() const;
};

void readValue(const FieldValue& value, bool& out);
void readValue(const FieldValue& value, int64_t& out);
void readValue(const FieldValue& value, std::optional<int64_t>& out);
void readValue(const FieldValue& value, std::optional<size_t>& out);
void readValue(const FieldValue& value, std::string& out);
void readValue(const FieldValue& value, ElementType& out);
void readValue(const FieldValue& value, std::vector<ManifestExtent>& out);
void readValue(const FieldValue& value, std::vector<std::string>& out);
void readValue(const FieldValue& value, std::vector<int64_t>& out);
void readValue(const FieldValue& value, std::vector<double>& out);
void readValue(const FieldValue& value, std::vector<ManifestCache>& out);

OrderedJson valueJson(ElementType value);
OrderedJson valueJson(const std::vector<ManifestExtent>& value);
OrderedJson valueJson(const std::vector<ManifestCache>& value);
template <class V> OrderedJson valueJson(const std::optional<V>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}
template <class V> OrderedJson valueJson(const V& value) { return value; }

/// A key, and how its value gets into and out of a T.
template <class T> struct Field {
  ManifestField info;
  const void* member; ///< `&memberTag<...>` of the member that has the value
  void (*read)(const FieldValue& value, T& object);
  /// False where the key is left out.
  bool (*write)(const T& object, const ManifestField& field, OrderedJson& json);
};

/// The keys of a kind of JSON object, in the order in which they are written.
template <class T> struct FieldTable {
  ManifestObject info;
  llvm::ArrayRef<Field<T>> fields;
  /// Checks conditions on several keys; null for none. Called if each key is valid.
  void (*check)(const T& object, const std::string& path, ManifestProblem& problem) = nullptr;
};

/// A manifest's JSON object as text, with an indentation of two spaces.
std::string manifestText(const OrderedJson& json);

/// The table of a type.
template <class T> const FieldTable<T>& tableOf() = delete;
template <> const FieldTable<Manifest>& tableOf();
template <> const FieldTable<CapacityEntry>& tableOf();
template <> const FieldTable<CacheEntry>& tableOf();
template <> const FieldTable<ManifestReplacement>& tableOf();
template <> const FieldTable<ManifestPart>& tableOf();
template <> const FieldTable<ManifestLength>& tableOf();
template <> const FieldTable<ManifestInput>& tableOf();
template <> const FieldTable<ManifestVariant>& tableOf();
template <> const FieldTable<ManifestTiles>& tableOf();
template <> const FieldTable<ManifestTiledAttention>& tableOf();
template <> const FieldTable<ManifestRotation>& tableOf();
template <> const FieldTable<ManifestOperators>& tableOf();
template <> const FieldTable<ManifestComparison>& tableOf();
template <class T>
concept HasFieldTable = requires {
  tableOf<T>();
};

template <class T>
void readObject(const OrderedJson& json, const std::string& path, ManifestProblem& problem,
                T& out) {
  if (!json.is_object())
    return problem.set(path, "is not an object");
  for (const Field<T>& field : tableOf<T>().fields) {
    const auto found = json.find(field.info.key);
    if (found != json.end())
      field.read({*found, field.info, path, problem}, out);
    else if (field.info.isRequired())
      problem.set(path, formatted("has no '{}'", field.info.key));
  }
  if (!problem && tableOf<T>().check)
    tableOf<T>().check(out, path, problem);
}

template <HasFieldTable T> void readValue(const FieldValue& value, T& out) {
  readObject(value.json, value.path(), value.problem, out);
}
template <HasFieldTable T> void readValue(const FieldValue& value, std::vector<T>& out) {
  for (const OrderedJson& entry : value.entries()) {
    const std::string path = formatted("{}[{}]", value.path(), out.size());
    readObject(entry, path, value.problem, out.emplace_back());
  }
}
template <HasFieldTable T> void readValue(const FieldValue& value, std::optional<T>& out) {
  readValue(value, out.emplace());
}
template <HasFieldTable T>
void readValue(const FieldValue& value, std::optional<std::vector<T>>& out) {
  readValue(value, out.emplace());
}

template <HasFieldTable T> OrderedJson valueJson(const T& object) {
  OrderedJson json = OrderedJson::object();
  for (const Field<T>& field : tableOf<T>().fields)
    if (OrderedJson value; field.write(object, field.info, value))
      json[field.info.key] = std::move(value);
  return json;
}
template <HasFieldTable T> OrderedJson valueJson(const std::vector<T>& objects) {
  OrderedJson list = OrderedJson::array();
  for (const T& object : objects)
    list.push_back(valueJson(object));
  return list;
}
template <HasFieldTable T> OrderedJson valueJson(const std::optional<T>& object) {
  return valueJson(*object);
}
template <HasFieldTable T> OrderedJson valueJson(const std::optional<std::vector<T>>& objects) {
  return valueJson(*objects);
}

/// The object that a member holds, or a list of, or may hold.
template <class V> struct HeldObject { using Type = V; };
template <class V> struct HeldObject<std::vector<V>> : HeldObject<V> {};
template <class V> struct HeldObject<std::optional<V>> : HeldObject<V> {};
template <> struct HeldObject<ManifestCache> { using Type = CacheEntry; };

template <class V> constexpr bool isList = false;
template <class V> constexpr bool isList<std::vector<V>> = true;
template <class V> constexpr bool isList<std::optional<std::vector<V>>> = true;

/// The type of a key whose value is a V.
template <class V> constexpr FieldType fieldTypeOf() {
  if constexpr (HasFieldTable<typename HeldObject<V>::Type>)
    return isList<V> ? FieldType::Objects : FieldType::Object;
  else if constexpr (std::is_same_v<V, bool>)
    return FieldType::Flag;
  else if constexpr (std::is_same_v<V, std::string>)
    return FieldType::Text;
  else if constexpr (std::is_same_v<V, ElementType>)
    return FieldType::ElementType;
  else if constexpr (std::is_same_v<V, std::vector<ManifestExtent>>)
    return FieldType::Shape;
  else if constexpr (std::is_same_v<V, std::vector<std::string>>)
    return FieldType::Names;
  else if constexpr (std::is_same_v<V, std::vector<int64_t>>)
    return FieldType::Counts;
  else if constexpr (std::is_same_v<V, std::vector<double>>)
    return FieldType::Numbers;
  else
    return FieldType::Count;
}

/// Identifies a member by its address.
template <auto member> inline constexpr char memberTag = 0;

template <class T, auto member> void readMember(const FieldValue& value, T& object) {
  readValue(value, object.*member);
}

/// Whether a member has the value of a new object.
template <class V> bool isUnset(const V& value) {
  if constexpr (requires { value.empty(); })
    return value.empty();
  else if constexpr (requires { value.has_value(); })
    return !value.has_value();
  else
    return value == V();
}

/// Keys that may be missing are left out where the member is unset.
template <class T, auto member>
bool writeMember(const T& object, const ManifestField& field, OrderedJson& json) {
  const auto& value = object.*member;
  if (!field.isRequired() && isUnset(value))
    return false;
  json = valueJson(value);
  return true;
}

/// The row of a key whose value is a member of T.
template <class T, auto member> constexpr Field<T> fieldOf(ManifestField info) {
  using Member = std::remove_cvref_t<decltype(std::declval<T&>().*member)>;
  using Held = typename HeldObject<Member>::Type;
  if (info.type == FieldType::OfMember)
    info.type = fieldTypeOf<Member>();
  if constexpr (HasFieldTable<Held>)
    info.object = []() -> const ManifestObject& { return tableOf<Held>().info; };
  return {info, &memberTag<member>, &readMember<T, member>, &writeMember<T, member>};
}

/// The words of a table, each once.
template <const auto& words> std::vector<FieldWord> fieldWords() {
  std::vector<FieldWord> list;
  for (const auto& word : words)
    if (*word.meaning != 0)
      list.push_back({word.text, word.meaning});
  return list;
}

/// Reports that the value is not one of the field's words.
void failWord(const FieldValue& value, const std::string& text);

template <class T, auto member, const auto& words>
void readWord(const FieldValue& value, T& object) {
  std::string text;
  readValue(value, text);
  if (value.problem)
    return;
  for (const auto& word : words)
    if (text == word.text) {
      object.*member = word.value;
      return;
    }
  failWord(value, text);
}

/// A value without a word is left out.
template <class T, auto member, const auto& words>
bool writeWord(const T& object, const ManifestField&, OrderedJson& json) {
  for (const auto& word : words)
    if (word.value == object.*member) {
      json = word.text;
      return true;
    }
  return false;
}

/// The row of a key whose value is one of `words`.
template <class T, auto member, const auto& words>
constexpr Field<T> wordFieldOf(ManifestField info) {
  info.type = FieldType::Word;
  info.words = &fieldWords<words>;
  return {info, &memberTag<member>, &readWord<T, member, words>, &writeWord<T, member, words>};
}

/// The key of a member, for messages.
template <class T, auto member> const char* keyOf() {
  for (const Field<T>& field : tableOf<T>().fields)
    if (field.member == &memberTag<member>)
      return field.info.key;
  return "";
}

/// The fields of a table without what reads and writes them.
template <class T> std::vector<const ManifestField*> fieldsOf() {
  std::vector<const ManifestField*> fields;
  for (const Field<T>& field : tableOf<T>().fields)
    fields.push_back(&field.info);
  return fields;
}

} // namespace kvopt::ir
