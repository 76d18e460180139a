// Comparison of what two sessions take and give.
#include "runtime/equivalence/interface_difference.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/ranges.h>

namespace kvopt::runtime {
using namespace ir;

namespace {

using Names = std::vector<std::string>;

Names without(const Names& names, const Names& others) {
  Names result;
  for (const std::string& name : names)
    if (!llvm::is_contained(others, name))
      result.push_back(name);
  return result;
}

bool isCacheOutput(const Session& session, llvm::StringRef name) {
  for (size_t i = 0; i < session.cacheCount(); ++i)
    if (session.cacheInfo(i).present == name)
      return true;
  return false;
}

/// The graph outputs, those of caches left out or nothing else.
Names outputNames(const Session& session, bool ofCaches) {
  Names names;
  for (const Value* output : session.graph().outputs())
    if (isCacheOutput(session, output->name()) == ofCaches)
      names.push_back(output->name().str());
  return names;
}

Names cacheNames(const Session& session) {
  Names names;
  for (size_t i = 0; i < session.cacheCount(); ++i)
    names.push_back(session.cacheInfo(i).past);
  return names;
}

class Differences {
public:
  /// Notes the names that only one of the lists has, and another order of those that both have.
  void compare(const char* what, const Names& first, const Names& second) {
    const Names missing = without(first, second);
    const Names additional = without(second, first);
    if (!missing.empty())
      note("{} '{}' of the first model is missing from the second", what,
           fmt::join(missing, "', '"));
    if (!additional.empty())
      note("{} '{}' is in the second model only", what, fmt::join(additional, "', '"));
    if (without(first, missing) != without(second, additional))
      note("{}s are in another order: '{}' in the first model, '{}' in the second", what,
           fmt::join(without(first, missing), "', '"),
           fmt::join(without(second, additional), "', '"));
  }

  template <class... Args> void note(fmt::format_string<Args...> text, Args&&... args) {
    found.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  Names found;
};

void comparePresents(const Session& a, const Session& b, Differences& differences) {
  for (size_t i = 0; i < a.cacheCount(); ++i)
    for (size_t j = 0; j < b.cacheCount(); ++j) {
      const ManifestCache& first = a.cacheInfo(i);
      const ManifestCache& second = b.cacheInfo(j);
      if (first.past == second.past && first.present != second.present)
        differences.note("cache '{}' continues as '{}' in the first model, as '{}' in the second",
                         first.past, first.present, second.present);
    }
}

const Value* findGiven(const Session& session, llvm::StringRef name) {
  for (const Value* input : session.callerInputs())
    if (input->name() == name)
      return input;
  return nullptr;
}

void compareInputs(const Session& a, const Session& b, Differences& differences) {
  for (const Value* input : a.callerInputs()) {
    const Value* other = findGiven(b, input->name());
    if (!other && input->hasUses())
      differences.note("input '{}' of the first model is missing from the second", input->name());
    if (other && other->type().elementType() != input->type().elementType())
      differences.note("input '{}' is {} in the first model, {} in the second", input->name(),
                       onnxName(input->type().elementType()),
                       onnxName(other->type().elementType()));
  }
  for (const Value* input : b.callerInputs())
    if (!findGiven(a, input->name()))
      differences.note("input '{}' is in the second model only", input->name());
}

} // namespace

std::vector<std::optional<size_t>> pairCaches(const Session& a, const Session& b) {
  auto find = [&](auto isWanted) -> std::optional<size_t> {
    for (size_t j = 0; j < b.cacheCount(); ++j)
      if (isWanted(b.cacheInfo(j)))
        return j;
    return std::nullopt;
  };
  std::vector<std::optional<size_t>> pairs;
  for (size_t i = 0; i < a.cacheCount(); ++i) {
    const ManifestCache& wanted = a.cacheInfo(i);
    auto found = find([&](const ManifestCache& cache) { return cache.past == wanted.past; });
    if (!found)
      found = find([&](const ManifestCache& cache) {
        return cache.layer == wanted.layer && cache.role == wanted.role;
      });
    pairs.push_back(found);
  }
  return pairs;
}

std::vector<std::string> interfaceDifferences(const Session& a, const Session& b) {
  Differences differences;
  differences.compare("output", outputNames(a, /*ofCaches=*/false),
                      outputNames(b, /*ofCaches=*/false));
  // A model that computes whole sequences may be compared with one that got caches.
  if (a.cacheCount() != 0 || b.cacheCount() == 0) {
    differences.compare("cache output", outputNames(a, /*ofCaches=*/true),
                        outputNames(b, /*ofCaches=*/true));
    // Nothing prescribes an order of a manifest's caches.
    Names first = cacheNames(a);
    Names second = cacheNames(b);
    llvm::sort(first);
    llvm::sort(second);
    differences.compare("cache", first, second);
    comparePresents(a, b, differences);
  }
  compareInputs(a, b, differences);
  return std::move(differences.found);
}

} // namespace kvopt::runtime
