// Operators that draw random numbers.
#include "ir/random.h"

#include "llvm/ADT/StringSwitch.h"

namespace kvopt::ir {

bool isRandom(OpName op) {
  return llvm::StringSwitch<bool>(op.type())
      .Cases("Bernoulli", "Dropout", "Multinomial", true)
      .Cases("RandomNormal", "RandomNormalLike", true)
      .Cases("RandomUniform", "RandomUniformLike", true)
      .Default(false);
}

} // namespace kvopt::ir
