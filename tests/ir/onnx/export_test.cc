// Export: byte identity, what survives an edit, limits.
#include "ir/onnx/export.h"

#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;

namespace {

using testing::HasSubstr;

std::unique_ptr<Model> imported(const std::string& bytes, const OpRegistry& registry) {
  auto model = importText(bytes, registry);
  if (model)
    return std::move(*model);
  ADD_FAILURE() << takeDiagnostic(model.takeError()).str();
  return nullptr;
}

std::string exported(const Model& model, const ExportOptions& options = {}) {
  auto bytes = exportModelBytes(model, options);
  if (bytes)
    return std::move(*bytes);
  ADD_FAILURE() << takeDiagnostic(bytes.takeError()).str();
  return "";
}

onnx::ModelProto parsed(const std::string& bytes) {
  onnx::ModelProto message;
  EXPECT_TRUE(message.ParsePartialFromString(bytes));
  return message;
}

std::string failureOf(llvm::Error error) {
  if (error)
    return takeDiagnostic(std::move(error)).str();
  ADD_FAILURE() << "expected a failure";
  return "";
}

/// smallModel() with an If, a function, sparse and quantized things, training information and
/// unknown fields at every level. Everything stands in the order in which protobuf writes it.
onnx::ModelProto richModel() {
  onnx::ModelProto model = smallModel();
  onnx::GraphProto& graph = *model.mutable_graph();
  onnx::NodeProto& node = addNode(graph, "If", {"sum"}, {"chosen"});
  auto& metadata = *node.add_metadata_props();
  metadata.set_key("origin");
  metadata.set_value("test");
  metadata.mutable_unknown_fields()->append(unknownField());
  node.mutable_unknown_fields()->append(unknownField());
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("then_branch");
  attribute.set_doc_string("branch attribute");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  attribute.mutable_unknown_fields()->append(unknownField());
  onnx::GraphProto& branch = *attribute.mutable_g();
  branch.set_name("branch");
  branch.set_doc_string("branch doc");
  branch.mutable_unknown_fields()->append(unknownField());
  addFloats(*branch.add_initializer(), "inner", {7});
  addNode(branch, "Mul", {"sum", "inner"}, {"scaled"});
  branch.mutable_node(0)->mutable_unknown_fields()->append(unknownField());
  branch.add_output()->set_name("scaled");

  addFloats(*graph.mutable_initializer()->Add(), "x", {1}); // a default
  graph.mutable_initializer()->SwapElements(0, 1);
  graph.mutable_initializer(1)->set_doc_string("weights doc");
  graph.mutable_initializer(1)->mutable_unknown_fields()->append(unknownField());
  onnx::SparseTensorProto& sparse = *graph.add_sparse_initializer();
  addFloats(*sparse.mutable_values(), "sparse", {1});
  sparse.add_dims(100);
  onnx::TensorAnnotation& annotation = *graph.add_quantization_annotation();
  annotation.set_tensor_name("sum");
  graph.add_value_info()->set_name("defined nowhere");
  graph.mutable_value_info(0)->mutable_unknown_fields()->append(unknownField());
  graph.mutable_input(0)->mutable_unknown_fields()->append(unknownField());
  graph.mutable_output(0)->mutable_unknown_fields()->append(unknownField());
  graph.mutable_unknown_fields()->append(unknownField());
  onnx::ValueInfoProto& sequence = *graph.add_input();
  sequence.set_name("list");
  sequence.mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type();

  onnx::TrainingInfoProto& training = *model.add_training_info();
  addNode(*training.mutable_algorithm(), "Gradient", {"z"}, {"g"});
  onnx::FunctionProto& function = *model.add_functions();
  function.set_domain("my");
  function.set_name("Twice");
  function.set_doc_string("function doc");
  function.set_overload("first");
  function.add_input("a");
  function.add_output("b");
  function.add_attribute("factor");
  onnx::NodeProto& body = *function.add_node();
  body.set_op_type("Add");
  body.add_input("a");
  body.add_input("a");
  body.add_output("b");
  function.add_opset_import()->set_version(17);
  function.mutable_unknown_fields()->append(unknownField());
  auto& opset = *model.add_opset_import();
  opset.set_domain("my");
  opset.set_version(1);
  model.mutable_opset_import(0)->mutable_unknown_fields()->append(unknownField());
  model.mutable_metadata_props(0)->mutable_unknown_fields()->append(unknownField());
  model.mutable_unknown_fields()->append(unknownField());
  return model;
}

/// What must change when the doc strings, unknown fields and so on stay: only what `edit` does.
template <typename Edit, typename Expect> void expectEdit(Edit edit, Expect expect) {
  OpRegistry registry;
  onnx::ModelProto message = richModel();
  auto model = imported(message.SerializeAsString(), registry);
  ASSERT_TRUE(model);
  edit(*model);
  std::string written = exported(*model);
  expect(message);
  // Compared as messages first, for a readable failure.
  onnx::ModelProto found = parsed(written);
  EXPECT_EQ(found.graph().node_size(), message.graph().node_size());
  EXPECT_TRUE(written == message.SerializeAsString());
  EXPECT_TRUE(exported(*model) == written) << "the second export differs";
  auto again = imported(written, registry);
  ASSERT_TRUE(again);
  EXPECT_TRUE(exported(*again, {.reserialize = true}) == written);
}

TEST(OnnxExport, CorpusIsWrittenBackByteForByte) {
  std::vector<std::string> models = corpusModels();
  if (models.empty())
    GTEST_SKIP() << "NO CORPUS at " << corpusFolder()
                 << ": byte identity of real models not tested";
  OpRegistry registry;
  for (const std::string& path : models) {
    std::string bytes = readWhole(path);
    auto model = importModel(path, registry);
    if (!model) {
      ADD_FAILURE() << takeDiagnostic(model.takeError()).str();
      continue;
    }
    EXPECT_FALSE((*model)->isEdited()) << path;
    EXPECT_TRUE(exported(**model) == bytes) << path;
    EXPECT_TRUE(exported(**model, {.reserialize = true}) == bytes) << path << " reserialized";
  }
  std::cout << models.size() << " models of the corpus written back\n";
}

TEST(OnnxExport, UneditedModelsAreTheirBytes) {
  OpRegistry registry;
  std::string bytes = richModel().SerializeAsString();
  auto model = imported(bytes, registry);
  ASSERT_TRUE(model);
  EXPECT_TRUE(exported(*model) == bytes);
  EXPECT_TRUE(exported(*model, {.reserialize = true}) == bytes);

  // Another order of fields than protobuf's own: kept only by not serializing anew.
  onnx::ModelProto first;
  first.set_producer_name("late");
  std::string odd = smallModel().SerializeAsString() + first.SerializeAsString();
  model = imported(odd, registry);
  ASSERT_TRUE(model);
  EXPECT_TRUE(exported(*model) == odd);
}

TEST(OnnxExport, KeepsEverythingElseWhenOneNodeIsEdited) {
  expectEdit(
      [](Model& model) {
        model.graph().nodes().front().setAttribute("axis", Attribute::ofInt(-1));
      },
      [](onnx::ModelProto& message) {
        onnx::AttributeProto& axis = *message.mutable_graph()->mutable_node(0)->add_attribute();
        axis.set_name("axis");
        axis.set_type(onnx::AttributeProto::INT);
        axis.set_i(-1);
      });
}

TEST(OnnxExport, WritesEditsWithinSubgraphs) {
  expectEdit(
      [](Model& model) {
        Node& holder = model.graph().nodes().back();
        Graph& branch = *holder.attribute("then_branch")->graphs().front();
        branch.nodes().front().setName("renamed");
      },
      [](onnx::ModelProto& message) {
        message.mutable_graph()
            ->mutable_node(2)
            ->mutable_attribute(0)
            ->mutable_g()
            ->mutable_node(0)
            ->set_name("renamed");
      });
}

TEST(OnnxExport, WritesRenamedValuesEverywhere) {
  expectEdit([](Model& model) { model.graph().rename(*model.graph().findValue("sum"), "total"); },
             [](onnx::ModelProto& message) {
               onnx::GraphProto& graph = *message.mutable_graph();
               graph.mutable_node(0)->set_output(0, "total");
               graph.mutable_node(1)->set_input(0, "total");
               graph.mutable_node(2)->set_input(0, "total");
               graph.mutable_node(2)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(
                   0, "total");
               graph.mutable_value_info()->DeleteSubrange(0, 1); // declares "sum", which is gone
             });
}

TEST(OnnxExport, WritesRenamedInitializersAndInputs) {
  expectEdit(
      [](Model& model) {
        model.graph().rename(*model.graph().findValue("w"), "weights");
        model.graph().rename(*model.graph().findValue("x"), "input");
      },
      [](onnx::ModelProto& message) {
        onnx::GraphProto& graph = *message.mutable_graph();
        graph.mutable_node(0)->set_input(0, "input");
        graph.mutable_node(0)->set_input(1, "weights");
        graph.mutable_initializer(0)->set_name("input");
        graph.mutable_initializer(1)->set_name("weights");
        graph.mutable_input(0)->set_name("input");
      });
}

TEST(OnnxExport, WritesModelFields) {
  expectEdit(
      [](Model& model) { // none of these tells the graph
        model.irVersion = 10;
        model.opsets[""] = 24;
        model.opsets["ai.kvopt"] = 1;
      },
      [](onnx::ModelProto& message) {
        message.set_ir_version(10);
        message.mutable_opset_import(0)->set_version(24);
        onnx::OperatorSetIdProto& added = *message.add_opset_import();
        added.set_domain("ai.kvopt");
        added.set_version(1);
      });
  expectEdit([](Model& model) { model.setMetadata("kvopt.manifest", "{}"); },
             [](onnx::ModelProto& message) {
               onnx::StringStringEntryProto& entry = *message.add_metadata_props();
               entry.set_key("kvopt.manifest");
               entry.set_value("{}");
             });
}

TEST(OnnxExport, WritesChangedTypesOfInputs) {
  expectEdit(
      [](Model& model) {
        TensorType type(ElementType::Float,
                        {Dim::symbol("past") + Dim::symbol("s"), Dim::fixed(8)});
        model.graph().inputs()[0]->setType(type);
      },
      [](onnx::ModelProto& message) {
        auto& shape = *message.mutable_graph()
                           ->mutable_input(0)
                           ->mutable_type()
                           ->mutable_tensor_type()
                           ->mutable_shape();
        shape.mutable_dim(0)->set_dim_param("past + s");
        shape.mutable_dim(1)->set_dim_value(8);
      });
}

TEST(OnnxExport, KeepsDeclarationsThatInferenceDoesNotContradict) {
  OpRegistry registry;
  auto model = imported(richModel().SerializeAsString(), registry);
  ASSERT_TRUE(model);
  Value& sum = *model->graph().findValue("sum");
  Value& z = *model->graph().findValue("z");
  auto infoNames = [&] {
    model->markEdited();
    std::string names;
    onnx::ModelProto written = parsed(exported(*model));
    for (const auto& info : written.graph().value_info())
      names += info.name() + ";";
    return names;
  };
  sum.setType(TensorType(ElementType::Float, {Dim::unknown(), Dim::fixed(4)}));
  EXPECT_EQ(infoNames(), "sum;defined nowhere;");
  sum.setType(TensorType(ElementType::Float, {Dim::symbol("batch"), Dim::fixed(5)}));
  EXPECT_EQ(infoNames(), "defined nowhere;");
  sum.setType(TensorType(ElementType::Float16));
  EXPECT_EQ(infoNames(), "defined nowhere;");
  sum.setType(TensorType(ElementType::Float, {Dim::fixed(4)}));
  EXPECT_EQ(infoNames(), "defined nowhere;");
  sum.setType(TensorType(ElementType::Float, {Dim::symbol("capacity"), Dim::fixed(4)}));
  EXPECT_EQ(infoNames(), "defined nowhere;");

  // An output's declaration is brought up to date instead.
  z.setType(TensorType(ElementType::Float, {Dim::symbol("capacity"), Dim::unknown()}));
  onnx::ModelProto written = parsed(exported(*model));
  const auto& shape = written.graph().output(0).type().tensor_type().shape();
  EXPECT_EQ(shape.dim(0).dim_param(), "capacity");
  EXPECT_EQ(shape.dim(1).dim_value(), 4);
  EXPECT_EQ(written.graph().output(0).unknown_fields(), unknownField());
}

TEST(OnnxExport, DropsDeclaredNumbersThatMayBeOfAnExtentThatIsOpenNow) {
  OpRegistry registry;
  onnx::ModelProto message = smallModel();
  const auto fix = [](onnx::ValueInfoProto& info) {
    auto& shape = *info.mutable_type()->mutable_tensor_type()->mutable_shape();
    shape.mutable_dim(0)->set_dim_value(3);
  };
  fix(*message.mutable_graph()->mutable_input(0));
  ASSERT_EQ(message.graph().value_info(0).name(), "sum");
  fix(*message.mutable_graph()->mutable_value_info(0));
  auto model = imported(message.SerializeAsString(), registry);
  ASSERT_TRUE(model);
  Value& input = *model->graph().inputs()[0];
  Value& sum = *model->graph().findValue("sum");
  const auto isDeclared = [&](const TensorType& type) {
    sum.setType(type);
    model->markEdited();
    return parsed(exported(*model)).graph().value_info_size() == 1;
  };
  const TensorType rows(ElementType::Float, {Dim::unknown(), Dim::fixed(4)});
  const TensorType other(ElementType::Float, {Dim::fixed(3), Dim::unknown()});
  const TensorType nothing(ElementType::Float);
  EXPECT_TRUE(isDeclared(rows));
  EXPECT_TRUE(isDeclared(nothing));
  input.setType(TensorType(ElementType::Float, {Dim::symbol("rows"), input.type().dim(1)}));
  EXPECT_FALSE(isDeclared(rows));
  EXPECT_FALSE(isDeclared(other));
  EXPECT_FALSE(isDeclared(nothing));
  EXPECT_TRUE(isDeclared(TensorType(ElementType::Float, {Dim::fixed(3), Dim::fixed(4)})));
}

TEST(OnnxExport, WritesNewNodesConstantsAndRemovals) {
  OpRegistry registry;
  auto model = imported(richModel().SerializeAsString(), registry);
  ASSERT_TRUE(model);
  Graph& graph = model->graph();
  Value& z = *graph.findValue("z");
  Value& axes = graph.addConstant("axes", int64Tensor({1, 2}));
  Node& made = graph.create(OpName("ai.kvopt", "Sdpa"), {graph.findValue("sum"), nullptr, &axes},
                            {"attended", ""});
  made.setName("fused");
  made.setAttribute("scale", Attribute::ofFloat(0.25F));
  made.setAttribute("mode", Attribute::ofString("full"));
  made.setAttribute("perm", Attribute::ofInts({0, 2, 1}));
  made.setAttribute("table", Attribute::ofTensor(int64Scalar(9)));
  made.setAttribute("linked", Attribute::reference("outer", AttributeKind::Int));
  made.setMetadata({{"rule", "concat-sdpa"}});
  made.result().setType(TensorType(ElementType::Float, {Dim::symbol("batch"), Dim::fixed(4)}));
  Node* old = z.producer();
  z.replaceAllUsesWith(made.result());
  graph.erase(*old);

  onnx::ModelProto written = parsed(exported(*model));
  const onnx::GraphProto& out = written.graph();
  ASSERT_EQ(out.node_size(), 3);
  const onnx::NodeProto& node = out.node(2);
  EXPECT_EQ(node.name(), "fused");
  EXPECT_EQ(node.domain(), "ai.kvopt");
  EXPECT_EQ(node.op_type(), "Sdpa");
  ASSERT_EQ(node.input_size(), 3);
  EXPECT_EQ(node.input(0), "sum");
  EXPECT_EQ(node.input(1), "");
  EXPECT_EQ(node.input(2), "axes");
  ASSERT_EQ(node.output_size(), 2);
  EXPECT_EQ(node.output(0), "z");
  EXPECT_EQ(node.output(1), "");
  ASSERT_EQ(node.attribute_size(), 5);
  EXPECT_EQ(node.attribute(0).f(), 0.25F);
  EXPECT_EQ(node.attribute(1).s(), "full");
  EXPECT_EQ(node.attribute(2).ints_size(), 3);
  EXPECT_EQ(node.attribute(2).type(), onnx::AttributeProto::INTS);
  EXPECT_EQ(node.attribute(3).t().raw_data().size(), 8U);
  EXPECT_EQ(node.attribute(4).ref_attr_name(), "outer");
  EXPECT_EQ(node.metadata_props(0).value(), "concat-sdpa");
  const onnx::TensorProto& added = out.initializer(out.initializer_size() - 1);
  EXPECT_EQ(added.name(), "axes");
  EXPECT_EQ(added.data_type(), onnx::TensorProto::INT64);
  EXPECT_EQ(added.dims(0), 2);
  EXPECT_EQ(added.raw_data().size(), 16U);
  EXPECT_EQ(out.output(0).name(), "z");
  EXPECT_EQ(out.output(0).unknown_fields(), unknownField());
  EXPECT_EQ(written.training_info_size(), 1);
  EXPECT_EQ(out.sparse_initializer_size(), 1);
  EXPECT_EQ(out.quantization_annotation_size(), 1);
}

TEST(OnnxExport, WritesModelsMadeFromNothing) {
  OpRegistry registry;
  Model model(registry);
  model.opsets[""] = 17;
  Graph& graph = model.graph();
  graph.setName("made");
  Value& x = graph.addInput(
      "x", TensorType(ElementType::Float, {Dim::symbol("batch"), Dim::unknown(), Dim::fixed(3)}));
  Node& node = graph.create("Relu", {&x}, {"y"});
  node.result().setType(x.type());
  graph.addOutput(node.result());
  std::string bytes = exported(model);
  auto again = imported(bytes, registry);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->graph().inputs()[0]->type(), x.type());
  EXPECT_EQ(again->graph().outputs()[0]->type(), x.type());
  EXPECT_EQ(again->irVersion, model.irVersion);
  EXPECT_EQ(again->graph().opsetVersion(), 17);
  EXPECT_TRUE(exported(*again, {.reserialize = true}) == bytes);
}

/// Claims to be large, and fails the test if anybody wants its bytes.
class UntouchableTensor final : public TensorData {
public:
  UntouchableTensor() : TensorData(ElementType::Int32, {1 << 30}, 1 << 30) {}
  llvm::Expected<std::span<const std::byte>> bytes() const override {
    ADD_FAILURE() << "the bytes were asked for";
    return std::span<const std::byte>();
  }
};

TEST(OnnxExport, RefusesTwoGiBBeforeWritingAnything) {
  OpRegistry registry;
  TemporaryFolder folder;
  auto model = imported(smallModel().SerializeAsString(), registry);
  ASSERT_TRUE(model);
  model->graph().addConstant("huge", std::make_shared<UntouchableTensor>());
  std::string text = failureOf(exportModel(*model, folder.path("out.onnx")));
  EXPECT_THAT(text, HasSubstr("2 GiB"));
  EXPECT_EQ(folder.entryCount(), 0U);
}

TEST(OnnxExport, RefusesWhatCouldNotBeReadAgain) {
  OpRegistry registry;
  TemporaryFolder folder;
  auto model = imported(smallModel().SerializeAsString(), registry);
  ASSERT_TRUE(model);
  const Dim extent = Dim::fixed(int64_t{1} << 48);
  model->graph().inputs()[0]->setType({ElementType::Float, {extent, Dim::fixed(8)}});
  const char* reason = "'x': a tensor of type float[281474976710656, 8] does not fit into memory";
  EXPECT_THAT(failureOf(exportModelBytes(*model).takeError()), HasSubstr(reason));
  EXPECT_THAT(failureOf(exportModel(*model, folder.path("out.onnx"))), HasSubstr(reason));
  EXPECT_EQ(folder.entryCount(), 0U);
}

TEST(OnnxExport, WritesFilesButNeverOverItsOwn) {
  OpRegistry registry;
  TemporaryFolder folder;
  std::string bytes = richModel().SerializeAsString();
  std::string path = folder.write("in.onnx", bytes);
  auto model = importModel(path, registry);
  ASSERT_TRUE(static_cast<bool>(model));
  ASSERT_FALSE(exportModel(**model, folder.path("out.onnx")));
  EXPECT_TRUE(folder.read("out.onnx") == bytes);
  ASSERT_FALSE(exportModel(**model, folder.path("again.onnx"), {.reserialize = true}));
  EXPECT_TRUE(folder.read("again.onnx") == bytes);

  std::filesystem::create_symlink(path, folder.path("link.onnx"));
  std::filesystem::create_hard_link(path, folder.path("hard.onnx"));
  for (const char* name : {"in.onnx", "./in.onnx", "link.onnx", "hard.onnx"})
    EXPECT_THAT(failureOf(exportModel(**model, folder.path(name))),
                HasSubstr("would overwrite the model"))
        << name;
  EXPECT_TRUE(folder.read("in.onnx") == bytes);
  EXPECT_THAT(failureOf(exportModel(**model, folder.path("no/such/folder/out.onnx"))),
              HasSubstr("folder"));
}

TEST(OnnxExport, KeepsExternalDataBesideTheModelOnly) {
  OpRegistry registry;
  TemporaryFolder folder;
  onnx::ModelProto message = smallModel();
  onnx::TensorProto& tensor = *message.mutable_graph()->mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  tensor.add_external_data()->set_key("location");
  tensor.mutable_external_data(0)->set_value("weights.bin");
  folder.write("weights.bin", std::string(16, 'w'));
  auto model = importModel(folder.write("in.onnx", message.SerializeAsString()), registry);
  ASSERT_TRUE(static_cast<bool>(model));
  ASSERT_FALSE(exportModel(**model, folder.path("out.onnx")));
  EXPECT_TRUE(folder.read("out.onnx") == message.SerializeAsString());
  TemporaryFolder other;
  for (bool edited : {false, true}) {
    if (edited)
      (*model)->setMetadata("edited", "yes");
    EXPECT_THAT(failureOf(exportModel(**model, other.path("out.onnx"))),
                HasSubstr("external data"));
    EXPECT_THAT(failureOf(exportModel(**model, folder.path("weights.bin"))),
                HasSubstr("would overwrite external data of the model"));
  }
  EXPECT_EQ(other.entryCount(), 0U);
  EXPECT_EQ(folder.read("weights.bin"), std::string(16, 'w'));
}

TEST(OnnxExport, RefusesToLoseASparseInitializer) {
  OpRegistry registry;
  auto model = imported(richModel().SerializeAsString(), registry);
  ASSERT_TRUE(model);
  model->graph().rename(*model->graph().findValue("sparse"), "other");
  auto bytes = exportModelBytes(*model);
  ASSERT_FALSE(static_cast<bool>(bytes));
  EXPECT_THAT(takeDiagnostic(bytes.takeError()).str(), HasSubstr("value 'other'"));
}

} // namespace
} // namespace kvopt
