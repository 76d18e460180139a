// A program outside kvopt's tree, in C++17: rewrites a model, saves it, and decodes 16 tokens.
#include <kvopt/kvopt.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3)
    return 2;
  try {
    const kvopt::Model model = kvopt::Model::open(argv[1]);
    kvopt::Result result = kvopt::rewrite(model, {{"to", "kvopt"}, {"verify", "quick"}});
    result.save(argv[2]);
    const kvopt::Model written = kvopt::Model::open(argv[2]);
    kvopt::Session session(written, 1, {{"capacity", "32"}});
    std::vector<int64_t> tokens = {1, 2, 3};
    for (int step = 0; step < 16; ++step) {
      session.feed(tokens);
      tokens = {session.choose()};
      std::printf("%s%lld", step == 0 ? "" : ",", static_cast<long long>(tokens[0]));
    }
    std::printf("\n");
  } catch (const kvopt::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.code().c_str(), error.what());
    return 1;
  }
  return 0;
}
