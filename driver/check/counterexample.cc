// Lines about counterexamples.
#include "driver/check/counterexample.h"

namespace kvopt::driver {

llvm::Expected<std::optional<Counterexample>>
writeCounterexample(const FileCheck& result, const CheckRequest& request, const std::string& folder,
                    const Toolkit& toolkit, FileAccess& files) {
  if (folder.empty())
    return std::nullopt;
  if (!toolkit.runner)
    return needsRuntime("--counterexample");
  return toolkit.runner->writeCounterexample(result, request, folder, toolkit, files);
}

SafeText counterexampleText(const Counterexample& example) {
  SafeText text = formatText("  written  {}: the inputs of the step, with random numbers, and the "
                             "outputs of the first model\n",
                             example.folder);
  if (!example.isVisible)
    return text + formatText("  replay   not possible: {}\n", example.remark);
  text += formatText("  replay   {}\n", example.command);
  text += formatText("           {}: {}\n",
                     *example.isVisible ? "shows the difference in floats"
                                        : "does not show the difference, which is too small in "
                                          "floats or only in rows that are not compared",
                     example.remark);
  return text;
}

} // namespace kvopt::driver
