// An output file for tests that read and write nothing else.
#pragma once

#include "support/file_access.h"
#include "support/output_file.h"

namespace kvopt {

inline llvm::Expected<OutputFile>
createOutput(const std::string& path, OutputFile::Naming naming = OutputFile::Naming::Anonymous) {
  FileAccess access;
  return OutputFile::create(path, access, naming);
}

/// The same for a path that can be written.
inline OutputFile outputAt(const std::string& path,
                           OutputFile::Naming naming = OutputFile::Naming::Anonymous) {
  return llvm::cantFail(createOutput(path, naming));
}

} // namespace kvopt
