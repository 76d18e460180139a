// Digests of constants.
#include "check/alignment/constant_digests.h"

#include "ir/onnx/file_place.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/xxhash.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace kvopt::check {
namespace {

/// A hash that has a constant's type and shape.
ClassHash hashOfForm(const ir::TensorData& data) {
  ClassHash hash;
  hash.text("constant");
  hash.number(static_cast<uint64_t>(data.elementType()));
  hash.number(data.shape().size());
  for (int64_t extent : data.shape())
    hash.number(static_cast<uint64_t>(extent));
  return hash;
}

llvm::StringRef textOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace

/// Contents of one short hash are compared, so that only equal ones have one digest.
ValueClass ConstantDigests::ofContents(const ir::Model& model, const ir::TensorData& data) {
  ClassHash hash = hashOfForm(data);
  auto bytes = data.bytes();
  if (!bytes) {
    llvm::consumeError(bytes.takeError());
    hash.text("only this one");
    hash.number(reinterpret_cast<uintptr_t>(&data));
    hash.number(reinterpret_cast<uintptr_t>(&model));
    return hash.take();
  }
  const llvm::StringRef own = textOf(*bytes);
  const uint64_t number = llvm::xxHash64(own);
  std::vector<Contents>& alike = different[number];
  for (const Contents& other : alike)
    if (other.data->elementType() == data.elementType() && other.data->shape() == data.shape() &&
        other.bytes == own)
      return other.digest;
  hash.number(number);
  hash.number(alike.size());
  alike.push_back({&data, own, hash.take()});
  return alike.back().digest;
}

ValueClass ConstantDigests::of(const ir::Model& model, const ir::TensorData& data) {
  if (auto found = known.find(&data); found != known.end())
    return found->second;
  const auto place = ir::filePlaceOf(data);
  if (!place)
    return known[&data] = ofContents(model, data);
  ClassHash hash = hashOfForm(data);
  hash.text("file");
  for (uint64_t part : {place->file.device, place->file.inode, place->offset, place->length})
    hash.number(part);
  return known[&data] = hash.take();
}

namespace {
constexpr int64_t mostElementsRead = 1 << 16; ///< of a constant in a file
} // namespace

bool ConstantDigests::hasInfinite(const ir::TensorData& data) {
  constexpr int64_t mostElements = 1 << 22;
  auto [at, isNew] = infinite.try_emplace(&data, false);
  if (!isNew || (data.elementCount() > mostElementsRead && ir::filePlaceOf(data)))
    return at->second;
  const auto numbers = ir::floatValues(data, mostElements);
  at->second =
      numbers && llvm::any_of(*numbers, [](double value) { return !std::isfinite(value); });
  return at->second;
}

ValueClass ConstantDigests::contentsOf(const ir::Model& model, const ir::TensorData& data) {
  auto [at, isNew] = contents.try_emplace(&data);
  if (isNew)
    at->second = data.elementCount() > mostElementsRead || !ir::filePlaceOf(data)
                     ? of(model, data)
                     : ofContents(model, data);
  return at->second;
}

namespace {

using FileRange = std::array<uint64_t, 4>;

FileRange rangeOf(const ir::FilePlace& place) {
  return {place.file.device, place.file.inode, place.offset, place.length};
}

/// Constants in files, by type and shape.
using FileConstants =
    std::map<std::vector<int64_t>, std::vector<std::pair<FileRange, const ir::TensorData*>>>;

FileConstants fileConstantsOf(const ir::Model& model) {
  FileConstants found;
  ir::forEachGraph(const_cast<ir::Graph&>(model.graph()), [&](ir::Graph& graph) {
    for (const auto& constant : graph.initializers()) {
      const ir::TensorData* data = constant->initializer().get();
      const auto place = data ? ir::filePlaceOf(*data) : std::nullopt;
      if (!place)
        continue;
      std::vector<int64_t> form(data->shape().begin(), data->shape().end());
      form.push_back(static_cast<int64_t>(data->elementType()));
      found[form].push_back({rangeOf(*place), data});
    }
  });
  return found;
}

} // namespace

void ConstantDigests::readCopies(const ir::Model& before, const ir::Model& after) {
  const FileConstants first = fileConstantsOf(before);
  for (const auto& [form, constants] : fileConstantsOf(after)) {
    const auto like = first.find(form);
    if (like == first.end())
      continue;
    auto without = [](const auto& all, const auto& others) {
      std::set<FileRange> named;
      for (const auto& other : others)
        named.insert(other.first);
      std::vector<const ir::TensorData*> rest;
      for (const auto& [range, data] : all)
        if (!named.count(range))
          rest.push_back(data);
      return rest;
    };
    const auto onlyAfter = without(constants, like->second);
    const auto onlyBefore = without(like->second, constants);
    if (onlyAfter.empty() || onlyBefore.empty())
      continue;
    std::map<FileRange, ValueClass> digests;
    for (const auto& side : {onlyAfter, onlyBefore})
      for (const ir::TensorData* data : side) {
        auto [at, isNew] = digests.try_emplace(rangeOf(*ir::filePlaceOf(*data)));
        if (isNew) {
          auto bytes = data->bytes();
          if (!bytes) {
            llvm::consumeError(bytes.takeError());
            digests.erase(at);
            continue;
          }
          ClassHash hash;
          hash.text("contents of a file");
          for (int64_t part : form)
            hash.number(static_cast<uint64_t>(part));
          hash.bytes({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()});
          at->second = hash.take();
        }
        known[data] = at->second;
      }
  }
}

} // namespace kvopt::check
