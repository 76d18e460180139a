// Models without names and remarks.
#include "driver/reduce/anonymous.h"

#include "ir/onnx/export.h"
#include "tests/driver/reduce/reduced_text.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

TEST(Anonymous, NothingSaysWhereTheModelCameFrom) {
  TextModel text(R"(
<ir_version: 8, opset_import: ["" : 17], producer_name: "secret producer", domain: "secret domain",
 doc_string: "secret text", metadata_props: ["secret key": "secret entry"]>
secret_graph (float[secret_extent, 4] secret_input) => (float[secret_extent, 4] secret_output)
<float[4] secret_weight = {1, 2, 3, 4}>
{
  secret_sum = Add (secret_input, secret_weight)
  secret_output = Neg (secret_sum)
})");
  for (Node& node : text.graph().nodes())
    node.setName("secret node");
  ASSERT_TRUE(removeRemarks(*text.model));
  ASSERT_TRUE(renameValues(text.graph(), valueNames(text.graph())));
  ASSERT_TRUE(renameSymbols(*text.model));
  EXPECT_TRUE(text.isValid());
  auto bytes = exportModelBytes(*text.model);
  ASSERT_TRUE(static_cast<bool>(bytes));
  EXPECT_EQ(bytes->find("secret"), std::string::npos);
  // The second time, nothing changes.
  EXPECT_FALSE(renameValues(text.graph(), valueNames(text.graph())));
  EXPECT_FALSE(renameSymbols(*text.model));
}

} // namespace
} // namespace kvopt
