// Import: what models become, and that malformed ones become one error.
#include "ir/onnx/import.h"

#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/support/output_at.h"
#include "tests/support/temporary_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <random>
#include <thread>
#include <unistd.h>

namespace kvopt {
using namespace ir;

namespace {

using testing::HasSubstr;

std::unique_ptr<Model> accepted(const onnx::ModelProto& message, const OpRegistry& registry,
                                const std::string& folder = "") {
  auto model = importText(message.SerializePartialAsString(), registry, folder);
  if (model)
    return std::move(*model);
  ADD_FAILURE() << takeDiagnostic(model.takeError()).str();
  return nullptr;
}

std::string failureOf(llvm::Expected<std::span<const std::byte>> bytes) {
  if (bytes) {
    ADD_FAILURE() << "the bytes were given";
    return "";
  }
  return takeDiagnostic(bytes.takeError()).str();
}

template <typename T> std::vector<T> elements(const TensorData& tensor) {
  std::span<const std::byte> bytes = llvm::cantFail(tensor.bytes());
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class OnnxImport : public testing::Test {
protected:
  OpRegistry registry;
  onnx::ModelProto message = smallModel();
  onnx::GraphProto& graph = *message.mutable_graph();
};

TEST_F(OnnxImport, ReadsEverythingOfASmallModel) {
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  EXPECT_FALSE(model->isEdited());
  EXPECT_EQ(model->irVersion, 8);
  EXPECT_EQ(model->producerName, "test");
  EXPECT_EQ(model->docString, "model doc");
  EXPECT_EQ(*model->findMetadata("author"), "somebody");
  Graph& read = model->graph();
  EXPECT_EQ(read.opsetVersion(), 17);
  EXPECT_EQ(read.name(), "main");
  ASSERT_EQ(read.inputs().size(), 1U);
  EXPECT_EQ(read.inputs()[0]->type().str(), "float[batch, 4]");
  ASSERT_EQ(read.nodes().size(), 2U);
  Node& add = read.nodes().front();
  EXPECT_EQ(add.op(), OpName("Add"));
  EXPECT_FALSE(add.isEdited());
  EXPECT_EQ(add.operand(0), read.inputs()[0].get());
  EXPECT_EQ(elements<float>(*add.operand(1)->constant()), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(add.result().type().str(), "float[batch, 4]");
  EXPECT_EQ(read.nodes().back().floatAttr("alpha", 0), 0.5F);
  ASSERT_EQ(read.outputs().size(), 1U);
  EXPECT_EQ(read.outputs()[0], &read.nodes().back().result());
}

TEST_F(OnnxImport, ReadsExtentsWithoutInventingEqualities) {
  declare(*graph.add_input(), "d",
          {"past + seq", "seq+past", "batch size", "floor(a/2)", "-3", "", "None", "s-1"});
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  llvm::ArrayRef<Dim> shape = model->graph().inputs()[1]->type().shape();
  EXPECT_EQ(shape[0], shape[1]);
  EXPECT_FALSE(shape[0].isUnknown());
  EXPECT_EQ(shape[2], Dim::symbol("batch size"));
  EXPECT_TRUE(shape[3].isUnknown());
  EXPECT_TRUE(shape[4].isUnknown());
  EXPECT_TRUE(shape[5].isUnknown());
  EXPECT_TRUE(shape[6].isUnknown());
  EXPECT_EQ(shape[7], Dim::symbol("s") - Dim::fixed(1));
}

TEST_F(OnnxImport, DecodesTypedFields) {
  auto add = [&](const char* name, int type) -> onnx::TensorProto& {
    onnx::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    tensor.add_dims(3);
    return tensor;
  };
  onnx::TensorProto& int8 = add("i8", onnx::TensorProto::INT8);
  onnx::TensorProto& boolean = add("b", onnx::TensorProto::BOOL);
  onnx::TensorProto& half = add("f16", onnx::TensorProto::FLOAT16);
  onnx::TensorProto& int64 = add("i64", onnx::TensorProto::INT64);
  onnx::TensorProto& uint32 = add("u32", onnx::TensorProto::UINT32);
  onnx::TensorProto& real = add("f64", onnx::TensorProto::DOUBLE);
  onnx::TensorProto& four = add("u4", 21);
  for (int i : {-1, 0, 2}) {
    int8.add_int32_data(i);
    boolean.add_int32_data(i);
    half.add_int32_data(i + 0x3c00);
    int64.add_int64_data(i);
    uint32.add_uint64_data(static_cast<uint64_t>(i + 1));
    real.add_double_data(i);
  }
  four.add_int32_data(0x21);
  four.add_int32_data(0x03);
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  auto tensor = [&](const char* name) -> const TensorData& {
    return *model->graph().findValue(name)->constant();
  };
  EXPECT_EQ(elements<int8_t>(tensor("i8")), (std::vector<int8_t>{-1, 0, 2}));
  EXPECT_EQ(elements<uint8_t>(tensor("b")), (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_EQ(elements<uint16_t>(tensor("f16")), (std::vector<uint16_t>{0x3bff, 0x3c00, 0x3c02}));
  EXPECT_EQ(elements<int64_t>(tensor("i64")), (std::vector<int64_t>{-1, 0, 2}));
  EXPECT_EQ(elements<uint32_t>(tensor("u32")), (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(elements<double>(tensor("f64")), (std::vector<double>{-1, 0, 2}));
  EXPECT_EQ(elements<uint8_t>(tensor("u4")), (std::vector<uint8_t>{0x21, 0x03}));
}

TEST_F(OnnxImport, DecodesOnceWhenThreadsAskTogether) {
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name("i8");
  tensor.set_data_type(onnx::TensorProto::INT8);
  tensor.add_dims(1000);
  for (int i = 0; i < 1000; ++i)
    tensor.add_int32_data(i % 100);
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  TensorRef read = model->graph().findValue("i8")->constantRef();
  std::vector<const std::byte*> addresses(4);
  std::vector<std::thread> threads;
  for (const std::byte*& address : addresses)
    threads.emplace_back([&read, &address] { address = llvm::cantFail(read->bytes()).data(); });
  for (std::thread& thread : threads)
    thread.join();
  for (const std::byte* address : addresses)
    EXPECT_EQ(address, addresses[0]);
  model.reset(); // a tensor outlives its model
  EXPECT_EQ(elements<int8_t>(*read)[42], 42);
}

TEST_F(OnnxImport, ReadsDefaultsOfInputs) {
  addFloats(*graph.add_initializer(), "x", {5});
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  const Value& x = *model->graph().findValue("x");
  EXPECT_TRUE(x.isGraphInput());
  EXPECT_EQ(x.constant(), nullptr);
  ASSERT_TRUE(x.initializer());
  EXPECT_EQ(elements<float>(*x.initializer()), (std::vector<float>{5}));
}

TEST_F(OnnxImport, ReadsConstantsOfEveryForm) {
  auto constant = [&](const char* name) -> onnx::AttributeProto& {
    return *addNode(graph, "Constant", {}, {std::string(name) + "_out"}).add_attribute();
  };
  onnx::AttributeProto& whole = constant("ints");
  whole.set_name("value_ints");
  whole.set_type(onnx::AttributeProto::INTS);
  whole.add_ints(7);
  whole.add_ints(-8);
  onnx::AttributeProto& real = constant("float");
  real.set_name("value_float");
  real.set_f(2.5F); // without a type, as the first ONNX version wrote it
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  EXPECT_EQ(elements<int64_t>(*model->graph().findValue("ints_out")->constant()),
            (std::vector<int64_t>{7, -8}));
  EXPECT_EQ(elements<float>(*model->graph().findValue("float_out")->constant()),
            (std::vector<float>{2.5F}));
}

void addBranch(onnx::NodeProto& node, const std::string& outer, const std::string& inner) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("then_branch");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  onnx::GraphProto& branch = *attribute.mutable_g();
  branch.set_name("branch");
  addNode(branch, "Neg", {outer}, {inner});
  branch.add_output()->set_name(inner);
}

TEST_F(OnnxImport, SubgraphsCaptureOuterValues) {
  onnx::NodeProto& node = addNode(graph, "If", {"sum"}, {"chosen"});
  addBranch(node, "sum", "negative");
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  Node& holder = model->graph().nodes().back();
  llvm::SmallVector<Value*, 4> captured = capturedValues(holder);
  ASSERT_EQ(captured.size(), 1U);
  EXPECT_EQ(captured[0]->name(), "sum");
  EXPECT_EQ(holder.attribute("then_branch")->graphs().front()->parentNode(), &holder);
}

TEST_F(OnnxImport, SubgraphsMayReturnOuterValues) {
  onnx::NodeProto& node = addNode(graph, "If", {"sum"}, {"chosen"});
  addBranch(node, "sum", "negative");
  node.mutable_attribute(0)->mutable_g()->mutable_output(0)->set_name("x");
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  const Graph& branch = *model->graph().nodes().back().attribute("then_branch")->graphs().front();
  EXPECT_EQ(branch.outputs()[0], model->graph().inputs()[0].get());
}

TEST_F(OnnxImport, OutputsMayBeInputsAndInitializers) {
  graph.add_output()->set_name("x");
  graph.add_output()->set_name("w");
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  EXPECT_TRUE(model->graph().findValue("x")->isGraphOutput());
  EXPECT_TRUE(model->graph().findValue("w")->isGraphOutput());
}

TEST_F(OnnxImport, ReadsFunctionsWithAttributeReferences) {
  onnx::FunctionProto& function = *message.add_functions();
  function.set_domain("my");
  function.set_name("Scaled");
  function.add_input("a");
  function.add_output("b");
  function.add_attribute("factor");
  onnx::AttributeProto& fallback = *function.add_attribute_proto();
  fallback.set_name("offset");
  fallback.set_type(onnx::AttributeProto::INT);
  fallback.set_i(3);
  function.add_opset_import()->set_version(17);
  onnx::NodeProto& node = *function.add_node();
  node.set_op_type("LeakyRelu");
  node.add_input("a");
  node.add_output("b");
  onnx::AttributeProto& reference = *node.add_attribute();
  reference.set_name("alpha");
  reference.set_type(onnx::AttributeProto::FLOAT);
  reference.set_ref_attr_name("factor");
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  Function* read = model->findFunction(OpName("my", "Scaled"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->attributes, std::vector<std::string>{"factor"});
  ASSERT_EQ(read->defaults.size(), 1U);
  EXPECT_EQ(read->defaults[0].value.intValue(), 3);
  const Attribute* alpha = read->body.nodes().front().attribute("alpha");
  ASSERT_TRUE(alpha && alpha->isReference());
  EXPECT_EQ(alpha->referencedName(), "factor");
  EXPECT_EQ(alpha->kind(), AttributeKind::Float);
  message.add_functions()->CopyFrom(function);
  EXPECT_THAT(refusal(message), HasSubstr("defined twice"));
}

TEST_F(OnnxImport, RefusesUndefinedAndLateOperands) {
  graph.mutable_node(1)->set_input(0, "nowhere");
  std::string text = refusal(message);
  EXPECT_THAT(text, HasSubstr("node 'node_z' (Relu)"));
  EXPECT_THAT(text, HasSubstr("value 'nowhere': reads a value that nothing defines"));

  message.CopyFrom(smallModel());
  graph.mutable_node(0)->set_input(1, "z");
  text = refusal(message);
  EXPECT_THAT(text, HasSubstr("a cycle through 'node_sum' (Add), 'node_z' (Relu)"));
  EXPECT_THAT(text, HasSubstr("node 'node_sum' (Add): value 'z'"));

  message.CopyFrom(smallModel());
  graph.mutable_node(0)->set_input(1, "sum");
  EXPECT_THAT(refusal(message), HasSubstr("value 'sum': reads what is computed from its own"));

  message.CopyFrom(smallModel());
  graph.add_output()->set_name("nowhere");
  EXPECT_THAT(refusal(message), HasSubstr("nothing defines"));

  message.CopyFrom(smallModel());
  addBranch(addNode(graph, "If", {"sum"}, {"chosen"}), "chosen", "negative");
  EXPECT_THAT(refusal(message), HasSubstr("value 'chosen'"));
}

TEST_F(OnnxImport, SortsNodesThatComeTooEarly) {
  graph.mutable_node()->SwapElements(0, 1);
  auto model = accepted(message, registry);
  ASSERT_TRUE(model);
  ASSERT_EQ(model->graph().nodes().size(), 2U);
  EXPECT_EQ(model->graph().nodes().front().op(), OpName("Add"));
  EXPECT_EQ(model->graph().nodes().back().op(), OpName("Relu"));

  // A branch that reads what comes after the node it belongs to; other nodes stay in order.
  message.CopyFrom(smallModel());
  addBranch(addNode(graph, "If", {"sum"}, {"chosen"}), "late", "inside");
  addNode(graph, "Neg", {"x"}, {"other"});
  addNode(graph, "Neg", {"z"}, {"late"});
  model = accepted(message, registry);
  ASSERT_TRUE(model);
  std::vector<std::string> order;
  for (const Node& node : model->graph().nodes())
    order.push_back(node.result().name().str());
  EXPECT_EQ(order, (std::vector<std::string>{"sum", "z", "other", "late", "chosen"}));

  // Within a branch.
  message.CopyFrom(smallModel());
  onnx::NodeProto& choice = addNode(graph, "If", {"sum"}, {"chosen"});
  addBranch(choice, "sum", "inside");
  onnx::GraphProto& branch = *choice.mutable_attribute(0)->mutable_g();
  addNode(branch, "Neg", {"last"}, {"wanted"});
  addNode(branch, "Abs", {"inside"}, {"last"});
  branch.mutable_output(0)->set_name("wanted");
  model = accepted(message, registry);
  ASSERT_TRUE(model);
  const Graph& inner = *model->graph().nodes().back().attribute("then_branch")->graphs().front();
  EXPECT_EQ(inner.nodes().back().op(), OpName("Neg"));
}

TEST_F(OnnxImport, RefusesNamesDefinedTwice) {
  addNode(graph, "Neg", {"x"}, {"sum"});
  EXPECT_THAT(refusal(message), HasSubstr("value 'sum'"));
  message.CopyFrom(smallModel());
  addNode(graph, "Split", {"x"}, {"a", "a"});
  EXPECT_THAT(refusal(message), HasSubstr("two results of one name"));
  message.CopyFrom(smallModel());
  addFloats(*graph.add_initializer(), "w", {1});
  EXPECT_THAT(refusal(message), HasSubstr("value 'w'"));
  message.CopyFrom(smallModel());
  declare(*graph.add_input(), "x", {});
  EXPECT_THAT(refusal(message), HasSubstr("value 'x'"));
  message.CopyFrom(smallModel());
  addBranch(addNode(graph, "If", {"sum"}, {"chosen"}), "x", "sum");
  EXPECT_THAT(refusal(message), HasSubstr("hides a value"));
  message.CopyFrom(smallModel());
  graph.mutable_node(1)->add_attribute()->CopyFrom(graph.node(1).attribute(0));
  EXPECT_THAT(refusal(message), HasSubstr("'alpha' is given twice"));
}

TEST_F(OnnxImport, RefusesContentsThatAreNotTheShape) {
  auto withDims = [&](std::vector<int64_t> dims) {
    message.CopyFrom(smallModel());
    graph.mutable_initializer(0)->clear_dims();
    for (int64_t dim : dims)
      graph.mutable_initializer(0)->add_dims(dim);
    return refusal(message);
  };
  EXPECT_THAT(withDims({int64_t{1} << 40}), HasSubstr("holds 16 bytes"));
  EXPECT_THAT(withDims({int64_t{1} << 40, int64_t{1} << 40}), HasSubstr("64 bits"));
  EXPECT_THAT(withDims({int64_t{1} << 61}), HasSubstr("64 bits"));
  EXPECT_THAT(withDims({-4}), HasSubstr("negative"));
  EXPECT_THAT(withDims({3}), HasSubstr("value 'w'"));
  message.CopyFrom(smallModel());
  onnx::TensorProto& tensor = *graph.mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_dims(0, int64_t{1} << 40);
  tensor.add_float_data(1);
  EXPECT_THAT(refusal(message), HasSubstr("holds 1 values"));
}

TEST_F(OnnxImport, RefusesWhatIsNoModel) {
  EXPECT_THAT(refusal(std::string()), HasSubstr("not an ONNX model"));
  EXPECT_THAT(refusal(std::string("This is a text file.\nWith two lines.\n")),
              HasSubstr("not an ONNX model"));
  message.clear_graph();
  EXPECT_THAT(refusal(message), HasSubstr("no graph"));

  TemporaryFolder folder;
  auto missing = importModel(folder.path("missing.onnx"), registry);
  ASSERT_FALSE(missing);
  Diagnostic diagnostic = takeDiagnostic(missing.takeError());
  EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Io);
  EXPECT_EQ(diagnostic.file, folder.path("missing.onnx"));
  auto text = importModel(folder.write("text.onnx", "hello"), registry);
  ASSERT_FALSE(text);
  diagnostic = takeDiagnostic(text.takeError());
  EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Invalid);
  EXPECT_EQ(diagnostic.file, folder.path("text.onnx"));
}

/// Clones without the large files have small texts in their place.
TEST_F(OnnxImport, NamesPointerFilesOfGitLfs) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\n"
                              "oid sha256:" +
                              std::string(64, 'a') + "\nsize 523000000\n";
  TemporaryFolder folder;
  auto model = importModel(folder.write("model.onnx", pointer), registry);
  ASSERT_FALSE(model);
  Diagnostic diagnostic = takeDiagnostic(model.takeError());
  EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Invalid);
  EXPECT_THAT(diagnostic.message, HasSubstr("pointer of Git LFS"));
  EXPECT_EQ(diagnostic.hint, "git lfs pull");

  folder.write("weights", pointer);
  onnx::TensorProto& tensor = *graph.mutable_initializer(0);
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto& location = *tensor.add_external_data();
  location.set_key("location");
  location.set_value("weights");
  auto external = accepted(message, registry, folder.path());
  ASSERT_TRUE(external);
  auto bytes = external->graph().findValue("w")->constant()->bytes();
  ASSERT_FALSE(bytes);
  diagnostic = takeDiagnostic(bytes.takeError());
  EXPECT_THAT(diagnostic.message, HasSubstr("pointer of Git LFS"));
  EXPECT_EQ(diagnostic.hint, "git lfs pull");
  EXPECT_EQ(diagnostic.file, folder.path("weights"));
}

TEST_F(OnnxImport, RefusesFilesBeyondTwoGiB) {
  TemporaryFolder folder;
  std::string path = folder.write("huge.onnx", "");
  ASSERT_EQ(::truncate(path.c_str(), off_t{3} << 30), 0); // sparse: takes no space
  auto model = importModel(path, registry);
  ASSERT_FALSE(model);
  EXPECT_THAT(takeDiagnostic(model.takeError()).str(), HasSubstr("2 GiB"));
}

TEST_F(OnnxImport, LimitsNesting) {
  auto nested = [](int levels) {
    onnx::ModelProto deep = smallModel();
    onnx::GraphProto* level = deep.mutable_graph();
    for (int i = 0; i < levels; ++i) {
      onnx::AttributeProto& attribute =
          *addNode(*level, "If", {}, {"r" + std::to_string(i)}).add_attribute();
      attribute.set_name("body");
      attribute.set_type(onnx::AttributeProto::GRAPH);
      level = attribute.mutable_g();
    }
    return deep;
  };
  EXPECT_TRUE(accepted(nested(60), registry));
  EXPECT_THAT(refusal(nested(70)), HasSubstr("nested"));
  for (int levels : {200, 300, 1000})
    EXPECT_THAT(refusal(nested(levels)), HasSubstr("nested too deeply"));
  std::string torn = nested(300).SerializePartialAsString();
  torn.resize(torn.size() / 2);
  EXPECT_THAT(refusal(torn), HasSubstr("truncated"));
}

TEST_F(OnnxImport, OpensExternalDataOnlyWhenAskedAndOnlyBeneath) {
  auto external = [&](std::vector<std::pair<const char*, std::string>> entries) {
    onnx::TensorProto& tensor = *graph.mutable_initializer(0);
    tensor.clear_raw_data();
    tensor.clear_external_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& entry : entries) {
      auto& written = *tensor.add_external_data();
      written.set_key(entry.first);
      written.set_value(entry.second);
    }
  };
  TemporaryFolder outer;
  std::filesystem::create_directory(outer.path("model"));
  std::string folder = outer.path("model");
  std::vector<float> values{9, 1, 2, 3, 4};
  std::string data(reinterpret_cast<const char*>(values.data()), 20);
  outer.write("secret", data);
  outer.write("model/weights", data);
  std::filesystem::create_symlink(outer.path("secret"), outer.path("model/link"));
  auto bytes = [&]() -> std::string {
    auto model = accepted(message, registry, folder);
    if (!model)
      return "";
    return failureOf(model->graph().findValue("w")->constant()->bytes());
  };

  external({{"location", "weights"}, {"offset", "4"}, {"length", "16"}});
  auto model = accepted(message, registry, folder);
  ASSERT_TRUE(model);
  EXPECT_EQ(elements<float>(*model->graph().findValue("w")->constant()),
            (std::vector<float>{1, 2, 3, 4}));
  external({{"location", "weights"}, {"offset", "4"}});
  model = accepted(message, registry, folder);
  ASSERT_TRUE(model);
  EXPECT_EQ(elements<float>(*model->graph().findValue("w")->constant())[3], 4.0F);

  external({{"location", "missing"}, {"length", "16"}});
  EXPECT_THAT(bytes(), HasSubstr("value 'w': cannot open"));
  external({{"location", "../secret"}, {"length", "16"}});
  EXPECT_THAT(bytes(), HasSubstr("'..'"));
  external({{"location", outer.path("secret")}, {"length", "16"}});
  EXPECT_THAT(bytes(), HasSubstr("absolute"));
  external({{"location", "link"}, {"length", "16"}});
  EXPECT_THAT(bytes(), HasSubstr("link"));
  external({{"location", "weights"}, {"length", "12"}});
  EXPECT_THAT(bytes(), HasSubstr("12 bytes"));
  external({{"location", "weights"}, {"offset", "8"}, {"length", "16"}});
  EXPECT_THAT(bytes(), HasSubstr("weights"));
  external({{"location", "weights"}, {"offset", "18446744073709551615"}, {"length", "16"}});
  EXPECT_THAT(bytes(), HasSubstr("weights"));
  external({{"location", "weights"}, {"offset", "-4"}});
  EXPECT_THAT(bytes(), HasSubstr("offset"));
  external({});
  EXPECT_THAT(bytes(), HasSubstr("without a location"));
}

TEST_F(OnnxImport, TensorFilesRoundTrip) {
  TemporaryFolder folder;
  std::string path = folder.path("tensor.pb");
  ASSERT_FALSE(exportTensorFile(*int64Tensor({1, -2, 3}), "ids", outputAt(path)));
  auto read = importTensorFile(path);
  ASSERT_TRUE(static_cast<bool>(read));
  EXPECT_EQ(read->first, "ids");
  EXPECT_EQ(elements<int64_t>(*read->second), (std::vector<int64_t>{1, -2, 3}));
  ASSERT_FALSE(exportTensorFile(*read->second, "renamed", outputAt(path)));
  read = importTensorFile(path);
  ASSERT_TRUE(static_cast<bool>(read));
  EXPECT_EQ(read->first, "renamed");
  auto garbage = importTensorFile(folder.write("garbage.pb", "garbage"));
  ASSERT_FALSE(static_cast<bool>(garbage));
  EXPECT_EQ(takeDiagnostic(garbage.takeError()).file, folder.path("garbage.pb"));
}

/// Whatever the bytes are: a model, or an error with a message.
unsigned acceptedDamage(const std::string& bytes) {
  OpRegistry registry;
  auto model = importText(bytes, registry);
  if (!model) {
    EXPECT_FALSE(takeDiagnostic(model.takeError()).str().empty());
    return 0;
  }
  auto written = exportModelBytes(**model, {.reserialize = true});
  if (!written)
    llvm::consumeError(written.takeError());
  for (const auto& initializer : (*model)->graph().initializers())
    if (initializer->constant())
      if (auto data = initializer->constant()->bytes(); !data)
        llvm::consumeError(data.takeError());
  return 1;
}

TEST_F(OnnxImport, SurvivesTruncationAndBitFlips) {
  addBranch(addNode(graph, "If", {"sum"}, {"chosen"}), "sum", "negative");
  std::vector<std::string> victims{message.SerializeAsString()};
  std::string fromCorpus = (corpusFolder() / "llama_gqa-ts14-eager" / "model.onnx").string();
  if (std::filesystem::exists(fromCorpus))
    victims.push_back(readWhole(fromCorpus));
  else
    std::cout << "no corpus: " << fromCorpus << " is not damaged\n";
  std::mt19937 random(20);
  for (const std::string& victim : victims) {
    unsigned whole = 0;
    size_t step = victim.size() < 10000 ? 1 : 97;
    for (size_t length = 0; length < victim.size(); length += step)
      whole += acceptedDamage(victim.substr(0, length));
    // Only a cut between two top-level fields after the graph can leave a model.
    EXPECT_LT(whole, 8U);
    for (int flip = 0; flip < 500; ++flip) {
      std::string damaged = victim;
      size_t bit = random() % (damaged.size() * 8);
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      acceptedDamage(damaged);
    }
  }
}

/// Time quadratic in the nodes would be minutes.
TEST_F(OnnxImport, LongChains) {
  std::string last = "sum";
  for (int i = 0; i < 20000; ++i) {
    std::string next = "v" + std::to_string(i);
    addNode(graph, "Add", {last, "w"}, {next});
    last = next;
  }
  std::string bytes = message.SerializeAsString();
  auto model = importText(bytes, registry);
  ASSERT_TRUE(static_cast<bool>(model));
  EXPECT_EQ((*model)->graph().nodes().size(), 20002U);
}

} // namespace
} // namespace kvopt
