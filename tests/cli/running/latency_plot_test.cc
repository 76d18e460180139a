// The plot is a well-formed document whatever models are called, and draws what was measured.
#include "cli/running/latency_plot.h"

#include "cli/report/xml_text.h"
#include "support/diagnostic.h"
#include "tests/cli/report/xml_check.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace cli;

namespace {

BenchRow row(const std::string& model, int64_t depth, unsigned threads, double ms, double floor) {
  BenchRow made;
  made.model = model;
  made.depth = depth;
  made.threads = threads;
  made.decodeMs = Spread{ms * 0.8, ms * 0.9, ms, ms * 1.2, ms * 9};
  made.floorMs = Spread{floor, floor, floor, floor, floor};
  return made;
}

size_t occurrencesIn(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

TEST(XmlCheck, TellsDocumentsApart) {
  EXPECT_EQ(XmlCheck("<a b=\"c&amp;\"><d/>t&#39;<e>\xc3\xa9</e></a>\n").problem(), "");
  for (const char* wrong :
       {"", "text", "<a>", "<a></b>", "<a b=c/>", "<a>&nbsp;</a>", "<a>\x01</a>", "<a/><b/>",
        "<a b=\"1\" b=\"2\"/>", "<a>\xff</a>", "<a b=\"<\"/>"})
    EXPECT_NE(XmlCheck(wrong).problem(), "") << wrong;
}

TEST(LatencyPlot, AxisMarksAreRound) {
  EXPECT_EQ(axisMarks(10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axisMarks(7.3, 4), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(axisMarks(1, 1), (std::vector<double>{0, 1}));
  for (double top : {1e-9, 0.031, 0.5, 3.0, 99.0, 12345.0, 1e12})
    for (unsigned most : {1u, 3u, 6u}) {
      std::vector<double> marks = axisMarks(top, most);
      EXPECT_GE(marks.back(), top * (1 - 1e-9)) << top;
      EXPECT_LE(marks.size(), most + 1) << top;
      EXPECT_GE(marks.size(), 2u) << top;
    }
}

TEST(LatencyPlot, XmlText) {
  EXPECT_EQ(xmlText("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(xmlText("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  // XML has no way to write these characters.
  EXPECT_EQ(xmlText(std::string("\x00\x1b", 2)), "\\x00\\x1b");
  EXPECT_EQ(xmlText("\xef\xbf\xbe"), "\\u{fffe}");
  EXPECT_EQ(xmlText("\x80z"), "\\x80z");
}

TEST(LatencyPlot, DrawsEveryModelAndTheFloor) {
  BenchReport report;
  report.machine.cpu = "Some CPU";
  report.rows = {row("a.onnx", 0, 1, 1, 0.5),    row("b.onnx", 0, 1, 2, 0.5),
                 row("a.onnx", 1024, 1, 3, 0.8), row("b.onnx", 1024, 1, 9, 0.8),
                 row("a.onnx", 0, 2, 1, 0.3),    row("a.onnx", 1024, 2, 2, 0.4)};
  BenchRow failed;
  failed.model = "broken.onnx";
  failed.failure = "why";
  report.rows.push_back(failed);
  std::string svg = llvm::cantFail(latencyPlot(report));
  XmlCheck check(svg);
  EXPECT_EQ(check.problem(), "") << svg;
  EXPECT_EQ(occurrencesIn(svg, "<path class=\"line\""), 3u);
  // The floors of a and b are the same in the first panel.
  EXPECT_EQ(occurrencesIn(svg, "<path class=\"floor\""), 2u);
  EXPECT_EQ(occurrencesIn(svg, "class=\"spread\""), 6u);
  for (const char* words :
       {">1 thread<", ">2 threads<", ">a.onnx<", ">b.onnx<", ">1024<", "context (tokens)",
        "latency (ms per token)", "read floor", "Some CPU", "prefers-color-scheme:dark"})
    EXPECT_NE(svg.find(words), std::string::npos) << words;
  EXPECT_EQ(svg.find("broken"), std::string::npos);
}

TEST(LatencyPlot, HostileNamesAndOnePoint) {
  BenchReport report;
  const std::string hostile = "</text><script>alert(1)</script>&\"'\x1b[2J\xff]]>" +
                              std::string(300, 'n') + "\xe2\x82\xac.onnx";
  report.machine.cpu = "<&>";
  report.rows = {row(hostile, 0, 1, 0.001, 0)};
  std::string svg = llvm::cantFail(latencyPlot(report));
  EXPECT_EQ(XmlCheck(svg).problem(), "") << svg;
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(LatencyPlot, NothingToDraw) {
  BenchReport report;
  report.rows.emplace_back();
  auto plot = latencyPlot(report);
  ASSERT_FALSE(static_cast<bool>(plot));
  EXPECT_NE(takeDiagnostic(plot.takeError()).message, "");
}

} // namespace
} // namespace kvopt
