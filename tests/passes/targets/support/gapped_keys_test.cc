// Masks of keys with a gap, column by column.
#include "passes/targets/support/gapped_keys.h"

#include "tests/equivalence/rewritten_model.h"

#include "ir/text/reader.h"

namespace kvopt {
using namespace builders;
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

struct MaskForm {
  bool causal = false;
  int64_t window = 0;
  bool isBoolean = false;
  const char* width = "T"; ///< the extent that the mask is declared with
};

class GappedKeysTest : public testing::Test {
protected:
  /// A model that gives both masks of keys behind `pastRows` rows.
  std::unique_ptr<Model> maskModel(const MaskForm& form, int64_t pastRows) {
    auto model =
        valueOrThrow(readText(formatted(R"(<ir_version: 8, opset_import: ["" : 17]>
masks (float[1, 1, S, 4] query, {}[1, 1, S, {}] mask, int64[1] past_length) => (float[1, 1, S, 4] same)
<int64[1] past_rows = {{{}}}> {{ same = Identity (query) }})",
                                        form.isBoolean ? "bool" : "float", form.width, pastRows),
                              toolkit.ops));
    Graph& graph = model->graph();
    Journal journal;
    {
      Rewriter rewriter(graph, "test", journal);
      AttentionBuilder build(rewriter);
      const GappedKeys keys{graph.findValue("past_length"), graph.findValue("past_rows")};
      Value& query = *graph.findValue("query");
      graph.addOutput(gappedKeyMask(keys, form.causal, form.window, query, build));
      graph.addOutput(spreadMask(keys, *graph.findValue("mask"), Dim::symbol("T"), query, build));
    }
    successOrThrow(inferShapes(graph));
    return model;
  }

  /// Every column of both, for a past and new rows.
  void expectColumns(const MaskForm& form, int64_t pastRows, int64_t past, int64_t newRows) {
    auto model = maskModel(form, pastRows);
    auto executor = valueOrThrow(Executor::create(*model, toolkit.runner->kernels(), {}));
    const bool isOneColumn = llvm::StringRef(form.width) == "1";
    const int64_t width = isOneColumn ? 1 : past + newRows;
    std::vector<float> query(static_cast<size_t>(newRows * 4));
    std::vector<float> numbers;
    std::vector<uint8_t> flags;
    for (int64_t i = 0; i < newRows * width; ++i) {
      numbers.push_back(static_cast<float>(i) * 0.5f - 3.0f);
      flags.push_back(i % 3 == 0);
    }
    auto bytesOf = [](auto& data) { return reinterpret_cast<std::byte*>(data.data()); };
    std::vector<NamedView> inputs{
        {"query", TensorView::contiguous(ElementType::Float, {1, 1, newRows, 4}, bytesOf(query))},
        {"mask", TensorView::contiguous(form.isBoolean ? ElementType::Bool : ElementType::Float,
                                        {1, 1, newRows, width},
                                        form.isBoolean ? bytesOf(flags) : bytesOf(numbers))},
        {"past_length",
         TensorView::contiguous(ElementType::Int64, {1}, reinterpret_cast<std::byte*>(&past))}};
    auto outputs = valueOrThrow(executor->run(inputs));
    const int64_t columns = pastRows + newRows;
    const TensorView& visible = outputs[1].view;
    const TensorView& spread = outputs[2].view;
    ASSERT_EQ(visible.shape.back(), columns);
    ASSERT_EQ(spread.shape.back(), isOneColumn ? 1 : columns);
    for (int64_t row = 0; row < newRows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        const bool isPast = column < past;
        const bool isNew = column >= pastRows;
        const int64_t position = isPast ? column : past + column - pastRows;
        const int64_t distance = past + row - position;
        const bool expected = (isPast || isNew) && (!form.causal || distance >= 0) &&
                              (form.window == 0 || distance < form.window);
        const int64_t visibleRow = visible.elementCount() == columns ? 0 : row;
        EXPECT_EQ(visible.as<uint8_t>()[visibleRow * columns + column] != 0, expected)
            << "past " << past << " row " << row << " column " << column;
        if (isOneColumn || (!isPast && !isNew))
          continue;
        const auto source = static_cast<size_t>(row * width + position);
        if (form.isBoolean)
          EXPECT_EQ(spread.as<uint8_t>()[row * columns + column], flags[source]);
        else
          EXPECT_EQ(spread.as<float>()[row * columns + column], numbers[source]);
      }
  }

  Toolkit toolkit;
};

TEST_F(GappedKeysTest, EveryColumnOfPrefillAndDecode) {
  for (const MaskForm& form :
       {MaskForm{}, MaskForm{true, 0, false, "T"}, MaskForm{true, 3, true, "T"},
        MaskForm{false, 2, true, "W"}, MaskForm{true, 1, false, "W"}, MaskForm{true, 0, false, "1"},
        MaskForm{false, 0, true, "1"}})
    for (int64_t pastRows : {0, 1, 7})
      for (int64_t past = 0; past <= pastRows; ++past)
        for (int64_t newRows : {1, 2, 9})
          expectColumns(form, pastRows, past, newRows);
}

} // namespace
} // namespace kvopt
