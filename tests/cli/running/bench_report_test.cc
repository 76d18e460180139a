// Medians and paired ratios, and a report in its three forms.
#include "cli/running/bench_report.h"

#include "tests/cli/cli_fixture.h"

namespace kvopt {
using namespace cli;
using namespace driver;

namespace {

TEST(BenchReport, MediansAndSpreads) {
  EXPECT_EQ(medianOf({3}), 3);
  EXPECT_EQ(medianOf({4, 1, 2}), 2);
  EXPECT_EQ(medianOf({4, 1, 2, 100}), 3);
  Spread spread = spreadOf({5, 1, 3, 2});
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.median, 2.5);
  EXPECT_EQ(spread.max, 5);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.high, 5);
  std::vector<double> twenty;
  for (int i = 0; i < 20; ++i)
    twenty.push_back(20 - i);
  EXPECT_EQ(spreadOf(twenty).low, 3);
  EXPECT_EQ(spreadOf(twenty).high, 18);
}

TEST(BenchReport, RatiosArePaired) {
  // In the second round the machine was four times slower for both.
  EXPECT_EQ(medianRatio({2, 8, 2}, {4, 16, 4}), 0.5);
  EXPECT_EQ(medianRatio({1, 2}, {2}), 0.5);
  EXPECT_EQ(medianRatio({1, 3}, {0, 1}), 3);
  EXPECT_EQ(medianRatio({0}, {1}), std::nullopt);
  EXPECT_EQ(medianRatio({}, {1}), std::nullopt);
  EXPECT_TRUE(disagree(1.0, 1.3));
  EXPECT_TRUE(disagree(1.3, 1.0));
  EXPECT_FALSE(disagree(1.0, 1.2));
  EXPECT_FALSE(disagree(std::nullopt, 1.2));
}

BenchReport sample() {
  BenchReport report;
  report.machine = {"CPU | with bar", "znver9", 8, 16, "AVX3", int64_t{16} << 30, "0.1", false};
  report.promptTokens = 512;
  report.decodeTokens = 128;
  report.repetitions = 5;
  BenchRow good;
  good.model = "a,\"b\"|c\x1b.onnx";
  good.depth = 1024;
  good.threads = 2;
  good.prefillTokensPerSecond = 1234.56;
  good.decodeMs = Spread{1, 1.25, 2, 2.75, 3};
  good.ratioToFirst = 1;
  good.ratioToFirstAtBest = 1;
  good.floorMs = Spread{1, 1.25, 1.5, 1.75, 2};
  good.fractionOfFloor = 0.75;
  good.fractionOfFloorAtBest = 0.8;
  good.weightBytes = 1000;
  good.cacheBytes = 20;
  good.temporaryBytes = 3;
  BenchRow bad;
  bad.model = "broken.onnx";
  bad.failure = "no kernel, sorry";
  report.rows = {good, bad};
  return report;
}

TEST(BenchReport, Json) {
  // Through text: hostile names are replaced there, not refused.
  auto json = nlohmann::json::parse(
      benchJson(sample()).dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  EXPECT_EQ(json["schema"], "kvopt/bench/1");
  EXPECT_EQ(json["machine"]["simd"], "AVX3");
  ASSERT_EQ(json["rows"].size(), 2u);
  const auto& good = json["rows"][0];
  EXPECT_EQ(good["depth"], 1024);
  EXPECT_EQ(good["threads"], 2);
  EXPECT_EQ(good["prefill_tps"], 1234.56);
  EXPECT_EQ(good["decode_ms"]["min"], 1.0);
  EXPECT_EQ(good["decode_ms"]["median"], 2.0);
  EXPECT_EQ(good["decode_ms"]["max"], 3.0);
  EXPECT_EQ(good["ratio_to_first"], 1.0);
  EXPECT_EQ(good["fraction_of_floor"], 0.75);
  EXPECT_TRUE(good["error"].is_null());
  const auto& bad = json["rows"][1];
  EXPECT_TRUE(bad["decode_ms"].is_null());
  EXPECT_TRUE(bad["prefill_tps"].is_null());
  EXPECT_EQ(bad["error"], "no kernel, sorry");
}

TEST(BenchReport, Csv) {
  std::string csv = benchCsv(sample()).str();
  EXPECT_EQ(csv,
            "model,depth,threads,prefill_tps,decode_ms_min,decode_ms_median,decode_ms_max,"
            "ratio_to_first,floor_ms,fraction_of_floor,fraction_of_floor_at_best,"
            "weight_bytes,cache_bytes,temporary_bytes,error\n"
            "\"a,\"\"b\"\"|c\\x1b.onnx\",1024,2,1234.6,1.000,2.000,3.000,1.000,1.500,0.75,0.80,"
            "1000,20,3,\n"
            "broken.onnx,0,1,,,,,,,,,0,0,0,\"no kernel, sorry\"\n");
}

TEST(BenchReport, Markdown) {
  BenchReport report = sample();
  std::string text = benchMarkdown(report).str();
  EXPECT_NE(text.find("CPU | with bar, 8 cores, AVX3, 16.0 GiB, kvopt 0.1\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("| a,\"b\"\\|c\\\\x1b.onnx |"), std::string::npos) << text;
  EXPECT_NE(text.find("not measured:\n* broken.onnx at depth 0, 1 thread: no kernel, sorry\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("disagree"), std::string::npos);
  // All lines of the table are equally long.
  size_t length = 0;
  std::istringstream lines(text);
  size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|')
      continue;
    ++rows;
    EXPECT_EQ(line.size(), length == 0 ? line.size() : length) << text;
    length = line.size();
  }
  EXPECT_EQ(rows, 4u);
  report.rows[0].fractionOfFloorAtBest = 0.95;
  EXPECT_NE(benchMarkdown(report).str().find("disagree"), std::string::npos);
}

TEST(Machine, SaysWhatItIsAndNotWhose) {
  Machine machine = describeMachine();
  EXPECT_NE(machine.simd, "");
  EXPECT_NE(machine.kvopt, "");
  EXPECT_GT(machine.memoryBytes, 0);
  EXPECT_GE(machine.logicalCpus, 1u);
  EXPECT_EQ(valueOfLine("processor\t: 0\nmodel name\t: A: b  \nmodel name : C\n", "model name"),
            "A: b");
  EXPECT_EQ(valueOfLine("model name", "model"), "");
}

} // namespace
} // namespace kvopt
