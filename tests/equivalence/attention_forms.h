// What the attention operators of a rewritten model are told, for comparison.
#pragma once

#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {

/// One line for each of kvopt's operators: its operands, attributes and the inputs that it reads.
inline std::vector<std::string> attentionsOf(ir::Model& model) {
  std::vector<std::string> told;
  auto collect = [&](ir::Graph& graph) {
    for (const ir::Node& node : graph.nodes()) {
      if (node.op().domain() != ir::kvoptDomain)
        continue;
      std::string text = node.op().str();
      for (unsigned operand = 0; operand < node.operands().size(); ++operand)
        text += node.operand(operand) ? " +" : " -";
      for (const char* name : {"causal", "window", "mask_boolean"})
        text += formatted(" {} {}", name, node.intAttr(name, 0));
      for (const char* name : {"scale", "softcap"})
        text += formatted(" {} {:.6g}", name, node.floatAttr(name, 0));
      for (const ir::Use& use : node.operands())
        if (use.value() && use.value()->isGraphInput())
          text += " " + use.value()->name().str();
      told.push_back(std::move(text));
    }
  };
  forEachGraph(model.graph(), collect);
  return told;
}

} // namespace kvopt
