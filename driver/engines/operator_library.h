// The library with kernels of kvopt's operators for ONNX Runtime, as it is installed.
#pragma once

#include <string>

namespace kvopt::driver {

/// File name of the library.
inline constexpr const char* operatorLibraryName = "libkvopt_onnxruntime.so";

/// Absolute path of the library in the folder of `binary`, a program or a library, or in the folder
/// `lib` next to that folder. Empty if neither has it.
std::string operatorLibraryOf(const std::string& binary);

/// The same for the program or shared library that contains this function.
std::string operatorLibrary();

} // namespace kvopt::driver
