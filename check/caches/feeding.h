// Feeding: the inputs of two models for one step, as their manifests describe them.
#pragma once

#include "check/caches/cache_contents.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace kvopt::check {

/// Inputs of the original model and of a second one, whose caches hold the same earlier rows.
class Feeding {
public:
  Feeding(DrivenModel before, DrivenModel after);

  /// Contents of an input; null, with `failure`, for inputs that cannot be described.
  Ref beforeInput(const ir::Value& input, const Step& step, Arithmetic& math) {
    return contents(false, input, step, math);
  }
  Ref afterInput(const ir::Value& input, const Step& step, Arithmetic& math) {
    return contents(true, input, step, math);
  }
  /// How the extents of an input depend on the sizes of a step.
  llvm::SmallVector<GrowthId, 4> extentGrowths(bool isAfter, const ir::Value& input,
                                               const Step& step, Arithmetic& math);
  /// The cache that an input is; null for other inputs.
  const CacheInput* cacheInput(bool isAfter, const ir::Value& input) const {
    return caches.pairs().input(isAfter, input.name());
  }
  /// Where the elements of a cache's input come from (CacheContents::places).
  Ref cachePlaces(const CacheInput& input, const Step& step) { return caches.places(input, step); }
  const std::string& failure() const { return reason; }
  /// Why only some of an input's possible contents are fed; empty if its role is known.
  std::string gapOfInput(bool isAfter, const ir::Value& input) const;
  /// What is assumed about an input because of its role; empty if nothing is.
  std::string assumptionOfInput(bool isAfter, const ir::Value& input) const;
  /// Whether one of the second model's nodes reads codes, or scales, that represent the first
  /// model's rows. Their shapes do not count.
  bool readsCodes(llvm::ArrayRef<const ir::Node*> nodes) const;
  /// Value of a symbolic extent of the original model; nullopt if it is unknown.
  std::optional<int64_t> extentOf(const ir::Dim& dim, const Step& step) const {
    return caches.extentOf(dim, step);
  }

  /// How a symbolic extent of the original model depends on the sizes of a step.
  GrowthId growthOf(const ir::Dim& dim, const Step& step, Arithmetic& math) const;

  using Pair = CachePair;
  const std::vector<Pair>& pairs() const { return caches.pairs().pairs(); }
  CacheContents& cacheContents() { return caches; }

  const DrivenModel& before() const { return original; }
  const DrivenModel& after() const { return second; }

private:
  /// Role of an input that is neither a cache nor a length.
  std::optional<ir::InputFeed> feedOf(bool isAfter, const ir::Value& input) const;
  Ref lengthInput(const ir::Manifest& manifest, const ir::ManifestLength& length,
                  ir::ElementType type, const Step& step, Growths& growths);
  std::optional<Extents> shapeOf(bool isAfter, const ir::Value& input, const Step& step,
                                 Arithmetic& math);
  Ref contents(bool isAfter, const ir::Value& input, const Step& step, Arithmetic& math);
  llvm::ArrayRef<double> constantOf(const ir::Value& input) const;
  Ref plainInput(const DrivenModel& side, const ir::Value& input, const Step& step,
                 Arithmetic& math);

  DrivenModel original;
  DrivenModel second;
  CacheContents caches;
  /// By the model, the input or its form, and the sizes of the step.
  std::map<std::tuple<bool, uint64_t, std::array<int64_t, 6>>, llvm::SmallVector<GrowthId, 4>>
      extents;
  std::string reason;
};

/// Whether a node reads more than the shape of one of the values that are meant.
bool readContents(llvm::ArrayRef<const ir::Node*> nodes,
                  llvm::function_ref<bool(const ir::Value&)> isMeant);

/// An arbitrary tensor of numbers that `name` determines.
Ref arbitraryTensor(const Field& field, uint64_t name, const Extents& shape);

} // namespace kvopt::check
