// Words are parsed axis by axis, completed with defaults, and looked up in the table.
#include "driver/forms/form_words.h"

#include "driver/forms/form_table.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/nearest_word.h"
#include "support/string_ends.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <functional>

namespace kvopt::driver {

namespace {

constexpr Engine allEngines[] = {Engine::Ort, Engine::Onnx, Engine::Kvopt, Engine::Primitive};
constexpr CacheKind allCaches[] = {CacheKind::Grow, CacheKind::Buffer, CacheKind::Ring,
                                   CacheKind::Blocks, CacheKind::Paged};
constexpr SplitKind allSplits[] = {SplitKind::None, SplitKind::Pyramid, SplitKind::Tiles};

/// A value of one axis, with the word that selects it.
template <class T> struct Said {
  std::optional<T> value;
  std::string word; ///< as in "--cache ring"; empty for an open axis
};

/// The axes of a form that words select.
struct SaidForm {
  Said<Engine> engine;
  Said<CacheKind> cache;
  Said<RowKind> rows;
  Said<bool> latent;
  Said<SplitKind> split;
  Said<int64_t> opset;
  Said<int64_t> size;

  /// Sets an axis. Fails if another word selects another value of it.
  template <class T> llvm::Error say(Said<T>& axis, T value, const std::string& word) {
    if (axis.value && *axis.value != value)
      return usageError("{} and {} contradict each other", axis.word, word)
          .hint(formatted("possible: {} alone, or {}", axis.word, instead(axis.word, word)));
    if (!axis.value) {
      axis.value = value;
      axis.word = word;
    }
    return llvm::Error::success();
  }

private:
  /// Advice for choosing the second of two words.
  std::string instead(llvm::StringRef first, const std::string& second) const {
    return startsWith(first, "--to ") ? formatted("--to {} {}", wordOf(*engine.value), second)
                                      : second + " alone";
  }
};

template <class T> std::optional<T> valueOf(llvm::StringRef word, llvm::ArrayRef<T> values) {
  for (T value : values)
    if (word == wordOf(value))
      return value;
  return std::nullopt;
}

template <class T>
llvm::Error unknownWord(const std::string& option, llvm::StringRef word, llvm::ArrayRef<T> values) {
  std::vector<std::string> known;
  for (T value : values)
    known.emplace_back(wordOf(value));
  return usageError("{}: '{}' is none of {}{}", option, word, joinedText(known, ", "),
                    didYouMean(std::string_view(word), known));
}

/// Parses `:N` after a word; does nothing if the word has none.
llvm::Error saySize(llvm::StringRef text, const std::string& option, SaidForm& said) {
  if (!text.contains(':'))
    return llvm::Error::success();
  const auto [word, number] = text.split(':');
  int64_t size = 0;
  if (number.getAsInteger(10, size) || size < 1 || size > INT32_MAX)
    return usageError("'{}' is not a valid size for '{}'", number, word);
  return said.say(said.size, size, formatted("{} {}", option, text));
}

/// Parses the value of an option whose words may have a size.
template <class T>
llvm::Error sayWord(const std::string& text, const std::string& option, llvm::ArrayRef<T> values,
                    Said<T>& axis, SaidForm& said) {
  if (text.empty())
    return llvm::Error::success();
  const llvm::StringRef word = llvm::StringRef(text).split(':').first;
  const std::optional<T> value = valueOf(word, values);
  if (!value)
    return unknownWord(option, word, values);
  if (llvm::Error error = said.say(axis, *value, formatted("{} {}", option, text)))
    return error;
  return saySize(text, option, said);
}

llvm::Error sayPreset(const std::string& text, SaidForm& said) {
  if (text.empty())
    return llvm::Error::success();
  const llvm::StringRef name = llvm::StringRef(text).split(':').first;
  const FormPreset* preset = findPreset(name);
  if (!preset) {
    std::vector<std::string> known;
    for (const FormPreset& each : formPresets())
      known.emplace_back(each.name);
    return usageError("there is no target '{}'{}", name, didYouMean(std::string_view(name), known))
        .hint("kvopt list targets");
  }
  const std::string word = formatted("--to {}", text);
  const auto say = [&](auto& axis, const auto& value) {
    if (value)
      llvm::cantFail(said.say(axis, *value, word)); // the first word of each axis
  };
  llvm::cantFail(said.say(said.engine, preset->engine, word));
  say(said.cache, preset->cache);
  say(said.rows, preset->rows);
  say(said.latent, preset->isLatent);
  say(said.split, preset->split);
  say(said.opset, preset->opset);
  return saySize(text, "--to", said);
}

llvm::Error sayAll(const FormWords& words, SaidForm& said) {
  if (llvm::Error error = sayPreset(words.to, said))
    return error;
  if (llvm::Error error =
          sayWord(words.cache, "--cache", llvm::ArrayRef(allCaches), said.cache, said))
    return error;
  for (const std::string* text : {&words.rows, &words.cacheDtype})
    if (llvm::StringRef(*text).contains(':'))
      return usageError("'{}': the rows of caches take no number", *text);
  if (llvm::Error error =
          sayWord(words.rows, "--rows", llvm::ArrayRef<RowKind>(allRowKinds), said.rows, said))
    return error;
  if (llvm::Error error = sayWord(words.cacheDtype, "--cache-dtype",
                                  llvm::ArrayRef<RowKind>(allRowKinds), said.rows, said))
    return error;
  if (llvm::Error error =
          sayWord(words.split, "--split", llvm::ArrayRef(allSplits), said.split, said))
    return error;
  if (words.latent)
    if (llvm::Error error = said.say(said.latent, true, "--latent"))
      return error;
  if (!words.opset)
    return llvm::Error::success();
  if (*words.opset != 23 && *words.opset != 24)
    return usageError("--opset {}: ONNX's Attention is written at opset 23 or 24", *words.opset);
  return said.say(said.opset, *words.opset, formatted("--opset {}", *words.opset));
}

/// The form for one engine, with defaults for open axes.
Form completed(const SaidForm& said, Engine engine) {
  Form form;
  form.engine = engine;
  form.split = said.split.value.value_or(SplitKind::None);
  form.cache = said.cache.value                ? *said.cache.value
               : form.split != SplitKind::None ? CacheKind::Blocks
                                               : defaultCache(engine, said.opset.value);
  form.rows = said.rows.value.value_or(RowKind::Same);
  form.isLatent = said.latent.value.value_or(false);
  form.size = said.size.value;
  return form;
}

/// All forms that are written.
std::vector<Form> writtenForms() {
  std::vector<Form> forms;
  for (const FormRow& row : formTable())
    for (RowKind rows : allRowKinds)
      for (bool isLatent : {false, true}) {
        const Form form{row.engine, row.cache, rows, isLatent, row.split, std::nullopt};
        if (cellOf(form).isWritten())
          forms.push_back(form);
      }
  return forms;
}

/// Finds two words that no written form combines, and describes the forms that keep one of them.
class Contradiction {
public:
  Contradiction(const SaidForm& words, Form wanted) : said(words), form(std::move(wanted)) {}

  llvm::Error error() const {
    const std::vector<Axis> axes = saidAxes();
    for (size_t second = 1; second < axes.size(); ++second)
      for (size_t first = 0; first < second; ++first)
        if (auto error = errorOf({axes[first], axes[second]}))
          return std::move(*error);
    auto error = errorOf(axes);
    assert(error && "the form is not written");
    return std::move(*error);
  }

private:
  /// The requirement of one word on a form.
  struct Axis {
    std::string word;
    std::function<bool(const Form&)> holds;
  };

  std::vector<Axis> saidAxes() const {
    std::vector<Axis> axes;
    const auto add = [&](const std::string& word, std::function<bool(const Form&)> holds) {
      if (!word.empty())
        axes.push_back({word, std::move(holds)});
    };
    add(said.engine.word, [this](const Form& other) { return other.engine == form.engine; });
    add(said.split.word, [this](const Form& other) { return other.split == form.split; });
    add(said.cache.word, [this](const Form& other) { return other.cache == form.cache; });
    add(said.opset.word, [this](const Form& other) {
      return opsetOf(other.engine, other.cache) == *said.opset.value;
    });
    add(said.rows.word, [this](const Form& other) { return other.rows == form.rows; });
    add(said.latent.word, [this](const Form& other) { return other.isLatent == form.isLatent; });
    return axes;
  }

  /// The error for axes that contradict each other; nullopt if a written form has all of them.
  std::optional<llvm::Error> errorOf(llvm::ArrayRef<Axis> axes) const {
    const std::vector<Form> written = writtenForms();
    const auto count = [&](const Form& other) {
      return llvm::count_if(axes, [&](const Axis& axis) { return axis.holds(other); });
    };
    std::vector<std::string> words;
    for (const Axis& axis : axes)
      if (!llvm::is_contained(words, axis.word))
        words.push_back(axis.word);
    if (llvm::any_of(written, [&](const Form& other) {
          return count(other) == static_cast<int64_t>(axes.size());
        }))
      return std::nullopt;
    std::string possible;
    // Only near forms: those that satisfy all words but one, with defaults on the other axes.
    for (const Form& other : written)
      if (count(other) + 1 == static_cast<int64_t>(axes.size()) && isPlain(other))
        possible += formatted("{}{}", possible.empty() ? "" : "; ", optionsOf(other));
    return llvm::Error(usageError("{} do not go together: {}", joinedText(words, " and "), whyNot())
                           .hint(formatted("possible: {}", possible)));
  }

  /// Whether every axis of the form has its default or the value that a word selects.
  bool isPlain(const Form& other) const {
    const bool isUsualCache = other.split != SplitKind::None ||
                              opsetOf(other.engine, other.cache) == 23 ||
                              other.cache == defaultCache(other.engine, std::nullopt);
    return (isUsualCache || said.cache.value) &&
           (other.rows == RowKind::Same || other.rows == form.rows) &&
           (!other.isLatent || form.isLatent) &&
           (other.split == SplitKind::None || form.split != SplitKind::None);
  }

  /// The reason without its period, because the hint follows.
  std::string whyNot() const {
    if (const FormCell cell = cellOf(form); cell.refusal)
      return llvm::StringRef(cell.refusal).rtrim('.').str();
    return form.engine == Engine::Onnx
               ? "Buffers and rings are written at opset 24, caches that grow at opset 23"
               : "Only ONNX's own Attention is written at a chosen opset";
  }

  const SaidForm& said;
  const Form form;
};

bool isPossible(const SaidForm& said, const Form& form) {
  return cellOf(form).isWritten() &&
         (!said.opset.value || opsetOf(form.engine, form.cache) == *said.opset.value);
}

/// The first engine that writes such caches with the model's own rows. Its reason for refusing
/// other rows is the most specific one.
Engine nearestEngine(const SaidForm& said) {
  for (Engine engine : allEngines) {
    Form form = completed(said, engine);
    form.rows = RowKind::Same;
    form.isLatent = false;
    if (cellOf(form).isWritten())
      return engine;
  }
  return Engine::Ort;
}

} // namespace

llvm::Expected<std::vector<Form>> chooseForms(const FormWords& words) {
  SaidForm said;
  if (llvm::Error error = sayAll(words, said))
    return error;
  if (said.engine.value) {
    Form form = completed(said, *said.engine.value);
    if (!isPossible(said, form))
      return Contradiction(said, form).error();
    return std::vector<Form>{form};
  }
  std::vector<Form> forms;
  for (Engine engine : allEngines)
    if (const Form form = completed(said, engine);
        isPossible(said, form) && (forms.empty() || engine == Engine::Onnx)) {
      forms.push_back(form);
      // Attention of opset 23 takes caches of any kind that grow, also those of the last rows.
      const bool isOpen = !said.cache.value && !said.opset.value && !said.split.value;
      if (engine == Engine::Onnx && isOpen) {
        SaidForm growing = said;
        growing.cache.value = CacheKind::Grow;
        if (const Form other = completed(growing, engine); isPossible(growing, other))
          forms.push_back(other);
      }
    }
  if (forms.empty())
    return Contradiction(said, completed(said, nearestEngine(said))).error();
  return forms;
}

llvm::Expected<Form> chooseForm(FormWords words, const char* defaultEngine) {
  if (words.to.empty())
    words.to = defaultEngine;
  auto forms = chooseForms(words);
  if (!forms)
    return forms.takeError();
  return forms->front();
}

std::string targetText(const Form& form) {
  const FormCell cell = cellOf(form);
  assert(cell.isWritten() && "the form is written");
  return form.size ? formatted("{}:{}", cell.target, *form.size) : cell.target;
}

llvm::Expected<targets::TargetChoice> targetFor(const Form& form,
                                                const targets::TargetRegistry& registry) {
  const FormCell cell = cellOf(form);
  if (!cell.isWritten())
    return usageError("{}: {}", optionsOf(form), llvm::StringRef(cell.refusal).rtrim('.'));
  const targets::Target* target = registry.find(cell.target);
  assert(target && "every target of the table is registered");
  if (form.size && target->defaultSize() == 0)
    return usageError("the target '{}' takes no size", cell.target);
  return targets::TargetChoice{target, form.size.value_or(target->defaultSize())};
}

llvm::Expected<Form> presetForm(llvm::StringRef text) {
  FormWords words;
  words.to = text.str();
  auto forms = chooseForms(words);
  if (!forms)
    return forms.takeError();
  return forms->front();
}

} // namespace kvopt::driver
