// Threads and addresses for all calls of oneDNN. Only convolution.cc and packed_product.cc include
// this file.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

// Declared by the OpenMP runtime that oneDNN is built with; clang does not find its header.
extern "C" void omp_set_num_threads(int threads);

namespace kvopt::kernels {

/// The number of threads is a setting of each calling thread. The library's own threads are never
/// used, because the executor's pool owns all threads.
inline void useCallingThread() { omp_set_num_threads(1); }

/// Address of an operand, which the library does not write.
inline void* address(const void* data) { return const_cast<void*>(data); } // NOLINT

} // namespace kvopt::kernels
