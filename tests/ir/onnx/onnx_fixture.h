// Small ONNX messages and the corpus, for tests of import and export.
#pragma once

#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "support/diagnostic.h"
#include "tests/ir/corpus.h"

#include "kvopt_onnx.pb.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

namespace kvopt {

inline std::string readWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline llvm::Expected<std::unique_ptr<ir::Model>> importText(const std::string& bytes,
                                                             const ir::OpRegistry& registry,
                                                             const std::string& folder = "") {
  return ir::importModelBytes(std::as_bytes(std::span(bytes.data(), bytes.size())), folder,
                              registry);
}

/// What import says about a model that it must refuse; "" (and a failure) if it does not.
inline std::string refusal(const std::string& bytes) {
  ir::OpRegistry registry;
  auto model = importText(bytes, registry);
  if (model) {
    ADD_FAILURE() << "the model was accepted";
    return "";
  }
  return takeDiagnostic(model.takeError()).str();
}
inline std::string refusal(const onnx::ModelProto& model) {
  return refusal(model.SerializePartialAsString());
}

inline onnx::NodeProto& addNode(onnx::GraphProto& graph, const std::string& op,
                                const std::vector<std::string>& inputs,
                                const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name("node_" + (outputs.empty() ? op : outputs.front()));
  for (const std::string& input : inputs)
    node.add_input(input);
  for (const std::string& output : outputs)
    node.add_output(output);
  return node;
}

inline void declare(onnx::ValueInfoProto& info, const std::string& name,
                    const std::vector<std::string>& dims) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(1);
  tensor.mutable_shape();
  for (const std::string& dim : dims)
    if (!dim.empty() && dim.find_first_not_of("-0123456789") == std::string::npos)
      tensor.mutable_shape()->add_dim()->set_dim_value(std::stoll(dim));
    else
      tensor.mutable_shape()->add_dim()->set_dim_param(dim);
}

inline void addFloats(onnx::TensorProto& tensor, const std::string& name,
                      const std::vector<float>& values) {
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
}

/// Bytes of a field that no description knows (number 900), with a payload.
inline const std::string& unknownField() {
  static const std::string bytes("\xa2\x38\x04"
                                 "kept",
                                 7);
  return bytes;
}

/// x, y → Add → Relu → z, with an initializer, a declaration, and everything kvopt only carries.
inline onnx::ModelProto smallModel() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.set_producer_name("test");
  model.set_doc_string("model doc");
  auto& opset = *model.add_opset_import();
  opset.set_domain("");
  opset.set_version(17);
  auto& entry = *model.add_metadata_props();
  entry.set_key("author");
  entry.set_value("somebody");
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("main");
  graph.set_doc_string("graph doc");
  declare(*graph.add_input(), "x", {"batch", "4"});
  graph.mutable_input(0)->set_doc_string("input doc");
  addFloats(*graph.add_initializer(), "w", {1, 2, 3, 4});
  declare(*graph.add_value_info(), "sum", {"batch", "4"});
  onnx::NodeProto& add = addNode(graph, "Add", {"x", "w"}, {"sum"});
  add.set_doc_string("node doc");
  auto& relu = addNode(graph, "Relu", {"sum"}, {"z"});
  auto& alpha = *relu.add_attribute();
  alpha.set_name("alpha");
  alpha.set_type(onnx::AttributeProto::FLOAT);
  alpha.set_f(0.5F);
  alpha.set_doc_string("attribute doc");
  declare(*graph.add_output(), "z", {"batch", "4"});
  return model;
}

} // namespace kvopt
