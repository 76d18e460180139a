// What a check must look at, and which doubts stay with an answer.
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

/// Models of rows `x` [B,S,8] and a cache `past_key` [B,1,P,8]. `nodes` compute `result`.
std::string rowsModel(const std::string& nodes, const std::string& present, const char* inputs = "",
                      const char* rows = "P") {
  return std::string("<ir_version: 8, opset_import: [\"\" : 18, \"own\" : 1]>\n"
                     "g (float[B, S, 8] inputs_embeds, float[B, 1, ") +
         rows + ", 8] past_key" + inputs +
         R"() => (result, present_key)
<int64[1] one = {1}, int64[1] two = {2}, int64 n2 = {2}, float f2 = {2}, float nothing = {nan},
 float half = {0.5}, int64[8] pads = {0, 0, 0, 0, 0, 0, 0, 1}, int64[1] l0 = {0}, int64[1] l8 = {8},
 int64[1] last = {-1}, int64 n0 = {0}, int64 n1 = {1}, int64 n3 = {3}>
{
  rows = Unsqueeze (inputs_embeds, one)
  present_key = )" +
         present + "\n" + nodes + "\n}\n";
}

const char* const joined = "Concat <axis = 2> (past_key, rows)";

ir::Manifest oneCache() {
  ir::Manifest manifest = growing();
  manifest.caches.pop_back();
  return manifest;
}

CheckReport checkRows(const std::string& before, const ir::Manifest& first,
                      const std::string& after, const ir::Manifest& second) {
  auto a = read(before), b = read(after);
  if (!a || !b)
    return {};
  return checkModels({*a, first}, {*b, second});
}

Verdict rowsVerdict(const std::string& before, const std::string& after) {
  return checkRows(before, oneCache(), after, oneCache()).verdict();
}

std::string rowsReason(const std::string& before, const std::string& after) {
  return weakest(checkRows(before, oneCache(), after, oneCache()));
}

TEST(CheckObligations, AlignedRowsOfAnotherFormAreCompared) {
  // The present has the new rows only. The second manifest claims that it has all of them.
  const std::string model = rowsModel("result = Tanh (rows)", "Identity (rows)");
  ir::Manifest onlyNew = oneCache();
  onlyNew.caches[0].storage = ir::GrowingCache{.givesNewRows = true};
  EXPECT_EQ(checkRows(model, onlyNew, model, onlyNew).verdict(), Verdict::Proved);
  EXPECT_EQ(checkRows(model, onlyNew, model, oneCache()).verdict(), Verdict::Different);
  // A manifest that contradicts the model proves nothing, even if nothing reads the cache.
  ir::Manifest wide = onlyNew;
  wide.caches[0].shape[3] = int64_t(4);
  EXPECT_EQ(checkRows(model, onlyNew, model, wide).verdict(), Verdict::Skipped);
}

TEST(CheckObligations, InputsOfOneNameMayHaveOtherContents) {
  const std::string model = rowsModel("result = ReduceSum <keepdims = 0> (past_key, two)", joined);
  const std::string inBuffer = rowsModel("result = ReduceSum <keepdims = 0> (past_key, two)",
                                         "Identity (past_key)", ", int64 past_length", "C");
  ir::Manifest buffer = inBuffers(ir::LengthFeed::PastLength);
  buffer.caches.pop_back();
  for (const Obligation& output : checkRows(model, oneCache(), inBuffer, buffer).obligations)
    EXPECT_EQ(output.verdict, Verdict::Different) << output.after;
  const std::string counts =
      rowsModel("length = Cast <to = 1> (past_length) result = Mul (rows, length)", joined,
                ", int64 past_length");
  ir::Manifest past = oneCache(), total = oneCache();
  past.lengths.push_back({"past_length", ir::ElementType::Int64, {}, ir::LengthFeed::PastLength});
  total.lengths.push_back({"past_length", ir::ElementType::Int64, {}, ir::LengthFeed::TotalLength});
  EXPECT_EQ(checkRows(counts, past, counts, past).verdict(), Verdict::Proved);
  EXPECT_EQ(checkRows(counts, past, counts, total).verdict(), Verdict::Different);
}

TEST(CheckObligations, RingsHoldEachRowInItsSlot) {
  const std::string grows = rowsModel("result = Gather <axis = 2> (past_key, last)", joined);
  ir::Manifest ring = inBuffers(ir::LengthFeed::PastLength, int64_t(3));
  ring.caches.pop_back();
  ring.caches[0].storage = ir::RingCache{};
  auto verdictWith = [&](const char* slot) {
    const std::string model =
        rowsModel("newest = Sub (past_length, n1) slot = " + std::string(slot) +
                      " slots = Unsqueeze (slot, l0) result = Gather <axis = 2> (past_key, slots)",
                  "Identity (past_key)", ", int64 past_length", "3");
    for (const Obligation& output : checkRows(grows, oneCache(), model, ring).obligations)
      if (output.isOutput && output.after == "result")
        return output.verdict;
    return Verdict::Skipped;
  };
  EXPECT_LE(verdictWith("Mod (newest, n3)"), Verdict::Tested);
  EXPECT_EQ(verdictWith("Min (newest, n2)"), Verdict::Different);
}

TEST(CheckObligations, ResultsHaveTheExpectedRows) {
  const std::string whole = rowsModel("result = Tanh (rows)", joined);
  ir::Manifest onlyNew = oneCache();
  onlyNew.caches[0].storage = ir::GrowingCache{.givesNewRows = true};
  auto verdictWith = [&](const char* present) {
    return checkRows(whole, oneCache(), rowsModel("result = Tanh (rows)", present), onlyNew)
        .verdict();
  };
  EXPECT_LE(verdictWith("Identity (rows)"), Verdict::Tested);
  EXPECT_EQ(verdictWith("Concat <axis = 2> (rows, rows)"), Verdict::Different);
  // The first elements are the same ones.
  EXPECT_EQ(
      rowsVerdict(whole, rowsModel("t = Tanh (rows) result = Concat <axis = 0> (t, t)", joined)),
      Verdict::Different);
}

TEST(CheckObligations, SomethingIsCompared) {
  const std::string none = rowsModel("result = Add (rows, nothing)", joined);
  EXPECT_EQ(rowsVerdict(none, rowsModel("result = Add (rows, f2)", joined)), Verdict::Skipped);
  EXPECT_EQ(rowsVerdict(rowsModel("result = Add (rows, f2)", joined), none), Verdict::Different);
}

TEST(CheckObligations, OperatorsOfBothModelsNeedAnArgument) {
  // No argument covers Pad.
  const std::string plain = rowsModel("result = Tanh (rows)", joined);
  const std::string padded = rowsModel("wide = Pad (rows, pads) part = Slice (wide, l0, l8, last) "
                                       "result = Tanh (part)",
                                       joined);
  for (const std::string& reason : {rowsReason(plain, padded), rowsReason(padded, plain)})
    EXPECT_NE(reason.find("(Pad) has no argument for all sizes"), std::string::npos) << reason;
}

TEST(CheckObligations, StepsThatTheFirstModelRejectsAreADoubt) {
  // The third row does not exist in small steps.
  auto third = [](const char* nodes) {
    return rowsModel(std::string("row = Gather <axis = 2> (present_key, n2) ") + nodes, joined);
  };
  const std::string reason =
      rowsReason(third("result = Add (row, row)"), third("result = Mul (row, f2)"));
  EXPECT_EQ(reason.rfind("tested: ", 0), 0u) << reason;
  EXPECT_NE(reason.find("the first model does not accept a step"), std::string::npos) << reason;
}

TEST(CheckObligations, DoubtsStayWithValuesThatAreCut) {
  auto scaled = [](const char* nodes) {
    return rowsModel("shown = Unsqueeze (kind, one) number = Cast <to = 1> (shown) "
                     "first = Mul (rows, number) " +
                         std::string(nodes),
                     joined, ", int64[8] kind");
  };
  const std::string reason =
      rowsReason(scaled("result = Add (first, first)"), scaled("result = Mul (first, f2)"));
  EXPECT_EQ(reason.rfind("tested: ", 0), 0u) << reason;
  EXPECT_NE(reason.find("the role of the input 'kind' is unknown"), std::string::npos) << reason;
}

TEST(CheckObligations, ASecondModelThatFailsDiffers) {
  // A row beyond the end in steps of one row.
  const std::string shown = "row = Gather <axis = 2> (present_key, n0) ";
  EXPECT_EQ(
      rowsVerdict(rowsModel(shown + "result = Add (row, row)", joined),
                  rowsModel("row = Gather <axis = 2> (present_key, n2) zero = Sub (row, row) " +
                                std::string("head = Gather <axis = 2> (present_key, n0) "
                                            "more = Add (head, zero) result = Mul (more, f2)"),
                            joined)),
      Verdict::Different);
}

TEST(CheckObligations, NodesDifferInWhatTheirOperatorsSay) {
  // Parts, their number, attributes, the order of operands, and function bodies.
  const std::string halves = "a, b = Split <axis = 3, num_outputs = 2> (rows) ";
  const std::string model = rowsModel(halves + "result = Tanh (a)", joined);
  EXPECT_EQ(rowsVerdict(model, rowsModel(halves + "result = Tanh (b)", joined)),
            Verdict::Different);
  EXPECT_EQ(rowsVerdict(model, rowsModel("a, b, c, d = Split <axis = 3, num_outputs = 4> (rows) "
                                         "result = Tanh (a)",
                                         joined)),
            Verdict::Different);
  EXPECT_EQ(rowsVerdict(rowsModel("result = Softmax <axis = 3> (rows)", joined),
                        rowsModel("result = Softmax <axis = 2> (rows)", joined)),
            Verdict::Different);
  EXPECT_EQ(rowsVerdict(rowsModel("t = Tanh (rows) result = Sub (t, rows)", joined),
                        rowsModel("t = Tanh (rows) result = Sub (rows, t)", joined)),
            Verdict::Different);
  const std::string called = rowsModel("result = own.Change (rows)", joined);
  auto withBody = [&](const char* node) {
    return called + "<domain: \"own\", opset_import: [\"\" : 18]> Change (a) => (c) { c = " + node +
           " (a) }\n";
  };
  EXPECT_EQ(rowsVerdict(withBody("Tanh"), withBody("Tanh")), Verdict::Proved);
  EXPECT_EQ(rowsVerdict(withBody("Tanh"), withBody("Sin")), Verdict::Different);
}

TEST(CheckObligations, VersionsOfOperatorsDiffer) {
  // Before version 13, a softmax includes all later axes.
  auto softmax = [](const char* version, const char* axis) {
    return std::string("<ir_version: 8, opset_import: [\"\" : ") + version +
           "]>\ng (float[B, S, 8] inputs_embeds) => (result) { result = Softmax <axis = " + axis +
           "> (inputs_embeds) }\n";
  };
  const ir::Manifest none;
  EXPECT_EQ(checkRows(softmax("12", "1"), none, softmax("12", "1"), none).verdict(),
            Verdict::Proved);
  EXPECT_GT(checkRows(softmax("12", "1"), none, softmax("13", "1"), none).verdict(),
            Verdict::Tested);
  EXPECT_LE(checkRows(softmax("12", "2"), none, softmax("13", "2"), none).verdict(),
            Verdict::Tested);
}

TEST(CheckObligations, MasksAreNotAnyNumbers) {
  // A constant of many elements, some of them infinite, which a second model reads differently.
  std::string mask = "float[4, 8] mask = {";
  for (int i = 0; i < 32; ++i)
    mask += i % 8 < 3 ? "-inf, " : "0, ";
  mask.resize(mask.size() - 2);
  auto masked = [&](const char* nodes) {
    return edited(rowsModel(nodes, joined), "float half = {0.5}", mask + "}, float half = {0.5}");
  };
  // Infinity minus infinity is not 0.
  EXPECT_EQ(rowsVerdict(masked("result = Tanh (rows)"),
                        masked("zeros = Sub (mask, mask) row = Slice (zeros, l0, one, l0) "
                               "t = Tanh (rows) result = Add (t, row)")),
            Verdict::Different);
}

TEST(CheckObligations, ElementsThatOnlyTheSecondModelLeavesOpenDiffer) {
  // Every key of a row has a mask's finite fill.
  const std::string open = "filled = Add (rows, fill) p = Softmax (filled) t = Tanh (rows) ";
  auto filled = [&](const char* result) {
    return edited(rowsModel(open + result, joined), "float half",
                  "float fill = {-1e9}, float half");
  };
  EXPECT_EQ(rowsVerdict(filled("result = Identity (t)"), filled("result = Add (t, p)")),
            Verdict::Different);
}

TEST(CheckObligations, PowersOfPowersAreNotDecided) {
  EXPECT_EQ(
      rowsVerdict(rowsModel("e = Exp (rows) result = Exp (e)", joined),
                  rowsModel("h = Mul (rows, half) r = Exp (h) s = Mul (r, r) k = Mul (s, half) "
                            "p = Exp (k) result = Mul (p, p)",
                            joined)),
      Verdict::Skipped);
}

} // namespace
} // namespace kvopt::check
