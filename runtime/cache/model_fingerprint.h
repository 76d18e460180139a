// The fingerprint that saved caches recognise their model by.
#pragma once

#include "ir/model.h"
#include "runtime/cache/cache_file.h"

namespace kvopt {

/// SHA-256 over what decides what a model computes: names and element types of inputs and outputs,
/// opsets, operators with their attributes and how they are connected (subgraphs and functions
/// included), and of every constant that is read element type, extents and contents. Of contents
/// above `wholeConstantBytes` only `constantSamples` samples of `constantSampleBytes`, evenly
/// spread from the first to the last byte, are read: telling two trainings of one architecture
/// apart takes no more, and gigabytes of weights stay where they are.
///
/// Not covered, so that files that differ in nothing else are one model: names of nodes and of
/// values inside the graph, constants that nobody reads, where weights are stored, types that
/// inference finds, doc strings, metadata, producer.
ModelFingerprint modelFingerprint(const Model& model);

inline constexpr int64_t wholeConstantBytes = 4096;
inline constexpr int64_t constantSampleBytes = 64;
inline constexpr int64_t constantSamples = 8;

} // namespace kvopt
