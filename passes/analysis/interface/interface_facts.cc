// Reading the interface of a decoder.
#include "passes/analysis/interface/interface_facts.h"

#include "ir/manifest/manifest_words.h"
#include "passes/analysis/cache/row_lengths.h"
#include "support/diagnostic.h"

namespace kvopt::analysis {
using namespace ir;

InterfaceFacts readInterface(const Graph& graph) {
  InterfaceFacts facts;
  // Avoids quadratic time for a graph with very many inputs.
  size_t budget = size_t{1} << 24;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (!input->isInitializer())
      facts.readers[input->name()] = readersOf(*input, budget);
  facts.countsTokens = countsRowsByInput(graph);
  return facts;
}

const char* wordOf(LengthFeed feed) {
  for (const ManifestWord<LengthFeed>& word : feedWords)
    if (word.value == feed)
      return word.text;
  return "";
}

bool isSameLength(LengthFeed one, LengthFeed other) {
  auto isPast = [](LengthFeed feed) {
    return feed == LengthFeed::PastLength || feed == LengthFeed::PastLengthPerBatch;
  };
  auto isTotal = [](LengthFeed feed) {
    return feed == LengthFeed::TotalLength || feed == LengthFeed::TotalLengthPerBatch;
  };
  auto isLast = [](LengthFeed feed) {
    return feed == LengthFeed::TotalLengthMinusOne ||
           feed == LengthFeed::TotalLengthPerBatchMinusOne;
  };
  auto isBefore = [](LengthFeed feed) {
    return feed == LengthFeed::PastLengthMinusOne || feed == LengthFeed::PastLengthPerBatchMinusOne;
  };
  return one == other || (isPast(one) && isPast(other)) || (isTotal(one) && isTotal(other)) ||
         (isLast(one) && isLast(other)) || (isBefore(one) && isBefore(other));
}

llvm::Error checkLengths(const InterfaceFacts& facts) {
  for (const auto& entry : facts.readers) {
    const InputReaders::Length* first = nullptr;
    for (const InputReaders::Length& length : entry.second.lengths) {
      if (length.offset.value() != 0)
        continue;
      if (first && !isSameLength(first->feed, length.feed))
        return invalid("input '{}' is {} for {}, but {} for {}", entry.first().str(),
                       wordOf(first->feed), first->node, wordOf(length.feed), length.node)
            .hint("export the model with a separate input for each");
      first = first ? first : &length;
    }
  }
  return llvm::Error::success();
}

} // namespace kvopt::analysis
