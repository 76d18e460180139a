// The operands of ai.kvopt's attention over one buffer of keys and one of values, for targets that
// turn it into another engine's operator.
#pragma once

#include "ir/ops/kvopt/cache_operator.h"

namespace kvopt::targets {

struct BufferOperand {
  static constexpr ir::CacheOperator op{};
  static constexpr unsigned query = ir::CacheOperator::query;
  static constexpr unsigned key = ir::CacheOperator::fresh(0);
  static constexpr unsigned value = ir::CacheOperator::fresh(1);
  static constexpr unsigned pastKey = op.past(0);
  static constexpr unsigned pastValue = op.past(1);
  static constexpr unsigned pastLength = op.pastLength();
  static constexpr unsigned mask = op.mask();
  static constexpr unsigned sinks = op.sinks();
};

} // namespace kvopt::targets
