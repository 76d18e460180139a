// Domain of ONNX Runtime's own operators.
#pragma once

namespace kvopt::ir {

inline constexpr const char* contribDomain = "com.microsoft";

} // namespace kvopt::ir
