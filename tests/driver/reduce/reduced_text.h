// Models in text form, for tests of edits.
#pragma once

#include "driver/toolkit.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "ir/verify/verifier.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kvopt {

/// A model from a text, with inferred types.
struct TextModel {
  explicit TextModel(const std::string& text) {
    auto read = ir::readText(text, toolkit.ops);
    if (!read)
      throw std::runtime_error(llvm::toString(read.takeError()));
    model = std::move(*read);
    llvm::consumeError(ir::inferShapes(model->graph()));
  }

  ir::Graph& graph() const { return model->graph(); }
  /// Whether the verifier accepts the model.
  bool isValid() const {
    llvm::Error error = ir::verify(*model);
    const bool isAccepted = !error;
    if (error)
      ADD_FAILURE() << llvm::toString(std::move(error));
    return isAccepted;
  }
  /// One line per node: its operator, operands and results.
  std::string nodes() const {
    std::string text;
    for (const ir::Node& node : graph().nodes())
      text += ir::printText(node) + "\n";
    return text;
  }
  std::string inputs() const {
    std::string text;
    for (const std::unique_ptr<ir::Value>& input : graph().inputs())
      text += (text.empty() ? "" : " ") + input->name().str();
    return text;
  }
  std::string outputs() const {
    std::string text;
    for (const ir::Value* output : graph().outputs())
      text += (text.empty() ? "" : " ") + output->name().str();
    return text;
  }

  driver::Toolkit toolkit;
  std::unique_ptr<ir::Model> model;
};

} // namespace kvopt
