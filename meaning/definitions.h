// The definitions of all operators, by name and version.
#pragma once

#include "meaning/call.h"

#include "llvm/ADT/DenseMap.h"
#include <map>

namespace kvopt::meaning {

using Define = void (*)(Call&);

/// Filled once, by `registerAll`, then only read.
class Definitions {
public:
  Definitions() = default;
  Definitions(const Definitions&) = delete;
  Definitions& operator=(const Definitions&) = delete;

  /// Defines an operator from a version of its domain on. Before version 7 of ONNX, operators
  /// broadcast as attributes say, which no definition reads: nodes with them are not defined.
  void add(ir::OpName name, Define define, int64_t since = 1);
  void add(std::initializer_list<const char*> names, Define define) {
    for (const char* name : names)
      add(name, define);
  }
  /// Null where the operator is not defined.
  Define find(ir::OpName name, int64_t version) const;
  void forEach(llvm::function_ref<void(ir::OpName, int64_t since, Define)> use) const;

private:
  struct Versions {
    int64_t since;
    Define define;
  };
  std::map<std::pair<std::string, std::string>, llvm::SmallVector<Versions, 2>> all_;
  llvm::DenseMap<ir::OpName, const llvm::SmallVector<Versions, 2>*> byName_;
};

/// The definition of a node's operator; null if there is none, or if the node does not fit what
/// the operator declares (ir::checkDefinition).
Define definitionOf(const ir::Node& node);

/// Registers the definitions of all files in operators/ (generated).
void registerAll(Definitions& registry);

/// All of them, registered once.
const Definitions& definitions();

} // namespace kvopt::meaning
