// The keys of a manifest's JSON objects: type, words, default, and one sentence each. What reads
// and writes them is in field_table.h.
#pragma once

#include <cstdint>
#include <vector>

namespace kvopt::ir {

/// The type of a key's value.
enum class FieldType : uint8_t {
  OfMember,    ///< only in tables: that of the member that holds the value
  Flag,        ///< true or false
  Count,       ///< an integer that is at least ManifestField::least
  CountOrNull, ///< the same, or null
  Text,        ///< any text
  Name,        ///< text that is not empty
  FileName,    ///< a file in the folder of the manifest; empty: not written yet
  Word,        ///< one of ManifestField::words
  ElementType, ///< `float32`, `int64`
  Shape,       ///< a list of extents, which are numbers or names
  Names,       ///< a list of names
  FileNames,   ///< a list of files in the folder of the manifest
  Counts,      ///< a list of integers that are not negative
  Numbers,     ///< a list of finite numbers
  Object,      ///< an object with the keys of ManifestField::object
  Objects,     ///< a list of such objects
};

/// A word that the value of a key may be.
struct FieldWord {
  const char* text;
  const char* meaning; ///< a phrase; empty where the field's sentence says all
};

struct ManifestObject;

/// One key.
struct ManifestField {
  const char* key = "";
  FieldType type = FieldType::OfMember;
  /// When the key is present; null: always.
  const char* when = nullptr;
  /// The value, as JSON, that a missing key stands for; null: none.
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

/// The object that is the whole manifest.
const ManifestObject& manifestObject();

/// How the storage of a cache (CacheStorage) is spelled by the keys `kind`, `policy`, `one_buffer`,
/// and one more. In the order of the alternatives.
struct StorageSpelling {
  const char* name;
  bool isOnlyRead; ///< the policy is then not looked at
  const char* policy;
  bool mayBeTwoTensors; ///< `one_buffer` may be false
  bool mayBeOneBuffer;  ///< `one_buffer` may be true
  const char* key;      ///< the key that only this storage has; null: none
  bool needsKey;
  const char* sentence;
};
std::vector<StorageSpelling> storageSpellings();

} // namespace kvopt::ir
