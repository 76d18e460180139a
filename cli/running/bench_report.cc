// Statistics, and reports as JSON, Markdown and CSV.
#include "cli/running/bench_report.h"

#include "cli/support/style.h"
#include "support/format.h"
#include "support/json.h"

#include <algorithm>
#include <cassert>

namespace kvopt::cli {
using namespace driver;
using namespace pattern;

namespace {
double medianOfSorted(const std::vector<double>& values) {
  size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}
} // namespace

double medianOf(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  return medianOfSorted(values);
}

Spread spreadOf(std::vector<double> values) {
  assert(!values.empty());
  std::sort(values.begin(), values.end());
  size_t tenth = values.size() / 10;
  return {values.front(), values[tenth], medianOfSorted(values), values[values.size() - 1 - tenth],
          values.back()};
}

bool disagree(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b && std::max(*a, *b) > 1.25 * std::min(*a, *b);
}

std::optional<double> medianRatio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] != 0 && b[i] != 0)
      ratios.push_back(a[i] / b[i]);
  if (ratios.empty())
    return std::nullopt;
  return medianOf(std::move(ratios));
}

namespace {

OrderedJson orNull(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson orNull(const std::optional<Spread>& spread) {
  if (!spread)
    return nullptr;
  return {{"min", spread->min},
          {"p10", spread->low},
          {"median", spread->median},
          {"p90", spread->high},
          {"max", spread->max}};
}

/// A column of the reports. A cell is empty if there is no number.
struct Column {
  const char* name;  ///< name in CSV
  const char* title; ///< title in Markdown
  const char* format;
  std::optional<double> (*value)(const BenchRow&);
};

template <double Spread::*Member> std::optional<double> decode(const BenchRow& row) {
  return row.decodeMs ? std::optional((*row.decodeMs).*Member) : std::nullopt;
}

constexpr Column benchColumns[] = {
    {"prefill_tps", "prefill tokens/s", "{:.1f}",
     [](const BenchRow& row) { return row.prefillTokensPerSecond; }},
    {"decode_ms_min", "decode ms min", "{:.3f}", decode<&Spread::min>},
    {"decode_ms_median", "median", "{:.3f}", decode<&Spread::median>},
    {"decode_ms_max", "max", "{:.3f}", decode<&Spread::max>},
    {"ratio_to_first", "ratio to first", "{:.3f}",
     [](const BenchRow& row) { return row.ratioToFirst; }},
    {"floor_ms", "read floor ms", "{:.3f}",
     [](const BenchRow& row) {
       return row.floorMs ? std::optional(row.floorMs->median) : std::nullopt;
     }},
    {"fraction_of_floor", "of floor", "{:.2f}",
     [](const BenchRow& row) { return row.fractionOfFloor; }},
    {"fraction_of_floor_at_best", "at best", "{:.2f}",
     [](const BenchRow& row) { return row.fractionOfFloorAtBest; }},
};

std::string cell(const Column& column, const BenchRow& row) {
  std::optional<double> value = column.value(row);
  return value ? formattedAs(column.format, *value) : "";
}

std::string machineLine(const BenchReport& report) {
  const Machine& machine = report.machine;
  std::string line = escaped(machine.cpu.empty() ? machine.microarchitecture : machine.cpu);
  if (machine.cores != 0)
    line += formatted(", {} cores", machine.cores);
  line += formatted(", {}, {:.1f} GiB, kvopt {}", machine.simd,
                    static_cast<double>(machine.memoryBytes) / (1 << 30), machine.kvopt);
  if (machine.assertions)
    line += " with assertions";
  return line;
}

/// Display width if every code point is one column wide.
size_t widthOf(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xc0) != 0x80;
  }));
}

std::string markdownText(const std::string& text) {
  std::string cellText;
  for (char byte : escaped(text)) {
    if (byte == '|' || byte == '\\')
      cellText += '\\';
    cellText += byte;
  }
  return cellText;
}

std::string csvText(const std::string& raw) {
  const std::string text = escaped(raw);
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string quoted = "\"";
  for (char byte : text) {
    quoted += byte;
    if (byte == '"')
      quoted += '"';
  }
  return quoted + "\"";
}

/// Lines of a table whose columns are as wide as their widest cells. The first column has text, the
/// others have numbers.
std::string alignedTable(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines.front().size(), 3);
  for (const std::vector<std::string>& line : lines)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], widthOf(line[i]));
  std::string text;
  for (size_t number = 0; number < lines.size(); ++number) {
    for (size_t i = 0; i < lines[number].size(); ++i) {
      const std::string& entry = lines[number][i];
      std::string filler(widths[i] - widthOf(entry), ' ');
      text += "| " + (i == 0 ? entry + filler : filler + entry) + " ";
    }
    text += "|\n";
    if (number != 0)
      continue;
    for (size_t i = 0; i < widths.size(); ++i)
      text += i == 0 ? "|" + std::string(widths[i] + 2, '-')
                     : "|" + std::string(widths[i] + 1, '-') + ":";
    text += "|\n";
  }
  return text;
}

} // namespace

OrderedJson benchJson(const BenchReport& report) {
  const Machine& machine = report.machine;
  OrderedJson json;
  json["schema"] = "kvopt/bench/1";
  json["machine"] = {{"cpu", machine.cpu},     {"microarchitecture", machine.microarchitecture},
                     {"cores", machine.cores}, {"logical_cpus", machine.logicalCpus},
                     {"simd", machine.simd},   {"memory_bytes", machine.memoryBytes},
                     {"kvopt", machine.kvopt}, {"assertions", machine.assertions}};
  json["prompt_tokens"] = report.promptTokens;
  json["decode_tokens"] = report.decodeTokens;
  json["repetitions"] = report.repetitions;
  json["batch"] = report.batch;
  json["rows"] = OrderedJson::array();
  for (const BenchRow& row : report.rows) {
    OrderedJson entry;
    entry["model"] = row.model;
    entry["depth"] = row.depth;
    entry["threads"] = row.threads;
    entry["prefill_tps"] = orNull(row.prefillTokensPerSecond);
    entry["decode_ms"] = orNull(row.decodeMs);
    entry["ratio_to_first"] = orNull(row.ratioToFirst);
    entry["ratio_to_first_at_best"] = orNull(row.ratioToFirstAtBest);
    entry["prefill_ratio_to_first"] = orNull(row.prefillRatioToFirst);
    entry["floor_ms"] = orNull(row.floorMs);
    entry["fraction_of_floor"] = orNull(row.fractionOfFloor);
    entry["fraction_of_floor_at_best"] = orNull(row.fractionOfFloorAtBest);
    entry["weight_bytes"] = row.weightBytes;
    entry["cache_bytes"] = row.cacheBytes;
    entry["temporary_bytes"] = row.temporaryBytes;
    entry["error"] = row.failure.empty() ? OrderedJson(nullptr) : OrderedJson(row.failure);
    json["rows"].push_back(std::move(entry));
  }
  return json;
}

SafeText benchMarkdown(const BenchReport& report) {
  std::vector<std::vector<std::string>> lines{{"model", "depth", "threads"}};
  for (const Column& column : benchColumns)
    lines.front().push_back(column.title);
  std::string failures;
  bool isDisturbed = false;
  for (const BenchRow& row : report.rows) {
    lines.push_back(
        {markdownText(row.model), std::to_string(row.depth), std::to_string(row.threads)});
    for (const Column& column : benchColumns)
      lines.back().push_back(cell(column, row));
    isDisturbed |= disagree(row.ratioToFirst, row.ratioToFirstAtBest) ||
                   disagree(row.fractionOfFloor, row.fractionOfFloorAtBest);
    if (!row.failure.empty())
      failures +=
          formatted("* {} at depth {}, {} thread{}: {}\n", markdownText(row.model), row.depth,
                    row.threads, row.threads == 1 ? "" : "s", markdownText(row.failure));
  }
  std::string text = formatted(
      "{}\nprefill of {} tokens; {} decode steps a repetition from each depth on, {} repetition{}, "
      "batch {}\n\n{}\n"
      "ratio to first: time / time of the first model, median over rounds in which both took "
      "turns\n"
      "of floor: time to read the weights and valid cache rows once / decode time, likewise; "
      "at best: of the fastest tenth\n",
      machineLine(report), report.promptTokens, report.decodeTokens, report.repetitions,
      report.repetitions == 1 ? "" : "s", report.batch, alignedTable(lines));
  if (isDisturbed)
    text += "typical and best times disagree in some rows: the machine did other work, too\n";
  return failures.empty() ? text : text + "\nnot measured:\n" + failures;
}

SafeText benchCsv(const BenchReport& report) {
  std::string text = "model,depth,threads";
  for (const Column& column : benchColumns)
    text += formatted(",{}", column.name);
  text += ",weight_bytes,cache_bytes,temporary_bytes,error\n";
  for (const BenchRow& row : report.rows) {
    text += formatted("{},{},{}", csvText(row.model), row.depth, row.threads);
    for (const Column& column : benchColumns)
      text += "," + cell(column, row);
    text += formatted(",{},{},{},{}\n", row.weightBytes, row.cacheBytes, row.temporaryBytes,
                      csvText(row.failure));
  }
  return text;
}

} // namespace kvopt::cli
