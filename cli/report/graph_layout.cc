// Layout of a graph without labels by Graphviz's `dot`, whose plugin is linked.
#include "cli/report/graph_layout.h"

#include "support/diagnostic.h"

#include "llvm/ADT/ScopeExit.h"

#include <cassert>
#include <graphviz/gvc.h>
#include <memory>
#include <string>

extern "C" gvplugin_library_t gvplugin_dot_layout_LTX_library;

namespace kvopt::cli {
namespace {

struct FreeContext {
  void operator()(GVC_t* context) const { gvFreeContext(context); }
};
struct CloseGraph {
  void operator()(Agraph_t* graph) const { agclose(graph); }
};

/// `words` as `char*` for Graphviz's functions, which do not change it.
char* text(const char* words) { return const_cast<char*>(words); }

std::string inches(double points) { return formatted("{:.4f}", points / 72); }

void setDefault(Agraph_t* graph, int kind, const char* name, const std::string& value) {
  agattr(graph, kind, text(name), text(value.c_str()));
}

/// Suppresses Graphviz's messages.
int ignoreMessage(char*) { return 0; }

llvm::Error failed() { return unsupported("Graphviz cannot lay out this graph"); }

} // namespace

llvm::Expected<GraphLayout> layOutGraph(llvm::ArrayRef<double> widths,
                                        llvm::ArrayRef<std::pair<size_t, size_t>> edges,
                                        const GraphSpacing& spacing) {
  GraphLayout layout;
  if (widths.empty())
    return layout;
  const agusererrf printer = agseterrf(ignoreMessage);
  auto restorePrinter = llvm::make_scope_exit([&] { agseterrf(printer); });
  agreseterrors();

  const lt_symlist_t plugins[] = {
      {"gvplugin_dot_layout_LTX_library", &gvplugin_dot_layout_LTX_library}, {nullptr, nullptr}};
  const std::unique_ptr<GVC_t, FreeContext> context(
      gvContextPlugins(plugins, /*demand_loading=*/0));
  const std::unique_ptr<Agraph_t, CloseGraph> graph(agopen(text("block"), Agdirected, nullptr));
  if (!context || !graph)
    return failed();

  setDefault(graph.get(), AGRAPH, "nodesep", inches(spacing.gapX));
  setDefault(graph.get(), AGRAPH, "ranksep", inches(spacing.gapY));
  // Iterations of the network simplex per box; without a limit, hostile graphs would take minutes.
  setDefault(graph.get(), AGRAPH, "nslimit", "1");
  setDefault(graph.get(), AGRAPH, "nslimit1", "1");
  setDefault(graph.get(), AGNODE, "shape", "box");
  setDefault(graph.get(), AGNODE, "label", "");
  setDefault(graph.get(), AGNODE, "fixedsize", "true");
  setDefault(graph.get(), AGNODE, "height", inches(spacing.boxHeight));
  setDefault(graph.get(), AGNODE, "width", "1");
  setDefault(graph.get(), AGEDGE, "dir", "none");
  std::vector<Agnode_t*> boxes;
  for (double width : widths) {
    boxes.push_back(agnode(graph.get(), /*name=*/nullptr, /*create=*/1));
    agset(boxes.back(), text("width"), text(inches(width).c_str()));
  }
  std::vector<Agedge_t*> lines;
  for (const auto& [from, to] : edges) {
    assert(from < boxes.size() && to < boxes.size() && from != to);
    lines.push_back(agedge(graph.get(), boxes[from], boxes[to], /*name=*/nullptr, /*create=*/1));
  }

  if (gvLayout(context.get(), graph.get(), "dot") != 0)
    return failed();
  auto freeLayout = llvm::make_scope_exit([&] { gvFreeLayout(context.get(), graph.get()); });
  if (agreseterrors() >= AGERR)
    return failed();

  const boxf bounds = GD_bb(graph.get());
  layout.width = bounds.UR.x - bounds.LL.x;
  layout.height = bounds.UR.y - bounds.LL.y;
  // Graphviz's y grows upward.
  auto pointOf = [&](const pointf& point) {
    return GraphLayout::Point{point.x - bounds.LL.x, bounds.UR.y - point.y};
  };
  for (Agnode_t* box : boxes)
    layout.boxes.push_back(pointOf(ND_coord(box)));
  for (Agedge_t* line : lines) {
    const splines* route = ED_spl(line);
    if (!route || route->size != 1)
      return failed();
    std::vector<GraphLayout::Point>& points = layout.edges.emplace_back();
    for (int i = 0; i < route->list[0].size; ++i)
      points.push_back(pointOf(route->list[0].list[i]));
  }
  return layout;
}

} // namespace kvopt::cli
