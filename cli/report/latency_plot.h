// A picture of decode latency against context length, beside the time that reading alone takes.
#pragma once

#include "cli/report/bench_report.h"

namespace kvopt::cli {

/// An SVG document: a panel for each number of threads, all with the same axes; a line with the
/// spread for each model, and the read floors dashed. It follows the reader's preference for a dark
/// page, needs no script and no font. Rows without decode times are left out; fails when none is
/// left.
llvm::Expected<std::string> latencyPlot(const BenchReport& report);

/// Marks 0, step, 2 step … that cover `top` with at most `most` steps of 1, 2 or 5 times a power of
/// ten. Requires a finite top > 0 and most >= 1.
std::vector<double> axisMarks(double top, unsigned most);

} // namespace kvopt::cli
