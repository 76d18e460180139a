// The fingerprint that saved caches recognize their model by.
#pragma once

#include "ir/model.h"
#include "runtime/cache/cache_file.h"

namespace kvopt::runtime {

/// SHA-256 over what decides what a model computes: names and element types of inputs and outputs,
/// opsets, operators with their attributes and how they are connected (subgraphs and functions
/// included), and of every constant that is read element type, extents and contents. Contents of
/// more than `hashedConstantBytes` enter as their XXH64, which is computed as fast as they are
/// read: every weight is covered, and read once.
///
/// Not covered, so that files that differ in nothing else are one model: names of nodes and of
/// values inside the graph, constants that nobody reads, where weights are stored, types that
/// inference finds, doc strings, metadata, producer.
ModelFingerprint modelFingerprint(const ir::Model& model);

inline constexpr size_t hashedConstantBytes = 4096;

} // namespace kvopt::runtime
