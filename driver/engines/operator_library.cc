// Search for the library next to kvopt.
#include "driver/engines/operator_library.h"

#include <dlfcn.h>
#include <filesystem>

namespace kvopt::driver {

std::string operatorLibraryOf(const std::string& binary) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  const fs::path folder = fs::canonical(binary, unknown).parent_path();
  if (unknown)
    return "";
  for (const fs::path& library :
       {folder / operatorLibraryName, folder.parent_path() / "lib" / operatorLibraryName})
    if (fs::is_regular_file(library, unknown))
      return library.string();
  return "";
}

std::string operatorLibrary() {
  Dl_info info = {};
  const void* here = reinterpret_cast<const void*>(&operatorLibraryOf);
  if (::dladdr(here, &info) == 0 || !info.dli_fname)
    return "";
  // A program's name may be relative to another folder than the present one, or found on the PATH.
  const std::string name = info.dli_fname;
  return operatorLibraryOf(name.find(".so") == std::string::npos ? "/proc/self/exe" : name);
}

} // namespace kvopt::driver
