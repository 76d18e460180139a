// The documents kvopt/check/1 and kvopt/certificate/1.
#include "driver/check/check_json.h"

#include "ir/manifest/field_table.h"
#include "support/json.h"

namespace kvopt::driver {
using check::Obligation;
using check::Verdict;

namespace {

OrderedJson fileJson(const CheckedFile& file) {
  return {{"file", file.path}, {"sha256", file.digest}, {"manifest_sha256", file.manifestDigest}};
}

OrderedJson stepJson(const check::Step& step) {
  OrderedJson json = {{"batch", step.batch}, {"past", step.past}, {"new", step.tokens}};
  if (step.padding) {
    json["hidden"] = step.padding;
    json["side"] = step.padsRight ? "right" : "left";
  }
  if (step.token >= 0)
    json["token"] = step.token;
  json["free_rows"] = step.spare;
  return json;
}

OrderedJson obligationJson(const Obligation& obligation) {
  OrderedJson json = {{"before", obligation.before},
                      {"after", obligation.after},
                      {"node", obligation.node},
                      {"verdict", check::verdictWord(obligation.verdict)}};
  if (!obligation.reason.empty())
    json["reason"] = obligation.reason;
  if (obligation.steps) {
    json["steps"] = obligation.steps;
    json["elements"] = obligation.elements;
    json["hidden_elements"] = obligation.hidden;
    json["nodes_before"] = obligation.nodesBefore;
    json["nodes_after"] = obligation.nodesAfter;
  }
  if (!obligation.evaluatedAs.empty())
    json["evaluated_as"] = obligation.evaluatedAs;
  if (obligation.verdict == Verdict::Different ||
      (obligation.verdict == Verdict::Skipped && obligation.hasElements()))
    json["counterexample"] = {{"step", stepJson(obligation.counterexample)},
                              {"place", obligation.place},
                              {"before", obligation.beforeElement},
                              {"after", obligation.afterElement}};
  return json;
}

OrderedJson resultJson(const FileCheck& result, const char* schema) {
  OrderedJson json = {{"schema", schema},
                      {"digest", result.digest},
                      {"verdict", check::verdictWord(result.report.verdict())},
                      {"before", fileJson(result.before)},
                      {"after", fileJson(result.after)}};
  json.update(checkReportJson(result.report));
  return json;
}

OrderedJson replayJson(const Counterexample& example) {
  OrderedJson json = {{"folder", example.folder}};
  json["command"] = example.command.empty() ? OrderedJson(nullptr) : OrderedJson(example.command);
  json["visible"] = example.isVisible ? OrderedJson(*example.isVisible) : OrderedJson(nullptr);
  json["remark"] = example.remark;
  return json;
}

} // namespace

OrderedJson shownJson(const check::CheckReport& report) {
  OrderedJson outputs = OrderedJson::array(), scope = OrderedJson::array();
  for (const Obligation& obligation : report.obligations)
    if (obligation.isOutput)
      outputs.push_back({{"before", obligation.before},
                         {"after", obligation.after},
                         {"verdict", check::verdictWord(obligation.verdict)}});
  for (const check::Step& step : report.scope)
    scope.push_back(stepJson(step));
  return {{"verdict", check::verdictWord(report.verdict())},
          {"outputs", std::move(outputs)},
          {"scope", std::move(scope)},
          {"assumptions", report.assumptions},
          {"not_checked", report.notChecked}};
}

OrderedJson checkReportJson(const check::CheckReport& report) {
  OrderedJson json = {
      {"verdict", check::verdictWord(report.verdict())},
      {"nodes",
       {{"before", report.nodesBefore},
        {"after", report.nodesAfter},
        {"aligned", report.nodesAligned}}},
      {"regions_evaluated", report.regionsEvaluated},
      {"fields", {{"p", report.modulusP}, {"q", report.modulusQ}, {"seed", report.seed}}}};
  for (const char* part : {"outputs", "regions"}) {
    OrderedJson list = OrderedJson::array();
    for (const Obligation& obligation : report.obligations)
      if (obligation.isOutput == (std::string_view(part) == "outputs"))
        list.push_back(obligationJson(obligation));
    json[part] = std::move(list);
  }
  OrderedJson scope = OrderedJson::array();
  for (const check::Step& step : report.scope)
    scope.push_back(stepJson(step));
  json["scope"] = std::move(scope);
  json["assumptions"] = report.assumptions;
  json["not_checked"] = report.notChecked;
  return json;
}

OrderedJson checkJson(const FileCheck& result, const std::optional<Counterexample>& example) {
  OrderedJson json = resultJson(result, "kvopt/check/1");
  if (!result.unproved.empty())
    json["unproved"] = result.unproved;
  if (result.claimed) {
    const std::optional<bool> isConfirmed = result.confirmsClaim();
    json["claimed"] = ir::valueJson(*result.claimed);
    json["claimed"]["confirmed"] = isConfirmed ? OrderedJson(*isConfirmed) : OrderedJson(nullptr);
  }
  if (example)
    json["replay"] = replayJson(*example);
  return json;
}

OrderedJson certificateJson(const FileCheck& result) {
  return resultJson(result, "kvopt/certificate/1");
}

} // namespace kvopt::driver
