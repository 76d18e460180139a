// External data that is not what the model says is found before anything is read.
#include "ir/onnx/external_check.h"

#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;

namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

struct Range {
  std::string location;
  std::string offset;
  std::string length; ///< empty: not said
};

/// Two initializers "a" and "b" of four floats that lie where the ranges say.
class ExternalCheckTest : public testing::Test {
protected:
  std::string check(const Range& a, const Range& b) {
    onnx::ModelProto message = smallModel();
    message.mutable_graph()->clear_initializer();
    message.mutable_graph()->mutable_node(0)->set_input(1, "a");
    for (const auto& [name, range] : {std::pair("a", a), std::pair("b", b)}) {
      onnx::TensorProto& tensor = *message.mutable_graph()->add_initializer();
      tensor.set_name(name);
      tensor.set_data_type(onnx::TensorProto::FLOAT);
      tensor.add_dims(4);
      tensor.set_data_location(onnx::TensorProto::EXTERNAL);
      auto add = [&tensor = tensor](const char* key, const std::string& value) {
        if (value.empty())
          return;
        tensor.add_external_data()->set_key(key);
        tensor.mutable_external_data()->rbegin()->set_value(value);
      };
      add("location", range.location);
      add("offset", range.offset);
      add("length", range.length);
    }
    auto model = importModel(folder.write("model/m.onnx", message.SerializeAsString()), registry);
    if (!model)
      return takeDiagnostic(model.takeError()).str();
    llvm::Error error = checkExternalData(**model);
    return error ? takeDiagnostic(std::move(error)).str() : "";
  }

  ExternalCheckTest() {
    fs::create_directory(folder.path("model"));
    folder.write("model/w", std::string(64, 'w'));
    folder.write("outside", std::string(64, 'o'));
  }

  OpRegistry registry;
  TemporaryFolder folder;
};

TEST_F(ExternalCheckTest, DisjointAndSharedRangesAreFine) {
  EXPECT_EQ(check({"w", "0", "16"}, {"w", "16", "16"}), "");
  EXPECT_EQ(check({"w", "48", ""}, {"w", "0", "16"}), "");
  EXPECT_EQ(check({"w", "16", "16"}, {"./w", "16", "16"}), "");
}

TEST_F(ExternalCheckTest, OverlapsAreNamed) {
  EXPECT_EQ(check({"w", "8", "16"}, {"w", "0", "16"}),
            folder.path("model") + "/w: external data overlaps: 'b' takes the bytes from 0 to 16, "
                                   "'a' those from 8 to 24");
  // Whatever the file is called.
  fs::create_hard_link(folder.path("model/w"), folder.path("model/other"));
  EXPECT_THAT(check({"other", "8", "16"}, {"w", "0", "16"}), HasSubstr("overlaps"));
}

TEST_F(ExternalCheckTest, WhatIsMissingOrShort) {
  EXPECT_THAT(check({"w", "0", "16"}, {"none", "0", "16"}), HasSubstr("none: "));
  EXPECT_THAT(check({"none", "0", "16"}, {"w", "0", "16"}), HasSubstr("value 'a'"));
  EXPECT_THAT(check({"w", "0", "16"}, {"w", "56", "16"}), HasSubstr("has 64 bytes"));
  EXPECT_THAT(check({"w", "0", "16"}, {"w", "18446744073709551600", "16"}),
              HasSubstr("has 64 bytes"));
  EXPECT_THAT(check({"w", "0", "12"}, {"w", "16", "16"}), HasSubstr("12 bytes of external data"));
  EXPECT_THAT(check({"w", "0", ""}, {"w", "16", "16"}), HasSubstr("64 bytes of external data"));
  EXPECT_THAT(check({"w", "-1", "16"}, {"w", "16", "16"}), HasSubstr("the offset '-1'"));
  EXPECT_THAT(check({"", "0", "16"}, {"w", "16", "16"}), HasSubstr("without a location"));
}

TEST_F(ExternalCheckTest, WhatLeadsOutOfTheFolder) {
  const Range fine{"w", "0", "16"};
  EXPECT_THAT(check(fine, {"../outside", "0", "16"}), HasSubstr("'..'"));
  EXPECT_THAT(check(fine, {folder.path("outside"), "0", "16"}), HasSubstr("is absolute"));
  EXPECT_THAT(check(fine, {std::string("w\0x", 3), "0", "16"}), HasSubstr("NUL"));
  fs::create_symlink("../outside", folder.path("model/link"));
  EXPECT_THAT(check(fine, {"link", "0", "16"}), HasSubstr("folder"));
  fs::create_symlink("..", folder.path("model/up"));
  EXPECT_THAT(check(fine, {"up/outside", "0", "16"}), HasSubstr("folder"));
  fs::create_directory(folder.path("model/dir"));
  EXPECT_THAT(check(fine, {"dir", "0", "16"}), HasSubstr("is a directory"));
}

} // namespace
} // namespace kvopt
