// Every word of every axis, every preset, and words that contradict each other.
#include "driver/forms/form_words.h"

#include "driver/forms/form_table.h"
#include "driver/toolkit.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace driver;

namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The words of a command line, as `--to ring --rows int8`.
FormWords wordsOf(const std::string& line) {
  FormWords words;
  llvm::SmallVector<llvm::StringRef, 8> parts;
  llvm::StringRef(line).split(parts, ' ', -1, false);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "--latent") {
      words.latent = true;
      continue;
    }
    const llvm::StringRef option = parts[i];
    const std::string value = parts[++i].str();
    if (option == "--to")
      words.to = value;
    else if (option == "--cache")
      words.cache = value;
    else if (option == "--rows")
      words.rows = value;
    else if (option == "--cache-dtype")
      words.cacheDtype = value;
    else if (option == "--split")
      words.split = value;
    else if (option == "--opset")
      words.opset = std::stoll(value);
    else
      ADD_FAILURE() << line;
  }
  return words;
}

/// The targets that the words choose, with commas between them; the message of an error.
std::string chosenBy(const std::string& line) {
  auto forms = chooseForms(wordsOf(line));
  if (!forms)
    return takeDiagnostic(forms.takeError()).str();
  std::string targets;
  for (const Form& form : *forms)
    targets += (targets.empty() ? "" : ", ") + targetText(form);
  return targets;
}

TEST(FormWords, ChooseTheTargetOfTheirCell) {
  const std::pair<const char*, const char*> cases[] = {
      {"--to ort", "ort-gqa"},
      {"--to ort --cache buffer --rows same", "ort-gqa"},
      {"--to ort --rows int8", "ort-gqa"},
      {"--to ort --rows int4", "ort-gqa"},
      {"--to ort --cache paged", "paged"},
      {"--to ort --cache paged:16", "paged:16"},
      {"--to onnx", "onnx24"},
      {"--to onnx --opset 24", "onnx24"},
      {"--to onnx --opset 23", "onnx23"},
      {"--to onnx --cache grow", "onnx23"},
      {"--to onnx --cache grow --rows bfloat16", "onnx23"},
      {"--to onnx --cache ring", "onnx24-ring"},
      {"--to onnx --cache ring:8", "onnx24-ring:8"},
      {"--to onnx --latent", "onnx24"},
      {"--to kvopt", "kvopt"},
      {"--to kvopt --rows float16", "kvopt"},
      {"--to kvopt --rows int8", "int8"},
      {"--to kvopt --rows int4", "int4"},
      {"--to kvopt --latent", "latent"},
      {"--to kvopt --latent --rows int8", "int8"},
      {"--to kvopt --cache ring", "ring"},
      {"--to kvopt --cache ring --rows int8", "int8-ring"},
      {"--to kvopt --cache ring --rows int4", "int4-ring"},
      {"--to ring --latent", "ring"},
      {"--to kvopt --cache ring --rows int8 --latent", "int8-ring"},
      {"--to int8-blocks:8 --latent", "int8-blocks:8"},
      {"--to kvopt --cache blocks", "blocks"},
      {"--to kvopt --cache blocks:64 --latent", "blocks:64"},
      {"--to kvopt --cache blocks:64 --rows int8", "int8-blocks:64"},
      {"--to primitive", "primitive"},
      {"--to primitive --cache grow --rows float16", "primitive"},
      {"--to primitive --cache blocks:8", "blocks-plain:8"},
      {"--to primitive --split pyramid:16", "pyramid:16"},
      {"--to primitive --cache blocks:16 --split tiles", "tiles:16"},
      // Without an engine: ONNX Runtime's operators, else ONNX's own, else what has the rest.
      {"", "ort-gqa, onnx24, onnx23"},
      {"--latent", "onnx24, onnx23"},
      {"--rows int8", "ort-gqa"},
      {"--rows float16 --cache buffer", "kvopt"},
      {"--cache ring", "onnx24-ring"},
      {"--cache ring --rows int4", "int4-ring"},
      {"--cache grow", "onnx23"},
      {"--cache blocks:8", "blocks:8"},
      {"--split tiles:8", "tiles:8"},
      {"--opset 23", "onnx23"},
  };
  for (const auto& [line, target] : cases)
    EXPECT_EQ(chosenBy(line), target) << line;
}

TEST(FormWords, APresetIsWhatItStandsFor) {
  const driver::Toolkit toolkit;
  for (const std::unique_ptr<targets::Target>& target : toolkit.targets.all()) {
    const std::string name = target->name().str();
    const FormPreset* preset = findPreset(name);
    ASSERT_TRUE(preset) << name << " has no preset";
    EXPECT_EQ(chosenBy("--to " + name), name);
    const Form form = llvm::cantFail(presetForm(name));
    EXPECT_EQ(chosenBy(optionsOf(form)), name) << optionsOf(form);
    // What the preset says may be said again, also by the older word.
    std::string again =
        formatted("--to {} --cache {} --rows {}", name, wordOf(form.cache), wordOf(form.rows));
    if (form.isLatent)
      again += " --latent";
    if (preset->opset)
      again += formatted(" --opset {}", *preset->opset);
    EXPECT_EQ(chosenBy(again), name) << again;
    EXPECT_EQ(chosenBy(formatted("--to {} --cache-dtype {}", name, wordOf(form.rows))), name);
    auto choice = targetFor(form, toolkit.targets);
    ASSERT_TRUE(static_cast<bool>(choice));
    EXPECT_EQ(choice->target, target.get());
    EXPECT_EQ(choice->size, target->defaultSize());
    if (target->defaultSize() > 0) {
      EXPECT_EQ(chosenBy("--to " + name + ":16"), name + ":16");
      EXPECT_EQ(
          llvm::cantFail(targetFor(llvm::cantFail(presetForm(name + ":16")), toolkit.targets)).size,
          16);
    }
  }
  // Axes that a preset leaves open may be chosen.
  EXPECT_EQ(chosenBy("--to ring --rows int8"), "int8-ring");
  EXPECT_EQ(chosenBy("--to int4 --cache ring"), "int4-ring");
  EXPECT_EQ(chosenBy("--to onnx24 --cache ring:4"), "onnx24-ring:4");
  EXPECT_EQ(chosenBy("--to blocks:8 --rows int8"), "int8-blocks:8");
  EXPECT_EQ(chosenBy("--to latent --rows float16"), "latent");
}

TEST(FormWords, ThatContradictEachOtherAreNamedWithWhatIsPossible) {
  struct Case {
    const char* line;
    const char* first;
    const char* second;
    const char* possible;
  };
  const Case cases[] = {
      {"--to int8 --rows int4", "--to int8", "--rows int4", "--to kvopt --rows int4"},
      {"--to ring --cache blocks", "--to ring", "--cache blocks", "--to kvopt --cache blocks"},
      {"--to int8 --cache-dtype float16", "--to int8", "--cache-dtype float16",
       "--to kvopt --cache-dtype float16"},
      {"--rows int8 --cache-dtype float16", "--rows int8", "--cache-dtype float16",
       "--rows int8 alone"},
      {"--to onnx23 --opset 24", "--to onnx23", "--opset 24", "--to onnx --opset 24"},
      {"--to onnx23 --cache buffer", "--to onnx23", "--cache buffer", "--to onnx --cache buffer"},
      {"--to tiles:8 --split pyramid", "--to tiles:8", "--split pyramid",
       "--to primitive --split pyramid"},
      {"--to blocks:16 --cache blocks:32", "--to blocks:16", "--cache blocks:32",
       "--to kvopt --cache blocks:32"},
      {"--to ort --cache ring", "--to ort", "--cache ring", "--to kvopt --cache ring"},
      {"--to ort --cache grow", "--to ort", "--cache grow", "--to primitive"},
      {"--to ort --cache blocks", "--to ort", "--cache blocks", "--to kvopt --cache blocks"},
      {"--to ort --rows float16", "--to ort", "--rows float16", "--to kvopt --rows float16"},
      {"--to ort --latent", "--to ort", "--latent", "--to onnx --latent"},
      {"--to paged --rows int8", "--to paged", "--rows int8", "--to kvopt --rows int8"},
      {"--to onnx --rows int8", "--to onnx", "--rows int8", "--to ort --rows int8"},
      {"--to onnx24 --rows float16", "--to onnx24", "--rows float16",
       "--to onnx --opset 23 --rows float16"},
      {"--to onnx --cache paged", "--to onnx", "--cache paged", "--to ort --cache paged"},
      {"--to onnx --opset 23 --cache ring", "--cache ring", "--opset 23", "--to onnx --cache ring"},
      {"--opset 23 --cache buffer", "--opset 23", "--cache buffer", "--to onnx --opset 23"},
      {"--to kvopt --cache grow", "--to kvopt", "--cache grow", "--to onnx --opset 23"},
      {"--to kvopt --cache paged", "--to kvopt", "--cache paged", "--to ort --cache paged"},
      {"--to kvopt --split tiles", "--to kvopt", "--split tiles", "--to primitive --split tiles"},
      {"--to kvopt --opset 24", "--to kvopt", "--opset 24", "--to onnx"},
      {"--to int4 --cache blocks", "--to int4", "--cache blocks", "--to kvopt --cache blocks"},
      {"--to primitive --cache buffer", "--to primitive", "--cache buffer",
       "--to primitive --cache blocks"},
      {"--to primitive --rows int8", "--to primitive", "--rows int8", "--to kvopt --rows int8"},
      {"--split tiles --cache ring", "--split tiles", "--cache ring",
       "--to primitive --split tiles"},
      {"--split tiles --rows float16", "--split tiles", "--rows float16",
       "--to primitive --split pyramid --rows float16"},
  };
  for (const Case& each : cases)
    EXPECT_THAT(chosenBy(each.line),
                AllOf(HasSubstr(each.first), HasSubstr(each.second), HasSubstr(each.possible)))
        << each.line;
}

TEST(FormWords, ThatAreUnknownAreErrors) {
  EXPECT_THAT(chosenBy("--to nowhere"), HasSubstr("there is no target 'nowhere'"));
  EXPECT_THAT(chosenBy("--to kvopd"), HasSubstr("kvopt"));
  EXPECT_THAT(chosenBy("--cache rink"), HasSubstr("'ring'"));
  EXPECT_THAT(chosenBy("--rows int9"), HasSubstr("'int9'"));
  EXPECT_THAT(chosenBy("--split tile"), HasSubstr("tiles"));
  EXPECT_THAT(chosenBy("--to onnx --opset 22"), HasSubstr("23 or 24"));
  for (const char* size : {"0", "-1", "x", "", "99999999999"})
    EXPECT_THAT(chosenBy(formatted("--to blocks:{}", size)), HasSubstr("is not a valid size"))
        << size;
  EXPECT_THAT(chosenBy("--rows int8:4"), HasSubstr("no number"));
}

TEST(FormWords, ASizeNeedsATargetThatTakesIt) {
  const driver::Toolkit toolkit;
  for (const char* line : {"kvopt:16", "primitive:16", "ort:16", "int8:4"}) {
    auto form = presetForm(line);
    ASSERT_TRUE(static_cast<bool>(form)) << line;
    auto choice = targetFor(*form, toolkit.targets);
    ASSERT_FALSE(static_cast<bool>(choice)) << line;
    EXPECT_THAT(takeDiagnostic(choice.takeError()).str(), HasSubstr("takes no size")) << line;
  }
}

} // namespace
} // namespace kvopt
