// Recorded cases as JSON and as a table.
#pragma once

#include "driver/verify/references.h"
#include "support/json.h"
#include "support/safe_text.h"

namespace kvopt {

/// `kvopt/verify-references/1`.
OrderedJson referenceTableJson(const ReferenceTable& table);
SafeText referenceTableText(const ReferenceTable& table, llvm::ArrayRef<ModelForm> forms);

} // namespace kvopt
