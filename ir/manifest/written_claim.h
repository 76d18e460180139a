// The claim of a manifest that the model computes the same as another one, when files are written.
#pragma once

#include "ir/model.h"

#include <optional>
#include <string>

namespace kvopt::ir {

/// Text of a manifest without its comparison with another model; nullopt if it has none, or if it
/// is not a JSON object.
std::optional<std::string> withoutComparison(llvm::StringRef manifest);

/// The model's metadata as it is written to a file or a text. A comparison holds only for the model
/// that was compared: the manifest loses it if the model was edited after the manifest was set.
Metadata writtenMetadata(const Model& model);

} // namespace kvopt::ir
