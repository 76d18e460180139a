// Candidates for the roles of inputs.
#include "driver/roles/role_guesses.h"

#include "driver/roles/table_rows.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/movement.h"
#include "passes/analysis/interface/input_roles.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace runtime;

namespace {

/// Possible meanings of the extents of an input.
enum ExtentForm : unsigned {
  One = 1,    ///< a single element
  PerRow = 2, ///< an element per batch row
  Tokens = 4, ///< the last axis has an entry for each new token
  Keys = 8,   ///< the last axis has an entry for each key
};

enum NumberKind : unsigned { Integers = 1, Bools = 2, Floats = 4 };

/// A role, and the inputs that it fits.
struct RoleRow {
  std::variant<LengthFeed, InputFeed> feed;
  unsigned forms;
  unsigned kinds;
};

/// In the order in which they are tried.
constexpr RoleRow roleRows[] = {
    {LengthFeed::PastLength, One | PerRow, Integers | Floats},
    {InputFeed::Positions, Tokens, Integers | Floats},
    {LengthFeed::TotalLength, One | PerRow, Integers | Floats},
    {LengthFeed::TotalLengthMinusOne, One | PerRow, Integers | Floats},
    {LengthFeed::PastLengthMinusOne, One | PerRow, Integers | Floats},
    {LengthFeed::NewLength, One, Integers | Floats},
    {InputFeed::Slots, One | Tokens, Integers},
    {InputFeed::VisibleKeys, Keys, Integers | Bools | Floats},
    {InputFeed::VisibleKeysAtEnd, Keys, Integers | Bools | Floats},
    {InputFeed::AdditiveMask, Keys, Floats},
    {InputFeed::AdditiveMaskAtEnd, Keys, Floats},
    {InputFeed::HiddenKeys, Keys, Integers | Bools | Floats},
    {InputFeed::HiddenKeysAtEnd, Keys, Integers | Bools | Floats},
    {InputFeed::KeyPositions, Keys, Integers | Floats},
    {LengthFeed::HasPast, One, Integers | Bools},
    {LengthFeed::NoPast, One, Integers | Bools},
};

LengthFeed ofEachRow(LengthFeed feed) {
  return feed == LengthFeed::PastLength            ? LengthFeed::PastLengthPerBatch
         : feed == LengthFeed::TotalLength         ? LengthFeed::TotalLengthPerBatch
         : feed == LengthFeed::TotalLengthMinusOne ? LengthFeed::TotalLengthPerBatchMinusOne
         : feed == LengthFeed::PastLengthMinusOne  ? LengthFeed::PastLengthPerBatchMinusOne
                                                   : feed;
}

class Guesses {
public:
  Guesses(const RecoveredModel& recoveredModel, const Manifest& derived,
          llvm::ArrayRef<InputRecipe> userRecipes)
      : recovered(recoveredModel), graph(recovered.model->graph()), manifest(derived) {
    for (const ManifestCache& cache : manifest.caches) {
      certain.insert(cache.past);
      for (const Value* output : graph.outputs())
        if (output->name() == cache.present && cache.update() == CacheUpdate::Grows &&
            output->type().hasRank() &&
            cache.sequenceAxis < static_cast<int64_t>(output->type().rank()))
          total = output->type().dim(static_cast<unsigned>(cache.sequenceAxis));
    }
    certain.insert(manifest.reorder);
    for (const InputRecipe& recipe : userRecipes)
      certain.insert(recipe.input);
    for (const Value* input : tokenInputs(graph, manifest.inputs)) {
      certain.insert(input->name());
      if (input->type().hasRank() && input->type().rank() >= 2) {
        batch = input->type().dim(0);
        fresh = input->type().dim(1);
      }
    }
    findHints();
  }

  std::vector<RoleGuess> all() const {
    std::vector<RoleGuess> guesses;
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (!certain.contains(input->name()) && !input->isInitializer() && isGuess(*input))
        guesses.push_back(guess(*input));
    for (const ManifestCache& cache : manifest.caches)
      if (cache.update() == CacheUpdate::State && isInteger(cache.dtype) && cache.initial.empty())
        if (const Value* state = graph.findValue(cache.past))
          guesses.push_back({state, {StateStart{cache.past, {-1}}, StateStart{cache.past, {1}}}});
    return guesses;
  }

private:
  /// Inputs that analysis knows as positions or places of new rows.
  void findHints() {
    for (const AttentionSite& site : recovered.context->sites) {
      if (site.mask && site.mask->causalIf && site.mask->causalIf->positions)
        positions.insert(site.mask->causalIf->positions->name());
      for (const std::optional<SiteCache>* cache : {&site.key, &site.value}) {
        const Value* place = *cache ? (*cache)->pastLength : nullptr;
        while (place && place->producer())
          place = movedOrSelected(*place->producer());
        if (place && place->isGraphInput())
          positions.insert(place->name());
      }
    }
  }

  const ManifestInput* described(const Value& input) const {
    const auto found = llvm::find_if(
        manifest.inputs, [&](const ManifestInput& entry) { return entry.input == input.name(); });
    return found == manifest.inputs.end() ? nullptr : &*found;
  }

  const ManifestLength* length(const Value& input) const {
    const auto found = llvm::find_if(
        manifest.lengths, [&](const ManifestLength& entry) { return entry.input == input.name(); });
    return found == manifest.lengths.end() ? nullptr : &*found;
  }

  bool isGuess(const Value& input) const {
    const TensorType& type = input.type();
    if (!type.hasRank() || kindOf(input) == 0 || isTable(type))
      return false;
    if (const ManifestLength* counted = length(input))
      return !isFlag(counted->feed) && recovered.context->interface.of(input).lengths.empty();
    if (const ManifestInput* entry = described(input))
      return entry->feed != InputFeed::BatchRows;
    const DocumentedInput* documented = documentedInput(input);
    if (!documented)
      return !isFloatingPoint(type.elementType());
    RoleGuess named;
    named.input = &input;
    if (documented->feed == InputFeed::Positions) {
      const auto first = firstTableRows(recovered, GivenRoles(), named);
      return first && (first->least < 0 || first->areReserved);
    }
    // After a fixed number of earlier rows, all columns are of tokens.
    if (isTokenMask(*documented) && !input.uses().empty() &&
        !recovered.context->interface.of(input).hidesByZero())
      return true;
    return documented->feed == InputFeed::VisibleKeys && type.rank() == 2 &&
           type.dim(1).value().has_value() && llvm::none_of(manifest.caches, followsRows);
  }

  /// Whether numbers are in rows that are neither batch rows nor tokens, such as of rotations.
  bool isTable(const TensorType& type) const {
    return isFloatingPoint(type.elementType()) && type.rank() == 2 &&
           type.dim(0).value().value_or(1) > 1 && !type.dim(0).isKnownEqual(batch) &&
           !type.dim(0).isKnownEqual(fresh);
  }

  static bool followsRows(const ManifestCache& cache) {
    return cache.update() == CacheUpdate::Grows && cache.fixedRows().has_value();
  }

  static unsigned kindOf(const Value& input) {
    const ElementType element = input.type().elementType();
    if (element == ElementType::Bool)
      return Bools;
    if (isFloatingPoint(element))
      return Floats;
    return element == ElementType::Int64 || element == ElementType::Int32 ? unsigned{Integers} : 0u;
  }

  unsigned formsOf(const TensorType& type) const {
    int64_t fixed = 1;
    bool isFixed = true;
    for (const Dim& extent : type.shape()) {
      isFixed &= extent.value().has_value();
      fixed *= extent.value().value_or(1);
    }
    unsigned forms = isFixed && fixed == 1 ? unsigned{One} : 0u;
    if (type.rank() == 0)
      return forms;
    const Dim& last = type.shape().back();
    if (type.rank() == 1 && !last.value() && last.isKnownEqual(batch))
      return PerRow;
    if (!last.value() && last.isKnownEqual(total) && !last.isKnownEqual(fresh))
      return Keys;
    if (last.isKnownEqual(fresh))
      return forms | Tokens;
    if (last.value())
      return forms | (*last.value() > 1 ? Keys : Tokens);
    return Tokens | Keys;
  }

  /// The operand whose elements, or some of them, a node's result has; null for other nodes.
  static const Value* movedOrSelected(const Node& node) {
    return movementKind(node)                      ? movedOperand(node)
           : node.is("Gather") || node.is("Slice") ? node.operand(0)
                                                   : nullptr;
  }

  /// Whether readers show the meaning of an input that has no documented name.
  bool isShown(const Value& input, InputFeed feed, unsigned forms) const {
    const InputReaders readers = recovered.context->interface.of(input);
    auto isCondition = [](const Use& use) { return use.user().is("If"); };
    if (llvm::any_of(input.uses(), isCondition))
      return true;
    if (isMaskFeed(feed))
      return readers.isMask && !readers.isUncertainMask && (forms & Keys) != 0;
    if (length(input))
      return readers.isCount || !readers.bounds.empty() || !readers.addends.empty();
    return feed == InputFeed::Segments && readers.isSelfCompared;
  }

  RoleGuess guess(const Value& input) const {
    RoleGuess result;
    result.input = &input;
    const ManifestLength* counted = length(input);
    const ManifestInput* entry = described(input);
    const DocumentedInput* named = documentedInput(input);
    const InputFeed before = entry ? entry->feed : named ? named->feed : InputFeed::Any;
    const bool isUnknown = !counted && (!entry || entry->feed == InputFeed::Any) && !named;
    const unsigned forms = formsOf(input.type());
    // Floating-point rows may be an encoder's.
    result.isConstant = isUnknown && (!isFloatingPoint(input.type().elementType()) ||
                                      input.type().rank() <= 1 || forms == Tokens);
    for (const RoleRow& row : roleRows) {
      if ((row.forms & forms) == 0 || (row.kinds & kindOf(input)) == 0)
        continue;
      if (const auto* feed = std::get_if<LengthFeed>(&row.feed)) {
        ManifestLength role;
        role.input = input.name().str();
        role.dtype = input.type().elementType();
        role.feed = (forms & PerRow) != 0 ? ofEachRow(*feed) : *feed;
        for (const Dim& extent : input.type().shape())
          role.shape.push_back(extent.value() ? ManifestExtent(*extent.value())
                                              : ManifestExtent(std::string("batch")));
        if (!counted || counted->feed != role.feed)
          result.others.emplace_back(std::move(role));
        continue;
      }
      ManifestInput role;
      role.input = input.name().str();
      role.dtype = input.type().elementType();
      role.feed = std::get<InputFeed>(row.feed);
      // A documented mask of keys has no other meaning.
      const bool fits = !named || !isTokenMask(*named) || isMaskFeed(role.feed);
      if (role.feed != before && fits)
        result.others.emplace_back(std::move(role));
    }
    const bool isMask = isMaskFeed(before);
    const bool isHinted = positions.contains(input.name());
    result.isShown = named || isHinted || isShown(input, before, forms);
    std::stable_partition(result.others.begin(), result.others.end(), [&](const InputRole& role) {
      const auto* other = std::get_if<ManifestInput>(&role);
      return isHinted ? !other || other->feed == InputFeed::Positions
                      : isMask == (other && isMaskFeed(other->feed));
    });
    return result;
  }

  const RecoveredModel& recovered;
  const Graph& graph;
  const Manifest& manifest;
  llvm::StringSet<> certain;
  llvm::StringSet<> positions;
  Dim batch;
  Dim fresh;
  Dim total; ///< rows of a growing cache after a step
};

bool isConstant(const InputRecipe& recipe) {
  return recipe.kind == InputRecipe::Kind::Zeros || recipe.kind == InputRecipe::Kind::Ones ||
         recipe.kind == InputRecipe::Kind::Numbers;
}

double oneOrZero(const InputRecipe& recipe) {
  return recipe.kind == InputRecipe::Kind::Ones ? 1.0 : 0.0;
}

/// Whether a constant of the user is the input's role in every run. Rows of an encoder and what
/// documented names say differ from run to run.
bool mayBeConstant(const Value& input) {
  const TensorType& type = input.type();
  return !documentedInput(input) &&
         (!isFloatingPoint(type.elementType()) || !type.hasRank() || type.rank() < 3);
}

} // namespace

llvm::StringRef inputOf(const InputRole& role) {
  return std::visit([](const auto& entry) { return llvm::StringRef(entry.input); }, role);
}

void addRole(const InputRole& role, GivenRoles& given) {
  if (const auto* length = std::get_if<ManifestLength>(&role))
    given.lengths.push_back(*length);
  else if (const auto* input = std::get_if<ManifestInput>(&role))
    given.inputs.push_back(*input);
  else if (const auto* state = std::get_if<StateStart>(&role))
    given.states.emplace_back(state->input, state->contents);
}

std::vector<RoleGuess> guessesAmong(const RecoveredModel& recovered, const Manifest& manifest,
                                    llvm::ArrayRef<InputRecipe> recipes) {
  return Guesses(recovered, manifest, recipes).all();
}

Manifest withRoles(const RecoveredModel& recovered, const Manifest& manifest,
                   llvm::ArrayRef<InputRole> roles) {
  Manifest result = manifest;
  if (roles.empty())
    return result;
  InterfaceFacts facts = recovered.context->interface;
  for (const InputRole& role : roles) {
    addRole(role, facts.given);
    const auto isOfInput = [&](const auto& entry) { return entry.input == inputOf(role); };
    llvm::erase_if(result.lengths, isOfInput);
    llvm::erase_if(result.inputs, isOfInput);
  }
  describeInputs(recovered.model->graph(), facts, result);
  return result;
}

std::vector<InputRole> rolesOf(const Graph& graph, llvm::ArrayRef<InputRecipe> recipes) {
  std::vector<InputRole> roles;
  for (const InputRecipe& recipe : recipes) {
    const Value* input = graph.findValue(recipe.input);
    if (!input || !input->isGraphInput())
      continue;
    if (recipe.kind == InputRecipe::Kind::State) {
      roles.emplace_back(StateStart{recipe.input, recipe.numbers});
    } else if (recipe.kind == InputRecipe::Kind::Length) {
      ManifestLength role{recipe.input, input->type().elementType(), recipe.shape, recipe.length};
      for (const Dim& extent : input->type().shape())
        if (!recipe.hasShape)
          role.shape.push_back(extent.value() ? ManifestExtent(*extent.value())
                                              : ManifestExtent(std::string("batch")));
      roles.emplace_back(std::move(role));
    } else if (recipe.kind == InputRecipe::Kind::Feed) {
      roles.emplace_back(
          ManifestInput{recipe.input, input->type().elementType(), recipe.shape, recipe.feed});
    } else if (isConstant(recipe) && mayBeConstant(*input)) {
      roles.emplace_back(ManifestInput{
          recipe.input, input->type().elementType(), recipe.shape, InputFeed::Constant,
          recipe.kind == InputRecipe::Kind::Numbers ? recipe.numbers
                                                    : std::vector{oneOrZero(recipe)}});
    }
  }
  return roles;
}

std::optional<InputRecipe> recipeOf(const Manifest& manifest, llvm::StringRef input) {
  InputRecipe recipe;
  recipe.input = input.str();
  recipe.hasShape = true;
  for (const ManifestLength& length : manifest.lengths)
    if (length.input == input) {
      recipe.kind = InputRecipe::Kind::Length;
      recipe.length = length.feed;
      recipe.shape = length.shape;
      return recipe;
    }
  for (const ManifestInput& entry : manifest.inputs)
    if (entry.input == input && entry.feed != InputFeed::Any) {
      recipe.kind = InputRecipe::Kind::Feed;
      recipe.feed = entry.feed;
      recipe.shape = entry.shape;
      if (entry.feed == InputFeed::Constant) {
        recipe.kind = InputRecipe::Kind::Numbers;
        recipe.numbers = entry.numbers;
      }
      return recipe;
    }
  return std::nullopt;
}

} // namespace kvopt::driver
