// A picture of one attention block in two models.
#pragma once

#include "driver/diff/model_difference.h"

namespace kvopt::cli {

/// An SVG document: the block before and after, side by side or, if they are wide, stacked; data
/// flows downwards; nodes that went are red, those that came green, those in both grey. It follows
/// the reader's preference for a dark page, needs no script and no font. Of a block of more than
/// 200 nodes or 400 edges the first ones are drawn.
llvm::Expected<std::string> differenceDrawing(const std::string& pathBefore,
                                              const std::string& pathAfter,
                                              const driver::BlockChange& block);

} // namespace kvopt::cli
