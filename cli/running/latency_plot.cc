// Layout: panels in a row, with the legend below.
#include "cli/running/latency_plot.h"

#include "cli/report/xml_text.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <algorithm>
#include <cmath>

namespace kvopt::cli {
using namespace ir;

std::vector<double> axisMarks(double top, unsigned most) {
  assert(std::isfinite(top) && top > 0 && most >= 1);
  double power = std::pow(10.0, std::floor(std::log10(top / most)));
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (std::ceil(top / step - 1e-9) <= most)
      break;
  }
  std::vector<double> marks;
  auto count = static_cast<int64_t>(std::ceil(top / step - 1e-9));
  for (int64_t i = 0; i <= count; ++i)
    marks.push_back(static_cast<double>(i) * step);
  return marks;
}

namespace {

constexpr size_t seriesColors = 6; // number of colors in the style sheet
constexpr double panelWidth = 420;
constexpr double panelHeight = 300;
constexpr double panelGap = 28;
constexpr double marginLeft = 64;
constexpr double marginRight = 24;
constexpr double marginTop = 92;
constexpr double axisSpace = 56;
constexpr double legendRow = 20;

constexpr const char* plotStyle = R"(<style>
.page{fill:#ffffff}.grid{stroke:#e3e6ea}.axis{stroke:#6b7280}.floor{stroke:#6b7280}
text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;font-size:12px;fill:#374151}
.heading{font-size:15px;font-weight:600;fill:#111827}.panel{font-weight:600}
.s0{color:#0072b2}.s1{color:#d55e00}.s2{color:#00795b}.s3{color:#a8337d}.s4{color:#8a6d00}.s5{color:#1b1f24}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.spread{stroke:currentColor;stroke-opacity:.45;stroke-width:1.5}
.mark{fill:currentColor}.floor{fill:none;stroke-width:1.5;stroke-dasharray:5 4}
@media (prefers-color-scheme:dark){
.page{fill:#14171c}.grid{stroke:#2b313a}.axis{stroke:#8b94a3}.floor{stroke:#a3abb8}
text{fill:#c6ccd6}.heading{fill:#f3f4f6}
.s0{color:#56b4e9}.s1{color:#ff9a56}.s2{color:#3fd0a4}.s3{color:#e78ac3}.s4{color:#f0d24a}.s5{color:#eef1f5}
}
</style>
)";

struct Point {
  double context = 0;
  Spread latency;
};

struct Series {
  std::string name;
  size_t number = 0; ///< determines color and marker
  std::vector<Point> points;
};

struct FloorLine {
  std::string name;
  std::vector<std::pair<double, double>> points; ///< context, ms
};

struct Panel {
  unsigned threads = 1;
  std::vector<Series> series;
  std::vector<FloorLine> floors;
};

/// Whether two lines differ by no more than the accuracy of reads; they are then drawn as one.
bool areAlike(const FloorLine& a, const FloorLine& b) {
  if (a.points.size() != b.points.size())
    return false;
  double difference = 0;
  double sum = 0;
  for (size_t i = 0; i < a.points.size(); ++i) {
    if (a.points[i].first != b.points[i].first)
      return false;
    difference += std::abs(a.points[i].second - b.points[i].second);
    sum += std::max(a.points[i].second, b.points[i].second);
  }
  return difference <= 0.15 * sum;
}

class LatencyPlot {
public:
  explicit LatencyPlot(const BenchReport& benchReport) : report(benchReport) {
    for (const BenchRow& row : report.rows)
      if (row.decodeMs)
        add(row);
    for (Panel& panel : panels) {
      for (Series& series : panel.series)
        std::stable_sort(series.points.begin(), series.points.end(),
                         [](const Point& a, const Point& b) { return a.context < b.context; });
      mergeFloors(panel);
    }
  }

  bool isEmpty() const { return panels.empty(); }

  std::string draw() {
    layOut();
    out = formatted("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
                    "width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" aria-labelledby=\"t d\">\n",
                    width, height, width, height);
    out += "<title id=\"t\">Decode latency against context</title>\n";
    out += formatted("<desc id=\"d\">{}</desc>\n", xmlText(description()));
    out += plotStyle;
    out += formatted("<rect class=\"page\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", width, height);
    text(marginLeft, 26, "start", "Decode latency against context", "heading");
    text(marginLeft, 45, "start", subtitle());
    text(marginLeft, 61, "start", shortened(report.machine.cpu));
    for (size_t i = 0; i < panels.size(); ++i)
      drawPanel(panels[i], marginLeft + static_cast<double>(i) * (panelWidth + panelGap), i == 0);
    drawLegend();
    return out + "</svg>\n";
  }

private:
  void add(const BenchRow& row) {
    auto number =
        static_cast<size_t>(std::find(names.begin(), names.end(), row.model) - names.begin());
    if (number == names.size())
      names.push_back(row.model);
    auto panel = std::find_if(panels.begin(), panels.end(),
                              [&](const Panel& each) { return each.threads == row.threads; });
    if (panel == panels.end())
      panel = panels.insert(panels.end(), Panel{row.threads, {}, {}});
    auto series = std::find_if(panel->series.begin(), panel->series.end(),
                               [&](const Series& each) { return each.number == number; });
    if (series == panel->series.end()) {
      panel->series.push_back({row.model, number, {}});
      panel->floors.push_back({row.model, {}});
      series = panel->series.end() - 1;
    }
    double context = static_cast<double>(row.depth);
    series->points.push_back({context, *row.decodeMs});
    if (row.floorMs)
      panel->floors[static_cast<size_t>(series - panel->series.begin())].points.emplace_back(
          context, row.floorMs->low);
    topContext = std::max(topContext, context);
    topLatency = std::max(topLatency, row.decodeMs->median);
  }

  static void mergeFloors(Panel& panel) {
    std::vector<FloorLine> merged;
    for (FloorLine& line : panel.floors) {
      std::stable_sort(line.points.begin(), line.points.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      bool isKnown = std::any_of(merged.begin(), merged.end(),
                                 [&](const FloorLine& other) { return areAlike(line, other); });
      if (!line.points.empty() && !isKnown)
        merged.push_back(std::move(line));
    }
    panel.floors = std::move(merged);
  }

  /// Determines the axes. Slow outliers may exceed the picture, but medians may not.
  void layOut() {
    for (const Panel& panel : panels)
      for (const Series& series : panel.series)
        for (const Point& point : series.points)
          topLatency =
              std::max(topLatency, std::min(point.latency.high, 1.5 * point.latency.median));
    latencyMarks = axisMarks(topLatency > 0 ? topLatency : 1, 6);
    width = marginLeft + marginRight +
            static_cast<double>(panels.size()) * (panelWidth + panelGap) - panelGap;
    hasFloors = std::any_of(panels.begin(), panels.end(),
                            [](const Panel& panel) { return !panel.floors.empty(); });
    height = marginTop + panelHeight + axisSpace +
             legendRow * static_cast<double>(names.size() + (hasFloors ? 1 : 0)) + 12;
  }

  double x(double left, double context) const {
    // Markers keep a distance from the frame.
    return left + (topContext > 0 ? 0.04 + 0.92 * context / topContext : 0.5) * panelWidth;
  }
  double y(double latency) const {
    return marginTop + panelHeight * (1 - std::min(1.0, latency / latencyMarks.back()));
  }

  void text(double atX, double atY, const char* anchor, const std::string& words,
            const char* style = "") {
    out += formatted("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", atX, atY,
                     anchor, *style ? formatted(" class=\"{}\"", style) : "", xmlText(words));
  }
  void line(const char* style, double x1, double y1, double x2, double y2) {
    out +=
        formatted("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                  style, x1, y1, x2, y2);
  }
  /// Draws the marker of a model. Markers also differ in shape, for readers who cannot distinguish
  /// the colors.
  void mark(size_t number, double atX, double atY) {
    switch (number % 4) {
    case 0:
      out += formatted("<circle class=\"mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n", atX, atY);
      return;
    case 1:
      out += formatted("<rect class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" "
                       "height=\"7\"/>\n",
                       atX - 3.5, atY - 3.5);
      return;
    case 2:
      out += formatted("<path class=\"mark\" d=\"M{:.1f} {:.1f}l4.5 8h-9z\"/>\n", atX, atY - 5);
      return;
    default:
      out += formatted("<path class=\"mark\" d=\"M{:.1f} {:.1f}l4.5 5-4.5 5-4.5-5z\"/>\n", atX,
                       atY - 5);
    }
  }

  void drawAxes(double left, bool isFirst) {
    for (double latency : latencyMarks) {
      line("grid", left, y(latency), left + panelWidth, y(latency));
      if (isFirst)
        text(left - 8, y(latency) + 4, "end", formatted("{:g}", latency));
    }
    // Marks at measured depths. If marks are too close, the right one remains.
    std::vector<double> contexts;
    for (const BenchRow& row : report.rows)
      if (row.decodeMs)
        contexts.push_back(static_cast<double>(row.depth));
    std::sort(contexts.begin(), contexts.end(), std::greater<>());
    double free = INFINITY;
    for (double context : contexts) {
      double at = x(left, context);
      if (at > free - 48)
        continue;
      free = at;
      line("axis", at, marginTop + panelHeight, at, marginTop + panelHeight + 5);
      text(at, marginTop + panelHeight + 19, "middle", formatted("{:.0f}", context));
    }
    line("axis", left, marginTop, left, marginTop + panelHeight);
    line("axis", left, marginTop + panelHeight, left + panelWidth, marginTop + panelHeight);
    text(left + panelWidth / 2, marginTop + panelHeight + 40, "middle", "context (tokens)");
    if (isFirst)
      out += formatted("<text transform=\"translate(18 {:.1f}) rotate(-90)\" "
                       "text-anchor=\"middle\">latency (ms per token)</text>\n",
                       marginTop + panelHeight / 2);
  }

  void drawPanel(const Panel& panel, double left, bool isFirst) {
    text(left + panelWidth / 2, marginTop - 10, "middle",
         formatted("{} thread{}", panel.threads, panel.threads == 1 ? "" : "s"), "panel");
    drawAxes(left, isFirst);
    for (const FloorLine& floor : panel.floors) {
      std::string path;
      for (const auto& [context, latency] : floor.points)
        path +=
            formatted("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(left, context), y(latency));
      // A single point becomes a dash.
      if (floor.points.size() == 1)
        path = formatted("M{:.1f} {:.1f}h28", x(left, floor.points[0].first) - 14,
                         y(floor.points[0].second));
      out += formatted("<path class=\"floor\" d=\"{}\"><title>read floor of {}</title></path>\n",
                       path, xmlText(floor.name));
    }
    for (const Series& series : panel.series)
      drawSeries(series, left);
  }

  void drawSeries(const Series& series, double left) {
    out += formatted("<g class=\"s{}\"><title>{}</title>\n", series.number % seriesColors,
                     xmlText(series.name));
    std::string path;
    for (const Point& point : series.points)
      path += formatted("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(left, point.context),
                        y(point.latency.median));
    if (series.points.size() > 1)
      out += formatted("<path class=\"line\" d=\"{}\"/>\n", path);
    for (const Point& point : series.points) {
      double at = x(left, point.context);
      // Bars of several models are next to each other.
      double beside =
          at + 4 * (static_cast<double>(series.number) - static_cast<double>(names.size() - 1) / 2);
      line("spread", beside, y(point.latency.low), beside, y(point.latency.high));
      mark(series.number, at, y(point.latency.median));
    }
    out += "</g>\n";
  }

  void drawLegend() {
    double row = marginTop + panelHeight + axisSpace + 12;
    for (size_t number = 0; number < names.size(); ++number, row += legendRow) {
      out += formatted("<g class=\"s{}\">\n", number % seriesColors);
      line("line", marginLeft, row - 4, marginLeft + 26, row - 4);
      mark(number, marginLeft + 13, row - 4);
      out += "</g>\n";
      text(marginLeft + 34, row, "start", shortened(names[number]));
    }
    if (!hasFloors)
      return;
    line("floor", marginLeft, row - 4, marginLeft + 26, row - 4);
    text(marginLeft + 34, row, "start", "read floor: weights and valid cache rows, read once");
  }

  /// The end of a name, which is more specific than its start. The number of characters is at most
  /// the number of bytes, which is limited here.
  std::string shortened(const std::string& name) const {
    auto room = static_cast<size_t>((width - marginLeft - marginRight - 34) / 7);
    if (name.size() <= room)
      return name;
    size_t from = name.size() - room;
    while (from < name.size() && (static_cast<uint8_t>(name[from]) & 0xc0) == 0x80)
      ++from;
    return "\xE2\x80\xA6" + name.substr(from);
  }

  std::string subtitle() const {
    return formatted("median of {} steps, {} repetition{}; bars: the middle 80 %",
                     report.decodeTokens, report.repetitions, report.repetitions == 1 ? "" : "s");
  }

  std::string description() const {
    std::string words = "Milliseconds per token over tokens in the cache.";
    for (const BenchRow& row : report.rows)
      if (row.decodeMs)
        words += formatted(" {}, {} threads, {} tokens: {:.3f} ms.", row.model, row.threads,
                           row.depth, row.decodeMs->median);
    return words;
  }

  const BenchReport& report;
  std::vector<Panel> panels;
  std::vector<std::string> names;
  std::vector<double> latencyMarks;
  double topContext = 0;
  double topLatency = 0;
  double width = 0;
  double height = 0;
  bool hasFloors = false;
  std::string out;
};

} // namespace

llvm::Expected<std::string> latencyPlot(const BenchReport& report) {
  LatencyPlot plot(report);
  if (plot.isEmpty())
    return invalid("there is no latency to draw");
  return plot.draw();
}

} // namespace kvopt::cli
