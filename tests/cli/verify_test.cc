// kvopt verify: reports and exit codes.
#include "ir/manifest/manifest.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "tests/cli/cli_fixture.h"
#include "tests/runtime/equivalence/reference_files.h"

#include <filesystem>
#include <fstream>

namespace kvopt {
using namespace cli;
using namespace ir;
using namespace runtime;

namespace {

const std::string llama = "llama_gqa-ts14-eager";

std::string reference(const std::string& model, const std::string& name) {
  return std::string(KVOPT_SOURCE_DIR) + "/models/" + model + "/ref/" + name + ".onnx";
}

TEST(VerifyTest, JsonOfTwoEqualModels) {
  TemporaryFolder folder;
  ASSERT_EQ(
      runProgram({"rewrite", shippedModel(llama), "-o", folder.path("f.onnx"), "--to", "kvopt"})
          .code,
      0);
  ProgramResult result =
      runProgram({"verify", shippedModel(llama), folder.path("f.onnx"), "--prompt", "5", "--chunks",
                  "3,1", "--steps", "2", "--pad", "right", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  auto json = nlohmann::ordered_json::parse(result.out);
  EXPECT_EQ(json.begin().key(), "schema");
  EXPECT_EQ(json["schema"], "kvopt/verify/1");
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["tokens_equal"], true);
  std::vector<std::string> phases;
  for (const auto& step : json["steps"]) {
    phases.push_back(step["phase"]);
    EXPECT_EQ(step["caches"].size(), 4u);
    for (const char* key : {"max_abs", "max_ulp", "bit_exact"})
      EXPECT_TRUE(step["outputs"]["logits"].contains(key)) << key;
  }
  EXPECT_EQ(phases, (std::vector<std::string>{"prefill", "chunk", "chunk", "decode", "decode"}));
  EXPECT_TRUE(json["worst"].contains("max_abs"));
}

/// Writes the model as `edit` leaves it.
std::string edited(const TemporaryFolder& folder, const std::string& model,
                   llvm::function_ref<void(Model&)> edit) {
  OpRegistry operators;
  registerAll(operators);
  auto changed = llvm::cantFail(importModel(model, operators));
  edit(*changed);
  const std::string path = folder.path("edited.onnx");
  llvm::cantFail(exportModel(*changed, path));
  return path;
}

TEST(VerifyTest, TheDefaultsSayWhatTheyCover) {
  const std::string model = shippedModel(llama);
  const ProgramResult text = runProgram({"verify", model, model});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("covered: batch 1, 3; prompt 1, 5, 33; padding left, none, right"),
            std::string::npos)
      << text.out;
  auto json = runJson({"verify", model, model});
  EXPECT_EQ(json["verdict"], "equal");
  EXPECT_EQ(json["differences"], nlohmann::json::array());
  const auto& coverage = json["coverage"];
  EXPECT_EQ(coverage["batches"], (std::vector<int>{1, 3}));
  EXPECT_EQ(coverage["prompts"], (std::vector<int>{1, 5, 33}));
  EXPECT_EQ(coverage["padding"], (std::vector<std::string>{"left", "none", "right"}));
  EXPECT_EQ(coverage["outputs"], std::vector<std::string>{"logits"});
  EXPECT_EQ(coverage["caches"].size(), 4u);
  EXPECT_EQ(coverage["not_covered"], nlohmann::json::array());
}

TEST(VerifyTest, AMissingOutputIsDifferent) {
  TemporaryFolder folder;
  const std::string other = edited(folder, shippedModel(llama), [](Model& model) {
    auto outputs = model.graph().outputs();
    for (unsigned slot = 0; slot < outputs.size(); ++slot)
      if (outputs[slot]->name() == "logits")
        return model.graph().removeOutput(slot);
  });
  const ProgramResult result = runProgram({"verify", shippedModel(llama), other});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_NE(result.out.find("'logits' of the first model is missing"), std::string::npos)
      << result.out;
  // The second model may have no more than the first one either.
  EXPECT_EQ(runProgram({"verify", other, shippedModel(llama)}).code, 1);
}

TEST(VerifyTest, ACapacityInMetadataAloneIsInconclusive) {
  TemporaryFolder folder;
  const std::string fused = folder.path("f.onnx");
  ASSERT_EQ(runProgram({"rewrite", shippedModel(llama), "-o", fused, "--to", "kvopt"}).code, 0);
  for (int64_t capacity : {1, 40}) {
    const std::string other = edited(folder, fused, [&](Model& model) {
      Manifest manifest = *llvm::cantFail(manifestOf(model));
      manifest.capacityValue = capacity;
      model.setMetadata(manifestKey, manifest.json());
    });
    const ProgramResult result = runProgram({"verify", shippedModel(llama), other});
    EXPECT_EQ(result.code, 1) << capacity << result.err;
    EXPECT_NE(result.out.find("INCONCLUSIVE"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("metadata"), std::string::npos) << result.out;
    EXPECT_EQ(runJson({"verify", shippedModel(llama), other}, 1)["verdict"], "inconclusive");
  }
  // A capacity that the graph declares is the model's own.
  ASSERT_EQ(
      runProgram({"rewrite", shippedModel(llama), "-o", fused, "--to", "kvopt", "--capacity", "40"})
          .code,
      0);
  EXPECT_EQ(runProgram({"verify", shippedModel(llama), fused}).code, 0);
}

TEST(VerifyTest, ReferencesAgreeAndTooTightAToleranceDoesNot) {
  EXPECT_EQ(
      runProgram({"verify", shippedModel(llama), "--reference", reference(llama, "b2pad")}).code,
      0);
  ProgramResult tight = runProgram(
      {"verify", shippedModel(llama), "--reference", reference(llama, "b1"), "--atol", "0"});
  EXPECT_EQ(tight.code, 1);
  EXPECT_NE(tight.out.find("DIFFERENT"), std::string::npos);
}

TEST(VerifyTest, FoldersOfStepsCountAsFilesDo) {
  TemporaryFolder folder;
  namespace fs = std::filesystem;
  fs::create_directories(folder.path("m/ref"));
  fs::copy(shippedModel(llama), folder.path("m/model.onnx"));
  fs::copy(reference(llama, "b2"), folder.path("m/ref/b2.onnx"));
  const std::string steps = writeReferenceFolder(
      folder.path("m/ref/b1"), llvm::cantFail(readReference(reference(llama, "b1"))));
  EXPECT_EQ(runJson({"verify", shippedModel(llama), "--reference", steps}),
            runJson({"verify", shippedModel(llama), "--reference", reference(llama, "b1")}));
  auto table = runJson({"verify", folder.path("m/model.onnx"), "--references"});
  ASSERT_EQ(table["cases"].size(), 2u);
  EXPECT_EQ(table["cases"][0]["case"], "b1");
  EXPECT_EQ(table["cases"][1]["case"], "b2");
  EXPECT_EQ(table["counts"]["equal"], 6);
}

TEST(VerifyTest, FilesThatAreNoRecordings) {
  TemporaryFolder folder;
  const TensorRef tensor = floatTensor({1, 2});
  auto recorded = [&](const std::string& name, const NamedTensors& tensors) {
    return writeReferenceFile(folder.path(name), tensors);
  };
  const std::string good =
      recorded("good.onnx", {{"step0_q1/input/x", tensor}, {"step0_q1/input/y", tensor}});
  auto patched = [&](const std::string& name, const std::string& from, const std::string& to) {
    std::string bytes = folder.read("good.onnx");
    return folder.write(name, bytes.replace(bytes.rfind(from), from.size(), to));
  };
  for (const std::string& file :
       {folder.write("text.onnx", "step0_q1"), folder.write("empty.onnx", ""), shippedModel(llama),
        recorded("gap.onnx", {{"step1_q1/input/x", tensor}}),
        recorded("name.onnx", {{"step0_q1/x", tensor}}), recorded("nothing.onnx", {}),
        patched("twice.onnx", "input/y", "input/x"),
        patched("size.onnx", std::string("\x08\x02\x10\x01", 4),
                std::string("\x08\x03\x10\x01", 4)),
        // Well-formed, but no steps of a decoder.
        good}) {
    ProgramResult result = runProgram({"verify", shippedModel(llama), "--reference", file});
    EXPECT_EQ(result.code, 3) << file;
    EXPECT_NE(result.err.find(file), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
  // In the table, one that cannot be read fails, and the others are compared.
  std::filesystem::create_directories(folder.path("m/ref"));
  std::filesystem::copy(shippedModel(llama), folder.path("m/model.onnx"));
  std::filesystem::copy(reference(llama, "b1"), folder.path("m/ref/b1.onnx"));
  folder.write("m/ref/b2.onnx", "text");
  auto table = runJson({"verify", folder.path("m/model.onnx"), "--references"}, 1);
  EXPECT_EQ(table["counts"]["equal"], 3);
  EXPECT_EQ(table["counts"]["failed"], 3);
}

TEST(VerifyTest, OtherModelsAreDifferentOrNotComparable) {
  ProgramResult other =
      runProgram({"verify", shippedModel(llama), shippedModel("qwen2-dynamo23-sdpa"), "--prompt",
                  "4", "--steps", "1"});
  EXPECT_EQ(other.code, 1) << other.err;
  ProgramResult wrong = runProgram(
      {"verify", shippedModel("qwen2-dynamo23-sdpa"), "--reference", reference(llama, "b1")});
  EXPECT_EQ(wrong.code, 1) << wrong.err;
}

TEST(VerifyTest, UsageAndMissingReferences) {
  EXPECT_EQ(runProgram({"verify", shippedModel(llama)}).code, 2);
  EXPECT_EQ(
      runProgram({"verify", shippedModel(llama), shippedModel(llama), "--reference", "x"}).code, 2);
  for (const std::vector<std::string>& ignored :
       {std::vector<std::string>{shippedModel(llama), "--to", "onnx24"},
        {shippedModel(llama), "--forms", "shared"},
        {"--reference", reference(llama, "b1"), "--batch", "2"},
        {"--references", "--pad", "left"},
        {"--references", "--input", "x=1"}}) {
    std::vector<std::string> arguments = {"verify", shippedModel(llama)};
    arguments.insert(arguments.end(), ignored.begin(), ignored.end());
    EXPECT_EQ(runProgram(arguments).code, 2) << ignored.back();
  }
  ProgramResult missing =
      runProgram({"verify", shippedModel(llama), "--reference", "/nonexistent/folder"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_NE(missing.err.find("/nonexistent/folder"), std::string::npos);
}

TEST(VerifyTest, EveryCaseOfSeveralModelsInOneTable) {
  const std::vector<std::string> models = {shippedModel(llama),
                                           shippedModel("gpt2-dynamo18-eager")};
  ProgramResult text = runProgram({"verify", models[0], models[1], "--references"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find(" equal\n"), std::string::npos) << text.out;
  auto json = runJson({"verify", models[0], models[1], "--references"});
  EXPECT_EQ(json["schema"], "kvopt/verify-references/1");
  EXPECT_EQ(json["equal"], true);
  size_t forms = 0;
  for (const auto& entry : json["cases"]) {
    EXPECT_EQ(entry["compared_to"], "recorded");
    EXPECT_EQ(entry["tolerance"], 1e-4);
    EXPECT_EQ(entry["forms"].size(), 3u);
    for (const auto& form : entry["forms"]) {
      EXPECT_EQ(form["verdict"], "equal");
      EXPECT_GT(form["max_abs"].get<double>(), 0);
      ++forms;
    }
  }
  EXPECT_GE(json["cases"].size(), 4u);
  EXPECT_EQ(json["counts"]["equal"], forms);
  auto one = runJson({"verify", models[0], "--references", "--forms", "stateful"});
  EXPECT_EQ(one["cases"][0]["forms"].size(), 1u);
  EXPECT_TRUE(one["cases"][0]["forms"].contains("stateful"));
}

TEST(VerifyTest, ReferencesOfAnotherModelAreDifferentUnlessTheFactsSaySo) {
  TemporaryFolder folder;
  namespace fs = std::filesystem;
  const fs::path other = fs::path(shippedModel("qwen2-dynamo23-sdpa"));
  fs::create_directories(folder.path("m/ref"));
  fs::copy(other, folder.path("m/model.onnx"));
  fs::copy(reference(llama, "b1"), folder.path("m/ref/b1.onnx"));
  auto different = runJson({"verify", folder.path("m/model.onnx"), "--references"}, 1);
  EXPECT_EQ(different["equal"], false);
  EXPECT_EQ(different["counts"]["different"], 3);
  std::ofstream(folder.path("m/model.json"))
      << R"({"status": "structure only: no engine runs it"})";
  auto structure = runJson({"verify", folder.path("m/model.onnx"), "--references"});
  EXPECT_EQ(structure["cases"][0]["compared_to"], "exported model");
  EXPECT_EQ(structure["cases"][0]["forms"]["exported"]["verdict"], "not-compared");
  EXPECT_EQ(structure["counts"]["equal"], 2);
  // With nothing to compare there is no agreement.
  fs::remove_all(folder.path("m/ref"));
  EXPECT_EQ(runJson({"verify", folder.path("m/model.onnx"), "--references"}, 1)["counts"]["equal"],
            0);
  EXPECT_EQ(runProgram({"verify", folder.path("absent.onnx"), "--references"}).code, 3);
  EXPECT_EQ(runProgram({"verify", shippedModel(llama), "--references", "--forms", "odd"}).code, 2);
}

/// The perplexity of a byte-level model that was trained is far below its vocabulary's size, and
/// kept by a rewrite that computes the same.
TEST(VerifyTest, APerplexityIsMeasuredOnAText) {
  TemporaryFolder folder;
  const std::string kjv = shippedModel("kjv");
  for (const char* target : {"kvopt", "int8", "int4"})
    ASSERT_EQ(runProgram({"rewrite", kjv, "-o", folder.path(std::string(target) + ".onnx"), "--to",
                          target, "--verify", "off"})
                  .code,
              0);
  std::ifstream heldout(std::string(KVOPT_SOURCE_DIR) + "/models/kjv/heldout.txt");
  std::string text(1200, ' ');
  heldout.read(text.data(), 1200);
  std::ofstream(folder.path("text.txt")) << text;
  auto likelihood = [&](const std::string& file) {
    return runJson({"verify", kjv, folder.path(file), "--text-file", folder.path("text.txt"),
                    "--steps", "2"})["likelihood"];
  };
  const nlohmann::json same = likelihood("kvopt.onnx");
  // Three windows of 512 tokens or fewer, of each of which the first token is not predicted.
  EXPECT_EQ(same["tokens"], 1200 - 3);
  EXPECT_EQ(same["tokens_equal"], same["tokens"]);
  EXPECT_EQ(same["context"], 512);
  EXPECT_GT(same["perplexity"][0], 1.5);
  EXPECT_LT(same["perplexity"][0], 8);
  EXPECT_NEAR(same["perplexity"][0], same["perplexity"][1], 1e-4);
  EXPECT_NEAR(same["mean_divergence"], 0, 1e-6);
  const nlohmann::json int8 = likelihood("int8.onnx");
  const nlohmann::json int4 = likelihood("int4.onnx");
  EXPECT_GT(int8["mean_divergence"], 0);
  EXPECT_GT(int4["mean_divergence"], int8["mean_divergence"]);
  EXPECT_LT(int8["perplexity"][1], 1.01 * double{same["perplexity"][0]});
  EXPECT_LT(int4["perplexity"][1], 1.1 * double{same["perplexity"][0]});
}

TEST(VerifyTest, ATextMayBeTokenIds) {
  TemporaryFolder folder;
  const std::string model = shippedModel(llama);
  std::ofstream(folder.path("tokens.txt")) << "1, 2 3\n4,5,6,7 8\t9 10\n";
  const nlohmann::json report =
      runJson({"verify", model, model, "--token-file", folder.path("tokens.txt"), "--context", "4",
               "--steps", "2"});
  EXPECT_EQ(report["likelihood"]["tokens"], 3 + 3 + 1);
  EXPECT_EQ(report["likelihood"]["tokens_equal"], 7);
  EXPECT_EQ(report["likelihood"]["mean_divergence"], 0.0);
}

TEST(VerifyTest, ATextThatCannotBeMeasuredIsAnErrorThatNamesIt) {
  TemporaryFolder folder;
  const std::string model = shippedModel(llama);
  auto refusal = [&](const std::string& contents, const std::string& option) {
    std::ofstream(folder.path("tokens.txt")) << contents;
    const ProgramResult result =
        runProgram({"verify", model, model, option, folder.path("tokens.txt"), "--steps", "2"});
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_NE(result.err.find("tokens.txt"), std::string::npos) << result.err;
    return result.err;
  };
  EXPECT_NE(refusal("1 2 three", "--token-file").find("'three' is not a token number"),
            std::string::npos);
  EXPECT_NE(refusal("7", "--token-file").find("fewer than two tokens"), std::string::npos);
  EXPECT_NE(refusal("", "--text-file").find("fewer than two tokens"), std::string::npos);
  EXPECT_NE(refusal("1 2 999999", "--token-file").find("outside of the vocabulary"),
            std::string::npos);
  EXPECT_NE(refusal("1 2 -1", "--token-file").find("outside of the vocabulary"), std::string::npos);
}

/// The body of the only function gives the negative of its first result.
void negateBody(Model& model) {
  Graph& body = model.functions.front()->body;
  body.setOutput(0, body.createFresh("Neg", {body.outputs()[0]}, 1).result());
}

/// Gives the function, and the operator that it is the body of, a name that no operator has.
void renameOperator(Model& model) {
  Function& function = *model.functions.front();
  const OpName from(kvoptDomain, function.name);
  std::vector<Node*> calls;
  for (Node& node : model.graph().nodes())
    if (node.op() == from)
      calls.push_back(&node);
  for (Node* call : calls) {
    llvm::SmallVector<Value*, 8> operands;
    for (const Use& use : call->operands())
      operands.push_back(use.value());
    Node& renamed = model.graph().createFresh("ai.kvopt::Renamed", operands,
                                              static_cast<unsigned>(call->results().size()), call);
    for (const NamedAttribute& attribute : call->attributes())
      renamed.setAttribute(attribute.name, attribute.value.clone());
    for (unsigned i = 0; i < call->results().size(); ++i) {
      renamed.result(i).setType(call->result(i).type());
      call->result(i).replaceAllUsesWith(renamed.result(i));
    }
    model.graph().erase(*call);
  }
  function.name = "Renamed";
}

TEST(VerifyTest, AFunctionBodyIsKvoptsOwn) {
  TemporaryFolder folder;
  const std::string exported = shippedModel(llama);
  const std::string written = folder.path("written.onnx");
  ASSERT_EQ(
      runProgram({"rewrite", exported, "-o", written, "--to", "kvopt", "--verify", "off"}).code, 0);
  const std::string changed = edited(folder, written, negateBody);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"verify", exported, changed},
        std::vector<std::string>{"verify", changed, exported},
        std::vector<std::string>{"diff", written, changed},
        std::vector<std::string>{"run", changed, "--tokens", "1", "--steps", "1"},
        std::vector<std::string>{"inspect", changed}}) {
    const ProgramResult refused = runProgram(arguments);
    EXPECT_EQ(refused.code, 3) << refused.out;
    EXPECT_NE(refused.err.find(changed + ": function 'InPlaceKvSdpa' of domain 'ai.kvopt'"),
              std::string::npos)
        << refused.err;
  }
  // A function of another operator is what the model computes: kvopt runs it, too.
  const auto verdict = [&](llvm::function_ref<void(Model&)> edit) {
    const std::string path = edited(folder, written, edit);
    return runProgram({"verify", exported, path, "--prompt", "3", "--steps", "2", "--batch", "1"});
  };
  EXPECT_EQ(verdict(renameOperator).code, 0);
  const ProgramResult different = verdict([](Model& model) {
    negateBody(model);
    renameOperator(model);
  });
  EXPECT_EQ(different.code, 1) << different.err;
}

TEST(VerifyTest, AttentionThatTakesNoStepIsDifferent) {
  TemporaryFolder folder;
  const std::string exported = shippedModel(llama);
  const std::string written = folder.path("written.onnx");
  ASSERT_EQ(
      runProgram({"rewrite", exported, "-o", written, "--to", "int8", "--verify", "off"}).code, 0);
  // Attention that sees one row more than there is takes no step.
  const std::string later = edited(folder, written, [](Model& model) {
    for (Node& node : model.graph().nodes()) {
      if (!node.is("ai.kvopt::InPlaceQuantizedKvSdpa"))
        continue;
      Value& one = model.graph().addConstant("one", int64Tensor({1}));
      Node& length = model.graph().createFresh("Add", {node.operand(7), &one}, 1, &node);
      node.setOperand(7, &length.result());
      return;
    }
  });
  const ProgramResult result = runProgram({"verify", exported, later});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_NE(result.out.find("DIFFERENT"), std::string::npos) << result.out;
}

/// A decoder whose scores get `added`; `hidden` is 1 where a token is padding.
std::string paddedDecoder(const std::string& added) {
  return R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] input_ids, int64[B, T] attention_mask, float[B, 1, P, 8] past_k,
         float[B, 1, P, 8] past_v)
  => (float[B, S, 8] logits, float[B, 1, "P + S", 8] present_k,
      float[B, 1, "P + S", 8] present_v)
<float[8, 8] table, float scale = {0.25}, int64[1] zero = {0}, int64[1] one = {1},
 int64[1] two = {2}, int64[1] last = {9223372036854775807}, float lowest = {-10000.0},
 float single = {1.0}>
{
  rows = Gather (table, input_ids)
  k = Unsqueeze (rows, one)
  v = Sin (k)
  present_k = Concat <axis = 2> (past_k, k)
  present_v = Concat <axis = 2> (past_v, v)
  kt = Transpose <perm = [0, 1, 3, 2]> (present_k)
  s = MatMul (k, kt)
  scaled = Mul (s, scale)
  shown = Cast <to = 1> (attention_mask)
  inverse = Sub (single, shown)
  wide = Unsqueeze (inverse, one)
  wider = Unsqueeze (wide, one)
  bias = Mul (wider, lowest)
  masked = Add (scaled, bias)
  p = Softmax <axis = -1> (masked)
  o = MatMul (p, present_v)
  flat = Squeeze (o, one)
  pasts = Shape <start = 2, end = 3> (past_k)
  ofNew = Slice (inverse, pasts, last, one)
  hidden = Unsqueeze (ofNew, two)
)" + added +
         "\n}\n";
}

TEST(VerifyPadding, TellsPaddedRowsFromRowsOfTokens) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& added) {
    std::string text = paddedDecoder(added);
    std::string table;
    for (int i = 0; i < 64; ++i)
      table += (i == 0 ? "" : ", ") + std::to_string((i * 37 % 64) - 32) + ".0";
    const std::string declared = "float[8, 8] table";
    text.replace(text.find(declared), declared.size(), declared + " = {" + table + "}");
    const std::string source = folder.write(name + ".onnxtxt", text);
    const std::string path = folder.path(name + ".onnx");
    const ProgramResult result = runProgram({"opt", source, "--pipeline", "", "-o", path});
    EXPECT_EQ(result.code, 0) << result.err;
    return path;
  };
  const std::string plain = write("plain", "  logits = Identity (flat)");
  const std::string padded = write("padded", "  logits = Add (flat, hidden)");
  const std::string scaled = write("scaled", "  up = Add (hidden, single)\n"
                                             "  logits = Mul (flat, up)");
  const std::string all = write("all", "  more = Add (flat, hidden)\n"
                                       "  logits = Add (more, single)");
  for (const std::string& other : {padded, scaled}) {
    for (const char* side : {"left", "right"}) {
      SCOPED_TRACE(other + " " + side);
      const ProgramResult result = runProgram({"verify", plain, other, "--pad", side});
      EXPECT_EQ(result.code, 1) << result.err;
      EXPECT_EQ(result.out.rfind("DIFFERENT in padded rows only: worst is 'logits'", 0), 0u)
          << result.out << result.err;
      const nlohmann::json json = runJson({"verify", plain, other, "--pad", side}, 1);
      EXPECT_EQ(json["padded_rows_only"], true);
      const auto& visible = json["steps"][0]["outputs"]["logits"]["visible_rows"];
      EXPECT_EQ(visible["equal"], true);
      EXPECT_GT(visible["compared"], 0);
    }
    EXPECT_EQ(runProgram({"verify", plain, other, "--pad", "none"}).code, 0);
  }
  const ProgramResult result = runProgram({"verify", plain, all});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out.rfind("DIFFERENT: worst is 'logits'", 0), 0u) << result.out;
  const nlohmann::json json = runJson({"verify", plain, all}, 1);
  EXPECT_EQ(json["padded_rows_only"], false);
  EXPECT_EQ(runJson({"verify", plain, plain})["padded_rows_only"], false);
}

/// A causal decoder that hides keys with minus infinity. Rows that see no key are 0/0 in `p`; the
/// probabilities are `made` of p.
std::string infiniteDecoder(const std::string& made) {
  return R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] input_ids, int64[B, T] attention_mask, float[B, 1, P, 8] past_k,
         float[B, 1, P, 8] past_v)
  => (float[B, S, 8] logits, float[B, 1, "P + S", 8] present_k,
      float[B, 1, "P + S", 8] present_v)
<float[8, 1] table = {0.3, -1.1, 0.7, 2.1, -0.4, 1.6, -2.3, 0.9},
 float[8] angles = {1.0, 0.4, -0.8, 1.7, 0.2, -1.3, 0.6, 2.2}, float scale = {0.25},
 int64 start = {0}, int64 step = {1}, int64[1] one = {1}, int64[1] last = {-1}, float none = {0.0},
 int64[2] axes = {1, 2}>
{
  minus = Log (none)
  column = Gather (table, input_ids)
  turned = Mul (column, angles)
  rows = Sin (turned)
  k = Unsqueeze (rows, one)
  v = Cos (k)
  present_k = Concat <axis = 2> (past_k, k)
  present_v = Concat <axis = 2> (past_v, v)
  kt = Transpose <perm = [0, 1, 3, 2]> (present_k)
  s = MatMul (k, kt)
  scaled = Mul (s, scale)
  past1 = Shape <start = 2, end = 3> (past_k)
  past = Squeeze (past1)
  total1 = Shape <start = 2, end = 3> (present_k)
  total = Squeeze (total1)
  keys = Range (start, total, step)
  queries = Range (past, total, step)
  queryColumn = Unsqueeze (queries, last)
  isEarlier = LessOrEqual (keys, queryColumn)
  isToken = Cast <to = 9> (attention_mask)
  isTokenWide = Unsqueeze (isToken, axes)
  isSeen = And (isEarlier, isTokenWide)
  masked = Where (isSeen, scaled, minus)
  p = Softmax <axis = -1> (masked)
)" + made +
         R"(
  o = MatMul (weights, present_v)
  logits = Squeeze (o, one)
})";
}

TEST(VerifyPadding, RowsThatAreNanInTheFirstModelAreNotComparedAndSaidToBe) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& made) {
    const std::string source = folder.write(name + ".onnxtxt", infiniteDecoder(made));
    const std::string path = folder.path(name + ".onnx");
    const ProgramResult result = runProgram({"opt", source, "--pipeline", "", "-o", path});
    EXPECT_EQ(result.code, 0) << result.err;
    return path;
  };
  const std::string plain = write("plain", "  weights = Identity (p)");
  const std::string zeros = write("zeros", "  isNan = IsNaN (p)\n"
                                           "  weights = Where (isNan, none, p)");
  const std::string other = write("other", "  isNan = IsNaN (p)\n  half = Mul (p, scale)\n"
                                           "  weights = Where (isNan, none, half)");
  const std::string qualified = "OK where the first model has numbers: ";
  const std::string line = "not compared: ";
  for (const std::vector<std::string>& options :
       {std::vector<std::string>(), {"--pad", "left", "--batch", "2"}}) {
    std::vector<std::string> command = {"verify", plain, zeros};
    command.insert(command.end(), options.begin(), options.end());
    const ProgramResult result = runProgram(command);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(result.out.rfind(qualified, 0), 0U) << result.out;
    EXPECT_NE(result.out.find(line), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("hidden tokens"), std::string::npos) << result.out;
    const nlohmann::json json = runJson(command);
    EXPECT_EQ(json["verdict"], "equal");
    EXPECT_GT(json["nan_in_first"], 0);
    // Tokens that see a key are compared, and differ.
    command[2] = other;
    EXPECT_EQ(runProgram(command).code, 1);
    // What is NaN in the second model only is a difference.
    command[1] = zeros;
    command[2] = plain;
    EXPECT_EQ(runProgram(command).code, 1);
  }
  // Nothing is left out where no row lacks a key, and where both models agree on NaN.
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"verify", plain, zeros, "--pad", "none"},
        {"verify", plain, zeros, "--pad", "right"},
        {"verify", plain, plain}}) {
    const ProgramResult result = runProgram(command);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(result.out.rfind("OK: ", 0), 0U) << result.out;
    EXPECT_EQ(result.out.find(line), std::string::npos) << result.out;
  }
}

} // namespace
} // namespace kvopt
