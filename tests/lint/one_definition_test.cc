// A class has one definition: two of one name in one namespace are one to the linker, which takes
// the inline functions of templates, such as std::optional's, from either.
#include "tests/lint/source_files.h"

#include <map>
#include <set>

namespace kvopt {
namespace {

/// The name of a class or struct that a line outside of any other class defines; empty for any
/// other line.
std::string definedClass(const std::string& line) {
  for (std::string_view key : {"struct ", "class "}) {
    if (!line.starts_with(key) || line.find(';') != std::string::npos)
      continue;
    const size_t end = line.find_first_of(" :{<", key.size());
    // A specialization, or a class that another class declares, has its name from there.
    if (end == std::string::npos || line[end] == '<' || line.substr(end, 2) == "::")
      return "";
    return line.substr(key.size(), end - key.size());
  }
  return "";
}

/// Calls visit(name) with the full name of each class that a file defines outside of functions,
/// other classes, and unnamed namespaces.
template <class Visit> void forEachClass(const SourceFile& file, const Visit& visit) {
  std::vector<std::string> names;
  for (const std::string& line : file.lines()) {
    if (line.starts_with("namespace") && line.ends_with("{"))
      names.push_back(line.size() > 11 ? line.substr(10, line.size() - 12) : "");
    else if (line.starts_with("}") && line.find("// namespace") != std::string::npos)
      names.resize(names.empty() ? 0 : names.size() - 1);
    else if (std::string name = definedClass(line); !name.empty()) {
      std::string full;
      bool isUnnamed = false;
      for (const std::string& part : names) {
        isUnnamed |= part.empty();
        full += part + "::";
      }
      if (!isUnnamed)
        visit(full + name);
    }
  }
}

TEST(OneDefinition, FindsClasses) {
  const SourceFile file{"a.h",
                        "namespace kvopt::ir {\nstruct A {\nclass Forward;\nclass B final : A {\n"
                        "  struct Inner {\nstruct A::Nested {\ntemplate <>\nstruct C<int> {\n"
                        "namespace {\nstruct Own {\n} // namespace\nstruct D {};\nstruct E {\n"};
  std::vector<std::string> found;
  forEachClass(file, [&](const std::string& name) { found.push_back(name); });
  EXPECT_EQ(found, (std::vector<std::string>{"kvopt::ir::A", "kvopt::ir::B", "kvopt::ir::E"}));
}

TEST(OneDefinition, ClassesOfOneNamespaceHaveDifferentNames) {
  std::map<std::string, std::set<std::string>> files;
  for (const SourceFile& file : allSources())
    if (!file.isIn("tests/") && !file.isIn("examples/") && !file.isIn("bench/"))
      forEachClass(file, [&](const std::string& name) { files[name].insert(file.path); });
  EXPECT_GT(files.size(), 500U);
  for (const auto& [name, where] : files)
    EXPECT_EQ(where.size(), 1U) << name << " is defined in " << *where.begin() << " and "
                                << *where.rbegin();
}

} // namespace
} // namespace kvopt
