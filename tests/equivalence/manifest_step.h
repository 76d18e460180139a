// One step of a rewritten model, driven by its manifest alone from the inputs of the model it was
// before, and compared with that model's outputs.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/equivalence/comparison.h"
#include "runtime/exec/executor.h"
#include "tests/equivalence/rewritten_model.h"

#include <cstring>
#include <map>

namespace kvopt {

/// A tensor with memory of its own.
struct StoredTensor {
  std::vector<std::byte> bytes;
  runtime::TensorView view;

  StoredTensor(ir::ElementType element, runtime::Extents shape) {
    size_t count = *bitWidth(element) / 8;
    for (int64_t extent : shape)
      count *= static_cast<size_t>(extent);
    bytes.resize(std::max<size_t>(count, 1));
    view = runtime::TensorView::contiguous(element, std::move(shape), bytes.data());
  }
};

/// Rows [begin, end) of a contiguous tensor along an axis, in a tensor of `room` rows. The others
/// are NaN: no reader may take them for numbers.
inline std::unique_ptr<StoredTensor> rowsOf(const runtime::TensorView& from, int64_t axis,
                                            int64_t begin, int64_t end, int64_t room) {
  const auto sequence = static_cast<size_t>(axis);
  runtime::Extents shape = from.shape;
  shape[sequence] = room;
  auto to = std::make_unique<StoredTensor>(from.element, shape);
  std::memset(to->bytes.data(), 0xff, to->bytes.size());
  size_t outer = 1;
  size_t inner = *bitWidth(from.element) / 8;
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != sequence)
      (i < sequence ? outer : inner) *= static_cast<size_t>(shape[i]);
  const auto* source = static_cast<const std::byte*>(from.data);
  const auto rows = static_cast<size_t>(from.shape[sequence]);
  for (size_t block = 0; block < outer; ++block)
    std::memcpy(to->bytes.data() + block * static_cast<size_t>(room) * inner,
                source + (block * rows + static_cast<size_t>(begin)) * inner,
                static_cast<size_t>(end - begin) * inner);
  return to;
}

using NamedTensors = std::map<std::string, runtime::TensorView>;

class ManifestStep {
public:
  /// `inputs` and `outputs` are those of the model before it was rewritten, pasts and presents as
  /// long as they are. Shared buffers get room for `capacity` rows.
  ManifestStep(NamedTensors inputs, NamedTensors outputs, int64_t capacity)
      : given(std::move(inputs)), expected(std::move(outputs)), room(capacity) {}

  /// Whether every output agrees; of presents the rows that the contract promises. Throws where the
  /// model cannot be run.
  bool agrees(const ir::Model& model, const ir::Manifest& manifest,
              const runtime::KernelRegistry& kernels, runtime::Tolerance tolerance) {
    for (const ir::ManifestCache& cache : manifest.caches) {
      if (cache.update() == ir::CacheUpdate::ReadOnly)
        continue; // only read
      const auto axis = static_cast<size_t>(cache.sequenceAxis);
      past = given.at(cache.past).shape[axis];
      total = expected.at(cache.present).shape[axis];
    }
    auto executor = valueOrThrow(runtime::Executor::create(model, kernels));
    std::vector<runtime::NamedView> inputs;
    for (const auto& input : model.graph().inputs())
      inputs.push_back({input->name(), inputFor(*input, manifest)});
    const std::vector<runtime::Tensor> outputs = valueOrThrow(executor->run(inputs));
    size_t compared = 0;
    bool isEqual = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string name = model.graph().outputs()[i]->name().str();
      const auto wanted = expected.find(name);
      if (wanted == expected.end())
        continue;
      ++compared;
      isEqual &= agrees(name, outputs[i].view, wanted->second, manifest, tolerance);
    }
    return isEqual && compared == expected.size();
  }

private:
  runtime::TensorView keep(std::unique_ptr<StoredTensor> tensor) {
    kept.push_back(std::move(tensor));
    return kept.back()->view;
  }

  runtime::TensorView inputFor(const ir::Value& input, const ir::Manifest& manifest) {
    const std::string name = input.name().str();
    for (const ir::ManifestCache& cache : manifest.caches) {
      if (cache.past == name && cache.isOneBuffer())
        return keep(rowsOf(given.at(name), cache.sequenceAxis, 0, past, room));
      for (size_t i = 0; i < cache.blocks().size(); ++i)
        if (cache.blocks()[i] == name) {
          const int64_t begin = std::min(past, static_cast<int64_t>(i) * manifest.blockSize);
          const int64_t end = std::min(past, begin + manifest.blockSize);
          return keep(rowsOf(given.at(cache.past), cache.sequenceAxis, begin, end, end - begin));
        }
    }
    if (auto own = given.find(name); own != given.end())
      return own->second;
    for (const ir::ManifestLength& length : manifest.lengths)
      if (length.input == name)
        return keep(lengthTensor(input, length));
    throw std::runtime_error("nothing says what to feed '" + name + "'");
  }

  int64_t fed(ir::LengthFeed feed) const {
    switch (feed) {
    case ir::LengthFeed::PastLength:
    case ir::LengthFeed::PastLengthPerBatch:
      return past;
    case ir::LengthFeed::PastLengthMinusOne:
    case ir::LengthFeed::PastLengthPerBatchMinusOne:
      return past - 1;
    case ir::LengthFeed::TotalLength:
    case ir::LengthFeed::TotalLengthPerBatch:
      return total;
    case ir::LengthFeed::TotalLengthMinusOne:
    case ir::LengthFeed::TotalLengthPerBatchMinusOne:
      return total - 1;
    case ir::LengthFeed::NewLength:
      return total - past;
    case ir::LengthFeed::HasPast:
    case ir::LengthFeed::NoPast:
    case ir::LengthFeed::BlockTable:
      break;
    }
    throw std::runtime_error("neither flags nor tables are lengths");
  }

  std::unique_ptr<StoredTensor> lengthTensor(const ir::Value& input,
                                             const ir::ManifestLength& length) const {
    runtime::Extents shape;
    for (const ir::Dim& extent : input.type().shape())
      shape.push_back(*extent.value());
    auto tensor = std::make_unique<StoredTensor>(length.dtype, shape);
    const int64_t number = fed(length.feed);
    for (int64_t i = 0; i < tensor->view.elementCount(); ++i) {
      if (length.dtype == ir::ElementType::Int32)
        tensor->view.as<int32_t>()[i] = static_cast<int32_t>(number);
      else
        tensor->view.as<int64_t>()[i] = number;
    }
    return tensor;
  }

  bool agrees(const std::string& name, runtime::TensorView found, runtime::TensorView wanted,
              const ir::Manifest& manifest, runtime::Tolerance tolerance) {
    for (const ir::ManifestCache& cache : manifest.caches) {
      if (cache.present != name)
        continue;
      if (cache.isOneBuffer())
        found = keep(rowsOf(found, cache.sequenceAxis, 0, total, total));
      else if (!cache.blocks().empty())
        wanted = keep(rowsOf(wanted, cache.sequenceAxis, past, total, total - past));
    }
    return valueOrThrow(runtime::compareTensors(found, wanted, tolerance)).isWithin();
  }

  NamedTensors given;
  NamedTensors expected;
  int64_t room;
  int64_t past = 0;
  int64_t total = 0;
  std::vector<std::unique_ptr<StoredTensor>> kept;
};

} // namespace kvopt
