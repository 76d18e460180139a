#!/usr/bin/env python3
"""Nine faults, each planted in one place of a decoder: `kvopt reduce` finds the nodes that show it.

    reduce_faults.py KVOPT [--large]

A fault is a change of the decoder's text. Its command ends with one exit code as long as the fault is visible. With
--large, the first fault is planted in a decoder of more than 2,600 nodes, which must take less than two minutes.
Also interrupts a reduction: the output, and nothing else, remains.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

FUNCTION = """
<domain: "local", opset_import: ["" : 17]>
faulty (x) => (y) {
  a = Neg (x)
  b = Atan (a)
  y = Identity (b)
}
"""


def only(text, pattern, replacement):
    """The text with its only match replaced."""
    changed, count = re.subn(pattern, replacement, text)
    assert count == 1, f"{count} places match {pattern}"
    return changed


def call_function(text):
    text = only(text, r'opset_import: \["" : 17', r'opset_import: ["local" : 1, "" : 17')
    text = only(text, r"= Sigmoid \((\"/model/layers.1/[^)]*)\)", r"= local.faulty (\1)")
    return text + FUNCTION


# Name, options of `gen`, change of the text, command, most nodes that remain.
FAULTS = [
    ("softmax over another axis", [],
     lambda text: only(text, r'(layers\.1/self_attn/Softmax_\d+_output_0" = Softmax <axis = )-1>', r"\g<1>2>"),
     "kvopt explain {} | grep -q MISSED.*pattern-mismatch", 6),
    ("mask of later keys", [],
     lambda text: only(text, r"= LessOrEqual ", "= GreaterOrEqual "),
     "kvopt explain {} | grep -q 'j >= i + P'", 20),
    ("operator without a kernel", [],
     lambda text: only(text, r'(layers\.1/mlp/Sigmoid_\d+_output_0" = )Sigmoid ', r"\g<1>vendor.Gate "),
     "kvopt run {} --tokens 1,2 --steps 1; test $? -eq 4", 20),
    ("extents that contradict each other", [],
     lambda text: only(text, r'(layers\.1/self_attn/Constant_\d+_output_0" = Constant <value = int64\[1\] \{)64\}',
                       r"\g<1>63}"),
     "kvopt inspect {}; test $? -eq 3", 6),
    ("past of another layer", [],
     lambda text: only(text, r'= Concat <axis = -2> \("past_key_values\.1\.key"', '= Concat <axis = -2> ("past_key_values.0.key"'),
     "kvopt explain {} | grep -q no-past", 12),
    ("operator in a branch", ["--merged"],
     lambda text: re.sub(r"= Sigmoid ", "= Atan ", text, count=1),
     "kvopt opt {} --pipeline '' | grep -q Atan", 2),
    ("operator in a function", [], call_function, "kvopt opt {} --pipeline '' | grep -q Atan", 1),
    ("half precision in one layer", [],
     lambda text: only(text, r'(?m)^(.*layers\.1/mlp/Sigmoid_.*= Sigmoid )\((".*")\)$',
                       r"  half = Cast <to = 10> (\2)\n  single = Cast <to = 1> (half)\n\1(single)"),
     "kvopt opt {} --pipeline infer-shapes --types | grep -q float16", 3),
    ("one weight", [],
     lambda text: only(text, r'("model\.layers\.1\.input_layernorm\.weight" = \{)[^,]*,', r"\g<1>12345.678,"),
     "kvopt opt {} --pipeline '' --elements all | grep -q 12345", 1),
]


class Faults:
    def __init__(self, kvopt, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/kvopt").symlink_to(os.path.abspath(kvopt))
        self.environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}")
        self.failed = 0

    def kvopt(self, *arguments):
        return subprocess.run(["kvopt", *arguments], cwd=self.folder, env=self.environment, check=True,
                              capture_output=True, text=True).stdout

    def plant(self, options, change, layers=2):
        sizes = ["--layers", str(layers), "--vocab", "64", "--intermediate", "64"]
        self.kvopt("gen", "llama", "-o", "sound.onnx", *sizes, *options)
        text = self.kvopt("opt", "sound.onnx", "--pipeline", "", "--elements", "all")
        (self.folder / "faulty.onnxtxt").write_text(change(text))
        self.kvopt("opt", "faulty.onnxtxt", "--pipeline", "", "-o", "faulty.onnx")

    def check(self, name, options, change, command, most, layers=2, seconds=None):
        self.plant(options, change, layers)
        start = time.time()
        answer = json.loads(self.kvopt("reduce", "faulty.onnx", "--while", command, "-o", "small.onnx", "--format", "json"))
        taken = time.time() - start
        before, after = answer["before"]["nodes"], answer["after"]["nodes"]
        print(f"{name}: {before} nodes -> {after}, {answer['candidates']} candidates, {taken:.1f} s")
        holds = subprocess.run(["sh", "-c", command.replace("{}", "small.onnx")], cwd=self.folder,
                               env=self.environment, capture_output=True).returncode
        if after > most or holds != answer["exit_code_of_command"] or (seconds and taken > seconds):
            print(f"  at most {most} nodes expected; the command ends with {holds}")
            print(self.kvopt("opt", "small.onnx", "--pipeline", ""))
            self.failed += 1

    def interrupt(self):
        """Ends a reduction after its first results."""
        self.plant([], lambda text: text)
        (self.folder / "small.onnx").unlink(missing_ok=True)
        before = set(os.listdir(self.folder))
        command = "sleep 0.2; kvopt opt {} --pipeline '' | grep -q Sigmoid"
        process = subprocess.Popen(["kvopt", "reduce", "faulty.onnx", "--while", command, "-o", "small.onnx"],
                                   cwd=self.folder, env=self.environment, stderr=subprocess.DEVNULL)
        deadline = time.time() + 60
        while not (self.folder / "small.onnx").exists() and time.time() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=30)
        left = set(os.listdir(self.folder)) - before
        if code != -signal.SIGINT or left != {"small.onnx"} or "Sigmoid" not in self.kvopt("opt", "small.onnx", "--pipeline", ""):
            print(f"interrupted: ends with {code}, and leaves {sorted(left)}")
            self.failed += 1


def main():
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(sys.argv[1], folder)
        if "--large" in sys.argv:
            name, options, change, command, _ = FAULTS[0]
            faults.check(name, options, change, command, 20, layers=13, seconds=120)
        else:
            for fault in FAULTS:
                faults.check(*fault)
            faults.interrupt()
        print(f"{faults.failed} failed")
        return 1 if faults.failed else 0


if __name__ == "__main__":
    sys.exit(main())
