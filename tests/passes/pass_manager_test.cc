// The pass manager: names, verification, printing, timing, statistics, reproducers.
#include "passes/pass_manager.h"

#include "passes/targets/target.h"
#include "support/diagnostic.h"
#include "tests/passes/graph_fixture.h"
#include "tests/support/temporary_folder.h"

namespace kvopt {
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A pass made of one function.
class FunctionPass final : public Pass {
public:
  using Body = llvm::Error (*)(Model&, PassContext&, const PassOptions&);
  FunctionPass(Body passBody, PassOptions given) : body(passBody), options(std::move(given)) {}
  llvm::Error run(Model& model, PassContext& context) override {
    return body(model, context, options);
  }

private:
  Body body;
  PassOptions options;
};

template <FunctionPass::Body body>
llvm::Expected<std::unique_ptr<Pass>> makePass(const PassOptions& options) {
  return std::make_unique<FunctionPass>(body, options);
}

llvm::Error nothing(Model&, PassContext& context, const PassOptions&) {
  context.count("nothing", "runs");
  return llvm::Error::success();
}
llvm::Error rename(Model& model, PassContext& context, const PassOptions& options) {
  auto to = options.find("to");
  model.graph().rename(*model.graph().findValue("hidden"),
                       to == options.end() ? "seen" : to->second);
  context.count("rename", "values", 2);
  return llvm::Error::success();
}
llvm::Error breakOrder(Model& model, PassContext&, const PassOptions&) {
  model.graph().moveBefore(model.graph().nodes().back(), &model.graph().nodes().front());
  return llvm::Error::success();
}
llvm::Error fail(Model&, PassContext&, const PassOptions&) { return invalid("it cannot be done"); }

llvm::Error misuse(Model&, PassContext&, const PassOptions&) {
  return usageError("the option is wrong");
}

class PassManagerTest : public GraphTest {
protected:
  PassManagerTest() {
    registry.add({"nothing", "", {}, makePass<nothing>});
    registry.add({"rename", "", {"to"}, makePass<rename>});
    registry.add({"break-order", "", {}, makePass<breakOrder>});
    registry.add({"fail", "", {"why"}, makePass<fail>});
    registry.add({"misuse", "", {}, makePass<misuse>});
    Value& hidden = node("Relu", {&input("a")}, "hidden");
    graph().addOutput(node("Neg", {&hidden}, "out"));
    graph().setName("tested");
    settings.print = [this](const std::string& header, const std::string& printed) {
      headers.push_back(header);
      texts.push_back(printed);
    };
  }

  /// The error's text, or "" on success.
  std::string run(llvm::StringRef pipeline) {
    PassManager manager(registry, settings);
    if (llvm::Error error = manager.addPipeline(pipeline))
      return takeDiagnostic(std::move(error)).str();
    llvm::Error error = manager.run(model, context);
    timings.assign(manager.timings().begin(), manager.timings().end());
    return error ? takeDiagnostic(std::move(error)).str() : "";
  }

  RuleRegistry rules;
  TargetRegistry targets;
  PassRegistry registry;
  PassContext context{rules, targets};
  PassManagerOptions settings;
  std::vector<std::string> headers;
  std::vector<std::string> texts;
  std::vector<PassTiming> timings;
  TemporaryFolder folder;
};

TEST_F(PassManagerTest, UnknownNamesAreRefusedBeforeAnythingRuns) {
  EXPECT_THAT(run("rename,no-such-pass"), HasSubstr("there is no pass 'no-such-pass'"));
  EXPECT_THAT(run("rename{from=x}"), HasSubstr("pass 'rename' has no option 'from'"));
  EXPECT_THAT(run("rename,"), HasSubstr("column 8"));
  EXPECT_NE(graph().findValue("hidden"), nullptr);
}

TEST_F(PassManagerTest, RunsInOrderWithTimingsAndStatistics) {
  EXPECT_EQ(run("nothing,rename{to=b},nothing"), "");
  EXPECT_NE(graph().findValue("b"), nullptr);
  ASSERT_EQ(timings.size(), 3u);
  EXPECT_EQ(timings[1].pass, "rename");
  EXPECT_FALSE(timings[0].changed);
  EXPECT_TRUE(timings[1].changed);
  EXPECT_FALSE(timings[2].changed);
  for (const PassTiming& timing : timings)
    EXPECT_GE(timing.milliseconds, 0.0);
  EXPECT_EQ(context.statistics["nothing"]["runs"], 2);
  EXPECT_EQ(context.statistics["rename"]["values"], 2);
}

TEST_F(PassManagerTest, VerifiesAfterEveryPass) {
  std::string message = run("nothing,break-order,rename");
  EXPECT_THAT(message, HasSubstr("in pass 'break-order' after nothing"));
  EXPECT_NE(graph().findValue("hidden"), nullptr) << "the next pass did not run";
}

TEST_F(PassManagerTest, ErrorsInTheRequestNameNoPass) {
  EXPECT_THAT(run("nothing,nothing,fail"), HasSubstr("; note: in pass 'fail' after nothing"));
  EXPECT_EQ(run("nothing,misuse"), "the option is wrong");
}

TEST_F(PassManagerTest, VerificationCanBeOff) {
  settings.verifyEach = false;
  EXPECT_EQ(run("break-order,nothing"), "");
}

TEST_F(PassManagerTest, VerifiesItsInput) {
  llvm::cantFail(breakOrder(model, context, {}));
  EXPECT_NE(run("nothing"), "");
  EXPECT_TRUE(context.statistics.empty());
}

TEST_F(PassManagerTest, PrintsBeforeAndAfterTheChosenPasses) {
  settings.printBefore = {"rename"};
  settings.printAfter = {"all"};
  EXPECT_EQ(run("nothing,rename{to=b}"), "");
  EXPECT_THAT(headers, ElementsAre("after nothing", "before rename", "after rename"));
  EXPECT_THAT(texts[1], HasSubstr("hidden"));
  EXPECT_THAT(texts[2], Not(HasSubstr("hidden =")));
}

TEST_F(PassManagerTest, AReproducerHoldsTheModelAndTheRestOfThePipeline) {
  settings.reproducerPath = folder.path("reproducer.onnxtxt");
  std::string message = run("rename{to=b},fail{why=\"a b\"},nothing");
  EXPECT_THAT(message, HasSubstr("it cannot be done"));
  EXPECT_THAT(message, HasSubstr("in pass 'fail' after rename"));
  EXPECT_THAT(message, HasSubstr("reproducer: " + settings.reproducerPath));
  std::string written = folder.read("reproducer.onnxtxt");
  EXPECT_THAT(written, HasSubstr("// RUN: kvopt opt %s --pipeline 'fail{why=\"a b\"},nothing'\n"));
  EXPECT_THAT(written, HasSubstr("b = Relu"));
  EXPECT_THAT(written, Not(HasSubstr("hidden ="))) << "the model as the failing pass met it";
}

TEST_F(PassManagerTest, ABrokenGraphsReproducerIsTheGraphBefore) {
  settings.reproducerPath = folder.path("reproducer.onnxtxt");
  EXPECT_NE(run("break-order"), "");
  std::string written = folder.read("reproducer.onnxtxt");
  EXPECT_LT(written.find("Relu"), written.find("Neg"));
}

TEST_F(PassManagerTest, AReproducerThatCannotBeWrittenIsANote) {
  settings.reproducerPath = folder.path("no/such/folder/file");
  std::string message = run("fail");
  EXPECT_THAT(message, HasSubstr("it cannot be done"));
  EXPECT_THAT(message, HasSubstr("no reproducer"));
}

TEST_F(PassManagerTest, NoReproducerOnSuccess) {
  settings.reproducerPath = folder.path("reproducer.onnxtxt");
  EXPECT_EQ(run("nothing"), "");
  EXPECT_EQ(folder.entryCount(), 0u);
}

} // namespace
} // namespace kvopt
