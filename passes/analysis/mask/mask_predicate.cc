// Derivation of facts from a mask's element.
#include "passes/analysis/mask/mask_predicate.h"

#include "passes/analysis/mask/mask_meaning.h"
#include "passes/analysis/mask/mask_reader.h"
#include "support/format.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

namespace {

constexpr IndexSet paddingIndices = indexBit(IndexVariable::Batch) | indexBit(IndexVariable::Key);

/// Graph inputs from which tensors are computed; visits a limited number of values.
llvm::SmallVector<const Value*, 4> inputsBehind(llvm::ArrayRef<const Value*> values) {
  constexpr size_t mostValues = 2048;
  llvm::SmallVector<const Value*, 4> inputs;
  llvm::SmallVector<const Value*, 32> queue(values.begin(), values.end());
  llvm::DenseSet<const Value*> seen(queue.begin(), queue.end());
  for (size_t next = 0; next < queue.size() && next < mostValues; ++next) {
    if (queue[next]->isGraphInput())
      inputs.push_back(queue[next]);
    const Node* node = queue[next]->producer();
    if (!node || node->op() == "Shape")
      continue;
    auto visit = [&](const Value* operand) {
      if (operand && seen.insert(operand).second)
        queue.push_back(operand);
    };
    for (const Use& use : node->operands())
      visit(use.value());
    for (const Value* captured : capturedValues(*node))
      visit(captured);
  }
  return inputs;
}

/// Whether the bias is a condition in the form of a number that hides where it is false: `(1 -
/// mask) * -1e4`.
bool isScaledPadding(ExprRef bias) {
  if (bias->variables & ~paddingIndices || !bias->is(Kind::Apply) || bias->name != "Mul")
    return false;
  return llvm::any_of(bias->operands, [](ExprRef factor) {
    auto number = factor->constant();
    return number && *number <= hidingThreshold;
  });
}

/// One mask's predicate, split into the parts that facts describe.
struct Parts {
  bool isCausal = false;
  bool hidesLaterKeys = false;
  int64_t window = 0;
  ExprVector padding;
  ExprVector other;
};

/// The input of the condition that its element [b, j] is not zero; null for other conditions.
const Value* shownBy(ExprRef condition) {
  const bool isNonZero = condition->is(Kind::Apply) && condition->name == "NonZero";
  const ExprRef element = isNonZero ? condition->operands.front() : condition;
  const auto isIndex = [&](size_t axis, IndexVariable variable) {
    return element->operands[axis]->is(Kind::Integer) &&
           element->operands[axis]->dim.isKnownEqual(IndexSpace::variable(variable));
  };
  const bool isElement = condition->isBoolean && element->is(Kind::Leaf) &&
                         element->value->isGraphInput() && element->operands.size() == 2 &&
                         isIndex(0, IndexVariable::Batch) && isIndex(1, IndexVariable::Key);
  return isElement ? element->value : nullptr;
}

/// Whether the condition depends on the key only as the last index of elements of graph inputs.
bool readsElements(ExprRef condition) {
  constexpr IndexSet key = indexBit(IndexVariable::Key);
  if (!(condition->variables & key))
    return true;
  if (!condition->is(Kind::Leaf))
    return !condition->operands.empty() && llvm::all_of(condition->operands, readsElements);
  const ExprRef last = condition->operands.back();
  return condition->value->isGraphInput() && !condition->value->constant() &&
         last->is(Kind::Integer) &&
         last->dim.isKnownEqual(IndexSpace::variable(IndexVariable::Key)) &&
         llvm::none_of(ExprList(condition->operands).drop_back(),
                       [](ExprRef index) { return (index->variables & key) != 0; });
}

/// Splits a predicate. Rows see keys up to the one where `frontier` is 0.
Parts partition(MaskExpressions& made, ExprRef seen, const Dim& frontier) {
  Parts parts;
  ExprRef causal = made.atLeastZero(frontier);
  parts.isCausal = causal->is(Kind::True) && !seen->is(Kind::False);
  parts.hidesLaterKeys = made.implies(seen, causal);
  for (ExprRef part : partsOf(seen)) {
    std::optional<int64_t> reach;
    if (part->is(Kind::AtLeastZero))
      reach = (part->dim + frontier).value();
    if (part == causal)
      parts.isCausal = true;
    else if (reach && *reach >= 0 && *reach < INT64_MAX)
      parts.window = *reach + 1;
    else if (!(part->variables & ~paddingIndices))
      parts.padding.push_back(part);
    else
      parts.other.push_back(part);
  }
  return parts;
}

/// An expression at the key `own`; null if it reads elements that depend on the key.
ExprRef atKey(MaskExpressions& made, ExprRef expression, const Dim& own) {
  if ((expression->variables & indexBit(IndexVariable::Key)) == 0 && expression->operands.empty() &&
      expression->dim.isUnknown())
    return expression;
  const std::optional<std::string> key = symbolOf(IndexSpace::variable(IndexVariable::Key));
  const Dim dim = expression->dim.substitute(
      [&](llvm::StringRef name) { return name == *key ? std::optional<Dim>(own) : std::nullopt; });
  ExprVector operands;
  for (ExprRef operand : expression->operands)
    if (ExprRef there = atKey(made, operand, own))
      operands.push_back(there);
    else
      return nullptr;
  const llvm::StringRef name = expression->name;
  switch (expression->kind) {
  case Kind::Integer:
    return made.integer(dim);
  case Kind::AtLeastZero:
    return made.atLeastZero(dim);
  case Kind::IsZero:
    return made.isZero(dim);
  case Kind::IsNotZero:
    return made.negate(made.isZero(dim));
  case Kind::Not:
    return made.negate(operands[0]);
  case Kind::And:
    return made.conjunction(operands);
  case Kind::Or:
    return made.disjunction(operands);
  case Kind::Apply:
    if (name == "NonZero")
      return made.cast(operands[0], ElementType::Int64, ElementType::Bool);
    if (name == "IntMod")
      return made.remainder(operands[0], operands[1], ElementType::Int64);
    return made.apply(name, operands, expression->isBoolean);
  default:
    return expression->operands.empty() && expression->kind != Kind::Opaque ? expression : nullptr;
  }
}

/// Whether the part shows every row its own key, by arithmetic alone.
bool showsOwnKey(MaskExpressions& made, ExprRef part, const Dim& own) {
  if (part->is(Kind::Or))
    return llvm::any_of(part->operands,
                        [&](ExprRef alternative) { return showsOwnKey(made, alternative, own); });
  const ExprRef there = atKey(made, part, own);
  return there && there->is(Kind::True);
}

/// Whether the mask is causal, with padding at most in addition.
bool isCausal(const MaskFacts& facts) {
  return facts.causal == Proof::Proved && facts.remaining != MaskFacts::Remaining::Other;
}

std::string joined(llvm::ArrayRef<std::string> texts) {
  std::string all;
  for (const std::string& text : texts)
    all += (all.empty() ? "" : " and ") + text;
  return all;
}

} // namespace

llvm::StringRef proofName(Proof proof) {
  switch (proof) {
  case Proof::Proved:
    return "proved";
  case Proof::Refuted:
    return "refuted";
  case Proof::Unproven:
    return "unproven";
  }
  return "";
}

class MaskAnalysis::Impl {
public:
  struct Reading {
    MaskReader* reader = nullptr;
    ExprRef seen = nullptr; ///< predicate of operand and attributes together
    MaskMeaning meaning;
    Parts parts;
  };

  /// Executions in which `symbol` has the value, and `positions` counts up along its last axis from
  /// `first`; all executions if these are empty.
  struct World {
    std::string symbol;
    Dim value;
    const Value* positions = nullptr;
    Dim first;
  };

  Reading read(const Question& question, const World& world) {
    MaskReader* reader = &readerFor(question, world, true);
    ExprRef element = question.mask ? reader->readMask(*question.mask) : nullptr;
    if (!reader->assumptionsHold()) {
      reader = &readerFor(question, world, false);
      element = question.mask ? reader->readMask(*question.mask) : nullptr;
    }
    MaskExpressions& made = reader->expressions();
    Reading reading;
    reading.reader = reader;
    reading.seen = made.boolean(true);
    if (element && element->isBoolean)
      reading.seen = element;
    else if (element) {
      reading.meaning = meaningOf(made, element);
      reading.seen = made.negate(reading.meaning.hidden);
    }
    Dim distance =
        IndexSpace::variable(IndexVariable::Row) - IndexSpace::variable(IndexVariable::Key);
    Dim frontier = distance + question.space.past();
    if (question.causal)
      reading.seen = made.both(reading.seen, made.atLeastZero(frontier));
    if (question.window > 0)
      reading.seen =
          made.both(reading.seen, made.atLeastZero(Dim::fixed(question.window - 1) - frontier));
    reading.parts =
        partition(made, reading.seen, world.positions ? distance + world.first : frontier);
    return reading;
  }

  const llvm::SmallVector<const Value*, 4>& inputsOf(const Value* value) {
    auto found = inputs.find(value);
    if (found == inputs.end())
      found = inputs.try_emplace(value, inputsBehind({value})).first;
    return found->second;
  }

  std::vector<const Value*> inputsOf(ExprList expressions) {
    std::vector<const Value*> all;
    for (const Value* value : leafValues(expressions))
      for (const Value* input : inputsOf(value))
        if (!llvm::is_contained(all, input))
          all.push_back(input);
    return all;
  }

  MaskFacts facts(const Question& question, const World& world);
  /// Facts in the executions of `given`, which fixes no symbol.
  std::optional<MaskFacts> factsByCases(const Question& question, const World& given);
  std::optional<MaskFacts::IfCounting> causalIfCounting(const Question& question);
  std::string sameExtents(const Question& question, World world, MaskFacts& facts);

private:
  /// Assumptions about one graph's execution hold for its own masks only.
  struct Entry {
    const Graph* graph;
    IndexSpace space;
    const Value* lengths;
    World world;
    bool assuming;
    std::unique_ptr<MaskReader> reader;
  };

  MaskReader& readerFor(const Question& question, const World& world, bool assuming) {
    const Graph* graph = question.mask ? &question.mask->graph() : nullptr;
    for (Entry& entry : readers)
      if (entry.graph == graph && entry.assuming == assuming && entry.lengths == question.lengths &&
          entry.world.symbol == world.symbol && entry.world.positions == world.positions &&
          entry.world.first == world.first && entry.space == question.space)
        return *entry.reader;
    readers.push_back({graph, question.space, question.lengths, world, assuming,
                       std::make_unique<MaskReader>(question.space, assuming)});
    if (!world.symbol.empty())
      readers.back().reader->fix(world.symbol, world.value);
    if (question.lengths)
      readers.back().reader->measure(*question.lengths);
    if (world.positions)
      readers.back().reader->count(*world.positions, world.first);
    return *readers.back().reader;
  }

  std::vector<Entry> readers;
  llvm::DenseMap<const Value*, llvm::SmallVector<const Value*, 4>> inputs;
};

MaskAnalysis::MaskAnalysis() : impl(std::make_unique<Impl>()) {}
MaskAnalysis::~MaskAnalysis() = default;

MaskAnalysis::Question maskQuestion(const Node& sdpa) {
  auto extent = [&](unsigned operand, int64_t axis) {
    const Value* value = sdpa.operand(operand);
    return value ? value->type().dim(axis) : Dim::unknown();
  };
  Dim keys = extent(1, 2);
  if (keys.isUnknown())
    keys = extent(2, 2);
  // With a length per row, each batch row has its own frontier.
  if (sdpa.operand(5))
    keys = Dim::unknown();
  return {sdpa.operand(3), IndexSpace(extent(0, 0), extent(0, 1), extent(0, 2), keys),
          sdpa.intAttr("causal", 0) != 0, sdpa.intAttr("window", 0)};
}

MaskAnalysis::Question maskQuestion(const Node& sdpa, const Value& lengths) {
  MaskAnalysis::Question question = maskQuestion(sdpa);
  question.space.countFromRowLengths();
  question.lengths = &lengths;
  return question;
}

MaskFacts MaskAnalysis::factsOf(const Node& sdpa) { return facts(maskQuestion(sdpa)); }

MaskFacts MaskAnalysis::facts(const Question& question) {
  MaskFacts facts = impl->facts(question, {});
  if (facts.causal == Proof::Unproven && question.mask && !question.space.past().isUnknown())
    if (std::optional<MaskFacts> split = impl->factsByCases(question, {}))
      return std::move(*split);
  if (facts.causal == Proof::Unproven && question.mask && !question.space.past().isUnknown())
    facts.causalIf = impl->causalIfCounting(question);
  return facts;
}

/// A mask with the length of another input than the keys' might be broadcast over them. If it is
/// causal without broadcasting: the equation of extents, with the facts under it; "" otherwise.
std::string MaskAnalysis::Impl::sameExtents(const Question& question, World world,
                                            MaskFacts& facts) {
  llvm::SmallVector<MaskReader::Choice, 4> choices =
      llvm::to_vector<4>(readerFor(question, world, true).broadcastChoices());
  for (const MaskReader::Choice& choice : choices) {
    std::optional<std::string> symbol = symbolOf(choice.from);
    if (!symbol || choice.to.isUnknown() || llvm::is_contained(choice.to.symbols(), *symbol) ||
        !(question.space.where(*symbol, choice.to) == question.space))
      continue;
    world.symbol = *symbol;
    world.value = choice.to;
    MaskFacts same = this->facts(question, world);
    if (!isCausal(same))
      continue;
    facts = std::move(same);
    return formatted(" and {} = {}", choice.from, choice.to);
  }
  return "";
}

/// Tries inputs that hold an integer for each row. Only the mask's comparisons depend on them, so a
/// proof for any first position also holds for the past's length. If the graph compares rows by
/// their index as well, the first position is T - S.
std::optional<MaskFacts::IfCounting>
MaskAnalysis::Impl::causalIfCounting(const Question& question) {
  const Reading plain = read(question, {});
  if (!plain.meaning.isUnderstood)
    return std::nullopt;
  const Dim& rows = question.space.extent(IndexVariable::Row);
  for (const Value* input : inputsOf(plain.parts.other)) {
    const TensorType& type = input->type();
    if (!holdsIndices(type.elementType()) || !type.hasRank() || type.rank() == 0 ||
        type.rank() > 2 || !type.dim(-1).isKnownEqual(rows))
      continue;
    const Dim anyFirst = Dim::symbol("\x01"
                                     "first");
    for (const Dim& first : {anyFirst, question.space.past()}) {
      const World world{"", {}, input, first};
      MaskFacts facts = this->facts(question, world);
      std::string condition =
          formatted("{}[{}] = {}i", input->name(), type.rank() == 1 ? "i" : "b, i",
                    first.value() == 0 ? "" : "P + ");
      if (!isCausal(facts))
        if (std::optional<MaskFacts> split = factsByCases(question, world))
          facts = std::move(*split);
      const bool isSufficient = isCausal(facts);
      if (!isSufficient)
        condition += sameExtents(question, world, facts);
      if (isCausal(facts))
        return MaskFacts::IfCounting{input, condition, facts.window,
                                     isSufficient && first == anyFirst};
    }
  }
  return std::nullopt;
}

/// An extent that is broadcast to another one is 1 or equal to it: facts that hold in both cases
/// hold.
std::optional<MaskFacts> MaskAnalysis::Impl::factsByCases(const Question& question,
                                                          const World& given) {
  llvm::SmallVector<MaskReader::Choice, 4> choices =
      llvm::to_vector<4>(readerFor(question, given, true).broadcastChoices());
  for (const MaskReader::Choice& choice : choices) {
    std::optional<std::string> one = symbolOf(choice.from);
    std::optional<std::string> none = symbolOf(choice.to - choice.from);
    if (!one || !none)
      continue;
    MaskFacts merged;
    bool isProved = true;
    for (World world : {World{*one, Dim::fixed(1), given.positions, {}},
                        World{*none, Dim::fixed(0), given.positions, {}}}) {
      world.first = given.first.substitute([&](llvm::StringRef name) {
        return name == world.symbol ? std::optional<Dim>(world.value) : std::nullopt;
      });
      Question narrowed = question;
      narrowed.space = question.space.where(world.symbol, world.value);
      if (narrowed.space.past().isUnknown())
        return std::nullopt;
      MaskFacts facts = this->facts(narrowed, world);
      isProved &= facts.causal == Proof::Proved && facts.remaining != MaskFacts::Remaining::Other &&
                  (world.symbol == *one || facts.window == merged.window);
      if (world.symbol != *one) {
        facts.isExact &= merged.isExact;
        facts.hiddenValue = facts.hiddenValue == 0 || merged.hiddenValue == 0
                                ? facts.hiddenValue + merged.hiddenValue
                                : std::max(facts.hiddenValue, merged.hiddenValue);
        facts.everyRowSeesAKey &= merged.everyRowSeesAKey;
        facts.seesOwnKey &= merged.seesOwnKey;
        facts.remaining = std::max(facts.remaining, merged.remaining);
        if (facts.padding.empty())
          facts.padding = merged.padding;
      }
      merged = std::move(facts);
    }
    if (isProved)
      return merged;
  }
  return std::nullopt;
}

MaskFacts MaskAnalysis::Impl::facts(const Question& question, const World& world) {
  MaskFacts facts;
  if (question.mask)
    facts.kind = question.mask->type().elementType() == ElementType::Bool
                     ? MaskFacts::Kind::Boolean
                     : MaskFacts::Kind::Additive;
  if (question.space.past().isUnknown()) {
    // The attributes count from the frontier, whatever its position.
    bool isAlone = !question.mask;
    facts.causal = isAlone && question.causal ? Proof::Proved : Proof::Unproven;
    facts.hidesLaterKeys = question.causal;
    facts.seesOwnKey = isAlone;
    facts.window = question.window;
    facts.remaining = isAlone ? MaskFacts::Remaining::Nothing : MaskFacts::Remaining::Other;
    facts.bias = isAlone ? MaskFacts::Bias::None : MaskFacts::Bias::Other;
    llvm::SmallVector<std::string, 4> texts;
    if (question.causal)
      texts.push_back("j <= i + P");
    if (question.window > 0)
      texts.push_back(formatted("i + P - j < {}", question.window));
    if (!isAlone)
      texts.push_back("a mask that is not understood");
    facts.text = texts.empty() ? "all keys" : joined(texts);
    return facts;
  }

  Reading reading = read(question, world);
  const Parts& parts = reading.parts;
  const MaskMeaning& meaning = reading.meaning;
  facts.hidesLaterKeys = parts.hidesLaterKeys && meaning.isUnderstood;
  const Dim own = IndexSpace::variable(IndexVariable::Row) + question.space.past();
  facts.seesOwnKey = meaning.isUnderstood && !reading.seen->is(Kind::False) &&
                     llvm::all_of(parts.other, [&](ExprRef part) {
                       return showsOwnKey(reading.reader->expressions(), part, own);
                     });
  facts.isExact = meaning.isExact;
  facts.hiddenValue = meaning.hiddenValue;
  facts.window = meaning.isUnderstood ? parts.window : 0;

  llvm::SmallVector<std::string, 4> texts;
  if (llvm::any_of(partsOf(reading.seen), [](ExprRef p) { return p->is(Kind::False); }))
    texts.push_back("no keys");
  else if (parts.isCausal)
    texts.push_back("j <= i + P");
  if (parts.window > 0)
    texts.push_back(formatted("i + P - j < {}", parts.window));
  auto addPadding = [&](ExprRef part) {
    facts.padding.push_back(
        {printExpression(part), inputsOf(ExprList(part)), shownBy(part), readsElements(part)});
    texts.push_back(facts.padding.back().text);
  };
  llvm::for_each(parts.padding, addPadding);
  ExprVector bias;
  for (ExprRef part : meaning.bias) {
    if (isScaledPadding(part)) {
      addPadding(part);
      continue;
    }
    bias.push_back(part);
  }
  for (ExprRef part : parts.other) {
    texts.push_back(printExpression(part));
    // Visible if the frontier or another condition allows it.
    facts.hasBidirectionalBlocks |=
        part->is(Kind::Or) && llvm::any_of(part->operands, [&](ExprRef alternative) {
          MaskExpressions& made = reading.reader->expressions();
          Dim frontier = IndexSpace::variable(IndexVariable::Row) + question.space.past() -
                         IndexSpace::variable(IndexVariable::Key);
          return made.implies(alternative, made.atLeastZero(frontier));
        });
  }
  facts.text = texts.empty() ? "all keys" : joined(texts);
  if (!bias.empty()) {
    facts.biasDependsOn = inputsOf(bias);
    bool isByDistance =
        facts.biasDependsOn.empty() && llvm::all_of(bias, [](ExprRef part) {
          return dependsOnDistanceOnly(part) && !(part->variables & indexBit(IndexVariable::Batch));
        });
    facts.bias = isByDistance ? MaskFacts::Bias::ByDistance : MaskFacts::Bias::Other;
    facts.text += isByDistance ? "; plus a bias by distance"
                               : "; plus a bias of " + printExpression(bias.front());
  }

  if (!meaning.isUnderstood || !bias.empty() || !parts.other.empty())
    facts.remaining = MaskFacts::Remaining::Other;
  else
    facts.remaining =
        facts.padding.empty() ? MaskFacts::Remaining::Nothing : MaskFacts::Remaining::Padding;
  // If every key is before the frontier, only the rest of the mask can hide keys.
  bool isVacuous = parts.isCausal && !llvm::any_of(partsOf(reading.seen), [&](ExprRef part) {
                     return (part->variables & indexBit(IndexVariable::Row)) != 0;
                   });
  if (parts.isCausal && parts.other.empty() && meaning.isUnderstood &&
      !(isVacuous && facts.bias == MaskFacts::Bias::Other))
    facts.causal = Proof::Proved;
  else if (bias.empty() && meaning.isUnderstood) {
    facts.counterExample = causalCounterExample(
        question.space, reading.reader->expressions().conjunction(parts.other));
    if (!facts.counterExample.empty())
      facts.causal = Proof::Refuted;
  }
  // Key i + P is visible, and it exists if P >= 0.
  facts.everyRowSeesAKey = facts.remaining == MaskFacts::Remaining::Nothing &&
                           (reading.seen->is(Kind::True) ||
                            (!reading.seen->is(Kind::False) &&
                             reading.reader->space().isNonNegative(question.space.past())));
  return facts;
}

Value* MaskAnalysis::paddingValue(const Question& question) {
  if (!question.mask || question.space.past().isUnknown())
    return nullptr;
  Impl::Reading reading = impl->read(question, {});
  if (reading.parts.padding.empty() || !reading.parts.other.empty() ||
      !reading.meaning.bias.empty() || !reading.meaning.isUnderstood)
    return nullptr;
  ExprRef padding = reading.reader->expressions().conjunction(reading.parts.padding);
  constexpr size_t mostValues = 48;
  llvm::SmallVector<const Value*, 32> queue{question.mask};
  llvm::DenseSet<const Value*> seen{question.mask};
  for (size_t next = 0; next < queue.size() && next < mostValues; ++next) {
    const Value& value = *queue[next];
    const TensorType& type = value.type();
    auto isOne = [&](unsigned axis) { return type.shape()[axis].value() == 1; };
    if (type.elementType() == ElementType::Bool && type.hasRank() && type.rank() == 4 &&
        (isOne(0) || type.shape()[0].isKnownEqual(question.space.extent(IndexVariable::Batch))) &&
        isOne(1) && isOne(2) &&
        type.shape()[3].isKnownEqual(question.space.extent(IndexVariable::Key)) &&
        reading.reader->readMask(value) == padding)
      return const_cast<Value*>(&value);
    if (const Node* node = value.producer())
      for (const Use& use : node->operands())
        if (use.value() && seen.insert(use.value()).second)
          queue.push_back(use.value());
  }
  return nullptr;
}

} // namespace kvopt::analysis
