// Keys of a manifest's JSON objects: type, words, default, and one sentence each. field_table.h
// reads and writes them.
#pragma once

#include <cstdint>
#include <vector>

namespace kvopt::ir {

/// Type of a key's value.
enum class FieldType : uint8_t {
  OfMember,    ///< only in tables: the type of the member that holds the value
  Flag,        ///< true or false
  Count,       ///< an integer that is at least ManifestField::least
  CountOrNull, ///< the same, or null
  Text,        ///< any text
  Name,        ///< text that is not empty
  FileName,    ///< a file in the manifest's folder; empty if not written yet
  Word,        ///< one of ManifestField::words
  ElementType, ///< `float32`, `int64`
  Shape,       ///< a list of extents, which are numbers or names
  Names,       ///< a list of names
  FileNames,   ///< a list of files in the manifest's folder
  Texts,       ///< a list of any texts
  Counts,      ///< a list of integers that are not negative
  Numbers,     ///< a list of finite numbers
  Object,      ///< an object with the keys of ManifestField::object
  Objects,     ///< a list of such objects
};

/// A word that the value of a key may be.
struct FieldWord {
  const char* text;
  const char* meaning; ///< a phrase; empty if the field's sentence suffices
};

struct ManifestObject;

/// One key.
struct ManifestField {
  const char* key = "";
  FieldType type = FieldType::OfMember;
  /// Condition for the presence of the key; null: always present.
  const char* when = nullptr;
  /// Default value, as JSON, of a missing key; null: no default.
  const char* byDefault = nullptr;
  const char* sentence = "";
  int64_t least = 0;
  std::vector<FieldWord> (*words)() = nullptr;
  const ManifestObject& (*object)() = nullptr;

  bool isRequired() const { return !when; }
};

/// A kind of JSON object in a manifest.
struct ManifestObject {
  const char* name;     ///< `cache`; empty for the manifest itself
  const char* sentence; ///< a sentence about the object
  std::vector<const ManifestField*> (*fields)();
};

/// The object for the whole manifest.
const ManifestObject& manifestObject();

/// Description of a cache's storage (CacheStorage) with the keys `kind`, `policy`, `one_buffer`,
/// and one more. In the order of the alternatives.
struct StorageSpelling {
  const char* name;
  bool isOnlyRead; ///< the policy is then ignored
  const char* policy;
  bool mayBeTwoTensors; ///< `one_buffer` may be false
  bool mayBeOneBuffer;  ///< `one_buffer` may be true
  const char* key;      ///< the key that only this storage has; null if there is none
  bool needsKey;
  const char* sentence;
};
std::vector<StorageSpelling> storageSpellings();

} // namespace kvopt::ir
