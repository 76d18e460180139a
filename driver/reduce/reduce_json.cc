// The document kvopt/reduce/1.
#include "driver/reduce/reduce_json.h"
#include "support/json.h"

namespace kvopt::driver {

namespace {

OrderedJson reducedSizeJson(const ReducedSize& size) {
  return {{"nodes", size.nodes},         {"inputs", size.inputs},
          {"outputs", size.outputs},     {"initializers", size.initializers},
          {"functions", size.functions}, {"bytes", size.bytes}};
}

} // namespace

OrderedJson reduceJson(const ReduceRequest& request, const ReducedModel& reduced) {
  OrderedJson steps = OrderedJson::array();
  for (const ReductionStep& step : reduced.steps)
    steps.push_back(
        {{"name", step.name}, {"candidates", step.candidates}, {"accepted", step.accepted}});
  return {{"schema", "kvopt/reduce/1"},
          {"model", request.model},
          {"output", request.output},
          {"command", request.command},
          {"exit_code_of_command", reduced.exitCode},
          {"before", reducedSizeJson(reduced.before)},
          {"after", reducedSizeJson(reduced.after)},
          {"anonymous", request.isAnonymous},
          {"manifest", reduced.hasManifest},
          {"external_data", reduced.hasData},
          {"candidates", reduced.candidates()},
          {"seconds", reduced.seconds},
          {"steps", steps}};
}

} // namespace kvopt::driver
