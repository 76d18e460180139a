// Models whose external data comes from a function.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvopt::ir {

/// Copies bytes of the external data file `location` to `contents`, from `offset` bytes on. Returns
/// the number of bytes; a smaller one than that of `contents` means that the file ends there.
using ExternalReader = llvm::function_ref<llvm::Expected<uint64_t>(
    const std::string& location, uint64_t offset, std::span<std::byte> contents)>;

/// Returns a serialized model with its external data in the message. `read` is called once per
/// tensor that has external data and is not empty, with the size that its shape and type need.
///
/// Fails before the first call for a malformed message, for a location that is absolute or has a
/// ".." component, for a declared length that differs from what shape and type need, and if the
/// result would have 2 GiB or more. Fails after a call that returned an error or fewer bytes.
llvm::Expected<std::string> withDataInline(std::span<const std::byte> bytes, ExternalReader read);

} // namespace kvopt::ir
