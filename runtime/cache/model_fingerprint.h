// Fingerprint by which saved caches identify their model.
#pragma once

#include "ir/model.h"
#include "runtime/cache/cache_file.h"

namespace kvopt::runtime {

/// SHA-256 of everything that determines a model's results: names and element types of inputs and
/// outputs, opsets, operators with their attributes and connections (including subgraphs and
/// functions), and the element type, extents and contents of every constant that is read. Contents
/// of more than `hashedConstantBytes` are replaced by their XXH64, which is as fast as reading
/// them, so that every weight is included and read once.
///
/// Not included, so that models which differ only in these are equal: names of nodes and of values
/// inside the graph, unused constants, the storage of weights, inferred types, doc strings,
/// metadata, and the producer.
ModelFingerprint modelFingerprint(const ir::Model& model);

inline constexpr size_t hashedConstantBytes = 4096;

} // namespace kvopt::runtime
