// fmt with LLVM's string references. Include this file instead of fmt's headers, so that every file
// formats them in the same way.
#pragma once

#include "llvm/ADT/StringRef.h"
#include <fmt/format.h>
#include <string_view>

template <> struct fmt::formatter<llvm::StringRef> : fmt::formatter<std::string_view> {
  template <class Context> auto format(llvm::StringRef text, Context& context) const {
    return fmt::formatter<std::string_view>::format(std::string_view(text.data(), text.size()),
                                                    context);
  }
};
