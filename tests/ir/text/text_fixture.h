// Reading of texts and their errors, for tests of the textual syntax.
#pragma once

#include "ir/op.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

namespace kvopt {

/// Every definition of the tree.
inline const ir::OpRegistry& textRegistry() {
  static const ir::OpRegistry* registry = [] {
    auto* filled = new ir::OpRegistry();
    registerAll(*filled);
    return filled;
  }();
  return *registry;
}

/// The model, or null and a failure that shows the error.
inline std::unique_ptr<ir::Model> readOrFail(llvm::StringRef text) {
  auto model = ir::readText(text, textRegistry());
  if (model)
    return std::move(*model);
  ADD_FAILURE() << takeDiagnostic(model.takeError()).str() << "\nin\n" << text.str();
  return nullptr;
}

/// What the reader says about a text that it must refuse; "" (and a failure) if it does not.
inline std::string textRefusal(llvm::StringRef text) {
  auto model = ir::readText(text, textRegistry(), "m.onnxtxt");
  if (model) {
    ADD_FAILURE() << "the text was accepted:\n" << text.take_front(400).str();
    return "";
  }
  return takeDiagnostic(model.takeError()).str();
}

} // namespace kvopt
