// How diagnostics are built, joined, placed and printed.
#include "support/diagnostic.h"

#include <cerrno>
#include <gtest/gtest.h>

namespace kvopt {
namespace {

llvm::Expected<int> positive(int x) {
  if (x <= 0)
    return invalid("{} is not positive", x).node("n", "Relu").hint("use {1}");
  return x;
}

TEST(Diagnostic, PrintsItsPartsOnOneLine) {
  Diagnostic diagnostic;
  diagnostic.message = "what";
  EXPECT_EQ(diagnostic.str(), "what");
  diagnostic.file = "m.onnx";
  EXPECT_EQ(diagnostic.str(), "m.onnx: what");
  diagnostic.node = "n";
  EXPECT_EQ(diagnostic.str(), "m.onnx: node 'n': what");
  diagnostic.op = "MatMul";
  EXPECT_EQ(diagnostic.str(), "m.onnx: node 'n' (MatMul): what");
  diagnostic.node.clear();
  EXPECT_EQ(diagnostic.str(), "m.onnx: node (MatMul): what");
  diagnostic.value = "v";
  diagnostic.notes = {"first", "second"};
  diagnostic.hint = "do";
  EXPECT_EQ(diagnostic.str(),
            "m.onnx: node (MatMul): value 'v': what; note: first; note: second; hint: do");
}

TEST(Diagnostic, EscapesControlCharacters) {
  Diagnostic diagnostic;
  diagnostic.message = "m";
  diagnostic.node = std::string("a\nb\x1b[31m\tc\x7f\0d\xc3\xa9", 15);
  EXPECT_EQ(diagnostic.str(), "node 'a\\x0ab\\x1b[31m\\x09c\\x7f\\x00d\xc3\xa9': m");
}

TEST(Diagnostic, BuilderBecomesErrorAndExpected) {
  llvm::Expected<int> good = positive(3);
  ASSERT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, 3);
  llvm::Expected<int> bad = positive(-3);
  ASSERT_FALSE(static_cast<bool>(bad));
  Diagnostic diagnostic = takeDiagnostic(bad.takeError());
  EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Invalid);
  EXPECT_EQ(diagnostic.str(), "node 'n' (Relu): -3 is not positive; hint: use {1}");

  llvm::Error error =
      unsupported("{} of {}", "type", llvm::StringRef("tensor")).file("f").value("v").note("x");
  EXPECT_TRUE(error.isA<DiagnosticError>());
  EXPECT_EQ(llvm::toString(std::move(error)), "f: value 'v': type of tensor; note: x");
}

TEST(Diagnostic, BuildersSetTheKind) {
  EXPECT_EQ(takeDiagnostic(invalid("m")).kind, Diagnostic::Kind::Invalid);
  EXPECT_EQ(takeDiagnostic(unsupported("m")).kind, Diagnostic::Kind::Unsupported);
  EXPECT_EQ(takeDiagnostic(ioError("m")).kind, Diagnostic::Kind::Io);
  EXPECT_EQ(takeDiagnostic(usageError("m")).kind, Diagnostic::Kind::Usage);
  EXPECT_EQ(unsupported("m").take().kind, Diagnostic::Kind::Unsupported);
}

TEST(Diagnostic, TakeTurnsJoinedErrorsIntoNotes) {
  llvm::Error joined = llvm::joinErrors(
      llvm::joinErrors(invalid("first").hint("h"), unsupported("second").node("n")),
      llvm::createStringError(llvm::inconvertibleErrorCode(), "third"));
  Diagnostic diagnostic = takeDiagnostic(std::move(joined));
  EXPECT_EQ(diagnostic.message, "first");
  EXPECT_EQ(diagnostic.hint, "h");
  EXPECT_EQ(diagnostic.notes, (std::vector<std::string>{"node 'n': second", "third"}));
}

TEST(Diagnostic, TakeReadsForeignErrors) {
  Diagnostic text =
      takeDiagnostic(llvm::createStringError(llvm::inconvertibleErrorCode(), "other"));
  EXPECT_EQ(text.message, "other");
  EXPECT_EQ(text.kind, Diagnostic::Kind::Invalid);
  Diagnostic code =
      takeDiagnostic(llvm::errorCodeToError(std::error_code(ENOSPC, std::generic_category())));
  EXPECT_EQ(code.message, errnoText(ENOSPC));
  EXPECT_EQ(code.kind, Diagnostic::Kind::Io);
}

TEST(Diagnostic, WithFileAndWithNodeFillOnlyWhatIsMissing) {
  EXPECT_FALSE(static_cast<bool>(withFile(llvm::Error::success(), "f")));
  EXPECT_FALSE(static_cast<bool>(withNode(llvm::Error::success(), "n")));

  llvm::Error joined = llvm::joinErrors(
      llvm::joinErrors(invalid("a"), invalid("b").file("own").node("inner", "Add")),
      llvm::createStringError(llvm::inconvertibleErrorCode(), "c"));
  llvm::Error placed = withNode(withFile(std::move(joined), "outer"), "n", "If");
  EXPECT_EQ(llvm::toString(std::move(placed)), "outer: node 'n' (If): a\n"
                                               "own: node 'inner' (Add): b\n"
                                               "outer: node 'n' (If): c");
  // An unnamed node is a node all the same.
  EXPECT_EQ(llvm::toString(withNode(invalid("m").node("", "Add"), "n", "If")), "node (Add): m");
}

TEST(Diagnostic, FormatsStringRef) {
  EXPECT_EQ(formatted("{:>3}|{}", llvm::StringRef("abc").take_front(2), llvm::StringRef()), " ab|");
}

} // namespace
} // namespace kvopt
