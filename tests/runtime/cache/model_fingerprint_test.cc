// Fingerprints: what changes them and what does not.
#include "runtime/cache/model_fingerprint.h"

#include "ir/op.h"
#include "ir/text/reader.h"

#include <gtest/gtest.h>

#include <set>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

class FingerprintTest : public testing::Test {
protected:
  FingerprintTest() { registerAll(ops); }
  ModelFingerprint of(const std::string& text) const {
    return modelFingerprint(*llvm::cantFail(readText(text, ops)));
  }
  /// A model with one large constant, of which one byte is changed.
  ModelFingerprint withByteAt(int64_t at, int64_t elements = 20'000) const {
    auto model = llvm::cantFail(readText(text(), ops));
    std::vector<std::byte> bytes(static_cast<size_t>(elements * 4));
    if (at >= 0)
      bytes[static_cast<size_t>(at)] = std::byte{1};
    Graph& graph = model->graph();
    Value& large = graph.addInitializer(
        "large", llvm::cantFail(makeTensor(ElementType::Float, {elements}, std::move(bytes))));
    graph.addOutput(graph.create("Identity", {&large}, {"copy"}).result());
    return modelFingerprint(*model);
  }
  static std::string text(const std::string& input = "x", const std::string& inner = "h",
                          const std::string& scale = "2", const std::string& axis = "1",
                          const std::string& op = "Mul", const std::string& opset = "17") {
    return "<ir_version: 8, opset_import: [\"\" : " + opset + "]>\ng (float[B, 4] " + input +
           ") => (float[B, 4] y)\n<float s = {" + scale + "}>\n{\n  " + inner + " = " + op + "(" +
           input + ", s)\n  y = Softmax <axis = " + axis + "> (" + inner + ")\n}";
  }

  OpRegistry ops;
};

TEST_F(FingerprintTest, CoversWhatAModelComputes) {
  std::set<ModelFingerprint> all = {of(text()),
                                    of(text("z")),
                                    of(text("x", "h", "3")),
                                    of(text("x", "h", "2", "0")),
                                    of(text("x", "h", "2", "1", "Add")),
                                    of(text("x", "h", "2", "1", "Mul", "18"))};
  EXPECT_EQ(all.size(), 6u);
}

TEST_F(FingerprintTest, NamesInsideDoNotMatter) {
  EXPECT_EQ(of(text()), of(text("x", "renamed")));
  auto model = llvm::cantFail(readText(text(), ops));
  model->docString = "doc";
  model->producerName = "somebody";
  model->setMetadata("key", "value");
  model->graph().addInitializer("unread", int64Scalar(7));
  EXPECT_EQ(modelFingerprint(*model), of(text()));
}

TEST_F(FingerprintTest, ConnectionsMatter) {
  auto diamond = [&](const char* left, const char* right) {
    return of(std::string("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                          "g (float[B] a, float[B] b) => (float[B] y)\n{\n  y = Sub(") +
              left + ", " + right + ")\n}");
  };
  EXPECT_NE(diamond("a", "b"), diamond("b", "a"));
  EXPECT_NE(diamond("a", "b"), diamond("a", "a"));
}

TEST_F(FingerprintTest, BranchesAreCovered) {
  auto branching = [&](const char* op) {
    return of(std::string("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                          "g (bool c, float[B] a) => (float[B] y)\n{\n"
                          "  y = If (c) <then_branch = t () => (float[B] p) { p = ") +
              op + "(a) }, else_branch = e () => (float[B] q) { q = Neg(a) }>\n}");
  };
  EXPECT_NE(branching("Abs"), branching("Exp"));
}

TEST_F(FingerprintTest, EveryByteOfConstantsCounts) {
  const ModelFingerprint zeros = withByteAt(-1);
  const int64_t bytes = 80'000;
  EXPECT_EQ(withByteAt(-1), zeros);
  EXPECT_NE(withByteAt(-1, 20'001), zeros);
  for (int64_t at : {int64_t{0}, int64_t{64}, bytes / 2 + 1, bytes - 1})
    EXPECT_NE(withByteAt(at), zeros) << at;
  const auto small = static_cast<int64_t>(hashedConstantBytes);
  for (int64_t at : {int64_t{0}, int64_t{2000}, small - 1})
    EXPECT_NE(withByteAt(at, small / 4), withByteAt(-1, small / 4)) << at;
}

} // namespace
} // namespace kvopt
