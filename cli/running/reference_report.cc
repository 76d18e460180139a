// Reports of recorded cases.
#include "cli/running/reference_report.h"

#include "cli/report/site_table.h"
#include "support/format.h"
#include "support/json.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <map>

namespace kvopt::cli {
using namespace driver;

namespace {

/// Name of every model in tables.
std::map<std::string, std::string> namesOf(const ReferenceTable& table) {
  std::vector<std::string> paths;
  for (const ReferenceRow& row : table.rows)
    if (!llvm::is_contained(paths, row.model))
      paths.push_back(row.model);
  const std::vector<std::string> names = tableNames(paths);
  std::map<std::string, std::string> found;
  for (size_t i = 0; i < paths.size(); ++i)
    found[paths[i]] = names[i];
  return found;
}

} // namespace

OrderedJson referenceTableJson(const ReferenceTable& table) {
  const std::map<std::string, std::string> names = namesOf(table);
  OrderedJson json;
  json["schema"] = "kvopt/verify-references/1";
  json["equal"] = table.equal();
  json["counts"] = OrderedJson::object();
  for (ReferenceVerdict verdict :
       {ReferenceVerdict::Equal, ReferenceVerdict::Different, ReferenceVerdict::Failed,
        ReferenceVerdict::Refused, ReferenceVerdict::NotCompared})
    json["counts"][verdictName(verdict).str()] = table.count(verdict);
  json["cases"] = OrderedJson::array();
  for (const ReferenceRow& row : table.rows) {
    OrderedJson entry = {{"model", names.at(row.model)},
                         {"case", row.name.empty() ? OrderedJson(nullptr) : OrderedJson(row.name)},
                         {"compared_to", row.comparedTo},
                         {"steps", row.steps},
                         {"tolerance", row.tolerance},
                         {"forms", OrderedJson::object()}};
    for (const ReferenceResult& result : row.results) {
      const bool hasNumber = result.verdict == ReferenceVerdict::Equal ||
                             result.verdict == ReferenceVerdict::Different;
      entry["forms"][formName(result.form).str()] = {
          {"verdict", verdictName(result.verdict).str()},
          {"max_abs", !hasNumber                     ? OrderedJson(nullptr)
                      : std::isfinite(result.maxAbs) ? OrderedJson(result.maxAbs)
                                                     : OrderedJson("inf")},
          {"reason", result.reason.empty() ? OrderedJson(nullptr) : OrderedJson(result.reason)}};
    }
    json["cases"].push_back(std::move(entry));
  }
  return json;
}

namespace {

std::string cell(const ReferenceResult& result) {
  if (result.verdict == ReferenceVerdict::Equal)
    return formatted("{:.1e}", result.maxAbs);
  return result.verdict == ReferenceVerdict::NotCompared ? "-" : verdictName(result.verdict).str();
}

/// Adds one note per reason, with all forms to which it applies.
void addNotes(const ReferenceRow& row, const std::string& name, std::vector<SafeText>& notes) {
  for (size_t i = 0; i < row.results.size(); ++i) {
    const ReferenceResult& result = row.results[i];
    auto isSame = [&](const ReferenceResult& other) { return other.reason == result.reason; };
    auto first = llvm::find_if(row.results, isSame);
    if (result.reason.empty() || first != row.results.begin() + static_cast<ptrdiff_t>(i))
      continue;
    std::string forms;
    for (const ReferenceResult& other : row.results)
      if (isSame(other))
        forms += (forms.empty() ? "" : ", ") + formName(other.form).str();
    notes.push_back(formatText(
        "{}{}{} ({}): {}{}", name, row.name.empty() ? "" : " ", row.name, forms, result.reason,
        result.verdict == ReferenceVerdict::Different ? formatted(", off by {:.1e}", result.maxAbs)
                                                      : ""));
  }
}

} // namespace

SafeText referenceTableText(const ReferenceTable& table, llvm::ArrayRef<ModelForm> forms) {
  SafeText text = formatText("{:<42} {:<7} {:<30} {:>9}", "model", "case", "compared to", "within");
  for (ModelForm form : forms)
    text += formatText(" {:>10}", formName(form));
  text += "\n";
  std::vector<SafeText> notes;
  const std::map<std::string, std::string> names = namesOf(table);
  for (const ReferenceRow& row : table.rows) {
    const std::string& name = names.at(row.model);
    text += formatText("{:<42} {:<7} {:<30} {:>9}", name, row.name, row.comparedTo,
                       row.name.empty() ? "" : formatted("{:.0e}", row.tolerance));
    for (const ReferenceResult& result : row.results)
      text += formatText(" {:>10}", cell(result));
    text += "\n";
    addNotes(row, name, notes);
  }
  for (const SafeText& note : notes)
    text += "  " + note + "\n";
  const size_t equal = table.count(ReferenceVerdict::Equal);
  const size_t compared =
      equal + table.count(ReferenceVerdict::Different) + table.count(ReferenceVerdict::Failed);
  text += formatText("{} of {} equal", equal, compared);
  if (size_t refused = table.count(ReferenceVerdict::Refused))
    text += formatText(", {} refused by the rewrite", refused);
  if (size_t others = table.count(ReferenceVerdict::NotCompared))
    text += formatText(", {} with nothing to compare to", others);
  return text + "\n";
}

} // namespace kvopt::cli
