// Constants from which positions, lengths and tokens select rows are one value: rows that no step
// reads count, too.
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

constexpr int rows = 400, editedRow = 300;

/// `count` numbers in no order, the entry `changed` of which is another one.
std::string numbers(int count, int changed = -1) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i ? ", " : "") + std::to_string((i * i * 7 + 3 * i + (i == changed ? 1 : 0)) % 31);
  return text;
}

std::string progression(int count, int changed = -1) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i ? ", " : "") + std::to_string(2 * i + 5 + (i == changed ? 1 : 0));
  return text;
}

/// A square matrix of ones up to the diagonal.
std::string triangle(int extent, int changed = -1) {
  std::string text;
  for (int i = 0; i < extent * extent; ++i)
    text += (i ? ", " : "") +
            std::to_string((i % extent <= i / extent ? 1 : 0) ^ (i == changed ? 1 : 0));
  return text;
}

/// Attention with `bias` [S,T] or [T] on its scores, which `nodes` compute from `tables`.
std::string biased(const char* model, const std::string& tables, const std::string& nodes) {
  const bool isFirst = model == grown;
  const std::string scores = isFirst ? "scores" : "logits";
  const std::string first = isFirst ? "int64[1] one = {1}" : "int64[1] axis = {1}";
  const std::string constants =
      ", int64 n0 = {0}, int64 n1 = {1}, int64 n2 = {2}, int64 n3 = {3}, int64 n400 = {400}, "
      "float f0 = {0}, float low = {-900}, float[2] ends = {0, 1}, float hidden = {-inf}, "
      "int64[1] r0 = {0}, int64[1] r1 = {1}, int64[1] r2 = {2}, int64[1] all = {400}, " +
      tables;
  return edited(edited(edited(model, first, first + constants), scores + " = ", "unbiased = "),
                isFirst ? "weights = " : "top = ",
                "extents = Shape (present_key) count_of_rows = Gather (extents, n2) "
                "keys = Range (n0, count_of_rows, n1) length = Reshape (count_of_rows, r1) " +
                    nodes + " " + scores + " = Add (unbiased, bias) " +
                    (isFirst ? "weights = " : "top = "));
}

CheckReport checkTables(const std::string& before, const std::string& after,
                        const std::string& nodesBefore, const std::string& nodesAfter) {
  return check(biased(grown, before, nodesBefore), biased(respelled, after, nodesAfter));
}

bool isProved(const CheckReport& report) { return report.verdict() <= Verdict::ProvedReduced; }

/// Ways in which keys and lengths select entries of `t` [400].
const char* const selections[] = {
    "bias = Gather (t, keys)",
    "back = Sub (keys, n400) bias = Gather (t, back)",
    "left = Mod (keys, n400) bias = Gather (t, left)",
    "place = Gather (order, keys) bias = Gather (t, place)",
    "part = Slice (t, r0, length) bias = Gather (part, keys)",
    "bias = GatherElements (t, keys)",
    "column = Unsqueeze (keys, r1) bias = GatherND (t, column)",
    "bias = Slice (t, r0, length)",
    "rest = Sub (all, length) sizes = Concat <axis = 0> (length, rest) bias, unused = Split (t, "
    "sizes)",
    "hot = OneHot (keys, n400, ends) bias = MatMul (hot, t)",
    "places = Range (n0, n400, n1) row = Unsqueeze (keys, r1) isThere = Equal (row, places) "
    "shown = Cast <to = 1> (isThere) parts = Mul (shown, t) bias = ReduceSum <keepdims = 0> "
    "(parts, r1)",
    "places = Range (n0, n400, n1) row = Unsqueeze (keys, r1) isThere = Equal (row, places) "
    "parts = Where (isThere, t, low) bias = ReduceMax <axes = [1], keepdims = 0> (parts)",
    "zero = Sub (count_of_rows, count_of_rows) offset = Cast <to = 1> (zero) moved = Add (t, "
    "offset) "
    "bias = Gather (moved, keys)",
    "twice = Expand (length, r1) more = Cast <to = 1> (twice) both = Concat <axis = 0> (t, more) "
    "bias = Gather (both, keys)",
};

TEST(CheckTableRows, RowsBeyondTheScopeAreNotProvedEqual) {
  const std::string order = ", int64[400] order = {" + numbers(rows) + "}";
  const std::string table = "float[400] t = {" + numbers(rows) + "}" + order;
  const std::string other = "float[400] t = {" + numbers(rows, editedRow) + "}" + order;
  for (const char* selection : selections) {
    const CheckReport report = checkTables(table, other, selection, selection);
    EXPECT_FALSE(isProved(report)) << selection;
    EXPECT_NE(report.verdict(), Verdict::Skipped) << selection << weakest(report);
  }
}

TEST(CheckTableRows, TablesOfEachTypeAreOneValue) {
  for (const std::string type : {"int64", "int32", "float16", "bfloat16", "double"}) {
    const std::string nodes = "picked = Gather (t, keys) bias = Cast <to = 1> (picked)";
    const CheckReport report =
        checkTables(type + "[400] t = {" + numbers(rows) + "}",
                    type + "[400] t = {" + numbers(rows, editedRow) + "}", nodes, nodes);
    EXPECT_FALSE(isProved(report)) << type << weakest(report);
  }
}

TEST(CheckTableRows, EqualTablesAreProvedEqual) {
  const std::string table = "float[400] t = {" + numbers(rows) + "}";
  for (const char* selection : {selections[0], selections[1], selections[5], selections[7]}) {
    const CheckReport report = checkTables(table, table, selection, selection);
    EXPECT_EQ(report.verdict(), Verdict::ProvedReduced) << selection << weakest(report);
  }
}

TEST(CheckTableRows, ADifferenceInARowIsFound) {
  // The scope gets a step that reads the row.
  const CheckReport report = checkTables("float[400] t = {" + numbers(rows) + "}",
                                         "float[400] t = {" + numbers(rows, editedRow) + "}",
                                         selections[0], selections[0]);
  EXPECT_EQ(report.verdict(), Verdict::Different) << weakest(report);
}

TEST(CheckTableRows, WhatIsDoneWithUnreadRowsIsNotProved) {
  // Three entries are 3, as far as the scope reads; both models have the same table.
  std::string threes = "int64[400] t = {3";
  for (int i = 1; i < rows; ++i)
    threes += i < editedRow ? ", 3" : ", 4";
  threes += "}";
  const std::string picked = "picked = Gather (t, keys) ";
  const CheckReport report = checkTables(
      threes, threes, picked + "square = Mul (picked, picked) bias = Cast <to = 1> (square)",
      picked + "threefold = Mul (picked, n3) bias = Cast <to = 1> (threefold)");
  EXPECT_EQ(report.verdict(), Verdict::Tested) << weakest(report);
}

TEST(CheckTableRows, ATableIsNotWhatTheOtherModelComputesInTheScopeOnly) {
  const std::string read = "picked = Gather (t, keys) bias = Cast <to = 1> (picked)";
  const std::string computed =
      "double = Add (keys, keys) five = Add (n2, n3) sum = Add (double, five) "
      "bias = Cast <to = 1> (sum)";
  EXPECT_EQ(checkTables("int64[400] t = {" + progression(rows) + "}", "float unused = {0}", read,
                        computed)
                .verdict(),
            Verdict::ProvedReduced);
  const CheckReport report = checkTables("int64[400] t = {" + progression(rows, editedRow) + "}",
                                         "float unused = {0}", read, computed);
  EXPECT_EQ(report.verdict(), Verdict::Tested);
  EXPECT_NE(weakest(report).find("'picked' (Gather)"), std::string::npos) << weakest(report);
}

// The number of rows that a slice takes is not traced through the table, so that the comparison is
// tested at best.
TEST(CheckTableRows, ATriangleComparedWithPositionsIsNotProved) {
  const std::string read =
      "sizes = Shape (rows) count = Gather (sizes, n2) first = Sub (count_of_rows, count) start = "
      "Reshape "
      "(first, r1) shown = Slice (t, start, length, r0) part = Slice (shown, r0, length, r1) "
      "isShown = Cast <to = 9> (part) bias = Where (isShown, f0, hidden)";
  const std::string computed = "sizes = Shape (new_rows) count = Gather (sizes, n2) first = Sub "
                               "(count_of_rows, count) own = Range "
                               "(first, count_of_rows, n1) column = Unsqueeze (own, r1) isShown = "
                               "LessOrEqual (keys, column) "
                               "bias = Where (isShown, f0, hidden)";
  constexpr int extent = 64;
  const CheckReport equal = checkTables("int64[64, 64] t = {" + triangle(extent) + "}",
                                        "float unused = {0}", read, computed);
  EXPECT_EQ(equal.verdict(), Verdict::Tested) << weakest(equal);
  const CheckReport report =
      checkTables("int64[64, 64] t = {" + triangle(extent, 40 * extent + 3) + "}",
                  "float unused = {0}", read, computed);
  EXPECT_EQ(report.verdict(), Verdict::Tested) << weakest(report);
}

TEST(CheckTableRows, SmallTablesThatAllStepsReadAreCompared) {
  // All entries are read by the number of batch rows.
  const std::string nodes = "rowsOfBatch = Gather (extents, n0) slope = Gather (t, rowsOfBatch) "
                            "numbers = Cast <to = 1> (keys) bias = Mul (numbers, slope)";
  const std::string table = "float[4] t = {0, 5, 3, 11}", other = "float[4] t = {0, 5, 3, 12}";
  EXPECT_EQ(checkTables(table, other, nodes, nodes).verdict(), Verdict::Different);
}

} // namespace
} // namespace kvopt::check
