// The files of a model, of the models that its manifest names, and of those that theirs name.
#include "ir/onnx/model_files.h"

#include "ir/manifest/manifest.h"
#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>
#include <map>

namespace kvopt {
using namespace ir;

namespace {

class ModelFiles : public testing::Test {
protected:
  /// Writes a model `name` with weights in `name`.data and a manifest that names a first step,
  /// which may be the model itself.
  std::string write(const std::string& name, const std::string& firstStep) {
    onnx::ModelProto message;
    message.set_ir_version(8);
    message.add_opset_import()->set_version(17);
    message.mutable_graph()->set_name("g");
    onnx::TensorProto& weights = *message.mutable_graph()->add_initializer();
    weights.set_name("w");
    weights.set_data_type(onnx::TensorProto::FLOAT);
    weights.add_dims(1);
    weights.set_data_location(onnx::TensorProto::EXTERNAL);
    onnx::StringStringEntryProto& location = *weights.add_external_data();
    location.set_key("location");
    location.set_value(name + ".data");
    folder.write(name + ".data", "1234");
    Manifest manifest;
    manifest.target = "kvopt";
    manifest.firstStep = firstStep;
    onnx::StringStringEntryProto& metadata = *message.add_metadata_props();
    metadata.set_key(manifestKey);
    metadata.set_value(manifest.json());
    return folder.write(name, message.SerializeAsString());
  }

  /// Roles by names in the folder.
  std::map<std::string, std::string> named(llvm::ArrayRef<InputFile> files) {
    std::map<std::string, std::string> roles;
    for (const InputFile& file : files)
      roles[std::filesystem::path(file.path).filename().string()] = file.role;
    return roles;
  }

  TemporaryFolder folder;
  OpRegistry registry;
};

TEST_F(ModelFiles, AreThoseOfEveryModelThatIsNamed) {
  const std::string path = write("a.onnx", "b.onnx");
  write("b.onnx", "c.onnx");
  write("c.onnx", "a.onnx"); // ends there
  const std::string a = "the model '" + path + "'";
  const std::string b = "'" + folder.path("b.onnx") + "', the first step of " + a;
  const std::string c = "'" + folder.path("c.onnx") + "', the first step of " + a;
  const std::map<std::string, std::string> expected = {{"a.onnx", a},
                                                       {"a.onnx.data", "external data of " + a},
                                                       {"a.kv.json", "the manifest of " + a},
                                                       {"b.onnx", "the first step of " + a},
                                                       {"b.onnx.data", "external data of " + b},
                                                       {"b.kv.json", "the manifest of " + b},
                                                       {"c.onnx", "the first step of " + b},
                                                       {"c.onnx.data", "external data of " + c},
                                                       {"c.kv.json", "the manifest of " + c}};
  const auto model = llvm::cantFail(importModel(path, registry));
  EXPECT_EQ(named(filesOf(*model)), expected);
  EXPECT_EQ(named(filesOfModelAt(path)), expected);
}

TEST_F(ModelFiles, AreRegisteredBeforeAndAfterTheOutput) {
  const std::string path = write("a.onnx", "b.onnx");
  write("b.onnx", "");
  const auto model = llvm::cantFail(importModel(path, registry));
  for (bool isDeclaredFirst : {false, true}) {
    FileAccess access;
    llvm::Error declared = llvm::Error::success();
    if (isDeclaredFirst)
      declared = access.writes(folder.path("b.onnx.data"), "--plot");
    EXPECT_FALSE(errorToBool(std::move(declared)));
    llvm::Error registered = registerFiles(*model, access);
    EXPECT_EQ(static_cast<bool>(registered), isDeclaredFirst);
    llvm::consumeError(std::move(registered));
    EXPECT_THAT(takeDiagnostic(access.writes(folder.path("b.onnx.data"), "--plot")).str(),
                testing::HasSubstr("--plot would overwrite external data of"));
  }
}

TEST_F(ModelFiles, AFileThatCannotBeReadIsItsOwn) {
  const std::string path = folder.write("a.onnx", "not a model");
  EXPECT_THAT(named(filesOfModelAt(path)), testing::Contains(testing::Key("a.onnx")));
  EXPECT_EQ(filesOfModelAt(folder.path("none.onnx")).size(), 1u);
}

} // namespace
} // namespace kvopt
