// Operators, element by element.
#include "passes/analysis/rotation/form_operators.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>
#include <map>

namespace kvopt::analysis {

namespace {

using Kind = PositionFunction::Kind;

constexpr const char* notASum =
    "it is not linear in the rows, with factors that are functions of the position";

MadeForms refused(std::string& why, const char* reason) {
  if (why.empty())
    why = reason;
  return nullptr;
}

/// The result for two numbers; nullopt if it is not a number.
std::optional<double> ofNumbers(llvm::StringRef type, double a, double b, bool isInteger) {
  if (type == "Add")
    return a + b;
  if (type == "Sub")
    return a - b;
  if (type == "Mul")
    return a * b;
  if (type == "Max")
    return std::max(a, b);
  if (type == "Min")
    return std::min(a, b);
  if (type == "Pow")
    return isInteger ? std::nullopt : std::optional(std::pow(a, b));
  if (type != "Div" || b == 0)
    return std::nullopt;
  return isInteger ? std::trunc(a / b) : a / b;
}

std::optional<PositionForm> ofForms(llvm::StringRef type, const PositionForm& a,
                                    const PositionForm& b, bool isInteger) {
  const std::optional<double> left = a.asNumber();
  const std::optional<double> right = b.asNumber();
  if (left && right) {
    const auto number = ofNumbers(type, *left, *right, isInteger);
    return number ? std::optional(PositionForm::number(*number)) : std::nullopt;
  }
  if (type == "Add" || type == "Sub") {
    PositionForm sum = a;
    sum.add(b, type == "Add" ? 1 : -1);
    return sum;
  }
  if (type == "Mul")
    return PositionForm::product(a, b);
  if (type == "Div" && right && *right != 0 && !isInteger)
    return PositionForm::product(a, PositionForm::number(1 / *right));
  if (type == "Max") {
    if (right && *right <= 0 && a.asLine())
      return a;
    if (left && *left <= 0 && b.asLine())
      return b;
  }
  return std::nullopt;
}

} // namespace

MadeForms combinedForms(llvm::StringRef type, const FormTensor& a, const FormTensor& b,
                        bool isInteger, std::string& why) {
  const auto shape = broadcastShape(a.shape, b.shape);
  if (!shape)
    return refused(why, "the shapes of its operands do not match");
  auto made = std::make_shared<FormTensor>();
  made->shape = *shape;
  const std::vector<int64_t> left = broadcastIndices(a.shape, *shape);
  const std::vector<int64_t> right = broadcastIndices(b.shape, *shape);
  if (a.isNumeric() && b.isNumeric()) {
    for (size_t i = 0; i < left.size(); ++i) {
      const auto number = ofNumbers(type, a.numbers[static_cast<size_t>(left[i])],
                                    b.numbers[static_cast<size_t>(right[i])], isInteger);
      if (!number)
        return refused(why, notASum);
      made->numbers.push_back(*number);
    }
    return made;
  }
  std::vector<PositionForm> forms;
  for (size_t i = 0; i < left.size(); ++i) {
    auto form = ofForms(type, a.at(left[i]), b.at(right[i]), isInteger);
    if (!form)
      return refused(why, notASum);
    forms.push_back(std::move(*form));
  }
  made->take(std::move(forms));
  return made;
}

MadeForms changedForms(llvm::StringRef type, const FormTensor& a, std::string& why) {
  auto made = std::make_shared<FormTensor>();
  made->shape = a.shape;
  if (a.isNumeric()) {
    for (double x : a.numbers)
      made->numbers.push_back(llvm::StringSwitch<double>(type)
                                  .Case("Neg", -x)
                                  .Case("Cos", std::cos(x))
                                  .Case("Sin", std::sin(x))
                                  .Case("Sqrt", std::sqrt(x))
                                  .Case("Reciprocal", 1 / x)
                                  .Case("Exp", std::exp(x))
                                  .Default(std::log(x)));
    return made;
  }
  std::vector<PositionForm> forms;
  for (int64_t i = 0; i < a.count(); ++i) {
    std::optional<PositionForm> form;
    if (type == "Neg") {
      form = a.at(i);
      form->scale(-1);
    } else if (type == "Cos" || type == "Sin") {
      form = PositionForm::wave(a.at(i), type == "Cos" ? Kind::Cosine : Kind::Sine);
    }
    if (!form)
      return refused(why, type == "Cos" || type == "Sin"
                              ? "its angles are not a constant times a position"
                              : notASum);
    forms.push_back(std::move(*form));
  }
  made->take(std::move(forms));
  return made;
}

MadeForms multipliedForms(const FormTensor& a, const FormTensor& b, std::string& why) {
  if (a.shape.size() < 2 || b.shape.size() < 2)
    return refused(why, "it multiplies by a vector");
  const llvm::ArrayRef<int64_t> left(a.shape);
  const llvm::ArrayRef<int64_t> right(b.shape);
  const int64_t rows = left[left.size() - 2];
  const int64_t inner = left.back();
  const int64_t columns = right.back();
  const auto batch = broadcastShape(left.drop_back(2), right.drop_back(2));
  if (!batch || right[right.size() - 2] != inner)
    return refused(why, "the shapes of its operands do not match");
  constexpr int64_t mostProducts = 1 << 24;
  const int64_t extents[] = {*elementsOf(*batch), rows, columns, inner};
  if (elementsOf(extents).value_or(INT64_MAX) > mostProducts)
    return refused(why, "its operands are too large");
  const std::vector<int64_t> ofLeft = broadcastIndices(left.drop_back(2), *batch);
  const std::vector<int64_t> ofRight = broadcastIndices(right.drop_back(2), *batch);
  std::vector<PositionForm> forms;
  for (size_t matrix = 0; matrix < ofLeft.size(); ++matrix)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        PositionForm sum;
        for (int64_t k = 0; k < inner; ++k) {
          const int64_t i = (ofLeft[matrix] * rows + row) * inner + k;
          const int64_t j = (ofRight[matrix] * inner + k) * columns + column;
          // Most entries of a permutation are zeros.
          if ((a.isNumeric() && a.numbers[static_cast<size_t>(i)] == 0) ||
              (b.isNumeric() && b.numbers[static_cast<size_t>(j)] == 0))
            continue;
          const auto product = PositionForm::product(a.at(i), b.at(j));
          if (!product)
            return refused(why, notASum);
          sum.add(*product);
        }
        forms.push_back(std::move(sum));
      }
  auto made = std::make_shared<FormTensor>();
  made->shape.assign(batch->begin(), batch->end());
  made->shape.append({rows, columns});
  made->take(std::move(forms));
  return made;
}

MadeForms einsumForms(llvm::StringRef equation, const FormTensor& a, const FormTensor& b,
                      std::string& why) {
  std::string text;
  llvm::copy_if(equation, std::back_inserter(text), [](char c) { return c != ' '; });
  const auto [operands, written] = llvm::StringRef(text).split("->");
  const llvm::StringRef result = written; // clang 14 cannot capture bindings
  const auto [first, second] = operands.split(',');
  std::map<char, int64_t> extents;
  const std::pair<llvm::StringRef, const FormTensor*> sides[] = {{first, &a}, {second, &b}};
  for (const auto& [letters, tensor] : sides) {
    if (letters.size() != tensor->shape.size() || letters.contains('.'))
      return refused(why, "its equation is not supported");
    for (size_t i = 0; i < letters.size(); ++i)
      if (extents.try_emplace(letters[i], tensor->shape[i]).first->second != tensor->shape[i])
        return refused(why, "the shapes of its operands do not match");
  }
  // Every letter is an axis of the result: nothing is summed.
  auto made = std::make_shared<FormTensor>();
  for (char letter : result) {
    if (!extents.count(letter))
      return refused(why, "its equation is not supported");
    made->shape.push_back(extents[letter]);
  }
  const auto isKept = [&](char letter) { return result.contains(letter); };
  for (const auto& [letter, extent] : extents)
    if (!isKept(letter) && extent != 1)
      return refused(why, "it sums over an axis");
  const auto strides = stridesOf(made->shape);
  std::vector<PositionForm> forms;
  const int64_t count = elementsOf(made->shape).value_or(INT64_MAX);
  if (count > mostForms)
    return refused(why, "its operands are too large");
  for (int64_t flat = 0; flat < count; ++flat) {
    std::map<char, int64_t> index;
    for (size_t axis = 0; axis < result.size(); ++axis)
      index[result[axis]] = flat / strides[axis] % made->shape[axis];
    int64_t places[2] = {0, 0};
    for (size_t side = 0; side < 2; ++side)
      for (char letter : sides[side].first)
        places[side] = places[side] * extents[letter] + index[letter];
    auto product = PositionForm::product(a.at(places[0]), b.at(places[1]));
    if (!product)
      return refused(why, notASum);
    forms.push_back(std::move(*product));
  }
  made->take(std::move(forms));
  return made;
}

MadeForms rotatedForms(const FormTensor& x, const RotaryForms& rotary, std::string& why) {
  const bool isRows = x.shape.size() == 3;
  const int64_t rows = isRows ? x.shape[1] : x.shape.size() == 4 ? x.shape[2] : 0;
  const auto pairs = rows == 0 ? 0 : static_cast<int64_t>(rotary.cosines.size()) / rows;
  if (rows == 0 || x.shape[0] != 1 || rotary.width == 0 || 2 * pairs > rotary.width ||
      x.shape.back() % rotary.width != 0 || rotary.sines.size() != rotary.cosines.size() ||
      pairs * rows != static_cast<int64_t>(rotary.cosines.size()))
    return refused(why, "its extents are not known");
  std::vector<PositionForm> forms;
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t column = i % x.shape.back() % rotary.width;
    const int64_t row = i / x.shape.back() % rows;
    if (column >= 2 * pairs) {
      forms.push_back(x.at(i));
      continue;
    }
    const int64_t pair = rotary.interleaved ? column / 2 : column % pairs;
    const bool isFirst = rotary.interleaved ? column % 2 == 0 : column < pairs;
    const int64_t apart = rotary.interleaved ? 1 : pairs;
    const auto place = static_cast<size_t>(row * pairs + pair);
    auto sum = PositionForm::product(x.at(i), rotary.cosines[place]);
    const auto other =
        PositionForm::product(x.at(isFirst ? i + apart : i - apart), rotary.sines[place]);
    if (!sum || !other)
      return refused(why, notASum);
    sum->add(*other, isFirst ? -1 : 1);
    forms.push_back(std::move(*sum));
  }
  auto made = std::make_shared<FormTensor>();
  made->shape = x.shape;
  made->take(std::move(forms));
  return made;
}

} // namespace kvopt::analysis
