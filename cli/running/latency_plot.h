// Plot of decode latency against context length, with the bandwidth bound.
#pragma once

#include "cli/running/bench_report.h"

namespace kvopt::cli {

/// An SVG document with one panel for each number of threads, all with the same axes: a line with
/// the spread for each model, and dashed lines for the bandwidth bounds. It follows the reader's
/// preference for dark pages and needs no scripts and no fonts. Rows without decode times are
/// omitted; fails if no row is left.
llvm::Expected<std::string> latencyPlot(const BenchReport& report);

/// Marks 0, step, 2 step … that cover `top` with at most `most` steps; the step is 1, 2 or 5 times
/// a power of ten. Requires a finite top > 0 and most >= 1.
std::vector<double> axisMarks(double top, unsigned most);

} // namespace kvopt::cli
