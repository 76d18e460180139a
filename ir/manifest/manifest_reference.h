// The format of manifests as text: a list of keys, the tables of docs/manifest.md, and a JSON
// Schema.
#pragma once

#include "ir/manifest/manifest_field.h"

#include <string>
#include <vector>

namespace kvopt::ir {

/// A key with the path of its object: `caches[].part.first`.
struct ManifestKey {
  std::string path;
  const ManifestField* field;
};

/// All keys, each object after the key that has it.
std::vector<ManifestKey> manifestKeys();

/// The type of a key's value in a few words, which are those that it may be, or what it is a list
/// of. `quote` is put around words.
std::string typeText(const ManifestField& field, const std::string& quote);

/// A table for each kind of object, in Markdown.
std::string manifestMarkdown();

/// A JSON Schema (draft 2020-12) that accepts manifests, with a description for each key. It does
/// not compare one object with another, as parseManifest does.
std::string manifestJsonSchema();

} // namespace kvopt::ir
