// Comparison of the inputs and outputs of two sessions.
#include "runtime/equivalence/interface_difference.h"

#include "runtime/session/cache_part.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

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

/// Graph outputs that are caches neither of the session nor of `other`.
Names outputNames(const Session& session, const Session* other = nullptr) {
  Names names;
  for (const Value* output : session.graph().outputs())
    if (!isCacheOutput(session, output->name()) &&
        !(other && isCacheOutput(*other, output->name())))
      names.push_back(output->name().str());
  return names;
}

/// The part of the other session's cache to which this cache corresponds; null if it is not a part.
const ManifestPart* partIn(const ManifestCache& cache, const Session& other) {
  for (size_t i = 0; i < other.cacheCount(); ++i)
    if (isPartOf(cache, other.cacheInfo(i)))
      return &*cache.part;
  return nullptr;
}

/// Caches of the other session that a cache replaces; empty if it has the same cache.
llvm::ArrayRef<ManifestReplacement> replacedIn(const ManifestCache& cache, const Session& other) {
  const bool isKnown = llvm::all_of(cache.replaces, [&](const ManifestReplacement& replaced) {
    for (size_t i = 0; i < other.cacheCount(); ++i)
      if (other.cacheInfo(i).past == replaced.past)
        return true;
    return false;
  });
  return isKnown ? llvm::ArrayRef<ManifestReplacement>(cache.replaces)
                 : llvm::ArrayRef<ManifestReplacement>();
}

/// Names of pasts. Parts have the name of their whole, and caches that replace others have the
/// names of those.
Names cacheNames(const Session& session, const Session& other) {
  Names names;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const auto replaced = replacedIn(session.cacheInfo(i), other);
    for (const ManifestReplacement& each : replaced)
      if (!llvm::is_contained(names, each.past))
        names.push_back(each.past);
    if (!replaced.empty())
      continue;
    const ManifestPart* part = partIn(session.cacheInfo(i), other);
    const std::string& name = part ? part->past : session.cacheInfo(i).past;
    if (!llvm::is_contained(names, name))
      names.push_back(name);
  }
  return names;
}

/// Names of presents in the order of the outputs, with the same substitutions.
Names cacheOutputNames(const Session& session, const Session& other) {
  Names names;
  for (const Value* output : session.graph().outputs())
    for (size_t i = 0; i < session.cacheCount(); ++i) {
      if (session.cacheInfo(i).present != output->name())
        continue;
      const auto replaced = replacedIn(session.cacheInfo(i), other);
      for (const ManifestReplacement& each : replaced)
        if (!llvm::is_contained(names, each.present))
          names.push_back(each.present);
      if (!replaced.empty())
        continue;
      const ManifestPart* part = partIn(session.cacheInfo(i), other);
      const std::string& name = part ? part->present : session.cacheInfo(i).present;
      if (!llvm::is_contained(names, name))
        names.push_back(name);
    }
  return names;
}

class Differences {
public:
  /// Records names that are in only one of the lists, and a different order of common names.
  void compare(const char* what, const Names& first, const Names& second) {
    const Names missing = without(first, second);
    const Names additional = without(second, first);
    if (!missing.empty())
      note("{} '{}' of the first model is missing from the second", what,
           joinedText(missing, "', '"));
    if (!additional.empty())
      note("{} '{}' is in the second model only", what, joinedText(additional, "', '"));
    if (without(first, missing) != without(second, additional))
      note("{}s are in another order: '{}' in the first model, '{}' in the second", what,
           joinedText(without(first, missing), "', '"),
           joinedText(without(second, additional), "', '"));
  }

  template <class... Values>
  void note(FormatPattern<std::type_identity_t<Values>...> pattern, const Values&... values) {
    found.push_back(formattedAs(pattern.text, values...));
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

bool givesOutput(const Session& session, llvm::StringRef name) {
  return llvm::any_of(session.graph().outputs(),
                      [&](const Value* output) { return output->name() == name; });
}

void compareInputs(const Session& a, const Session& b, const Session* firstOfB,
                   Differences& differences) {
  for (const Value* input : a.callerInputs()) {
    const Value* other = findGiven(b, input->name());
    if (!other && firstOfB)
      other = findGiven(*firstOfB, input->name());
    if (!other && input->hasUses())
      differences.note("input '{}' of the first model is missing from the second", input->name());
    if (other && other->type().elementType() != input->type().elementType())
      differences.note("input '{}' is {} in the first model, {} in the second", input->name(),
                       onnxName(input->type().elementType()),
                       onnxName(other->type().elementType()));
  }
  for (const Value* input : b.callerInputs())
    if (!findGiven(a, input->name()) && !(firstOfB && givesOutput(*firstOfB, input->name())))
      differences.note("input '{}' is in the second model only", input->name());
}

} // namespace

std::vector<std::string> interfaceDifferences(const Session& a, const Session& b,
                                              const Session* firstOfB) {
  Differences differences;
  // A model that computes whole sequences may be compared with one that received caches. Some of
  // these may be outputs of the first.
  const bool gotCaches = a.cacheCount() == 0 && b.cacheCount() != 0;
  differences.compare("output", outputNames(a, gotCaches ? &b : nullptr), outputNames(b));
  if (!gotCaches) {
    differences.compare("cache output", cacheOutputNames(a, b), cacheOutputNames(b, a));
    // The order of a manifest's caches has no meaning.
    Names first = cacheNames(a, b);
    Names second = cacheNames(b, a);
    llvm::sort(first);
    llvm::sort(second);
    differences.compare("cache", first, second);
    comparePresents(a, b, differences);
  }
  compareInputs(a, b, firstOfB, differences);
  return std::move(differences.found);
}

} // namespace kvopt::runtime
