// Operators on tensors of position forms, and what they refuse.
#include "passes/analysis/rotation/form_operators.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

namespace kvopt {
using namespace analysis;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

FormTensor numbersOf(llvm::ArrayRef<int64_t> shape) {
  FormTensor tensor;
  tensor.shape.assign(shape.begin(), shape.end());
  tensor.numbers.resize(static_cast<size_t>(elementsOf(shape).value_or(0)));
  std::iota(tensor.numbers.begin(), tensor.numbers.end(), 1);
  return tensor;
}

/// Raw elements from `first` on.
FormTensor rawOf(llvm::ArrayRef<int64_t> shape, int64_t first = 0) {
  FormTensor tensor;
  tensor.shape.assign(shape.begin(), shape.end());
  for (int64_t i = 0; i < elementsOf(shape).value_or(0); ++i)
    tensor.forms.push_back(PositionForm::raw(first + i));
  return tensor;
}

FormTensor positionsOf(int64_t count) {
  FormTensor tensor;
  tensor.shape = {count};
  for (int64_t i = 0; i < count; ++i) {
    PositionFunction line;
    line.kind = PositionFunction::Kind::Position;
    tensor.forms.push_back(PositionForm::function(line));
    tensor.forms.back().add(PositionForm::number(static_cast<double>(i)));
  }
  return tensor;
}

TEST(FormOperators, CombineWithBroadcasting) {
  std::string why;
  const MadeForms sum = combinedForms("Add", numbersOf({2, 1}), numbersOf({3}), false, why);
  ASSERT_TRUE(sum);
  EXPECT_THAT(sum->shape, ElementsAre(2, 3));
  EXPECT_THAT(sum->numbers, ElementsAre(2, 3, 4, 3, 4, 5));
  const MadeForms halved = combinedForms("Div", numbersOf({3}), numbersOf({1}), true, why);
  ASSERT_TRUE(halved);
  EXPECT_THAT(halved->numbers, ElementsAre(1, 2, 3));
  FormTensor two = numbersOf({1});
  two.numbers = {2};
  EXPECT_THAT(combinedForms("Div", numbersOf({3}), two, true, why)->numbers, ElementsAre(0, 1, 1));
  EXPECT_THAT(combinedForms("Div", numbersOf({3}), two, false, why)->numbers,
              ElementsAre(0.5, 1, 1.5));
  // Positions are never negative; above 0 a maximum is not a line.
  FormTensor zero = numbersOf({1});
  zero.numbers = {0};
  EXPECT_TRUE(combinedForms("Max", positionsOf(2), zero, true, why));
  EXPECT_FALSE(combinedForms("Max", positionsOf(2), two, true, why));
  EXPECT_FALSE(combinedForms("Min", positionsOf(2), two, true, why));
  EXPECT_FALSE(combinedForms("Div", positionsOf(2), two, true, why));
  EXPECT_FALSE(combinedForms("Mul", positionsOf(2), positionsOf(2), false, why));
  EXPECT_FALSE(combinedForms("Mul", rawOf({2}), rawOf({2}), false, why));
  EXPECT_FALSE(combinedForms("Add", rawOf({2}), rawOf({3}), false, why));
  EXPECT_TRUE(combinedForms("Mul", rawOf({2}), positionsOf(2), false, why));
}

TEST(FormOperators, MultiplyMatrices) {
  std::string why;
  const MadeForms numbers = multipliedForms(numbersOf({2, 2}), numbersOf({2, 2}), why);
  ASSERT_TRUE(numbers);
  EXPECT_THAT(numbers->numbers, ElementsAre(7, 10, 15, 22));
  FormTensor turn = numbersOf({2, 2});
  turn.numbers = {0, 1, -1, 0};
  const MadeForms turned = multipliedForms(rawOf({3, 1, 2}), turn, why);
  ASSERT_TRUE(turned);
  EXPECT_THAT(turned->shape, ElementsAre(3, 1, 2));
  EXPECT_EQ(turned->forms[2].terms().front().atom, 3);
  EXPECT_EQ(turned->forms[2].terms().front().factor, -1);
  EXPECT_FALSE(multipliedForms(rawOf({2, 2}), rawOf({2, 2}), why));
  EXPECT_FALSE(multipliedForms(numbersOf({2, 2}), numbersOf({3, 2}), why));
  EXPECT_FALSE(multipliedForms(numbersOf({2}), numbersOf({2, 2}), why));
}

TEST(FormOperators, ProductsOfSingleLetters) {
  std::string why;
  const MadeForms outer = einsumForms("i , j -> ij", numbersOf({2}), numbersOf({3}), why);
  ASSERT_TRUE(outer);
  EXPECT_THAT(outer->numbers, ElementsAre(1, 2, 3, 2, 4, 6));
  const MadeForms turned = einsumForms("bi,d->bdi", numbersOf({1, 2}), numbersOf({2}), why);
  ASSERT_TRUE(turned);
  EXPECT_THAT(turned->shape, ElementsAre(1, 2, 2));
  EXPECT_THAT(turned->numbers, ElementsAre(1, 2, 2, 4));
  for (const char* equation : {"i,i->", "ij,j->ij", "...i,j->ij", "", "i,j", "i,j->ik", "->"})
    EXPECT_FALSE(einsumForms(equation, numbersOf({2}), numbersOf({2}), why)) << equation;
}

TEST(FormOperators, WavesOfWhatIsNoLine) {
  std::string why;
  EXPECT_TRUE(changedForms("Cos", positionsOf(2), why));
  EXPECT_FALSE(changedForms("Cos", rawOf({2}), why));
  EXPECT_THAT(why, HasSubstr("angles"));
  EXPECT_FALSE(changedForms("Log", positionsOf(2), why));
  EXPECT_EQ(changedForms("Neg", numbersOf({2}), why)->numbers, (std::vector<double>{-1, -2}));
}

TEST(FormOperators, RotaryEmbeddings) {
  std::string why;
  RotaryForms rotary;
  rotary.width = 4;
  for (double cosine : {0.5, 0.25}) {
    rotary.cosines.push_back(PositionForm::number(cosine));
    rotary.sines.push_back(PositionForm::number(1 - cosine));
  }
  // One token of two heads, of which the first two columns are rotated, or all four.
  rotary.cosines.resize(1);
  rotary.sines.resize(1);
  const MadeForms partial = rotatedForms(numbersOf({1, 2, 1, 4}), rotary, why);
  ASSERT_TRUE(partial);
  EXPECT_THAT(partial->numbers, ElementsAre(-0.5, 1.5, 3, 4, -0.5, 5.5, 7, 8));
  EXPECT_EQ(rotatedForms(numbersOf({1, 1, 8}), rotary, why)->numbers, partial->numbers);
  rotary.width = 3;
  EXPECT_FALSE(rotatedForms(numbersOf({1, 1, 8}), rotary, why));
  rotary.width = 0;
  EXPECT_FALSE(rotatedForms(numbersOf({1, 1, 8}), rotary, why));
  rotary.width = 4;
  EXPECT_FALSE(rotatedForms(numbersOf({2, 1, 8}), rotary, why));
  EXPECT_FALSE(rotatedForms(numbersOf({8}), rotary, why));
  rotary.cosines.resize(3);
  rotary.sines.resize(3);
  EXPECT_FALSE(rotatedForms(numbersOf({1, 1, 8}), rotary, why));
}

TEST(FormOperators, RefuseWhatIsTooLarge) {
  std::string why;
  const FormTensor column = numbersOf({1 << 11, 1});
  const FormTensor row = numbersOf({1, 1 << 11});
  EXPECT_FALSE(combinedForms("Add", column, row, false, why));
  EXPECT_FALSE(einsumForms("ia,bj->iabj", column, row, why));
  EXPECT_FALSE(multipliedForms(numbersOf({1 << 10, 1 << 8}), numbersOf({1 << 8, 1 << 10}), why));
  EXPECT_THAT(why, testing::Not(testing::IsEmpty()));
}

} // namespace
} // namespace kvopt
