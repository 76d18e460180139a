// Forms: what is known of a value in each step of the scope.
#pragma once

#include "check/arithmetic/key.h"
#include "check/arithmetic/tensor.h"

#include "llvm/ADT/DenseSet.h"

#include <memory>
#include <unordered_map>

namespace kvopt::check {

/// Contents of a value in each step of the scope, in the order of the steps; null in a step in
/// which it has none. Tensors of real numbers are hollow or patterns.
using Form = std::vector<Ref>;

/// The tensor with its numbers other than zero replaced by one number: which of its elements are
/// zero, or other than a number. Hollow tensors, integers and known numbers are themselves.
Ref patternOf(const Ref& tensor);

/// The tensor without its numbers, if it has real ones: its shape, and whether an element may be
/// other than a number.
Ref hollowed(const Ref& tensor);

/// Keeps tensors and forms, each once: equal ones are one object.
class Forms {
public:
  Ref tensor(const Ref& contents);
  const Form* form(const Form& contents);

private:
  std::unordered_multimap<size_t, Ref> tensors;
  llvm::DenseSet<const Tensor*> kept; ///< the same tensors
  std::unordered_map<Key, std::unique_ptr<Form>, KeyHash> forms;
};

} // namespace kvopt::check
