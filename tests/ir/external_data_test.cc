// External data: places, streaming, and models that come back as they were.
#include "ir/external_data.h"

#include "ir/diagnostic.h"
#include "ir/onnx_export.h"
#include "ir/onnx_import.h"
#include "ir/op.h"
#include "tests/ir/temporary_folder.h"

#include <gmock/gmock.h>

namespace kvopt {
namespace {

using testing::HasSubstr;

TensorRef numbers(int64_t count, float first) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(first + static_cast<float>(i));
  return floatTensor(values);
}

std::string failureOf(llvm::Error error) {
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
    EXPECT_EQ(failureOf(exportModel(model, path, options)), "no error");
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
  EXPECT_THAT(failureOf(exportModel(*model, written.folder.path("n.onnx"), options)),
              HasSubstr("this is the model's external data"));
  options.externalFile = "n.onnx.data";
  EXPECT_EQ(failureOf(exportModel(*model, written.folder.path("n.onnx"), options)), "no error");
  EXPECT_EQ(written.folder.read("n.onnx.data").size(), 2800u);
  auto both = llvm::cantFail(importModel(written.folder.path("n.onnx"), written.registry));
  EXPECT_EQ(floatValues(*both->graph().findValue("a")->initializer())->front(), 1);
}

TEST(ExternalData, NamesAreOfTheSameFolder) {
  OpRegistry registry;
  TemporaryFolder folder;
  Model model(registry);
  model.opsets[""] = 17;
  ExportOptions options;
  for (const char* name : {"../w", "m.onnx"}) {
    options.externalFile = name;
    EXPECT_THAT(failureOf(exportModel(model, folder.path("m.onnx"), options)),
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
  EXPECT_THAT(failureOf(exportModel(model, folder.path("m.onnx"), options)),
              HasSubstr("there is nothing to read"));
  EXPECT_EQ(folder.entryCount(), 0u);
}

} // namespace
} // namespace kvopt
