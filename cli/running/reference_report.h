// Comparison with recorded cases, as JSON and as a table.
#pragma once

#include "driver/verify/references.h"
#include "support/json_fwd.h"
#include "support/safe_text.h"

namespace kvopt::cli {

/// The document `kvopt/verify-references/1`.
OrderedJson referenceTableJson(const driver::ReferenceTable& table);
SafeText referenceTableText(const driver::ReferenceTable& table,
                            llvm::ArrayRef<driver::ModelForm> forms);

} // namespace kvopt::cli
