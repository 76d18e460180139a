// Counts what the program asks of the heap, by any of the C library's functions.
#pragma once

#include <cstdint>

namespace kvopt {

/// Whether this build counts: the sanitizers have a heap of their own.
bool countsHeap();

/// Requests so far, of all threads; those of operator new are among them.
uint64_t heapRequests();

} // namespace kvopt
