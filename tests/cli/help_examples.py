"""Runs every example of every `--help` in one folder, as a user would who reads them in order.

usage: help_examples.py KVOPT
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Commands whose examples write what those of others read.
FIRST = ["gen", "rewrite", "run"]


FIXED_EXPORT = """<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[1, 1] input_ids, int64[1, 1] position_ids, float[1, 2, 5, 4] past_key, float[1, 2, 5, 4] past_value)
  => (float[1, 1, 8] logits, float[1, 2, 6, 4] present_key, float[1, 2, 6, 4] present_value)
<float[32, 8] table = {TABLE}, int64[4] heads = {1, 1, 2, 4}, int64[3] rows = {1, 1, 8}, int64[1] third = {2}>
{
  number = Cast <to = 1> (position_ids)
  column = Unsqueeze (number, third)
  frequencies = Constant <value_floats = [1.0, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01]> ()
  turned = Mul (column, frequencies)
  angle = Cos (turned)
  embedded = Gather (table, input_ids)
  hidden = Add (embedded, angle)
  split = Reshape (hidden, heads)
  k = Transpose <perm = [0, 2, 1, 3]> (split)
  q = Neg (k)
  v = Sin (k)
  present_key = Concat <axis = 2> (past_key, k)
  present_value = Concat <axis = 2> (past_value, v)
  o = ai.kvopt.Sdpa <scale = 0.5> (q, present_key, present_value)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  joined = Reshape (ot, rows)
  logits = Tanh (joined)
}
"""


def write_fixed_export(folder, kvopt):
    """A decoder that was exported for one token after five, which no example makes."""
    table = ", ".join(str((i * 37 % 64 - 32) / 64) for i in range(32 * 8))
    pathlib.Path(folder, "fixed.onnxtxt").write_text(FIXED_EXPORT.replace("TABLE", table))
    subprocess.run([kvopt, "opt", "fixed.onnxtxt", "-o", "fixed.onnx"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)


def main():
    kvopt = os.path.abspath(sys.argv[1])
    commands = json.loads(subprocess.run([kvopt, "list", "commands", "--format", "json"],
                                         check=True, capture_output=True).stdout)["commands"]
    commands.sort(key=lambda each: FIRST.index(each["name"]) if each["name"] in FIRST else len(FIRST))
    failed = 0
    ran = 0
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "models", os.path.join(folder, "models"))
        os.mkdir(os.path.join(folder, "bin"))
        os.symlink(kvopt, os.path.join(folder, "bin", "kvopt"))
        environment = dict(os.environ, PATH=os.path.join(folder, "bin") + ":" + os.environ["PATH"])
        write_fixed_export(folder, kvopt)
        for command in commands:
            for example in command["examples"]:
                ran += 1
                result = subprocess.run(["bash", "-c", example["line"]], cwd=folder, env=environment,
                                        capture_output=True, text=True)
                if result.returncode != 0 or "kvopt: error" in result.stderr:
                    failed += 1
                    print(f"{example['line']}\n  exit code {result.returncode}: {result.stderr}")
    print(f"{ran} examples, {failed} failed")
    return 1 if failed or ran < 2 * len(commands) else 0


sys.exit(main())
