// kvopt verify: the defaults come to every length at which a form changes, and run every file.
#include "ir/manifest/manifest.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "support/string_ends.h"
#include "tests/cli/cli_fixture.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>

namespace kvopt {
using namespace ir;

namespace {

/// A model of one float input on each side of an edit: how tests change what was written.
class GraphEdit {
public:
  explicit GraphEdit(Model& edited) : model(edited), graph(edited.graph()) {}

  Value& make(OpName op, std::vector<Value*> operands, std::optional<int64_t> to = {},
              Node* before = nullptr) {
    Node& node = graph.createFresh(op, operands, 1, before);
    if (to)
      node.setAttribute(op.type() == "Cast" ? "to" : "axis", Attribute::ofInt(*to));
    llvm::cantFail(inferNode(node));
    return node.result();
  }
  Value& integer(int64_t value) { return graph.addConstant("integer", int64Scalar(value)); }
  Value& input(llvm::StringRef name) { return *graph.findValue(name); }
  /// 1 where the condition holds, else 0.
  Value& asFloat(Value& condition) { return make("Cast", {&condition}, 1); }
  Value& extentOf(llvm::StringRef name, int64_t axis) {
    return make("Gather", {&make("Shape", {&input(name)}), &integer(axis)}, 0);
  }
  Value& isEqual(Value& value, int64_t to) {
    return make("Equal", {&make("Cast", {&value}, 7), &integer(to)});
  }

  /// Adds `offset` to the output in the slot.
  void addTo(unsigned slot, Value& offset) {
    Value& output = *graph.outputs()[slot];
    const std::string name = output.name().str();
    graph.rename(output, graph.freshName("untouched"));
    Value& sum = make("Add", {&output, &offset});
    graph.rename(sum, name);
    graph.setOutput(slot, sum);
  }
  /// The first output of float32 numbers.
  unsigned floatOutput() const {
    for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
      if (graph.outputs()[slot]->type().elementType() == ElementType::Float)
        return slot;
    throw std::runtime_error("no output of floats");
  }
  Value& one() { return asFloat(isEqual(integer(1), 1)); }

  std::vector<Node*> attentions() {
    std::vector<Node*> found;
    for (Node& node : graph.nodes())
      if (node.attribute("scale") || node.attribute("kv_num_heads"))
        found.push_back(&node);
    return found;
  }
  /// Exchanges two inputs of the graph where the last attention reads them.
  void exchange(llvm::StringRef first, llvm::StringRef second) {
    Node& node = *attentions().back();
    std::optional<unsigned> slots[2];
    for (unsigned i = 0; i < node.operands().size(); ++i)
      for (unsigned side : {0u, 1u})
        if (node.operand(i) && node.operand(i)->name() == (side == 0 ? first : second))
          slots[side] = i;
    Value* kept = node.operand(*slots[0]);
    node.setOperand(*slots[0], node.operand(*slots[1]));
    node.setOperand(*slots[1], kept);
  }

  Model& model;
  Graph& graph;
};

class VerifyCoverageTest : public testing::Test {
protected:
  std::string generated(const std::vector<std::string>& options) {
    std::vector<std::string> arguments{"gen",      "llama", "--layers", "2",
                                       "--hidden", "16",    "--heads",  "2",
                                       "--vocab",  "32",    "-o",       folder.path("model.onnx")};
    if (!options.empty())
      arguments[1] = options.front();
    arguments.insert(arguments.end(), options.begin() + (options.empty() ? 0 : 1), options.end());
    EXPECT_EQ(runProgram(arguments).code, 0);
    return folder.path("model.onnx");
  }

  std::string rewritten(const std::string& model, std::vector<std::string> options) {
    std::vector<std::string> arguments{"rewrite",  model, "-o", folder.path("m.onnx"),
                                       "--verify", "off"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return folder.path("m.onnx");
  }

  /// Changes a file in its place.
  void edit(const std::string& path, llvm::function_ref<void(GraphEdit&)> change) {
    OpRegistry operators;
    registerAll(operators);
    {
      auto model = llvm::cantFail(importModel(path, operators));
      llvm::cantFail(inferShapes(model->graph()));
      GraphEdit edit(*model);
      change(edit);
      llvm::cantFail(exportModel(*model, path + ".new"));
    }
    std::filesystem::rename(path + ".new", path);
  }

  /// The verdict of the defaults on a copy of the written files of which one is changed.
  std::string verdictAfter(const std::string& model, const std::string& file,
                           llvm::function_ref<void(GraphEdit&)> change) {
    const std::string kept = folder.path("kept");
    std::filesystem::copy(folder.path(file), kept);
    edit(folder.path(file), change);
    const std::string verdict = runJson({"verify", model, folder.path("m.onnx")}, 1)["verdict"];
    std::filesystem::rename(kept, folder.path(file));
    return verdict;
  }

  std::vector<int64_t> around(const nlohmann::json& report) {
    std::vector<int64_t> tokens;
    for (const auto& landmark : report["coverage"]["around"])
      tokens.push_back(landmark["tokens"]);
    return tokens;
  }

  TemporaryFolder folder;
};

TEST_F(VerifyCoverageTest, EveryBlockHoldsRows) {
  const std::string model = generated({});
  for (const char* target : {"blocks:16", "int8-blocks:16", "blocks-plain:16"}) {
    SCOPED_TRACE(target);
    const std::string written = rewritten(model, {"--to", target, "--capacity", "200"});
    const nlohmann::json honest = runJson({"verify", model, written});
    EXPECT_EQ(honest["verdict"], "equal");
    for (int64_t tokens : {16, 32, 192, 200})
      EXPECT_TRUE(llvm::is_contained(around(honest), tokens)) << tokens;
    if (startsWith(target, "blocks-plain"))
      continue;
    EXPECT_EQ(verdictAfter(model, "m.onnx",
                           [](GraphEdit& edit) {
                             edit.exchange("past_key_values.1.key_block_10",
                                           "past_key_values.1.key_block_11");
                           }),
              "different");
  }
}

TEST_F(VerifyCoverageTest, EveryPageIsRead) {
  const std::string model = generated({});
  const std::string written =
      rewritten(model, {"--to", "paged:16", "--capacity", "256", "--padding", "none"});
  EXPECT_EQ(runJson({"verify", model, written})["verdict"], "equal");
  const auto permute = [](GraphEdit& edit) {
    std::vector<int64_t> order(16);
    for (int64_t i = 0; i < 16; ++i)
      order[static_cast<size_t>(i)] = i == 11 ? 12 : i == 12 ? 11 : i;
    Node& node = *edit.attentions().back();
    for (unsigned i = 0; i < node.operands().size(); ++i)
      if (node.operand(i) && node.operand(i)->name().contains("block_table"))
        node.setOperand(
            i, &edit.make("Gather",
                          {node.operand(i), &edit.graph.addConstant("order", int64Tensor(order))},
                          1, &node));
  };
  EXPECT_EQ(verdictAfter(model, "m.onnx", permute), "different");
}

TEST_F(VerifyCoverageTest, LengthsThatAGraphComparesWithAreCompared) {
  const std::string model = generated({"window", "--window", "16"});
  for (const char* target : {"kvopt", "ring"}) {
    const std::string written = rewritten(model, {"--to", target});
    EXPECT_EQ(runJson({"verify", model, written})["verdict"], "equal");
    for (int64_t past : {1, 15, 16, 17, 33, 300, 4097}) {
      const auto shift = [&](GraphEdit& edit) {
        const auto manifest = *llvm::cantFail(manifestOf(edit.model));
        Value& length = edit.input(manifest.lengths.front().input);
        edit.addTo(edit.floatOutput(), edit.asFloat(edit.isEqual(length, past)));
      };
      EXPECT_EQ(verdictAfter(model, "m.onnx", shift), "different") << target << " " << past;
    }
  }
}

TEST_F(VerifyCoverageTest, StepsAndBatchesHaveTheSizesThatAGraphComparesWith) {
  const std::string model = generated({});
  rewritten(model, {"--to", "kvopt"});
  for (const auto& [axis, sizes] : {std::pair(0, std::vector<int64_t>{2, 3, 4, 7}),
                                    std::pair(1, std::vector<int64_t>{2, 6, 19, 100})})
    for (int64_t size : sizes) {
      const auto shift = [&, axis = axis](GraphEdit& edit) {
        edit.addTo(edit.floatOutput(),
                   edit.asFloat(edit.isEqual(edit.extentOf("input_ids", axis), size)));
      };
      EXPECT_EQ(verdictAfter(model, "m.onnx", shift), "different") << axis << " " << size;
    }
}

TEST_F(VerifyCoverageTest, EveryVariantIsRun) {
  const std::string model = generated({});
  const std::string written = rewritten(model, {"--to", "pyramid:16", "--capacity", "70"});
  const nlohmann::json honest = runJson({"verify", model, written});
  EXPECT_EQ(honest["verdict"], "equal");
  EXPECT_EQ(honest["coverage"]["variants"], 6);
  const auto shift = [](GraphEdit& edit) { edit.addTo(edit.floatOutput(), edit.one()); };
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    if (const std::string name = entry.path().filename().string();
        endsWith(name, ".onnx") && name[1] == '.') {
      EXPECT_EQ(verdictAfter(model, name, shift), "different") << name;
      ++files;
    }
  EXPECT_EQ(files, 6U);
}

TEST_F(VerifyCoverageTest, EveryPieceAndTheModelInOnePieceAreRun) {
  const std::string model = generated({});
  // The last block has fewer rows, and a tile of its own.
  const std::string written = rewritten(model, {"--to", "tiles:16", "--capacity", "120"});
  EXPECT_EQ(runJson({"verify", model, written})["verdict"], "equal");
  const auto change = [](GraphEdit& edit) {
    const std::vector<Node*> attentions = edit.attentions();
    if (!attentions.empty() && attentions.front()->attribute("scale"))
      attentions.front()->setAttribute(
          "scale", Attribute::ofFloat(2 * attentions.front()->floatAttr("scale", 1)));
    else
      edit.addTo(edit.floatOutput(), edit.one());
  };
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    if (const std::string name = entry.path().filename().string();
        endsWith(name, ".onnx") && name[1] == '.') {
      EXPECT_EQ(verdictAfter(model, name, change), "different") << name;
      ++files;
    }
  EXPECT_EQ(files, 7U); // three parts, three tiles, and the model
}

TEST_F(VerifyCoverageTest, SizesThatTheUserStatesAreKept) {
  const std::string model = generated({});
  const std::string written = rewritten(model, {"--to", "blocks:16", "--capacity", "200"});
  const auto report =
      runJson({"verify", model, written, "--prompt", "190", "--steps", "8", "--batch", "1"});
  EXPECT_EQ(report["coverage"]["prompts"], std::vector<int64_t>{190});
  EXPECT_EQ(report["steps"].back()["past_tokens"], 198);
  EXPECT_EQ(report["coverage"]["not_covered"], nlohmann::json::array());
  // Sizes that the user does not state give way.
  const auto steps = runJson({"verify", model, written, "--steps", "190", "--chunks", "2"});
  EXPECT_EQ(steps["steps"].size(), 192U);
  // What does not fit is said.
  const auto cut = runJson({"verify", model, written, "--prompt", "190", "--steps", "30"});
  EXPECT_EQ(cut["coverage"]["not_covered"], std::vector<std::string>{"steps 30"});
  EXPECT_EQ(runJson({"verify", model, written, "--depth", "200"})["coverage"]["tokens"], 200);
  const auto deep = runJson({"verify", model, written, "--depth", "300"});
  EXPECT_EQ(deep["coverage"]["not_covered"],
            std::vector<std::string>{"tokens 201 to 300, which are beyond the capacity"});
}

TEST_F(VerifyCoverageTest, BlocksThatNoRunReachesAreInconclusive) {
  const std::string model = generated({});
  const std::string written =
      rewritten(model, {"--to", "blocks:1048576", "--capacity", "67108864"});
  const auto report = runJson({"verify", model, written}, 1);
  EXPECT_EQ(report["verdict"], "inconclusive");
  EXPECT_EQ(report["coverage"]["never_run"],
            std::vector<std::string>{"the last block, which holds tokens from 66060288 on"});
}

TEST_F(VerifyCoverageTest, LengthsThatTheFirstModelRefusesAreNoReasonToFail) {
  // Its table of positions has 64 rows.
  const std::string model = shippedModel("gpt2-dynamo18-eager");
  const std::string written = rewritten(model, {"--to", "blocks:16", "--capacity", "200"});
  const auto report = runJson({"verify", model, written});
  EXPECT_EQ(report["verdict"], "equal");
  EXPECT_FALSE(report["coverage"]["not_covered"].empty());
}

} // namespace
} // namespace kvopt
