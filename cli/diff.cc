// kvopt diff: the changes between two models, in operators and in attention layers.
#include "cli/report/difference_drawing.h"
#include "cli/report/difference_report.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/diff/difference_json.h"
#include "support/diagnostic.h"
#include "support/json.h"

#include "llvm/ADT/STLExtras.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;
using namespace pattern;

namespace {

struct DiffOptions {
  std::string before;
  std::string after;
  std::optional<unsigned> layer;
};

/// The block to draw: the requested one, or else the first that changed, or else the first.
llvm::Expected<const BlockChange*> drawnBlock(const DiffOptions& options,
                                              const ModelDifference& difference) {
  const std::vector<BlockChange>& blocks = difference.blocks;
  auto found = options.layer ? llvm::find_if(blocks,
                                             [&](const BlockChange& block) {
                                               return block.either().layer == *options.layer;
                                             })
                             : llvm::find_if(blocks, [](const BlockChange& block) {
                                 return block.change != Change::Same;
                               });
  if (found != blocks.end())
    return &*found;
  if (options.layer)
    return usageError("neither model has an attention L{}", *options.layer);
  if (blocks.empty())
    return usageError("neither model has an attention to draw");
  return &blocks.front();
}

llvm::Expected<ExitCode> diff(const DiffOptions& options, const CommandContext& context) {
  auto before = readBlocks(options.before, context.toolkit);
  if (!before)
    return before.takeError();
  auto after = readBlocks(options.after, context.toolkit);
  if (!after)
    return after.takeError();
  ModelDifference difference = differenceOf(*before, *after);
  if (context.common.format == AnswerFormat::Svg) {
    auto block = drawnBlock(options, difference);
    if (!block)
      return block.takeError();
    auto drawing = differenceDrawing(options.before, options.after, **block);
    if (!drawing)
      return drawing.takeError();
    printOut(*drawing);
    return ExitCode::Done;
  }
  if (options.layer)
    llvm::erase_if(difference.blocks, [&](const BlockChange& block) {
      return block.either().layer != *options.layer;
    });
  if (context.common.json())
    printJson(differenceJson(options.before, options.after, difference));
  else
    printOut(differenceText(options.before, options.after, difference));
  return ExitCode::Done;
}

} // namespace

void addDiffCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* command = addCommand(app, Command::Diff);
  CommandOptions add(*command, context, Command::Diff);
  add.add("before", options->before);
  add.add("after", options->after);
  add.add("--layer", options->layer);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return diff(*options, context); };
  });
}

} // namespace kvopt::cli
