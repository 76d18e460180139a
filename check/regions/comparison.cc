// How elements differ, in words.
#include "check/regions/comparison.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::check {
namespace {

std::string elementText(const Exact& element) {
  switch (element.status) {
  case Status::Number:
    return "number " + std::to_string(element.p);
  case Status::MinusInfinity:
    return "minus infinity";
  case Status::Fill:
    return "fill " + std::to_string(element.p);
  case Status::PlusInfinity:
    return "infinity";
  case Status::Unspecified:
    return "unspecified";
  case Status::NotANumber:
    return "not a number";
  case Status::Undecided:
    break;
  }
  return "undecided";
}

std::string placeText(llvm::ArrayRef<int64_t> place) {
  std::string text = "[";
  for (size_t i = 0; i < place.size(); ++i)
    text += (i ? ", " : "") + std::to_string(place[i]);
  return text + "]";
}

void noteUntraced(llvm::ArrayRef<GrowthId> growths, Arithmetic& math) {
  for (GrowthId id : growths)
    if (const Growth& growth = math.growths.at(id); !growth.isTraced())
      math.thresholds.noteOpen(growth.why);
}

std::string shapeText(const Ref& tensor) { return placeText(tensor->shape); }

} // namespace

Answer compareElements(Ref before, Ref after, bool allowsHidden, Arithmetic& math,
                       Evidence& evidence, Ref& pattern) {
  if (before->shape != after->shape) {
    evidence.reason = "shapes are " + shapeText(before) + " and " + shapeText(after);
    return Answer::Different;
  }
  for (const Ref& side : {before, after})
    noteUntraced(side->extentGrowths, math);
  if (before->isInteger() && after->isInteger() && before->type != after->type) {
    evidence.reason = "element types are " + ir::onnxName(before->type).str() + " and " +
                      ir::onnxName(after->type).str();
    return Answer::Different;
  }
  if (before->isInteger() && after->isInteger()) {
    evidence.elements += before->integers.size();
    for (const Ref& side : {before, after})
      noteUntraced(side->growths, math);
    for (const Ref& side : {before, after})
      if (llvm::is_contained(side->integers, openInteger)) {
        evidence.reason = math.openInteger;
        return Answer::Undecided;
      }
    auto differs =
        std::mismatch(before->integers.begin(), before->integers.end(), after->integers.begin());
    if (differs.first == before->integers.end())
      return Answer::Equal;
    evidence.reason = "integers differ";
    evidence.beforeElement = std::to_string(*differs.first);
    evidence.afterElement = std::to_string(*differs.second);
    return Answer::Different;
  }
  auto user = [] { return std::string("the comparison of both models"); };
  before = math.real(before, user);
  after = math.real(after, user);
  bool isUndecided = false, isPlain = true;
  size_t hidden = 0;
  auto kept = std::make_shared<Tensor>(*before);
  size_t at = 0;
  Answer answer = Answer::Equal;
  forEachPlace(before->shape, [&](llvm::ArrayRef<int64_t> place) {
    const Exact& a = before->reals[at];
    const Exact& b = after->reals[at];
    Exact& keep = kept->reals[at++];
    isPlain &= a.isNumber();
    if (a.status == Status::Unspecified || a.status == Status::NotANumber || a.isVague ||
        (allowsHidden && (b.status == Status::Unspecified || b.isVague))) {
      ++hidden;
      if (!a.isVague)
        keep = {0, 0, Status::Unspecified, false};
      isPlain = false;
      return;
    }
    if (a.status == Status::Undecided || b.status == Status::Undecided) {
      isUndecided = true;
      return;
    }
    ++evidence.elements;
    if (a.isEqual(b) || answer == Answer::Different)
      return;
    answer = Answer::Different;
    evidence.reason = "elements differ";
    evidence.place = placeText(place);
    evidence.beforeElement = elementText(a);
    evidence.afterElement = elementText(b);
  });
  evidence.hidden += hidden;
  if (answer == Answer::Different)
    return answer;
  if (hidden > 0)
    math.assumptions.insert("no result depends on rows that see no key, or on other elements that "
                            "are not numbers in the first model: they are not compared");
  if (!isPlain)
    pattern = kept;
  if (isUndecided) {
    evidence.reason = "an exponential of an exponential is not represented";
    return Answer::Undecided;
  }
  return Answer::Equal;
}

Answer compareRows(Feeding& feeding, const Feeding::Pair& pair, const Step& step, const Ref& before,
                   const Ref& after, bool allowsHidden, Arithmetic& math, Evidence& evidence) {
  CacheContents& caches = feeding.cacheContents();
  auto a = caches.beforeRows(pair, before, step, math);
  auto b = caches.afterRows(pair, after, step);
  if (!a) {
    evidence.reason = "the first model returns too few rows: " + shapeText(before);
    return Answer::Undecided;
  }
  if (!b) {
    evidence.reason = "a cache has too few rows: " + shapeText(before) + " and " + shapeText(after);
    return Answer::Different;
  }
  Ref unused;
  if (a->first >= 0 && b->first >= 0) {
    const auto axis = static_cast<unsigned>(pair.after->sequenceAxis);
    const int64_t first = std::max(a->first, b->first);
    const int64_t lastA = a->first + a->rows->shape[axis], lastB = b->first + b->rows->shape[axis];
    if (lastA != lastB || lastA != step.total()) {
      evidence.reason =
          "caches end at rows " + std::to_string(lastA) + " and " + std::to_string(lastB);
      return Answer::Different;
    }
    a->rows = rowsOf(a->rows, axis, first - a->first, lastA - a->first);
    b->rows = rowsOf(b->rows, axis, first - b->first, lastB - b->first);
  }
  const Answer answer = compareElements(a->rows, b->rows, allowsHidden, math, evidence, unused);
  const auto foreign = caches.foreignRows(pair, after, step, math);
  if (answer != Answer::Equal || !foreign.before || !foreign.after)
    return answer;
  const Answer kept =
      compareElements(foreign.before, foreign.after, allowsHidden, math, evidence, unused);
  if (kept == Answer::Different)
    evidence.reason = "a block of another sequence changes";
  return kept;
}

} // namespace kvopt::check
