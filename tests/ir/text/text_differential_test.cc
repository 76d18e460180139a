// Texts that ONNX's own parser can read mean the same to it and to kvopt's reader. The only test
// that links ONNX: its messages and kvopt's live in one process under two package names.
#include "ir/onnx/export.h"

#include "tests/ir/text/text_fixture.h"

#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <google/protobuf/util/message_differencer.h>

#include <cstring>

namespace kvopt {
using namespace ir;

namespace {

/// ONNX's reading of the text.
::onnx::ModelProto theirs(const std::string& text) {
  ::onnx::ModelProto model;
  ::onnx::OnnxParser parser(text.c_str());
  auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage() << "\nin\n" << text;
  EXPECT_TRUE(parser.EndOfInput()) << text;
  return model;
}

/// kvopt's reading, exported and parsed into ONNX's messages.
::onnx::ModelProto ours(const std::string& text) {
  ::onnx::ModelProto message;
  auto model = readOrFail(text);
  if (!model)
    return message;
  auto bytes = exportModelBytes(*model);
  if (!bytes) {
    ADD_FAILURE() << takeDiagnostic(bytes.takeError()).str();
    return message;
  }
  EXPECT_TRUE(message.ParseFromString(*bytes));
  return message;
}

template <typename T, typename Field> void pack(std::string& raw, const Field& values) {
  for (auto value : values) {
    T element = static_cast<T>(value);
    raw.append(reinterpret_cast<const char*>(&element), sizeof element);
  }
}

/// One of several spellings of a tensor: no name, numbers in raw_data.
void normalize(::onnx::TensorProto& tensor, bool keepName) {
  using Proto = ::onnx::TensorProto;
  if (!keepName)
    tensor.clear_name();
  std::string raw = tensor.raw_data();
  switch (tensor.data_type()) {
  case Proto::FLOAT:
    pack<float>(raw, tensor.float_data());
    break;
  case Proto::DOUBLE:
    pack<double>(raw, tensor.double_data());
    break;
  case Proto::INT64:
    pack<int64_t>(raw, tensor.int64_data());
    break;
  case Proto::UINT64:
    pack<uint64_t>(raw, tensor.uint64_data());
    break;
  case Proto::UINT32:
    pack<uint32_t>(raw, tensor.uint64_data());
    break;
  case Proto::INT32:
    pack<int32_t>(raw, tensor.int32_data());
    break;
  case Proto::INT16:
  case Proto::UINT16:
    pack<uint16_t>(raw, tensor.int32_data());
    break;
  case Proto::INT8:
  case Proto::UINT8:
  case Proto::BOOL:
    pack<uint8_t>(raw, tensor.int32_data());
    break;
  default:
    return;
  }
  tensor.clear_float_data();
  tensor.clear_double_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_uint64_data();
  tensor.set_raw_data(raw);
}

void normalize(::onnx::GraphProto& graph);

template <typename Nodes> void normalizeNodes(Nodes& nodes) {
  for (::onnx::NodeProto& node : nodes) {
    if (node.domain().empty())
      node.clear_domain(); // absent and empty are the same
    for (::onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t())
        normalize(*attribute.mutable_t(), /*keepName=*/false);
      if (attribute.has_g())
        normalize(*attribute.mutable_g());
      // ONNX 1.12 leaves the kind of a reference open; kvopt knows it from the definition.
      if (attribute.has_ref_attr_name())
        attribute.clear_type();
    }
  }
}

void normalize(::onnx::GraphProto& graph) {
  normalizeNodes(*graph.mutable_node());
  for (::onnx::TensorProto& initializer : *graph.mutable_initializer())
    normalize(initializer, /*keepName=*/true);
}

void normalize(::onnx::ModelProto& model) {
  normalize(*model.mutable_graph());
  for (::onnx::FunctionProto& function : *model.mutable_functions()) {
    normalizeNodes(*function.mutable_node());
    if (function.doc_string().empty())
      function.clear_doc_string();
  }
  for (::onnx::OperatorSetIdProto& opset : *model.mutable_opset_import())
    if (opset.domain().empty())
      opset.set_domain("");
}

std::string difference(const std::string& text) {
  ::onnx::ModelProto expected = theirs(text), actual = ours(text);
  normalize(expected);
  normalize(actual);
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  differencer.ReportDifferencesToString(&report);
  return differencer.Compare(expected, actual) ? "" : report;
}

const char* const texts[] = {
    R"(<ir_version: 7, opset_import: ["" : 10]>
agraph (float[N, 128] X, float[128, 10] W, float[10] B) => (float[N, 10] C)
{
    T = MatMul(X, W)   # a comment
    S = Add(T, B)
    C = Softmax(S)
})",
    R"(<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1], producer_name: "maker",
producer_version: "1.0", domain: "org.example", model_version: 5, doc_string: "what it is">
g (float16[batch, 4] x, float y, int64[] z, bool[?] m) => (float16[batch, 4] r) {
    a = com.microsoft.Gelu (x)
    b, c = Split <axis = 1> (a)
    r = Clip (b, , c)
})",
    R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x = {1.0, 2.0}, float[2] y) => (float[2] z)
<float[2] w = {3.5, -4.25}, int64[3] s = {1, 2, -3}, float[2] t,
 int32[2, 2] i = {1, 2, 3, 4}, double[1] d = {0.1}, int8[2] e = {-128, 127}, uint8[1] u = {255},
 bool[2] o = {0, 1}, uint64[1] v = {18446744073709551615}, uint32[1] k = {4294967295},
 int16[1] h = {-3}, uint16[1] j = {65535}, float[0] none = {}, float one = {1}>
{
    t = Add (x, w)
    z = Mul (t, y)
})",
    R"(<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
g (float[N] x) => (float[N] y) {
    y = my.Op <i = -7, f = 2.5, e = 1e-3, s = "text", is = [1, 2, 3], fs = [1.0, -2.5],
               ss = ["a", "b"], t = float[2] {1.0, 2.0}, u = int64 {5}, v = string[1] {"q"},
               typed: int = 3, list: floats = [1.0, 2.0]> (x)
})",
    R"(<ir_version: 8, opset_import: ["" : 17]>
g (bool c, float[N] x) => (float[N] y) {
    d = Add (x, x)
    y = If (c) <then_branch = yes () => (float[N] t) { t = Mul (d, x) },
                else_branch = no () => (float[N] e) <float[1] w = {2.0}> { e = Mul (x, w) }>
})",
    R"(<ir_version: 8, opset_import: ["" : 17]>
g (int64 n, bool c, float[N] x) => (float[N] y) {
    y = Loop <body = b (int64 i, bool k, float[N] p) => (bool k2, float[N] q) {
        k2 = Identity (k)
        q = Add (p, x)
    }> (n, c, x)
})",
    R"(<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[N] x) => (float[N] z) {
    y = local.Scaled <alpha = 2.0> (x)
    z = local.Twice (y)
}
<domain: "local", opset_import: ["" : 17], doc_string: "scales">
Scaled <alpha> (a) => (b) {
    k = Constant <value_float: float = @alpha> ()
    b = Mul (a, k)
}
<domain: "local", opset_import: ["" : 17]>
Twice (a) => (b) {
    b = Add (a, a)
})",
};

TEST(TextDifferential, BothReadersAgree) {
  for (const char* text : texts)
    EXPECT_EQ(difference(text), "") << text;
}

/// What kvopt prints of these models is within what ONNX's parser takes, and means the same. The ""
/// of an absent operand is newer than ONNX 1.12, which knows the empty place only.
TEST(TextDifferential, OnnxReadsWhatKvoptPrints) {
  for (const char* text : texts) {
    auto model = readOrFail(text);
    ASSERT_TRUE(model);
    PrintOptions options;
    options.declareTypes = true;
    std::string printed = printText(*model, options);
    if (size_t absent = printed.find(", \"\","); absent != std::string::npos)
      printed.replace(absent, 5, ", ,");
    EXPECT_EQ(difference(printed), "") << printed;
    ::onnx::GraphProto original = theirs(text).graph(), reprinted = theirs(printed).graph();
    EXPECT_EQ(original.node_size(), reprinted.node_size());
    EXPECT_EQ(original.initializer_size(), reprinted.initializer_size());
    EXPECT_EQ(original.input_size(), reprinted.input_size());
  }
}

/// The comparison sees a difference where there is one.
TEST(TextDifferential, TheComparisonHasTeeth) {
  ::onnx::ModelProto a = theirs(texts[1]), b = ours(texts[1]);
  b.mutable_graph()->mutable_node(1)->mutable_attribute(0)->set_i(2);
  normalize(a);
  normalize(b);
  EXPECT_FALSE(google::protobuf::util::MessageDifferencer::Equivalent(a, b));
}

} // namespace
} // namespace kvopt
