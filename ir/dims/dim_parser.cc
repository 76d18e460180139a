// Reading polynomials from text.
#include "ir/dims/dim.h"
#include "ir/dims/dim_names.h"

namespace kvopt::ir {
namespace {

// A recursive-descent parser of
//   sum := product (("+" | "-") product)*    product := factor ("*" factor)*
//   factor := integer | name | "(" sum ")" | "-" factor
// A sign is pushed down to the literal, because INT64_MIN has no positive counterpart.
class DimParser {
public:
  explicit DimParser(llvm::StringRef text) : rest_(text) {}

  std::optional<Dim> run() {
    std::optional<Dim> result = sum();
    skipBlanks();
    return rest_.empty() ? result : std::nullopt;
  }

private:
  static constexpr unsigned maxDepth = 64;

  void skipBlanks() { rest_ = rest_.ltrim(" \t"); }
  bool consume(char c) {
    skipBlanks();
    return rest_.consume_front(llvm::StringRef(&c, 1));
  }

  static std::optional<Dim> known(const Dim& dim) {
    return dim.isUnknown() ? std::nullopt : std::optional<Dim>(dim);
  }

  std::optional<Dim> sum() {
    std::optional<Dim> total = product(false);
    while (total) {
      bool plus = consume('+');
      if (!plus && !consume('-'))
        break;
      std::optional<Dim> next = product(!plus);
      total = next ? known(*total + *next) : std::nullopt;
    }
    return total;
  }

  std::optional<Dim> product(bool negate) {
    std::optional<Dim> total = factor(negate);
    while (total && consume('*')) {
      std::optional<Dim> next = factor(false);
      total = next ? known(*total * *next) : std::nullopt;
    }
    return total;
  }

  std::optional<Dim> factor(bool negate) {
    skipBlanks();
    if (rest_.empty())
      return std::nullopt;
    if (llvm::isDigit(rest_.front()))
      return literal(negate);
    if (isDimNameStart(rest_.front())) {
      llvm::StringRef name = rest_.take_while(isDimNamePart);
      rest_ = rest_.drop_front(name.size());
      Dim symbol = Dim::symbol(name);
      return known(negate ? -symbol : symbol);
    }
    if (depth_ == maxDepth)
      return std::nullopt;
    ++depth_;
    std::optional<Dim> result;
    if (consume('-')) {
      result = factor(!negate);
    } else if (consume('(')) {
      result = sum();
      if (!consume(')'))
        return std::nullopt;
      if (result && negate)
        result = known(-*result);
    }
    --depth_;
    return result;
  }

  std::optional<Dim> literal(bool negate) {
    llvm::StringRef digits = rest_.take_while([](char c) { return llvm::isDigit(c); });
    rest_ = rest_.drop_front(digits.size());
    int64_t value = 0;
    if (llvm::StringRef((negate ? "-" : "") + digits.str()).getAsInteger(10, value))
      return std::nullopt;
    return Dim::fixed(value);
  }

  llvm::StringRef rest_;
  unsigned depth_ = 0;
};

} // namespace

std::optional<Dim> Dim::parse(llvm::StringRef text) {
  if (text.trim(" \t") == "?")
    return unknown();
  if (text.size() > maxTextBytes)
    return std::nullopt;
  return DimParser(text).run();
}

} // namespace kvopt::ir
