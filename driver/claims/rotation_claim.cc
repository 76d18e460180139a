// Comparison of the rotations of a manifest with those of a recovered graph.
#include "driver/claims/rotation_claim.h"

#include "driver/claims/read_model.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <optional>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace pattern;
using namespace targets;

namespace {

/// A difference between two rotations of a cache's rows.
struct RotationDifference {
  std::string cache; ///< past of the cache
  std::string text;
};

bool isSameAngle(double one, double other) {
  constexpr double roundedToFloat = 1e-6;
  return std::abs(one - other) <= roundedToFloat * std::max(std::abs(one), std::abs(other));
}

const char* pairsName(const ManifestRotation& rotation) {
  return rotation.interleaved ? "neighbors" : "halves";
}

/// The difference between two rotations as text; empty if they are the same.
std::string differenceOf(const ManifestRotation& claimed, const ManifestRotation& found) {
  if (claimed.width != found.width)
    return formatted("rows of {} columns, not {}", found.width, claimed.width);
  if (claimed.first != found.first)
    return formatted("the first rotated column is {}, not {}", found.first, claimed.first);
  if (claimed.theta.size() != found.theta.size())
    return formatted("{} pairs are rotated, not {}", found.theta.size(), claimed.theta.size());
  if (claimed.interleaved != found.interleaved && found.theta.size() > 1)
    return formatted("the pairs are {}, not {}", pairsName(found), pairsName(claimed));
  for (size_t i = 0; i < found.theta.size(); ++i)
    if (!isSameAngle(claimed.theta[i], found.theta[i]))
      return formatted("theta[{}] is {}, not {}", i, found.theta[i], claimed.theta[i]);
  return "";
}

/// The first difference between the rotations of two manifests; `found` has the same caches, with
/// the rotations of the graph.
std::optional<RotationDifference> differenceOf(const Manifest& claimed, const Manifest& found) {
  for (size_t i = 0; i < claimed.caches.size(); ++i) {
    const ManifestCache& cache = claimed.caches[i];
    const std::optional<size_t> expected = found.caches[i].rotation;
    if (cache.rotation.has_value() != expected.has_value())
      return RotationDifference{cache.past, expected ? "its rows are rotated, and the manifest has "
                                                       "no rotation of them"
                                                     : "its rows are not rotated"};
    if (!expected)
      continue;
    if (std::string text =
            differenceOf((*claimed.rotations)[*cache.rotation], (*found.rotations)[*expected]);
        !text.empty())
      return RotationDifference{cache.past, std::move(text)};
  }
  return std::nullopt;
}

/// Reason that a model does not show rotations.
struct NotShown {
  std::string why;
  /// Whether it is known that rows cannot be moved.
  bool isAbsolute = false;
};

/// The manifest with the rotations of a recovered model that has the same names of caches, or the
/// reason that the model does not show them.
using ShownRotations = std::variant<Manifest, NotShown>;

ShownRotations rotationsOf(llvm::Expected<RecoveredModel> recovered, const Manifest& manifest) {
  if (!recovered)
    return NotShown{takeDiagnostic(recovered.takeError()).message};
  const auto rotations = contextRotationsOf(*recovered);
  if (!rotations)
    return NotShown{recovered->context->shiftFailure->str(),
                    recovered->context->shiftFailure->code == ReasonCode::PositionAbsolute};
  llvm::StringSet<> unattended = recovered->context->history.attendedPasts();
  for (const ManifestCache& cache : manifest.caches)
    if (cache.holdsAttendedRows)
      unattended.erase(cache.past);
  Manifest shown = manifest;
  for (ManifestCache& cache : shown.caches)
    cache.rotation.reset();
  noteRotations(rotations, unattended, shown);
  if (!shown.rotations)
    return NotShown{"its caches are not those of the manifest"};
  return shown;
}

/// Whether no session moves rows of the caches: one cache in blocks or in a ring prevents it for
/// all.
bool staysInPlace(const Manifest& manifest) {
  return llvm::any_of(manifest.caches, [](const ManifestCache& cache) {
    return cache.update() == CacheUpdate::Blocks || cache.update() == CacheUpdate::Ring;
  });
}

/// Whether a model is known to depend on absolute positions. Masks over the buffers of a rewritten
/// model are not always recognized and prove nothing.
bool refutes(const NotShown& missing, const ClaimedModel& model) {
  return missing.isAbsolute && !model.model.findMetadata(manifestKey);
}

llvm::Error contradiction(const ClaimedModel& claimed, const RotationDifference& difference) {
  return invalid("the manifest contradicts the model: rotations: {}", difference.text)
      .file(claimed.model.path)
      .value(difference.cache)
      .hint("rewrite the model as it was exported");
}

} // namespace

llvm::Expected<std::string> checkRotations(const ClaimedModel& claimed,
                                           const ClaimedModel* original, const Toolkit& toolkit) {
  const Manifest& manifest = claimed.manifest;
  if (!manifest.rotations)
    return std::string();
  const ShownRotations whole = rotationsOf(readModel(claimed.model, manifest, toolkit), manifest);
  if (const auto* shown = std::get_if<Manifest>(&whole)) {
    if (const auto difference = differenceOf(manifest, *shown))
      return contradiction(claimed, *difference);
    return std::string();
  }
  const ShownRotations rows = rotationsOf(readRows(claimed.model, manifest, toolkit), manifest);
  const bool showsRows = std::holds_alternative<Manifest>(rows);
  if (showsRows)
    if (const auto difference = differenceOf(manifest, std::get<Manifest>(rows)))
      return contradiction(claimed, *difference);
  std::string why = std::get<NotShown>(whole).why;
  if (original) {
    const ShownRotations before =
        rotationsOf(readModel(original->model, original->manifest, toolkit), manifest);
    if (const auto* shown = std::get_if<Manifest>(&before)) {
      const auto difference = differenceOf(manifest, *shown);
      if (!difference)
        return std::string();
      why = formatted("those of the other model differ ('{}': {})", difference->cache,
                      difference->text);
    } else if (const NotShown& missing = std::get<NotShown>(before);
               !refutes(missing, *original) && (showsRows || staysInPlace(manifest))) {
      return std::string();
    } else {
      why += formatted("; in the other model: {}", missing.why);
    }
  } else if (showsRows) {
    return std::string();
  }
  return formatted("rotations: the graph does not show them: {}", why);
}

} // namespace kvopt::driver
