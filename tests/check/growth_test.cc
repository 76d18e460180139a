// What depends on sizes in another way than as a sum of their multiples is not proved.
#include "check/arithmetic/growth.h"
#include "tests/check/checker_fixture.h"

namespace kvopt::check {
namespace {

constexpr const char* numbers =
    "int64 one = {1}, int64 three = {3}, int64 hundred = {100}, int64 far = {1000}, int64 minus = "
    "{-3}, int64 large = {288230376151711744}, int32 million = {1048576}, int32 none32 = {0}, "
    "int64[1] list = {0}, int64[1] first = {100}, int64[1] end = {9223372036854775807}, int64[1] "
    "back = {-1}, float third = {0.334}, float tenth = {0.1}, float tiny = {1e-9}, float f0 = {0}, "
    "float hundreds = {100}, float f2 = {2}, int64[8] table = {0, 1, 2, 3, 4, 5, 6, 7}, int64 mask "
    "= {64}, int64 n43 = {43}, int64 n128 = {128}, ";

/// Expects a verdict about respelled attention whose result is doubled where `condition` holds for
/// the number of `rows`, which the scope does not show.
void expectVerdict(Verdict verdict, const std::string& condition, const std::string& more = "") {
  const CheckReport report = check(grown, edited(switched(condition), "int64 zero = {0}",
                                                 more + numbers + std::string("int64 zero = {0}")));
  EXPECT_EQ(report.verdict(), verdict) << condition << "\n" << weakest(report);
  EXPECT_EQ(weakest(report).find("node") != std::string::npos, verdict == Verdict::Tested)
      << weakest(report);
}

void expectTested(const std::string& condition) { expectVerdict(Verdict::Tested, condition); }

void expectProved(const std::string& condition) {
  expectVerdict(Verdict::ProvedReduced, condition);
}

TEST(CheckGrowth, IntegersThatMayWrapAreNotProved) {
  for (const char* condition :
       {"narrow = Cast <to = 2> (rows) wide = Cast <to = 7> (narrow) switches = Less (wide, rows)",
        "narrow = Cast <to = 3> (rows) wide = Cast <to = 7> (narrow) switches = Less (wide, rows)",
        "narrow = Cast <to = 4> (rows) wide = Cast <to = 7> (narrow) switches = Less (wide, rows)",
        "narrow = Cast <to = 3> (rows) sum = Add (narrow, narrow) back8 = Sub (sum, narrow) wide = "
        "Cast <to = 7> (back8) switches = Less (wide, rows)",
        "under = Sub (rows, far) narrow = Cast <to = 12> (under) wide = Cast <to = 7> (narrow) "
        "switches = Less (wide, rows)",
        "narrow = Cast <to = 6> (rows) product = Mul (narrow, million) switches = Less (product, "
        "none32)",
        "product = Mul (rows, large) switches = Less (product, zero)",
        "square = Mul (rows, rows) wide = Add (square, square) narrow = Cast <to = 6> (wide) back6 "
        "= Cast <to = 7> (narrow) switches = Less (back6, wide)",
        "more = Add (rows, three) power = Pow (more, three) switches = Greater (power, large)"})
    expectTested(condition);
  // Bounds exclude it.
  expectProved("turn = Mod (rows, two) narrow = Cast <to = 2> (turn) wide = Cast <to = 7> (narrow) "
               "switches = Less (wide, turn)");
  expectProved("least = Min (rows, three) narrow = Cast <to = 3> (least) wide = Cast <to = 7> "
               "(narrow) switches = Less (wide, least)");
  expectProved("narrow = Cast <to = 6> (rows) wide = Cast <to = 7> (narrow) switches = Less (wide, "
               "rows)");
}

TEST(CheckGrowth, FunctionsThatAreNotAffineAreNotProved) {
  for (const char* condition :
       {"left = Sub (rows, hundred) product = Mul (left, rows) switches = Greater (product, zero)",
        "shift = Sub (rows, far) both = Mul (batch, shift) switches = Greater (both, zero)",
        "up = Mul (rows, n43) less = Sub (up, one) parts = Div (less, n128) thirds = Div (rows, "
        "three) switches = Greater (parts, thirds)",
        "number = Cast <to = 1> (rows) part = Mul (number, third) count = Cast <to = 7> (part) "
        "whole3 = Div (rows, three) switches = Greater (count, whole3)",
        "number = Cast <to = 1> (rows) angle = Mul (number, tenth) wave = Sin (angle) switches = "
        "Less (wave, f0)",
        "number = Cast <to = 1> (rows) root = Sqrt (number) steps = Floor (root) switches = "
        "Greater (steps, hundreds)",
        "number = Cast <to = 1> (rows) power = Exp (number) switches = IsInf (power)",
        "number = Cast <to = 1> (rows) power = Pow (number, f2) switches = Greater (power, "
        "hundreds)",
        "number = Cast <to = 1> (rows) inverse = Reciprocal (number) switches = Less (inverse, "
        "tiny)",
        "number = Cast <to = 10> (rows) wide = Cast <to = 1> (number) exact = Cast <to = 1> (rows) "
        "switches = Less (wide, exact)",
        "bits = BitwiseAnd (rows, mask) switches = Greater (bits, zero)",
        "parts = Div (rows, hundred) switches = Greater (parts, zero)",
        "rest = Mod (rows, hundred) switches = Less (rest, rows)",
        "rest = Mod <fmod = 1> (rows, hundred) switches = Less (rest, rows)",
        "back3 = Mul (rows, minus) rest = Mod (back3, far) switches = Greater (rest, far)"})
    expectTested(condition);
}

TEST(CheckGrowth, EachBoundIsAThreshold) {
  for (const char* condition :
       {"list1 = Unsqueeze (rows, list) both = Concat <axis = 0> (list1, first) most = ReduceMax "
        "<keepdims = 0> (both) over = Sub (most, hundred) switches = Greater (over, zero)",
        "list1 = Unsqueeze (rows, list) both = Concat <axis = 0> (list1, first) most = ReduceMin "
        "<keepdims = 0> (both) switches = Less (most, rows)",
        "number = Cast <to = 1> (rows) count = Range (f0, number, tenth) length = Shape (count) "
        "size = Squeeze (length) over = Sub (size, far) switches = Greater (over, zero)",
        "places = Range (zero, far, one) list1 = Unsqueeze (rows, list) rest = Slice (places, "
        "list1, end, list) length = Shape (rest) size = Squeeze (length) switches = Less (size, "
        "zero)",
        "list1 = Unsqueeze (rows, list) rest = Slice (table, list1, end, list) length = Shape "
        "(rest) size = Squeeze (length) switches = Less (size, zero)",
        "places = Range (zero, rows, one) largest = ReduceMax <keepdims = 0> (places) over = Sub "
        "(largest, hundred) switches = Greater (over, zero)",
        "places = Range (zero, rows, one) running = CumSum (places, zero) largest = ReduceMax "
        "<keepdims = 0> (running) over = Sub (largest, far) switches = Greater (over, zero)",
        "places = Range (zero, rows, one) all = ReduceSum <keepdims = 0> (places) over = Sub (all, "
        "far) switches = Greater (over, zero)",
        "low = Sub (two, rows) high = Sub (rows, hundred) bound = Max (low, high) negative = Sub "
        "(bound, two) switches = Greater (negative, zero)"})
    expectTested(condition);
}

/// A threshold that is crossed in the scope does not settle the ones that are not, however many
/// there are.
TEST(CheckGrowth, EachConstantIsAThreshold) {
  std::string many = "int64[200] limits = {100";
  for (int i = 1; i < 200; ++i)
    many += ", " + std::to_string(i % 3);
  many += "}, ";
  for (const char* condition :
       {"places = Range (zero, rows, one) column = Unsqueeze (places, back) truths = Greater "
        "(column, limits) counts = Cast <to = 7> (truths) least = ReduceMin <keepdims = 0> "
        "(counts) switches = Cast <to = 9> (least)",
        "distances = Sub (rows, limits) truths = Greater (distances, zero) counts = Cast <to = 7> "
        "(truths) least = ReduceMin <keepdims = 0> (counts) switches = Cast <to = 9> (least)"})
    expectVerdict(Verdict::Tested, condition, many);
}

} // namespace
} // namespace kvopt::check
