// Decoders of bare attention layers as ONNX text, for tests of what is said about them.
#pragma once

#include "tests/cli/cli_fixture.h"

namespace kvopt {

/// What one layer does besides attending to its growing cache.
enum class LayerSpelling {
  Plain,   ///< nothing
  Gated,   ///< an input taken from the probabilities, which no rule expects
  Escapes, ///< the present keys are read as data, too
};

/// Query, new rows and caches of each layer are inputs of their own: 4 heads of width 16.
inline std::string decoderText(const std::vector<LayerSpelling>& layers) {
  std::string inputs;
  std::string outputs;
  std::string body;
  for (size_t i = 0; i < layers.size(); ++i) {
    // In what is added, # stands for the layer.
    auto add = [&](std::string& list, std::string text, const char* separator) {
      for (size_t at = text.find('#'); at != std::string::npos; at = text.find('#'))
        text.replace(at, 1, std::to_string(i));
      list += (list.empty() ? "" : separator) + text;
    };
    bool isGated = layers[i] == LayerSpelling::Gated;
    add(inputs,
        "float[B, 4, S, 16] q_#, float[B, 4, S, 16] k_#, float[B, 4, S, 16] v_#, "
        "float[B, 4, P, 16] past_k_#, float[B, 4, P, 16] past_v_#",
        ", ");
    add(outputs,
        "float[B, 4, S, 16] o_#, float[B, 4, \"P + S\", 16] present_k_#, "
        "float[B, 4, \"P + S\", 16] present_v_#",
        ", ");
    add(body, R"(  present_k_# = Concat <axis = -2> (past_k_#, k_#)
  present_v_# = Concat <axis = -2> (past_v_#, v_#)
  kt_# = Transpose <perm = [0, 1, 3, 2]> (present_k_#)
  s_# = MatMul (q_#, kt_#)
  scaled_# = Mul (s_#, scale)
  p_# = Softmax <axis = -1> (scaled_#)
)",
        "");
    if (isGated) {
      add(inputs, "float[B, 4, S, \"P + S\"] gate_#", ", ");
      add(body, "  gated_# = Sub (p_#, gate_#)\n", "");
    }
    if (layers[i] == LayerSpelling::Escapes) {
      add(outputs, "float[B, 4, \"P + S\", 16] size_#", ", ");
      add(body, "  size_# = Abs (present_k_#)\n", "");
    }
    add(body,
        isGated ? "  o_# = MatMul (gated_#, present_v_#)\n" : "  o_# = MatMul (p_#, present_v_#)\n",
        "");
  }
  return "<ir_version: 8, opset_import: [\"\" : 17]>\ndecoder (" + inputs + ") => (" + outputs +
         ")\n<float scale = {0.25}>\n{\n" + body + "}\n";
}

/// Writes the decoder as `name`.onnx into the folder; its path.
inline std::string writeDecoder(const TemporaryFolder& folder, const std::string& name,
                                const std::vector<LayerSpelling>& layers) {
  std::string text = folder.write(name + ".onnxtxt", decoderText(layers));
  std::string path = folder.path(name + ".onnx");
  ProgramResult result = runProgram({"opt", text, "--pipeline", "", "-o", path});
  EXPECT_EQ(result.code, 0) << result.err;
  return path;
}

} // namespace kvopt
