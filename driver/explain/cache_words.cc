// Facts about rows as text.
#include "driver/explain/cache_words.h"

#include "passes/pattern/explain.h"
#include "support/format.h"
#include "support/json.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace rows;

namespace {

std::string nameOf(const Value* value) {
  return value ? formatted("'{}'", value->name()) : std::string();
}

/// Text such as `row j of head h is row j of head h/4 of 'past'`.
std::string pastWords(const RowFact& fact) {
  const std::string ofHead = fact.hasHeads ? " of head h" : "";
  const bool isRepeated = fact.hasHeads && fact.headRepeats.value() != 1;
  const bool isSkipped = !fact.skipped.isUnknown() && fact.skipped.value() != 0;
  return formatted(
      "row j{} is row j{}{} of {}", ofHead, isSkipped ? " + " + fact.skipped.str() : "",
      isRepeated ? formatted(" of head h/{}", fact.headRepeats.str()) : "", nameOf(fact.past));
}

std::string placeWords(const WritePlace& place) {
  if (place.kind != WritePlace::Kind::First)
    return formatted("at {}", nameOf(place.input));
  return place.offset.value() == 0
             ? formatted("from {} on", nameOf(place.input))
             : formatted("from {} + {} on", nameOf(place.input), place.offset.str());
}

std::string rowsText(const RowFact& fact) {
  switch (fact.origin) {
  case RowOrigin::Appended:
    return formatted("{}{}, then new rows of {}", pastWords(fact),
                     fact.pastLength ? formatted(" up to {}", nameOf(fact.pastLength)) : "",
                     nameOf(fact.fresh));
  case RowOrigin::Written:
    return formatted("{}, with new rows of {} written {}", pastWords(fact), nameOf(fact.fresh),
                     placeWords(*fact.place));
  case RowOrigin::LastRows:
    return formatted("last {} rows of {} and new rows of {}", fact.lastRows, nameOf(fact.past),
                     nameOf(fact.fresh));
  case RowOrigin::Cached:
    return formatted("{}, no new rows", pastWords(fact));
  case RowOrigin::New:
    return formatted("new rows only, of {}", nameOf(fact.fresh));
  case RowOrigin::Computed:
    return fact.node ? formatted("{} by '{}' ({})", fact.detail, pattern::labelOf(*fact.node),
                                 fact.node->op().str())
                     : fact.detail;
  case RowOrigin::Unreadable:
    return fact.node ? formatted("not readable: evaluation stops at '{}' ({})",
                                 pattern::labelOf(*fact.node), fact.node->op().str())
                     : "not readable";
  }
  return "";
}

std::string presentText(const CacheFact& fact) {
  if (!fact.rows.past || !fact.rows.isRows() || fact.rows.origin == RowOrigin::Cached)
    return "";
  if (!fact.present)
    return "; no output has the same rows";
  if (fact.isSameAsPresent())
    return formatted("; {} is the same rows", nameOf(fact.present));
  if (fact.ofPresent.origin == RowOrigin::LastRows)
    return formatted("; {} is the last {} of these rows", nameOf(fact.present),
                     fact.ofPresent.lastRows);
  return formatted("; {} has other rows of the same two", nameOf(fact.present));
}

/// Update of the cache: `append`, `last 8 rows`.
std::string updateText(const RowFact& fact) {
  switch (fact.origin) {
  case RowOrigin::Appended:
    return ": append";
  case RowOrigin::Written:
    return ": write in place";
  case RowOrigin::LastRows:
    return formatted(": window of {}", fact.lastRows);
  default:
    return "";
  }
}

/// Two sizes, one of them without earlier rows if possible.
std::string sizesText(const RowFact& fact) {
  std::vector<StepSize> shown(fact.sizes.begin(),
                              fact.sizes.begin() + std::min<size_t>(fact.sizes.size(), 2));
  const auto empty = llvm::find_if(fact.sizes, [](const StepSize& size) { return size.past == 0; });
  if (empty != fact.sizes.end() &&
      llvm::none_of(shown, [](const StepSize& size) { return size.past == 0; }))
    shown.push_back(*empty);
  std::vector<std::string> words;
  for (const StepSize& size : shown)
    words.push_back(formatted("S={} P={}", size.tokens, size.past));
  const std::string more = fact.points > words.size()
                               ? formatted(" and {} more points", fact.points - words.size())
                               : "";
  return llvm::join(words, ", ") + more;
}

std::string proofText(const RowFact& fact) {
  if (!fact.isRows())
    return "";
  if (fact.argument.holds())
    return "; proved";
  const ArgumentBreak& broken = *fact.argument.broken;
  return broken.node ? formatted("; observed: '{}' ({}): {}", pattern::labelOf(*broken.node),
                                 broken.node->op().str(), broken.reason)
                     : formatted("; observed: {}", broken.reason);
}

OrderedJson nameJson(const Value* value) {
  return value ? OrderedJson(value->name().str()) : OrderedJson(nullptr);
}

OrderedJson nodeJson(const Node* node) {
  return node ? OrderedJson(pattern::labelOf(*node)) : OrderedJson(nullptr);
}

} // namespace

std::string cacheFactText(const CacheFact& fact) {
  std::string text = rowsText(fact.rows) + presentText(fact) + updateText(fact.rows);
  if (!fact.rows.sizes.empty())
    text += formatted(" (seen at {}{})", sizesText(fact.rows), proofText(fact.rows));
  return text;
}

OrderedJson cacheFactJson(const CacheFact& fact) {
  const RowFact& rows = fact.rows;
  OrderedJson json;
  json["rows"] = originName(rows.origin).str();
  json["past"] = nameJson(rows.past);
  json["new"] = nameJson(rows.fresh);
  json["present"] = nameJson(fact.present);
  json["present_rows"] =
      fact.present ? OrderedJson(originName(fact.ofPresent.origin).str()) : OrderedJson(nullptr);
  json["past_length"] = nameJson(rows.pastLength);
  json["place"] = rows.place ? nameJson(rows.place->input) : OrderedJson(nullptr);
  json["window"] = rows.lastRows;
  json["detail"] = rows.detail;
  json["node"] = nodeJson(rows.node);
  json["seen"] = OrderedJson::array();
  for (const StepSize& size : rows.sizes)
    json["seen"].push_back({{"tokens", size.tokens}, {"past", size.past}});
  json["points"] = rows.points;
  const auto broken = rows.isRows() ? rows.argument.broken : std::nullopt;
  json["proof"] = rows.isRows() ? OrderedJson(broken ? "observed" : "proved") : nullptr;
  json["proof_ends_at"] = broken ? nodeJson(broken->node) : OrderedJson(nullptr);
  json["proof_ends_because"] = broken ? OrderedJson(broken->reason) : OrderedJson(nullptr);
  return json;
}

} // namespace kvopt::driver
