// External data: places, streaming, and models that come back as they were.
#include "ir/onnx/external_data.h"

#include "ir/onnx/external_check.h"
#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;

namespace {

using testing::HasSubstr;

TensorRef numbers(int64_t count, float first) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(first + static_cast<float>(i));
  return floatTensor(values);
}

std::string externalFailureOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "no error";
}

/// A tensor of any size without contents.
class PretendedTensor final : public TensorData {
public:
  explicit PretendedTensor(int64_t length) : TensorData(ElementType::UInt8, {length}, length) {}
  llvm::Expected<std::span<const std::byte>> bytes() const override {
    return ioError("there is nothing to read");
  }
};

TEST(ExternalData, PlacesFollowEachOtherAligned) {
  ExternalData data("w", 8);
  const TensorRef large = numbers(2000, 0);
  const TensorRef next = numbers(3, 0);
  const TensorRef small = numbers(1, 0);
  EXPECT_EQ(llvm::cantFail(data.place(*large)), 0);
  EXPECT_EQ(llvm::cantFail(data.place(*next)), 8192);
  EXPECT_EQ(llvm::cantFail(data.place(*large)), 0);
  EXPECT_EQ(llvm::cantFail(data.place(*small)), std::nullopt);
  EXPECT_EQ(data.fileBytes(), 8192 + 12);
  ExternalData nowhere("", 0);
  EXPECT_EQ(llvm::cantFail(nowhere.place(*large)), std::nullopt);
}

TEST(ExternalData, SizesDoNotOverflow) {
  ExternalData data("w", 0);
  const PretendedTensor huge(INT64_MAX / 8);
  std::vector<std::unique_ptr<PretendedTensor>> more;
  for (unsigned i = 0; i < 7; ++i)
    ASSERT_TRUE(static_cast<bool>(
        data.place(*more.emplace_back(std::make_unique<PretendedTensor>(INT64_MAX / 8)))));
  EXPECT_EQ(llvm::toString(data.place(huge).takeError()).find("no error"), std::string::npos);
}

struct Written {
  TemporaryFolder folder;
  OpRegistry registry;
  std::string path = folder.path("m.onnx");

  Written() {
    Model model(registry);
    model.opsets[""] = 17;
    Value& x = model.graph().addInput("x", TensorType::fixed(ElementType::Float, {500}));
    Value& a = model.graph().addInitializer("a", numbers(500, 1));
    Value& b = model.graph().addInitializer("b", numbers(400, 2));
    Value& c = model.graph().addInitializer("c", numbers(3, 3));
    Node& node = model.graph().create(OpName("Sum"), {&x, &a, &b, &c}, {"y"});
    model.graph().addOutput(node.result());
    ExportOptions options;
    options.externalFile = "m.onnx.data";
    EXPECT_EQ(externalFailureOf(exportModel(model, path, options)), "no error");
  }
};

TEST(ExternalData, ComesBackAsItWas) {
  Written written;
  EXPECT_EQ(written.folder.read("m.onnx.data").size(), 4096u + 1600);
  auto model = llvm::cantFail(importModel(written.path, written.registry));
  const Graph& graph = model->graph();
  for (auto [name, count, first] : {std::tuple("a", 500, 1), {"b", 400, 2}, {"c", 3, 3}}) {
    const auto got = floatValues(*graph.findValue(name)->initializer());
    ASSERT_TRUE(got.has_value());
    ASSERT_EQ(got->size(), static_cast<size_t>(count));
    EXPECT_EQ(got->front(), first);
    EXPECT_EQ(got->back(), first + count - 1);
  }
}

TEST(ExternalData, OfASourceIsNotOverwritten) {
  Written written;
  auto model = llvm::cantFail(importModel(written.path, written.registry));
  model->graph().addConstant("more", numbers(700, 4));
  ExportOptions options;
  options.externalFile = "m.onnx.data";
  EXPECT_THAT(externalFailureOf(exportModel(*model, written.folder.path("n.onnx"), options)),
              HasSubstr("would overwrite external data of the model"));
  options.externalFile = "n.onnx.data";
  EXPECT_EQ(externalFailureOf(exportModel(*model, written.folder.path("n.onnx"), options)),
            "no error");
  EXPECT_EQ(written.folder.read("n.onnx.data").size(), 2800u);
  auto both = llvm::cantFail(importModel(written.folder.path("n.onnx"), written.registry));
  EXPECT_EQ(floatValues(*both->graph().findValue("a")->initializer())->front(), 1);
}

ExportOptions placed(ExternalPlacement placement, const std::string& file = "") {
  ExportOptions options;
  options.placement = placement;
  options.externalFile = file;
  options.externalBytes = INT64_MAX;
  return options;
}

void expectValues(const std::string& path, const OpRegistry& registry) {
  auto model = llvm::cantFail(importModel(path, registry));
  for (auto [name, first] : {std::pair("a", 1), {"b", 2}, {"c", 3}}) {
    auto got = floatValues(*model->graph().findValue(name)->initializer());
    ASSERT_TRUE(got.has_value()) << name;
    EXPECT_EQ(got->front(), first);
  }
}

TEST(ExternalData, IsCopiedIntoOneFile) {
  Written written;
  TemporaryFolder other;
  auto model = llvm::cantFail(importModel(written.path, written.registry));
  // A second name for the same contents, under which they are not copied again.
  Graph& graph = model->graph();
  Value& again = graph.addInitializer("again", graph.findValue("a")->initializer());
  graph.addOutput(again);
  const ExportOptions copy = placed(ExternalPlacement::Copy, "n.data");
  ASSERT_EQ(externalFailureOf(exportModel(*model, other.path("n.onnx"), copy)), "no error");
  EXPECT_EQ(other.entryCount(), 2u);
  EXPECT_EQ(other.read("n.data").size(), 4096u + 1600);
  expectValues(other.path("n.onnx"), written.registry);
  EXPECT_EQ(externalFailureOf(checkExternalData(
                *llvm::cantFail(importModel(other.path("n.onnx"), written.registry)))),
            "no error");
}

TEST(ExternalData, OnlyWhatIsUsedIsCopied) {
  Written written;
  TemporaryFolder other;
  auto model = llvm::cantFail(importModel(written.path, written.registry));
  Graph& graph = model->graph();
  Node& sum = graph.nodes().front();
  sum.setOperand(1, graph.findValue("b"));
  graph.removeInitializer(*graph.findValue("a"));
  ASSERT_EQ(externalFailureOf(exportModel(*model, other.path("n.onnx"),
                                          placed(ExternalPlacement::Copy, "n.data"))),
            "no error");
  EXPECT_EQ(other.read("n.data").size(), 1600u);
}

TEST(ExternalData, IsInlined) {
  Written written;
  TemporaryFolder other;
  auto model = llvm::cantFail(importModel(written.path, written.registry));
  ASSERT_EQ(externalFailureOf(
                exportModel(*model, other.path("n.onnx"), placed(ExternalPlacement::Inline))),
            "no error");
  EXPECT_EQ(other.entryCount(), 1u);
  expectValues(other.path("n.onnx"), written.registry);
  // Nothing is left that lies elsewhere, so that a copy has nothing to copy.
  auto inlined = llvm::cantFail(importModel(other.path("n.onnx"), written.registry));
  EXPECT_TRUE(externalFilesOf(*inlined).empty());
  ASSERT_EQ(externalFailureOf(exportModel(*inlined, other.path("o.onnx"),
                                          placed(ExternalPlacement::Copy, "o.data"))),
            "no error");
  EXPECT_EQ(other.read("o.onnx"), other.read("n.onnx"));
  EXPECT_EQ(other.entryCount(), 2u);
}

TEST(ExternalData, LocationsFollowTheModelIntoAnotherFolder) {
  Written written;
  namespace fs = std::filesystem;
  fs::create_directory(written.folder.path("deep"));
  const std::string deep = written.folder.path("deep/m.onnx");
  fs::copy(written.path, deep);
  fs::rename(written.folder.path("m.onnx.data"), written.folder.path("deep/m.onnx.data"));
  auto model = llvm::cantFail(importModel(deep, written.registry));
  // Upwards, where the data lies beneath; and back.
  const std::string up = written.folder.path("up.onnx");
  ASSERT_EQ(externalFailureOf(exportModel(*model, up)), "no error");
  expectValues(up, written.registry);
  auto upper = llvm::cantFail(importModel(up, written.registry));
  EXPECT_EQ(externalFilesOf(*upper),
            std::vector<std::string>{written.folder.path("deep/m.onnx.data")});
  const std::string back = written.folder.path("deep/back.onnx");
  ASSERT_EQ(externalFailureOf(exportModel(*upper, back)), "no error");
  EXPECT_EQ(written.folder.read("deep/back.onnx"), written.folder.read("deep/m.onnx"));
  // Sideways there is no location that would do.
  fs::create_directory(written.folder.path("beside"));
  const std::string beside = written.folder.path("beside/m.onnx");
  FileAccess access;
  EXPECT_THAT(externalFailureOf(checkExport(*model, beside, {}, access)),
              HasSubstr("is not beneath"));
  EXPECT_THAT(externalFailureOf(exportModel(*model, beside)), HasSubstr("is not beneath"));
  // A folder of the output's that leads elsewhere under the same name is not the model's.
  fs::create_directories(written.folder.path("beside/deep"));
  EXPECT_THAT(externalFailureOf(exportModel(*upper, beside)), HasSubstr("is not beneath"));
  EXPECT_EQ(externalFailureOf(exportModel(*model, beside, placed(ExternalPlacement::Copy, "d"))),
            "no error");
  expectValues(beside, written.registry);
}

TEST(ExternalData, ASourceIsNeverOverwritten) {
  Written written;
  auto model = llvm::cantFail(importModel(written.path, written.registry));
  const std::string before = written.folder.read("m.onnx.data");
  for (ExternalPlacement placement :
       {ExternalPlacement::Keep, ExternalPlacement::Copy, ExternalPlacement::Inline})
    EXPECT_THAT(externalFailureOf(exportModel(*model, written.folder.path("m.onnx.data"),
                                              placed(placement, "x"))),
                HasSubstr("would overwrite external data of the model"));
  EXPECT_THAT(externalFailureOf(exportModel(*model, written.folder.path("n.onnx"),
                                            placed(ExternalPlacement::Copy, "m.onnx.data"))),
              HasSubstr("would overwrite external data of the model"));
  EXPECT_THAT(externalFailureOf(exportModel(*model, written.folder.path("n.onnx"),
                                            placed(ExternalPlacement::Copy, "m.onnx"))),
              HasSubstr("would overwrite the model"));
  EXPECT_EQ(written.folder.read("m.onnx.data"), before);
  EXPECT_EQ(written.folder.entryCount(), 2u);
}

TEST(ExternalData, AttributesMoveAndSparseTensorsDoNot) {
  TemporaryFolder folder;
  TemporaryFolder other;
  OpRegistry registry;
  folder.write("w", std::string(16, 'w'));
  auto makeExternal = [](onnx::TensorProto& tensor) {
    tensor.clear_raw_data();
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.clear_dims();
    tensor.add_dims(4);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    tensor.add_external_data()->set_key("location");
    tensor.mutable_external_data(0)->set_value("w");
  };
  onnx::ModelProto message = smallModel();
  onnx::NodeProto& constant = addNode(*message.mutable_graph(), "Constant", {}, {"constant"});
  constant.add_attribute()->set_name("value");
  constant.mutable_attribute(0)->set_type(onnx::AttributeProto::TENSOR);
  makeExternal(*constant.mutable_attribute(0)->mutable_t());
  auto model =
      llvm::cantFail(importModel(folder.write("m.onnx", message.SerializeAsString()), registry));
  for (ExternalPlacement placement : {ExternalPlacement::Copy, ExternalPlacement::Inline}) {
    const std::string out = other.path("n.onnx");
    ASSERT_EQ(externalFailureOf(exportModel(*model, out, placed(placement, "n.data"))), "no error");
    auto moved = llvm::cantFail(importModel(out, registry));
    const Attribute* value = moved->graph().nodes().back().attribute("value");
    ASSERT_NE(value, nullptr);
    auto bytes = llvm::cantFail(value->tensorValue()->bytes());
    EXPECT_EQ(std::to_integer<char>(bytes[15]), 'w');
    EXPECT_EQ(externalFilesOf(*moved).size(), placement == ExternalPlacement::Copy ? 1u : 0u);
  }
  onnx::SparseTensorProto& sparse = *message.mutable_graph()->add_sparse_initializer();
  addFloats(*sparse.mutable_values(), "sparse", {1});
  makeExternal(*sparse.mutable_values());
  sparse.add_dims(100);
  model =
      llvm::cantFail(importModel(folder.write("s.onnx", message.SerializeAsString()), registry));
  TemporaryFolder none;
  EXPECT_THAT(externalFailureOf(exportModel(*model, none.path("n.onnx"),
                                            placed(ExternalPlacement::Copy, "n.data"))),
              HasSubstr("'sparse' cannot be moved"));
  EXPECT_EQ(none.entryCount(), 0u);
}

TEST(ExternalData, AHoleHasTheSizeOnly) {
  OpRegistry registry;
  TemporaryFolder folder;
  Model model(registry);
  model.opsets[""] = 17;
  Value& value =
      model.graph().addInitializer("w", std::make_shared<PretendedTensor>(int64_t{6} << 30));
  model.graph().addOutput(value);
  ExportOptions options;
  options.externalFile = "m.data";
  options.externalHole = true;
  ASSERT_EQ(externalFailureOf(exportModel(model, folder.path("m.onnx"), options)), "no error");
  EXPECT_EQ(std::filesystem::file_size(folder.path("m.data")), uintmax_t{6} << 30);
  auto read = llvm::cantFail(importModel(folder.path("m.onnx"), registry));
  EXPECT_EQ(externalFailureOf(checkExternalData(*read)), "no error");
  EXPECT_THAT(externalFailureOf(
                  exportModel(*read, folder.path("i.onnx"), placed(ExternalPlacement::Inline))),
              HasSubstr("2 GiB"));
  // What was a hole stays one.
  ASSERT_EQ(externalFailureOf(exportModel(*read, folder.path("c.onnx"),
                                          placed(ExternalPlacement::Copy, "c.data"))),
            "no error");
  EXPECT_EQ(std::filesystem::file_size(folder.path("c.data")), uintmax_t{6} << 30);
}

TEST(ExternalData, NamesAreOfTheSameFolder) {
  OpRegistry registry;
  TemporaryFolder folder;
  Model model(registry);
  model.opsets[""] = 17;
  ExportOptions options;
  for (const char* name : {"../w", "m.onnx"}) {
    options.externalFile = name;
    EXPECT_THAT(externalFailureOf(exportModel(model, folder.path("m.onnx"), options)),
                HasSubstr("cannot be the name"));
  }
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(ExternalData, AFailureLeavesNothingBehind) {
  OpRegistry registry;
  TemporaryFolder folder;
  Model model(registry);
  model.opsets[""] = 17;
  Value& value =
      model.graph().addInitializer("w", std::make_shared<PretendedTensor>(int64_t{1} << 20));
  model.graph().addOutput(value);
  ExportOptions options;
  options.externalFile = "m.onnx.data";
  EXPECT_THAT(externalFailureOf(exportModel(model, folder.path("m.onnx"), options)),
              HasSubstr("there is nothing to read"));
  EXPECT_EQ(folder.entryCount(), 0u);
}

} // namespace
} // namespace kvopt
