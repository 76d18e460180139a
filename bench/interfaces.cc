// Decodes with the C interface: interfaces MODEL STEPS.
#include "kvopt/kvopt.hpp"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 3)
    return 2;
  try {
    const kvopt::Model model = kvopt::Model::open(argv[1]);
    const int steps = std::atoi(argv[2]);
    kvopt::Session session(model, 1, {{"capacity", std::to_string(steps + 8)}, {"threads", "1"}});
    session.feed({1, 2, 3, 4});
    std::vector<int64_t> tokens = {session.choose()};
    for (int step = 0; step < steps; ++step) {
      session.feed(tokens);
      tokens[0] = session.choose();
    }
    std::printf("%lld\n", static_cast<long long>(tokens[0]));
  } catch (const kvopt::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
