// Model: ownership and metadata.
#include "ir/model.h"

#include <algorithm>

namespace kvopt::ir {

Model::Model(const OpRegistry& registry)
    : sharedContext(registry), mainGraph(std::make_unique<Graph>(sharedContext, opsets)) {}

// Bodies of functions use the context, which is destroyed before the public members.
Model::~Model() { functions.clear(); }

const std::string* Model::findMetadata(llvm::StringRef key) const {
  for (const auto& [entryKey, value] : metadata)
    if (entryKey == key)
      return &value;
  return nullptr;
}

void Model::setMetadata(llvm::StringRef key, std::string value) {
  markRedescribed();
  editsAt[key] = edits();
  for (auto& [entryKey, entryValue] : metadata)
    if (entryKey == key) {
      entryValue = std::move(value);
      return;
    }
  metadata.emplace_back(key.str(), std::move(value));
}

void Model::removeMetadata(llvm::StringRef key) {
  auto named = [&](const auto& entry) { return entry.first == key; };
  auto removed = std::remove_if(metadata.begin(), metadata.end(), named);
  if (removed == metadata.end())
    return;
  markRedescribed();
  editsAt.erase(key);
  metadata.erase(removed, metadata.end());
}

Function* Model::findFunction(OpName name, llvm::StringRef overload) const {
  for (const std::unique_ptr<Function>& function : functions)
    if (OpName(function->domain, function->name) == name && function->overload == overload)
      return function.get();
  return nullptr;
}

Function* Model::findFunction(const Node& call) const {
  return findFunction(call.op(), call.overload());
}

void Model::resetEdited() {
  ownEdits = 0;
  differsFromFile = false;
  editsAt.clear();
  sharedContext.resetEdits();
}

} // namespace kvopt::ir
