"""Exports the checkpoint as users do: torch.onnx.export (TorchScript, opset 17, eager attention), optimum-style names, dynamic batch and lengths."""
import torch
from transformers import LlamaForCausalLM
from transformers.cache_utils import DynamicCache
m = LlamaForCausalLM.from_pretrained("checkpoint"); m.set_attn_implementation("eager"); m.eval()
class Decoder(torch.nn.Module):
    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = DynamicCache()
        for i in range(0, len(past), 2): cache.update(past[i], past[i + 1], i // 2)
        o = m(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, use_cache=True)
        return (o.logits, *[t for l in o.past_key_values.layers for t in (l.keys, l.values)])
L = m.config.num_hidden_layers; kv = [f"{i}.{r}" for i in range(L) for r in ("key", "value")]
ins, outs = ["input_ids", "attention_mask", "position_ids"] + ["past_key_values." + x for x in kv], ["logits"] + ["present." + x for x in kv]
axes = {n: {0: "batch_size", 1: "sequence_length"} for n in ("input_ids", "position_ids", "logits")} | {"attention_mask": {0: "batch_size", 1: "total_sequence_length"}}
axes |= {n: {0: "batch_size", 2: "past_sequence_length"} for n in ins[3:]} | {n: {0: "batch_size", 2: "total_sequence_length"} for n in outs[1:]}
args = (torch.randint(32, 120, (2, 3)), torch.ones(2, 8, dtype=torch.long), torch.arange(5, 8)[None].expand(2, 3), *[torch.randn(2, m.config.num_key_value_heads, 5, m.config.head_dim) for _ in kv])
torch.onnx.export(Decoder().eval(), args, "model.onnx", input_names=ins, output_names=outs, dynamic_axes=axes, opset_version=17, dynamo=False)
