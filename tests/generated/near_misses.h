// Changes after which a decoder must not be taken for what it nearly is.
#pragma once

#include "tests/generated/decoder_graph.h"

namespace kvopt::generated {

llvm::ArrayRef<NearMiss> nearMisses();

} // namespace kvopt::generated
