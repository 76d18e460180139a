// kvopt inspect on the models that ship with the project.
#include "tests/cli/cli_fixture.h"

#include <fstream>

namespace kvopt {
namespace {

struct Expectation {
  const char* model;
  unsigned sites;
  int queryHeads;
  int keyHeads;
  int width;
  const char* mask;
  double scale;
};

class InspectTest : public testing::TestWithParam<Expectation> {};

TEST_P(InspectTest, EverySiteIsMatchedWithItsFacts) {
  const Expectation& expected = GetParam();
  nlohmann::json json = runJson({"inspect", shippedModel(expected.model)});
  EXPECT_EQ(json["schema"], "kvopt/inspect/1");
  ASSERT_EQ(json["sites"].size(), expected.sites);
  for (const nlohmann::json& site : json["sites"]) {
    EXPECT_EQ(site["status"], "matched");
    EXPECT_EQ(site["kind"], "self");
    EXPECT_EQ(site["q_heads"], expected.queryHeads);
    EXPECT_EQ(site["kv_heads"], expected.keyHeads);
    EXPECT_EQ(site["k_head_dim"], expected.width);
    EXPECT_EQ(site["v_head_dim"], expected.width);
    EXPECT_EQ(site["key_axis"], 2);
    EXPECT_EQ(site["mask"], expected.mask);
    EXPECT_NEAR(site["scale"].get<double>(), expected.scale, 1e-7);
    std::string layer = std::to_string(site["layer"].get<int>());
    EXPECT_EQ(site["past_key"], "past_key_values." + layer + ".key");
    EXPECT_EQ(site["present_value"], "present." + layer + ".value");
  }
  EXPECT_EQ(json["targets"]["kvopt"]["can"], expected.sites);
}

INSTANTIATE_TEST_SUITE_P(
    Shipped, InspectTest,
    testing::Values(Expectation{"kjv", 4, 4, 2, 32, "additive", 0.17677669},
                    Expectation{"llama_gqa-ts14-eager", 2, 4, 2, 16, "additive", 0.25},
                    Expectation{"gpt2-dynamo18-eager", 2, 4, 4, 16, "additive", 0.25},
                    Expectation{"qwen2-dynamo23-sdpa", 2, 4, 2, 16, "boolean", 0.25}),
    [](const auto& parameter) {
      std::string name = parameter.param.model;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

} // namespace
} // namespace kvopt
