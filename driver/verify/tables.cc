// Tables of two models, by contents.
#include "driver/verify/tables.h"

#include "check/alignment/selected_tables.h"
#include "check/arithmetic/call.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::driver {
namespace {

/// Number of positions that some run has reached.
int64_t positionsRead(const VerificationReport& report) {
  int64_t most = 0;
  for (const runtime::StepComparison& step : report.comparison.steps)
    most = std::max(most, step.pastTokens + step.tokens);
  return most;
}

/// Whether rows that are read show all others.
bool hasClosedForm(const ir::TensorData& data) {
  const check::Ref contents = check::tensorOf(data);
  return contents && contents->tableAxes == 0;
}

void noteUnread(const check::SelectedTable& table, const char* model, int64_t positions,
                VerificationReport& report) {
  if (table.isByTokens)
    report.unreadTables.push_back(
        formatted("rows of '{}' of {} that no token of a run selects", table.name, model));
  else if (table.rows() > positions)
    report.unreadTables.push_back(
        formatted("rows {} to {} of '{}' of {}", positions, table.rows() - 1, table.name, model));
}

} // namespace

void compareTables(const ir::Model& a, const ir::Model& b, VerificationReport& report) {
  std::vector<check::SelectedTable> first = check::selectedTables(a),
                                    second = check::selectedTables(b);
  for (const check::OtherContents& pair : check::tablesOfOtherContents(a, b)) {
    const auto different = check::rowDifferences(pair, report.tolerance.absolute);
    if (!different || (!different->rows.empty() && !different->isAnyEqual))
      continue; // rewritten as a whole
    for (auto* tables : {&first, &second})
      llvm::erase_if(*tables, [&](const check::SelectedTable& table) {
        return table.data == pair.before.data || table.data == pair.after.data;
      });
    if (!different->rows.empty())
      report.comparison.differences.push_back(
          formatted("weights: row {} of '{}'{}", different->rows.front(), pair.after.name,
                    different->rows.size() == 1
                        ? ""
                        : formatted(" and {} other rows", different->rows.size() - 1)));
  }
  if (report.isDifferent())
    return;
  const int64_t positions = positionsRead(report);
  for (const bool isSecond : {false, true})
    for (const check::SelectedTable& table : isSecond ? second : first)
      if (llvm::none_of(isSecond ? first : second,
                        [&](const check::SelectedTable& other) {
                          return check::haveSameContents(*table.data, *other.data);
                        }) &&
          !hasClosedForm(*table.data))
        noteUnread(table, isSecond ? "the second model" : "the first model", positions, report);
}

} // namespace kvopt::driver
