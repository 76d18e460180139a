// Models that are transformed, and what is compared before and after.
#pragma once

#include "driver/recover.h"
#include "driver/verify/verification.h"
#include "tests/transformations/transformation.h"

namespace kvopt {

/// A model file, with its recorded steps where it has any.
struct Subject {
  std::string name; ///< of its folder
  std::string file;
  std::string steps; ///< the path of a recorded case; empty without
};

/// The models that ship with the project.
std::vector<Subject> shippedSubjects();
/// The models of both corpora; empty if KVOPT_CORPUS names none.
std::vector<Subject> corpusSubjects();

/// The subject's model after a transformation, written and read again; a null model where there is
/// nothing to transform.
llvm::Expected<TransformedModel> transform(const Subject& subject,
                                           const Transformation& transformation,
                                           const driver::Toolkit& toolkit);

/// A model with its attention raised.
struct RaisedModel {
  std::unique_ptr<ir::Model> model;
  std::unique_ptr<passes::PassContext> context;
};

/// Recovers the attention of a model, of which it takes a copy.
llvm::Expected<RaisedModel> raise(const ir::Model& model, const driver::Toolkit& toolkit);

/// One line for each attention site: what `kvopt inspect` says of it and whether the target kvopt
/// takes it, in the names that the model had before it was transformed. Sorted, since sites that do
/// not depend on each other may come in any order.
std::vector<std::string> siteLines(RaisedModel& raised, const TransformedModel& transformed,
                                   const driver::Toolkit& toolkit);

/// What differs between the subject's sites before (-) and after it was transformed (+); empty
/// where nothing does.
llvm::Expected<std::string> siteDifference(const Subject& subject,
                                           const TransformedModel& transformed,
                                           const driver::Toolkit& toolkit);

/// How the results of a transformed model differ from those before: over the recorded steps, slot
/// by slot, or over a session where nothing is recorded. Empty where they agree.
llvm::Expected<std::string> resultDifference(const Subject& subject,
                                             const TransformedModel& transformed, Rounding rounding,
                                             const driver::Toolkit& toolkit);

/// How the results of a model differ from those of its rewrite for the target kvopt. Empty where
/// they agree, and where no attention is rewritten.
llvm::Expected<std::string> rewriteDifference(const ir::Model& model,
                                              const driver::Toolkit& toolkit);

} // namespace kvopt
