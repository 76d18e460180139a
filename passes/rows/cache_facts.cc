// Facts about rows, and the points at which they were tried.
#include "passes/rows/cache_facts.h"

#include "ir/movement.h"
#include "passes/analysis/evaluation/attention_operands.h"
#include "passes/analysis/evaluation/traced_operators.h"
#include "passes/pattern/explain.h"
#include "passes/rows/predicted_rows.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

namespace kvopt::rows {
using namespace analysis;
using namespace ir;

llvm::StringRef originName(RowOrigin origin) {
  switch (origin) {
  case RowOrigin::Appended:
    return "append";
  case RowOrigin::Written:
    return "written";
  case RowOrigin::LastRows:
    return "last-rows";
  case RowOrigin::Cached:
    return "cached";
  case RowOrigin::New:
    return "new";
  case RowOrigin::Computed:
    return "computed";
  case RowOrigin::Unreadable:
    return "unreadable";
  }
  return "";
}

namespace {

/// Maximum number of values that are tried as the joined rows of a window.
constexpr size_t mostJoinedTried = 8;

/// The value before its last two axes are exchanged, as those of keys are for a product.
const Value& columnsLast(const Value& value) {
  const std::optional<Movement> movement =
      value.producer() ? movementOf(value) : std::optional<Movement>();
  if (!movement || !movement->is(MovementKind::Permutation) || !movement->axes)
    return value;
  const size_t rank = movement->axes->size();
  for (size_t axis = 0; axis < rank; ++axis) {
    const size_t from = axis + 2 < rank ? axis : 2 * rank - 3 - axis;
    if ((*movement->axes)[axis] != from)
      return value;
  }
  return *movedOperand(*value.producer());
}

/// Determines the origin of one value.
class RowReader {
public:
  RowReader(const Value& read, StepEvaluations& at) : value(read), evaluations(at) {}

  RowFact read() {
    if (evaluations.count() == 0 || !trace()) {
      findStop();
      return std::move(fact);
    }
    auto rows = respelledRows(value, evaluations);
    // The fact names the scaled operand instead.
    if (rows && rows->factor != 1)
      rows.reset();
    const bool isFitted = rows && holdsAtAllPoints({*rows, nullptr});
    if (isFitted)
      take({*rows, nullptr});
    else if (!readJoined() && !readLastRows())
      describe();
    if (rows && !isFitted && fact.origin == RowOrigin::Computed && !differing.empty()) {
      fact.detail = "other rows " + differing + " than at the sizes tried first";
      fact.sizes.clear();
    }
    return std::move(fact);
  }

private:
  bool trace() {
    for (size_t i = 0; i < std::min(evaluations.count(), StepPoints::fitted); ++i)
      if (!evaluations.at(i).extents(value) || !evaluations.at(i).traceAll(value, forms))
        return false;
    // The forms at the first size are described.
    return evaluations.at(0).traceAll(value, forms);
  }

  void noteTried(size_t count) {
    fact.points = count;
    for (size_t i = 0; i < evaluations.count(); ++i) {
      const StepSize size = evaluations.points().chosen(evaluations.size(i));
      if (llvm::none_of(fact.sizes, [&](const StepSize& other) {
            return other.tokens == size.tokens && other.past == size.past;
          }))
        fact.sizes.push_back(size);
    }
  }

  /// Reads the rows that an operator on the way joins, for new rows that repeat elements or are
  /// converted: those have no identifying form of their own.
  bool readJoined() {
    size_t tried = 0;
    for (const Value* joined : visitedValues()) {
      const auto said = joinedRows(*joined, evaluations.at(0));
      if (!said || ++tried > mostJoinedTried)
        continue;
      if (holdsAtAllPoints(*said)) {
        take(*said);
        return true;
      }
    }
    return false;
  }

  std::vector<const Value*> visitedValues() {
    std::vector<const Value*> visited;
    std::vector<LinearForm> unused;
    evaluations.at(0).noteVisited(&visited);
    const bool isTraced = evaluations.at(0).traceAll(value, unused);
    evaluations.at(0).noteVisited(nullptr);
    return isTraced ? visited : std::vector<const Value*>();
  }

  bool holdsAtAllPoints(const SaidRows& rows) {
    fact.argument =
        affineArgument(value, {rows.rows.past, rows.rows.fresh, rows.pastLength}, evaluations);
    const std::vector<Evaluation*> all = evaluations.allPoints();
    for (Evaluation* point : all)
      if (!areRows(value, rows, *point)) {
        differing = extentsWords(*point);
        return false;
      }
    noteTried(all.size());
    return true;
  }

  /// `at batch=2 past=4096`.
  static std::string extentsWords(const Evaluation& point) {
    std::vector<std::string> words;
    for (const auto& entry : point.point().extents)
      words.push_back(formatted("{}={}", entry.first().str(), entry.second));
    llvm::sort(words);
    return words.empty() ? "with other integer inputs" : "at " + llvm::join(words, " ");
  }

  void take(const SaidRows& said) {
    const RespelledRows& rows = said.rows;
    fact.pastLength = said.pastLength;
    fact.past = rows.past;
    fact.fresh = rows.fresh;
    fact.place = rows.place;
    fact.skipped = rows.skippedRows;
    const auto position =
        llvm::find_if(rows.factors, [](const RowFactor& factor) { return factor.isPosition; });
    if (!rows.past) {
      takeNew(*rows.fresh);
    } else if (!rows.fresh) {
      fact.origin = RowOrigin::Cached;
    } else if (rows.place) {
      fact.origin = RowOrigin::Written;
    } else if (rows.skippedRows.value() != 0 && position->extent.value()) {
      fact.origin = RowOrigin::LastRows;
      fact.lastRows = *position->extent.value();
    } else {
      fact.origin = RowOrigin::Appended;
    }
    noteHeads(rows);
  }

  void takeNew(const Value& fresh) {
    fact.fresh = &fresh;
    fact.origin = RowOrigin::New;
    fact.argument = affineArgument(value, {&fresh}, evaluations);
    if (!growsWithPast())
      return;
    fact.origin = RowOrigin::Computed;
    fact.node = fresh.producer();
    fact.detail = "computed from rows of all tokens";
  }

  void noteHeads(const RespelledRows& rows) {
    fact.hasHeads = rows.type.hasRank() && rows.type.rank() == 4;
    bool hasHead = false;
    for (const RowFactor& factor : rows.factors)
      if (factor.axis == 1 && factor.isPosition)
        fact.hasHeads = false;
      else if (factor.axis == 1 && !factor.isRepeat)
        hasHead = true;
      else if (factor.axis == 1 && factor.isRepeat && hasHead)
        fact.headRepeats = factor.extent;
      else if (factor.isRepeat && factor.extent.value() != 1)
        fact.hasHeads = false; // Heads are repeated as a whole.
  }

  /// Whether one more row of the past enlarges the value.
  bool growsWithPast() {
    if (!evaluations.points().hasGrowingPast())
      return false;
    const StepSize size = evaluations.size(0);
    StepSize longer = size;
    ++longer.past;
    const Extents* before = evaluations.of(size).extents(value);
    const Extents* after = evaluations.of(longer).extents(value);
    return before && after && *before != *after;
  }

  /// Reads the last rows of a growing value; these are all rows while there are few.
  bool readLastRows() {
    size_t tried = 0;
    for (const Value* joined : visitedValues()) {
      if (joined == &value || !joined->producer() || joined->graph().parentNode() ||
          joined->type().elementType() != value.type().elementType() || !joined->type().hasRank() ||
          joined->type().rank() != value.type().rank())
        continue;
      if (++tried > mostJoinedTried)
        return false;
      const auto rows = respelledRows(*joined, evaluations);
      if (rows && rows->past && rows->fresh && !rows->place && rows->skippedRows.value() == 0 &&
          areLastRowsOf(*joined, *rows))
        return true;
    }
    return false;
  }

  bool areLastRowsOf(const Value& joined, const RespelledRows& rows) {
    fact.argument = affineArgument(value, {rows.past, rows.fresh}, evaluations);
    const std::vector<Evaluation*> all = evaluations.allPoints();
    std::optional<int64_t> count;
    for (Evaluation* point : all) {
      const auto kept = keptRows(value, joined, rows, *point);
      if (!kept || !areRows(joined, {rows, nullptr}, *point)) {
        differing = extentsWords(*point);
        return false;
      }
      // A count smaller than the number of rows is the window; otherwise the window is at least
      // that long.
      if (!kept->isAll && count && *count != kept->count)
        return false;
      if (!kept->isAll)
        count = kept->count;
    }
    if (!count || llvm::any_of(all, [&](Evaluation* point) {
          const auto kept = keptRows(value, joined, rows, *point);
          return kept->isAll && kept->count > *count;
        }))
      return false;
    noteTried(all.size());
    take({rows, nullptr});
    fact.origin = RowOrigin::LastRows;
    fact.lastRows = *count;
    return true;
  }

  /// Describes elements that are not rows.
  void describe() {
    noteTried(StepPoints::fitted);
    if (!readsInputs()) {
      takeNew(value);
      return;
    }
    fact.origin = RowOrigin::Computed;
    std::vector<std::string> blocks;
    llvm::SetVector<const Value*> made;
    bool hasConstants = false, isScaled = false;
    for (const LinearForm& form : forms) {
      hasConstants |= form.constant != 0 || form.isNumber();
      if (form.terms.size() > 1) {
        fact.detail = sumWords(form);
        return;
      }
      for (const ElementTerm& term : form.terms) {
        made.insert(term.block);
        isScaled |= term.weight != 1;
      }
    }
    for (const Value* block : made)
      if (blocks.size() < 3)
        blocks.push_back(formatted("'{}'", block->name()));
    const std::string names = llvm::join(blocks, ", ") + (made.size() > 3 ? ", …" : "");
    if (isScaled) {
      fact.detail = formatted("elements of {}, scaled", names);
    } else if (hasConstants) {
      fact.detail = made.empty() ? "numbers instead of rows"
                                 : formatted("elements of {}, and numbers", names);
    } else {
      fact.detail = formatted("elements of {}, but not whole rows of one cache", names);
    }
  }

  /// Whether an element is computed from one of an input that may be a cache.
  bool readsInputs() const {
    return llvm::any_of(forms, [](const LinearForm& form) {
      return llvm::any_of(form.terms, [](const ElementTerm& term) {
        return term.block->isGraphInput() && term.block->type().hasRank() &&
               term.block->type().rank() >= 3;
      });
    });
  }

  static std::string sumWords(const LinearForm& form) {
    std::vector<std::string> parts;
    for (const ElementTerm& term : form.terms)
      parts.push_back(formatted("'{}'", term.block->name()));
    llvm::sort(parts);
    const size_t count = parts.size();
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    return formatted("sums of {} elements, of {}", count, llvm::join(parts, " and "));
  }

  /// Finds the operator nearest to the inputs whose result has no extents; otherwise the value's
  /// own.
  void findStop() {
    fact.origin = RowOrigin::Unreadable;
    const Value* stop = &value;
    for (unsigned i = 0; i < 64 && evaluations.count() != 0 && stop->producer(); ++i) {
      const auto operands = stop->producer()->operands();
      const auto* next = llvm::find_if(operands, [&](const Use& use) {
        return use.value() && !evaluations.at(0).extents(*use.value());
      });
      if (next == operands.end())
        break;
      stop = next->value();
    }
    fact.node = stop->producer();
  }

  const Value& value;
  StepEvaluations& evaluations;
  std::vector<LinearForm> forms;
  std::string differing;
  RowFact fact;
};

} // namespace

const RowFact& CacheFacts::of(const Value& value) {
  const auto [entry, isNew] = known.try_emplace(&value);
  if (isNew) {
    // A separate object, because the constants in its computation determine the tried points.
    StepEvaluations evaluations(evaluated, facts);
    entry->second = RowReader(value, evaluations).read();
  }
  return entry->second;
}

CacheFact CacheFacts::factOf(const Value& rows, const Value* present) {
  CacheFact fact;
  fact.rows = of(rows);
  if (!fact.rows.past)
    return fact;
  auto isPresent = [&](const Value& output) {
    const RowFact& other = of(output);
    if (other.past != fact.rows.past || !other.isRows() || (!fact.rows.fresh) != (!other.fresh))
      return false;
    fact.present = &output;
    fact.ofPresent = other;
    return true;
  };
  if (present && present->producer() && isPresent(*present))
    return fact;
  for (const Value* output : evaluated.outputs())
    if (output != present && output->producer() && output->type().hasRank() &&
        fact.rows.past->type().hasRank() &&
        output->type().rank() == fact.rows.past->type().rank() && isPresent(*output))
      return fact;
  return fact;
}

AttentionFacts CacheFacts::of(const AttentionSite& site) {
  Node& node = *site.node;
  AttentionFacts found;
  if (node.graph().parentNode()) {
    found.missing = "attention in a branch is not evaluated";
    return found;
  }
  const Value* keyPresent = site.key ? site.key->present : nullptr;
  const Value* valuePresent = site.value ? site.value->present : nullptr;
  if (node.op() == OpName("ai.kvopt::Sdpa")) {
    found.key = factOf(*node.operand(1), keyPresent);
    found.value = factOf(*node.operand(2), valuePresent);
    return found;
  }
  if (!node.is("Softmax") && !node.is("LogSoftmax")) {
    found.missing = formatted("{} is not evaluated", node.op().str());
    return found;
  }
  StepEvaluations evaluations(evaluated, facts);
  const auto operands =
      evaluations.count() != 0 ? attentionOperands(node, evaluations.at(0)) : std::nullopt;
  if (!operands) {
    found.missing = "the products before and after the softmax are not found";
    return found;
  }
  const auto scores = productOf(*operands->scores, evaluations.at(0));
  const auto output = productOf(*operands->output, evaluations.at(0));
  const Value& left = columnsLast(*scores->left);
  found.key = factOf(columnsLast(*scores->right), keyPresent);
  // Queries are not joined with a cache.
  if (!found.key.rows.past && of(left).past && of(left).fresh)
    found.key = factOf(left, keyPresent);
  found.value = factOf(*(operands->hasValuesLeft ? output->left : output->right), valuePresent);
  return found;
}

} // namespace kvopt::rows
