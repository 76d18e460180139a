// Boxes for nodes, and rounded boxes for values that enter or leave the block.
#include "cli/report/difference_drawing.h"

#include "cli/report/graph_layout.h"
#include "cli/report/op_table.h"
#include "cli/report/xml_text.h"
#include "support/format.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace pattern;

namespace {

constexpr size_t mostNodes = 200;
constexpr size_t mostEdges = 400;
constexpr size_t mostCharacters = 34;
constexpr GraphSpacing spacing{/*boxHeight=*/26, /*gapX=*/14, /*gapY=*/30};
constexpr double margin = 24;
constexpr double panelsTop = 64;   ///< top of the first panel
constexpr double panelHead = 40;   ///< height of a panel above its graph
constexpr double widestRow = 1200; ///< panels that need more are stacked
constexpr double leastWidth = 240;
constexpr double characterWidth = 7;

constexpr const char* drawingStyle = R"(<style>
.page{fill:#ffffff}.rule{stroke:#d4d8de}.edge{fill:none;stroke:#8b94a3;stroke-width:1.3}
text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;font-size:12px;fill:#1f2937}
.heading{font-size:15px;font-weight:600}.panel{font-weight:600}.note{fill:#6b7280}
.box{stroke-width:1.4}.kept{fill:#e9ecf0;stroke:#8b94a3}.removed{fill:#fde0dd;stroke:#c0392b}
.added{fill:#d9f2e1;stroke:#1e8e4e}.value{fill:#ffffff;stroke:#8b94a3;stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){
.page{fill:#14171c}.rule{stroke:#2b313a}.edge{stroke:#8b94a3}text{fill:#e5e7eb}.note{fill:#a3abb8}
.kept{fill:#2b313a;stroke:#8b94a3}.removed{fill:#5b1f1b;stroke:#ff8a7a}
.added{fill:#174a2c;stroke:#5fd38d}.value{fill:#14171c;stroke:#8b94a3}
}
</style>
)";

/// The end of a name, which is more specific than its start. The number of characters is at most
/// the number of bytes, which is limited here.
std::string shortened(llvm::StringRef name) {
  if (name.size() <= mostCharacters)
    return name.str();
  size_t from = name.size() - mostCharacters;
  while (from < name.size() && (static_cast<uint8_t>(name[from]) & 0xc0) == 0x80)
    ++from;
  return "\xE2\x80\xA6" + name.substr(from).str();
}

/// Whether a value concerns only extents, which are not part of attention. Inputs of the model are
/// never left out.
bool isShape(const Value& value) {
  return !value.isGraphInput() && isInteger(value.type().elementType()) && value.type().hasRank() &&
         value.type().rank() <= 1;
}

/// Panel with the block of one model.
class BlockPanel {
public:
  static llvm::Expected<BlockPanel>
  create(const AttentionSubgraph* block, const AttentionSubgraph* other, const char* changedStyle) {
    BlockPanel panel;
    if (block)
      panel.addBlock(*block, other, changedStyle);
    auto layout = layOutGraph(panel.widths, panel.edges, spacing);
    if (!layout)
      return layout.takeError();
    panel.layout = std::move(*layout);
    return panel;
  }

  double width() const { return std::max(layout.width, leastWidth); }
  double height() const { return layout.height; }
  size_t drawn() const { return shown.size(); }
  size_t leftOut() const { return left; }
  bool drawsEveryEdge() const { return edges.size() < mostEdges; }

  std::string draw(double atX, double atY) const {
    std::string out;
    const double shift = atX + (width() - layout.width) / 2;
    for (const std::vector<GraphLayout::Point>& points : layout.edges)
      out += drawEdge(points, shift, atY);
    for (size_t i = 0; i < boxes.size(); ++i) {
      const Box& box = boxes[i];
      const double x = shift + layout.boxes[i].x;
      const double y = atY + layout.boxes[i].y;
      out += formatted("<g><title>{}</title><rect class=\"box {}\" x=\"{:.1f}\" y=\"{:.1f}\" "
                       "width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{}\"/>",
                       xmlText(box.title), box.style, x - widths[i] / 2, y - spacing.boxHeight / 2,
                       widths[i], spacing.boxHeight, box.isValue ? 13 : 4);
      out += formatted("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text></g>\n", x,
                       y + 4, xmlText(box.text));
    }
    return out;
  }

private:
  struct Box {
    std::string text;
    std::string title;
    std::string style;
    bool isValue;
  };

  void addBlock(const AttentionSubgraph& block, const AttentionSubgraph* other,
                const char* changedStyle) {
    shown.assign(block.nodes.begin(), block.nodes.begin() + static_cast<ptrdiff_t>(std::min(
                                                                block.nodes.size(), mostNodes)));
    left = block.nodes.size() - shown.size();
    llvm::DenseSet<const Node*> kept;
    if (other)
      kept = nodesKept(block, *other);
    for (const Node* node : shown) {
      numbers[node] = boxes.size();
      add(node->op().str(), labelOf(*node), kept.count(node) ? "kept" : changedStyle, false);
    }
    for (const Node* node : shown)
      addEdges(*node);
  }

  void add(llvm::StringRef text, std::string title, const char* style, bool isValue) {
    const Box& box = boxes.emplace_back(Box{shortened(text), std::move(title), style, isValue});
    widths.push_back(18 +
                     characterWidth * static_cast<double>(std::max<size_t>(box.text.size(), 4)));
  }

  size_t valueBox(const Value& value) {
    auto [entry, isNew] = values.try_emplace(&value, boxes.size());
    if (isNew)
      add(value.name(), value.name().str() + "  " + value.type().str(), "value", true);
    return entry->second;
  }

  void addEdge(size_t from, size_t to) {
    if (std::find(edges.begin(), edges.end(), std::pair(from, to)) != edges.end())
      return;
    edges.emplace_back(from, to);
  }

  void addEdges(const Node& node) {
    for (const Use& use : node.operands()) {
      const Value* value = use.value();
      if (!value || value->constant() || value->isInitializer())
        continue;
      auto producer = value->producer() ? numbers.find(value->producer()) : numbers.end();
      if (producer == numbers.end() && isShape(*value))
        continue;
      if (edges.size() == mostEdges)
        return;
      addEdge(producer != numbers.end() ? producer->second : valueBox(*value), numbers[&node]);
    }
    for (const Value& result : node.results()) {
      const bool leaves =
          result.isGraphOutput() ||
          llvm::any_of(result.uses(), [&](const Use& use) { return !numbers.count(&use.user()); });
      if (result.isAbsent() || !leaves)
        continue;
      if (edges.size() == mostEdges)
        return;
      addEdge(numbers[&node], valueBox(result));
    }
  }

  static std::string drawEdge(llvm::ArrayRef<GraphLayout::Point> points, double atX, double atY) {
    std::string path;
    for (size_t i = 0; i < points.size(); ++i)
      path += formatted("{}{:.1f} {:.1f}",
                        i == 0   ? "M"
                        : i == 1 ? "C"
                                 : " ",
                        atX + points[i].x, atY + points[i].y);
    return formatted("<path class=\"edge\" d=\"{}\"/>\n", path);
  }

  std::vector<const Node*> shown;
  size_t left = 0;
  std::vector<Box> boxes;
  std::vector<double> widths; ///< widths of the boxes
  std::vector<std::pair<size_t, size_t>> edges;
  llvm::DenseMap<const Node*, size_t> numbers;
  llvm::DenseMap<const Value*, size_t> values;
  GraphLayout layout;
};

std::string text(double x, double y, const std::string& words, const char* style) {
  return formatted("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, style,
                   xmlText(words));
}

std::string panelNote(const BlockPanel& panel) {
  std::string note = formatted("{} node{}", panel.drawn() + panel.leftOut(),
                               panel.drawn() + panel.leftOut() == 1 ? "" : "s");
  if (panel.leftOut() != 0)
    note += formatted(", the first {}", panel.drawn());
  if (!panel.drawsEveryEdge())
    note += formatted(", {} edges", mostEdges);
  return panel.drawn() == 0 ? "none" : note;
}

/// A panel below the path of its model, with its top left corner at (x, y).
std::string drawPanel(const BlockPanel& panel, const std::string& path, double x, double y) {
  return text(x, y + 14, shortened(path), "panel") + text(x, y + 29, panelNote(panel), "note") +
         panel.draw(x, y + panelHead);
}

std::string rule(double fromX, double fromY, double toX, double toY) {
  return formatted(
      "<line class=\"rule\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", fromX,
      fromY, toX, toY);
}

std::string legend(double x, double y) {
  std::string out;
  for (const auto& [style, words] :
       {std::pair("removed", "only before"), {"added", "only after"}, {"kept", "in both"}}) {
    out += formatted("<rect class=\"box {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"16\" "
                     "height=\"12\" rx=\"3\"/>\n",
                     style, x, y - 10);
    out += text(x + 22, y, words, "note");
    x += 104;
  }
  return out;
}

} // namespace

llvm::Expected<std::string> differenceDrawing(const std::string& pathBefore,
                                              const std::string& pathAfter,
                                              const BlockChange& block) {
  auto before = BlockPanel::create(block.before, block.after, "removed");
  if (!before)
    return before.takeError();
  auto after = BlockPanel::create(block.after, block.before, "added");
  if (!after)
    return after.takeError();
  const double together = 4 * margin + before->width() + after->width();
  const bool isStacked = together > widestRow;
  const double secondX = isStacked ? margin : 3 * margin + before->width();
  const double firstHeight = panelHead + std::max(before->height(), panelHead);
  const double secondY = isStacked ? panelsTop + firstHeight + margin : panelsTop;
  const double width =
      isStacked ? 2 * margin + std::max(before->width(), after->width()) : together;
  const double height = std::max(panelsTop + firstHeight,
                                 secondY + panelHead + std::max(after->height(), panelHead)) +
                        margin;
  const std::string title = formatted("Attention {}: before and after", block.either().id());
  std::string out = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" "
      "height=\"{:.0f}\" role=\"img\" aria-labelledby=\"t d\">\n",
      width, height, width, height);
  out += formatted("<title id=\"t\">{}</title>\n", xmlText(title));
  auto described = [](const AttentionSubgraph* one) {
    return one ? opList(one->ops()) : SafeText("none");
  };
  out += formatted("<desc id=\"d\">Before: {}. After: {}.</desc>\n",
                   xmlMarkup(described(block.before)), xmlMarkup(described(block.after)));
  out += drawingStyle;
  out += formatted("<rect class=\"page\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", width, height);
  out += text(margin, 28, title, "heading");
  out += legend(margin, 50);
  out += drawPanel(*before, pathBefore, margin, panelsTop);
  out += drawPanel(*after, pathAfter, secondX, secondY);
  out += isStacked ? rule(margin, secondY - margin / 2, width - margin, secondY - margin / 2)
                   : rule(secondX - margin, panelsTop, secondX - margin, height - margin / 2);
  return out + "</svg>\n";
}

} // namespace kvopt::cli
