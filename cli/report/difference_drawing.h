// Drawing of one attention block in two models.
#pragma once

#include "driver/diff/model_difference.h"

namespace kvopt::cli {

/// An SVG document with the block before and after, side by side or, if they are wide, stacked.
/// Data flows downward. Removed nodes are red, added ones green, and others gray. The drawing
/// follows the reader's preference for dark pages and needs no scripts and no fonts. It shows at
/// most the first 200 nodes and 400 edges of a block.
llvm::Expected<std::string> differenceDrawing(const std::string& pathBefore,
                                              const std::string& pathAfter,
                                              const driver::BlockChange& block);

} // namespace kvopt::cli
