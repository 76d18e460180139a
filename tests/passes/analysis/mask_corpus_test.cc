// What is proved of the masks of real exports, in raw graphs and after recovery.
#include "tests/passes/analysis/raw_masks.h"

#include "ir/diagnostic.h"
#include "ir/onnx_import.h"
#include "ir/op.h"
#include "ir/shape_inference.h"
#include "tests/ir/corpus.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace kvopt {
namespace {
TEST(Dump, All) {
  OpRegistry ops;
  registerAll(ops);
  for (const std::string& path : corpusModels()) {
    if (path.find("real_models") != path.npos || path.find("node_tests") != path.npos)
      continue;
    auto model = importModel(path, ops);
    if (!model) {
      llvm::consumeError(model.takeError());
      continue;
    }
    if (llvm::Error e = inferShapes((*model)->graph())) {
      fmt::print("{} {}\n", path, takeDiagnostic(std::move(e)).str());
      continue;
    }
    fmt::print("== {}\n", path.substr(path.find("corpus") + 7));
    MaskAnalysis analysis;
    forEachGraph((*model)->graph(), [&](Graph& g) {
      for (Node& n : g.nodes()) {
        RawMasks raw{&n, IndexSpace({}, {}, {}, {}), {}};
        if (n.op() == "Softmax")
          raw = rawMasksOf(n);
        else if (n.op() == OpName("Attention") && n.operand(1)) {
          raw.space = IndexSpace(n.operand(0)->type().dim(0), n.operand(0)->type().dim(1),
                                 n.operand(0)->type().dim(2), n.operand(1)->type().dim(2));
          if (n.operand(3))
            raw.masks.push_back(n.operand(3));
        } else
          continue;
        fmt::print("  {} S {} T {}\n", n.name().str(), raw.space.extent(IndexVariable::Row).str(),
                   raw.space.extent(IndexVariable::Key).str());
        for (const Value* m : raw.masks) {
          MaskFacts f = analysis.facts({m, raw.space, false, 0});
          fmt::print("    {} {} w {} exact {} {} rows {} rem {} | {} {}\n", m->type().str(),
                     proofName(f.causal).str(), f.window, f.isExact, f.hiddenValue,
                     f.everyRowSeesAKey, int(f.remaining), f.text, f.counterExample);
        }
      }
    });
  }
}
} // namespace
} // namespace kvopt
