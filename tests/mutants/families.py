"""Models that mutants are made of: small sources of many kinds and spellings, each written for every preset.

A family is what one rewrite wrote: the model with its variants, pieces, first step, weights and manifest.
"""
import json
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from onnx_message import read_model, write_model  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SMALL = ["--layers", "2", "--hidden", "16", "--heads", "2", "--intermediate", "16", "--vocab", "32"]
ONE_HEAD = SMALL + ["--kv-heads", "1"]
CAPACITY = "40"
# Beyond what the runs of a verification pass by themselves.
DEEP_CAPACITY = "104"

# name: arguments of `kvopt gen`, or the path of a model, or of a text and the passes that are run on it.
SOURCES = {
    "llama": ["llama"] + ONE_HEAD,
    "deep": ["llama", "--seed", "1"] + ONE_HEAD,
    "window": ["window", "--window", "8"] + ONE_HEAD,
    "wide-window": ["window", "--window", "16", "--seed", "2"] + ONE_HEAD,
    "last-rows": ["window", "--window", "8", "--cache", "last-rows"] + ONE_HEAD,
    "mha": ["mha", "--spelling", "dynamo"] + SMALL,
    "mqa": ["mqa", "--spelling", "attention"] + SMALL,
    "gqa": ["llama", "--spelling", "gqa"] + ONE_HEAD,
    "half": ["llama", "--dtype", "float16"] + ONE_HEAD,
    "mla": ["mla"] + SMALL,
    "mla-latent": ["mla-latent", "--latent-dim", "16"] + SMALL,
    "codes": ["llama", "--spelling", "gqa", "--cache-codes", "int8"] + ONE_HEAD,
    "static": ["llama", "--cache", "static", "--max-positions", CAPACITY] + ONE_HEAD,
    "merged": ["llama", "--merged"] + ONE_HEAD,
    "hybrid": ["hybrid"] + SMALL,
    "packed-qkv": ["packed-qkv"] + SMALL,
    "encoder-decoder": ["encoder-decoder"] + SMALL,
    "gpt2": "models/gpt2-dynamo18-eager/model.onnx",
    "first-step": ("tests/oracle/first_step.onnxtxt", "infer-shapes,detect-sites,lower{to=primitive}"),
    "beams": ("tests/mutants/beams.onnxtxt", ""),
    "sequence-first": ("tests/mutants/sequence_first.onnxtxt", ""),
    "stacked": ("tests/mutants/stacked.onnxtxt", ""),
}
PLAIN = ["llama", "window", "mha", "mqa", "gqa", "half", "mla", "mla-latent", "codes", "static", "last-rows", "merged",
         "hybrid", "packed-qkv", "encoder-decoder", "gpt2", "first-step", "deep", "beams", "sequence-first", "stacked"]
BLOCKS = ["llama", "deep", "window", "mha", "mqa", "half", "mla", "encoder-decoder", "gpt2", "packed-qkv",
          "sequence-first", "stacked"]
WINDOWS = ["window", "wide-window"]
GROUPS = ["llama", "window", "mha", "mqa", "gqa", "half", "merged", "packed-qkv"]
CAPACITY_OF_SOURCE = ["--capacity", "CAPACITY"]
CALIBRATED = ["--calibration-tokens", "TOKENS"]

# name: (arguments of `kvopt rewrite`, sources).
PRESETS = {
    "kvopt": (["--to", "kvopt"], PLAIN + ["wide-window"]),
    "kvopt-fixed": (["--to", "kvopt"] + CAPACITY_OF_SOURCE, PLAIN),
    "kvopt-float16": (["--to", "kvopt", "--cache-dtype", "float16"], ["llama", "window", "mha", "mla-latent"]),
    "kvopt-layers": (["--to", "kvopt", "--layers", "0"], ["llama", "mha", "window"]),
    "kvopt-hidden-rows": (["--to", "kvopt", "--hidden-rows", "undefined"], ["llama", "window", "mqa"]),
    "int8": (["--to", "int8"] + CAPACITY_OF_SOURCE, PLAIN),
    "int4": (["--to", "int4"] + CAPACITY_OF_SOURCE, PLAIN),
    "ring": (["--to", "ring"], WINDOWS),
    "int8-ring": (["--to", "int8-ring"], WINDOWS),
    "int4-ring": (["--to", "int4-ring"], WINDOWS),
    "blocks": (["--to", "blocks:8"] + CAPACITY_OF_SOURCE, BLOCKS + ["mla-latent"]),
    "blocks-plain": (["--to", "blocks-plain:8"] + CAPACITY_OF_SOURCE, BLOCKS),
    "int8-blocks": (["--to", "int8-blocks:8"] + CAPACITY_OF_SOURCE, BLOCKS),
    "pyramid": (["--to", "pyramid:16"] + CAPACITY_OF_SOURCE, BLOCKS + ["mla-latent"]),
    "tiles": (["--to", "tiles:16"] + CAPACITY_OF_SOURCE, BLOCKS),
    "tiles-float16": (["--to", "tiles:16", "--tile-state", "float16"] + CAPACITY_OF_SOURCE, ["half"]),
    "paged": (["--to", "paged:16", "--padding", "none", "--capacity", "112"], ["llama", "mha", "mqa", "gqa", "hybrid"]),
    "latent": (["--to", "latent"] + CAPACITY_OF_SOURCE, ["mla", "mla-latent"]),
    "onnx24": (["--to", "onnx24"] + CAPACITY_OF_SOURCE, PLAIN),
    "onnx24-ring": (["--to", "onnx24-ring:8"], WINDOWS),
    "onnx23": (["--to", "onnx23"], PLAIN),
    "onnx23-bfloat16": (["--to", "onnx23", "--cache-dtype", "bfloat16"], ["llama", "mha", "window"]),
    "ort-gqa": (["--to", "ort-gqa"], GROUPS),
    "ort-gqa-unpadded": (["--to", "ort-gqa", "--padding", "none"] + CAPACITY_OF_SOURCE, GROUPS),
    "ort-gqa-int8": (["--to", "ort-gqa", "--cache-dtype", "int8"] + CALIBRATED, GROUPS),
    "ort-gqa-int4": (["--to", "ort-gqa", "--cache-dtype", "int4"] + CALIBRATED, GROUPS),
    "primitive": (["--to", "primitive"], PLAIN),
    "primitive-float16": (["--to", "primitive", "--cache-dtype", "float16"], ["llama", "mha", "window"]),
}


def check_targets(kvopt):
    """Every target is in a preset: a new one has to be added."""
    listed = subprocess.run([kvopt, "list", "targets", "--format", "json"], stdout=subprocess.PIPE, check=True).stdout
    named = {arguments[1].split(":")[0] for arguments, _ in PRESETS.values()}
    missing = {target["name"] for target in json.loads(listed)["targets"]} - named
    if missing:
        raise SystemExit("no preset of tests/mutants/families.py has --to " + ", ".join(sorted(missing)))


class Family:
    """What one rewrite wrote, in a folder: m.onnx is the model, source.onnx what it was made of."""

    def __init__(self, preset, source, folder, source_path):
        self.preset = preset
        self.source = source
        self.folder = folder
        self.source_path = source_path
        self.model_path = os.path.join(folder, "m.onnx")
        self.files = sorted(name for name in os.listdir(folder) if name.startswith("m."))
        with open(os.path.join(folder, "m.kv.json"), encoding="utf-8") as file:
            self.manifest = json.load(file)

    def reference_path(self):
        """What mutants are compared with at all lengths: the source where a first step has to be run."""
        return self.source_path if self.manifest.get("first_step") else self.model_path


class Families:
    """Makes sources and families in a folder when they are first needed, and once."""

    def __init__(self, kvopt, folder):
        self.kvopt = kvopt
        self.folder = folder
        self.made = {}
        os.makedirs(folder, exist_ok=True)
        self.tokens = os.path.join(folder, "tokens.txt")
        rng = random.Random(1)
        with open(self.tokens, "w", encoding="utf-8") as file:
            file.write(" ".join(str(rng.randrange(32)) for _ in range(200)))

    def run(self, arguments):
        return subprocess.run([self.kvopt] + arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)

    def source_path(self, source):
        path = os.path.join(self.folder, source + ".onnx")
        if os.path.exists(path):
            return path
        made_of = SOURCES[source]
        if isinstance(made_of, str):
            shutil.copy(os.path.join(ROOT, made_of), path)
            return path
        if isinstance(made_of, tuple):
            done = self.run(["opt", os.path.join(ROOT, made_of[0]), "--pipeline", made_of[1], "-o", path])
        else:
            done = self.run(["gen"] + made_of + ["-o", path])
        if done.returncode != 0:
            raise SystemExit("%s: %s" % (source, done.stderr.decode(errors="replace")))
        return path

    def get(self, preset, source):
        """The family, or None where the target does not take the source."""
        key = (preset, source)
        if key not in self.made:
            self.made[key] = self.make(preset, source)
        return self.made[key]

    def make(self, preset, source):
        source_path = self.source_path(source)
        folder = os.path.join(self.folder, "%s@%s" % (preset, source))
        if os.path.exists(os.path.join(folder, "refused")):
            return None
        if not os.path.exists(os.path.join(folder, "m.kv.json")):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            if not self.write(preset, source, source_path, os.path.join(folder, "m.onnx")):
                open(os.path.join(folder, "refused"), "w", encoding="utf-8").close()
                return None
        return Family(preset, source, folder, source_path)

    def write(self, preset, source, source_path, output):
        values = {"CAPACITY": DEEP_CAPACITY if source == "deep" else CAPACITY, "TOKENS": self.tokens}
        arguments = [values.get(each, each) for each in PRESETS[preset][0]]
        command = "add-cache" if source == "first-step" else "rewrite"
        attempts = [[]]
        if source == "merged":
            attempts.append(["--one-branch"])
        for more in attempts:
            done = self.run([command, source_path, "-o", output, "--verify", "off"] + arguments + more)
            if done.returncode == 0 and os.path.exists(os.path.join(os.path.dirname(output), "m.kv.json")):
                return True
        return False

    def of_preset(self, preset):
        return [family for family in (self.get(preset, source) for source in PRESETS[preset][1]) if family]


class Copy:
    """A family's files in memory, to be changed and written elsewhere."""

    def __init__(self, family):
        self.family = family
        self.manifest = json.loads(json.dumps(family.manifest))
        self.messages = {}
        self.changed_bytes = {}
        self.has_new_body = False

    def model_files(self):
        return [name for name in self.family.files if name.endswith(".onnx")]

    def message(self, name="m.onnx"):
        if name not in self.messages:
            self.messages[name] = read_model(os.path.join(self.family.folder, name))
        return self.messages[name]

    def role(self, name):
        """What the file is of the model."""
        for role in ("past", "part", "tile", "first"):
            if name.startswith("m." + role):
                return {"past": "variant", "part": "piece", "first": "first step"}.get(role, role)
        return "whole" if self.manifest.get("tiles") else "model"

    def write(self, folder):
        """Writes the mutant; its path."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        if self.manifest != self.family.manifest:
            text = json.dumps(self.manifest)
            for entry in self.message().values(14):
                if entry.values(1) == [b"kvopt.manifest"]:
                    entry.entries(2)[0][1] = text.encode()
        for name in self.family.files:
            path = os.path.join(folder, name)
            if name in self.messages:
                write_model(path, self.messages[name])
            elif name in self.changed_bytes:
                with open(path, "wb") as file:
                    file.write(self.changed_bytes[name])
            elif name == "m.kv.json":
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(self.manifest, file)
            else:
                shutil.copy(os.path.join(self.family.folder, name), path)
        return os.path.join(folder, "m.onnx")
