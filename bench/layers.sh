#!/usr/bin/env bash
# Seconds and peak memory of every command and target with the number of layers, in generated
# decoders of tiny layers, and the growth from the second largest number of layers to the largest:
# twice as many layers should take twice as much.
#   bash bench/layers.sh [BUILD [LAYERS…]]
# LAYERS (default: 35 70 140 280 560 1120) are in ascending order. Exits with 1 if a command failed.
set -euo pipefail

build=$(realpath "${1:-build/release}")
layers=("${@:2}")
[ ${#layers[@]} -gt 0 ] || layers=(35 70 140 280 560 1120)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 - "$build/bin/kvopt" "${layers[@]}" <<'PYTHON'
import json, os, subprocess, sys, time

kvopt, layers = sys.argv[1], [int(count) for count in sys.argv[2:]]
tiny = "--hidden 8 --heads 2 --vocab 16 --intermediate 8 --max-positions 128".split()
decoders = {
    "llama": ["llama", "--kv-heads", "1"],
    "dynamo": ["llama", "--kv-heads", "1", "--spelling", "dynamo"],
    "attention": ["llama", "--kv-heads", "1", "--spelling", "attention"],
    "gqa": ["llama", "--kv-heads", "1", "--spelling", "gqa", "--head-dim", "16"],
    "window": ["window", "--kv-heads", "1", "--window", "8"],
    "mla": "mla --head-dim 4 --rope-dim 4 --value-dim 4 --latent-dim 4".split(),
    "packed-qkv": ["packed-qkv"],
    "encoder-decoder": ["encoder-decoder"],
    "static": ["llama", "--kv-heads", "1", "--cache", "static"],
    "none": ["llama", "--kv-heads", "1", "--cache", "none"],
}
unverified = ["--verify", "off"]
cases = []


def add(name, decoder, *command, prepare=None):
    cases.append((name, decoder, list(command), prepare))


for decoder in decoders:
    add(f"inspect {decoder}", decoder, "inspect", "MODEL")

listed = subprocess.run([kvopt, "list", "targets", "--format", "json"], capture_output=True, text=True, check=True)
for target in [entry["name"] for entry in json.loads(listed.stdout)["targets"]]:
    decoder, options, name = "llama", [], target
    if "ring" in target:
        decoder, options = "window", ["--hidden-rows", "undefined"]
    elif target == "latent":
        decoder = "mla"
    elif target in ("ort-gqa", "paged"):
        decoder, options = "gqa", ["--hidden-rows", "undefined", "--padding", "none"]
    elif target in ("blocks", "blocks-plain", "int8-blocks", "pyramid", "tiles"):
        name, options = f"{target}:16", ["--capacity", "64"]
    rewrite = ["rewrite", "MODEL", "-o", "out.onnx", "--to", name, *options]
    add(f"explain --to {target}", decoder, "explain", "MODEL", "--to", target)
    add(f"rewrite --to {name} --verify off", decoder, *rewrite, *unverified)
    add(f"rewrite --to {name}", decoder, *rewrite)

add("rewrite --to kvopt --rows float16", "llama", "rewrite", "MODEL", "-o", "out.onnx",
    "--to", "kvopt", "--rows", "float16", *unverified)
add("add-cache --verify off", "none", "add-cache", "MODEL", "-o", "out.onnx", *unverified)
add("add-cache", "none", "add-cache", "MODEL", "-o", "out.onnx")
add("make-dynamic --verify off", "fixed", "make-dynamic", "MODEL", "-o", "out.onnx", *unverified)
to_kvopt = ["rewrite", "MODEL", "-o", "second.onnx", "--to", "kvopt", *unverified]
to_tiles = ["rewrite", "MODEL", "-o", "second.onnx", "--to", "tiles:16", "--capacity", "64",
            *unverified]
tokens = ["--tokens", "1,2,3", "--steps", "2"]
short = "-p 1 -n 2 -d 0 -r 1 -t 1".split()
add("run", "llama", "run", "MODEL", *tokens)
add("run (kvopt)", "llama", "run", "second.onnx", *tokens, prepare=to_kvopt)
add("run (tiles)", "llama", "run", "second.onnx", *tokens, prepare=to_tiles)
add("verify", "llama", "verify", "MODEL", "second.onnx", "--prompt", "5", "--steps", "2",
    prepare=to_kvopt)
add("diff", "llama", "diff", "MODEL", "second.onnx", prepare=to_kvopt)
add("bench", "llama", "bench", "MODEL", "second.onnx", *short, prepare=to_kvopt)
add("rewrite of --to kvopt to onnx24", "llama", "rewrite", "second.onnx", "-o", "out.onnx", "--to",
    "onnx24", *unverified, prepare=to_kvopt)


def quiet(command):
    subprocess.run([kvopt, *command, "-q"], stdout=subprocess.DEVNULL, check=True)


def model_of(decoder, count):
    path = f"{decoder}.{count}.onnx"
    if os.path.exists(path):
        return path
    if decoder == "fixed":
        fix(model_of("llama", count), path)
    else:
        quiet(["gen", *decoders[decoder], *tiny, "--layers", str(count), "-o", path])
    return path


def fix(source, path):
    """Gives a model fixed extents, as an export for one shape has them."""
    text = subprocess.run([kvopt, "opt", source], capture_output=True, text=True, check=True).stdout
    for extent, number in (("total_sequence_length", 8), ("past_sequence_length", 5),
                           ("sequence_length", 3), ("batch_size", 1)):
        text = text.replace(extent, str(number))
    with open("fixed.onnxtxt", "w") as file:
        file.write(text)
    quiet(["opt", "fixed.onnxtxt", "-o", path])


def measured(command):
    start = time.perf_counter()
    process = subprocess.Popen([kvopt, *command, "-q"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - start, usage.ru_maxrss / 1024, status


print("Seconds, and MiB at the peak\n")
print("| command | " + " | ".join(f"{count} layers" for count in layers) + " | growth |")
print("|---" * (len(layers) + 2) + "|")
failed = False
for name, decoder, command, prepare in cases:
    cells, results = [], []
    for count in layers:
        model = model_of(decoder, count)
        if prepare:
            quiet([model if word == "MODEL" else word for word in prepare])
        seconds, peak, status = measured([model if word == "MODEL" else word for word in command])
        if os.waitstatus_to_exitcode(status) != 0:
            print(f"{name}: failed with status {status}", file=sys.stderr)
            failed = True
            break
        results.append((seconds, peak))
        cells.append(f"{seconds:.2f} s, {peak:.0f}")
        for file in os.listdir("."):
            if file.startswith("out"):
                os.remove(file)
    growth = ""
    if len(results) == len(layers) > 1:
        growth = (f"{results[-1][0] / results[-2][0]:.1f} and "
                  f"{results[-1][1] / results[-2][1]:.1f}")
    print(f"| {name} | " + " | ".join(cells) + f" | {growth} |", flush=True)
sys.exit(1 if failed else 0)
PYTHON
