#!/usr/bin/env python3
"""Mutates models and runs commands on them: whatever a model says, kvopt ends with an exit code.

    hostile_models.py KVOPT MODEL... [--count N] [--seed S] [--keep DIR] [--against KVOPT] [--sanitized]

Each case changes one to three things of one model: operands, attributes, operator sets, extents,
outputs, names, order, or the manifest. Every command has to end with an exit code from 0 to 4 within
the time limit, and with the same one in another build if --against names it. The same seed gives the
same cases. Exits with 1 where a command did not; --keep keeps the models of those cases. A build with
sanitizers, which reserve more address space than a limit would leave, is run with --sanitized.
"""
import argparse
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

from onnx_message import graphs, names_of, nodes, read_model, varint, write_model

SANITIZED = "--sanitized" in sys.argv
SECONDS = 60
MEMORY = 8 << 30
TARGETS = ["kvopt", "ring", "int8", "int8-ring", "int4-ring", "int8-blocks", "blocks", "blocks-plain", "pyramid:16", "ort-gqa", "paged:16", "onnx23",
           "onnx24", "onnx24-ring:4", "primitive"]
EXTREMES = [0, 1, 2, 7, -1, -2, 255, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63)]


def pick(rng, choices):
    return rng.choice(choices) if choices else None


def drop(rng, message, field):
    entry = pick(rng, message.entries(field))
    if entry:
        message.fields.remove(entry)


def change_operands(rng, message):
    one = pick(rng, nodes(message))
    if not one:
        return
    operands = one.entries(1)
    kind = rng.randrange(5)
    if kind == 0:
        drop(rng, one, 1)
    elif kind == 1 and operands:
        rng.choice(operands)[1] = b""
    elif kind == 2:
        one.fields.append([1, rng.choice(names_of(message))])
    elif kind == 3 and operands:
        # Of a node before or after: may be a cycle.
        rng.choice(operands)[1] = rng.choice(names_of(message))
    else:
        one.fields = [entry for entry in one.fields if entry[0] != 1]


def change_results(rng, message):
    one = pick(rng, nodes(message))
    if not one:
        return
    kind = rng.randrange(3)
    if kind == 0:
        drop(rng, one, 2)
    elif kind == 1:
        one.fields.append([2, b"more_%d" % rng.randrange(1000)])
    elif one.entries(2):
        rng.choice(one.entries(2))[1] = rng.choice(names_of(message))


def change_attributes(rng, message):
    one = pick(rng, [each for each in nodes(message) if each.values(5)])
    if not one:
        return
    attr = rng.choice(one.values(5))
    kind = rng.randrange(5)
    if kind == 0:
        drop(rng, one, 5)
    elif kind == 1:
        for entry in attr.entries(20):
            entry[1] = rng.randrange(0, 16)
    elif kind == 2:
        for entry in attr.entries(3) + attr.entries(8):
            if not isinstance(entry[1], tuple) and rng.randrange(2):
                entry[1] = rng.choice(EXTREMES) if isinstance(entry[1], int) else \
                    b"".join(varint(rng.choice(EXTREMES)) for _ in range(rng.randrange(5)))
    elif kind == 3:
        other = pick(rng, [each for each in nodes(message) if each.values(5)])
        attr.fields = rng.choice(other.values(5)).fields[:]
    else:
        attr.fields.append([21, b"reference"])


def change_operator(rng, message):
    one = pick(rng, nodes(message))
    other = pick(rng, nodes(message))
    if one and one.entries(4):
        one.entries(4)[0][1] = other.values(4)[0] if other and rng.randrange(2) else rng.choice(
            [b"Min", b"Max", b"Concat", b"Einsum", b"Loop", b"Scan", b"If", b"Split", b"Gather", b"Softmax",
             b"Reshape", b"Slice", b"Where", b"Attention", b"Conv", b"Pad", b"Expand", b"Transpose", b"Range",
             b"TopK", b"Unsqueeze", b"Squeeze", b"ConstantOfShape", b"Constant", b"Cast", b"ScatterND", b"CumSum",
             b"ReduceSum", b"Identity", b"Shape", b"Gemm", b"Sum", b"OneHot", b"Trilu", b"Tile", b"NonZero",
             b"SequenceConstruct", b"SplitToSequence", b"SequenceAt", b"ConcatFromSequence", b"TensorScatter"])


def change_opsets(rng, message):
    entry = pick(rng, message.values(8))
    if not entry:
        return
    kind = rng.randrange(4)
    if kind == 0:
        drop(rng, message, 8)
    elif kind == 1:
        message.fields.append([8, entry])
    else:
        for field in entry.entries(2):
            field[1] = rng.choice(EXTREMES + list(range(1, 30)))


def change_types(rng, message):
    infos = [info for each in graphs(message) for field in (11, 12, 13) for info in each.values(field)]
    info = pick(rng, infos)
    if not info or not info.values(2) or not info.values(2)[0].values(1):
        return
    described = info.values(2)[0].values(1)[0]
    kind = rng.randrange(4)
    if kind == 0:
        for entry in described.entries(1):
            entry[1] = rng.randrange(0, 24)
    elif kind == 1:
        drop(rng, described, 2)
    elif described.values(2):
        extents = described.values(2)[0]
        if kind == 2:
            drop(rng, extents, 1)
        for extent in extents.values(1):
            if rng.randrange(3) == 0:
                extent.fields = [[1, rng.choice(EXTREMES)]] if rng.randrange(4) else [[2, b"batch * 9000000000"]]


def change_interface(rng, message):
    each = pick(rng, graphs(message))
    field = rng.choice([5, 11, 12])
    entries = each.entries(field)
    kind = rng.randrange(3)
    if kind == 0:
        drop(rng, each, field)
    elif kind == 1 and len(entries) > 1:
        a, b = rng.sample(entries, 2)
        a[1], b[1] = b[1], a[1]
    elif entries:
        each.fields.append(rng.choice(entries)[:])


def change_initializer(rng, message):
    held = pick(rng, [value for each in graphs(message) for value in each.values(5)])
    if not held:
        return
    kind = rng.randrange(3)
    if kind == 0:
        for entry in held.entries(1):
            entry[1] = rng.choice(EXTREMES) if isinstance(entry[1], int) else varint(rng.choice(EXTREMES))
    elif kind == 1:
        for entry in held.entries(2):
            entry[1] = rng.randrange(0, 24)
    else:
        for entry in held.entries(9):
            if len(entry[1]) in (8, 16, 24, 32) and isinstance(entry[1], bytes):
                entry[1] = b"".join(struct.pack("<q", rng.choice(EXTREMES)) for _ in range(len(entry[1]) // 8))


def change_order(rng, message):
    each = pick(rng, graphs(message))
    entries = each.entries(1)
    if len(entries) > 1:
        a, b = rng.sample(entries, 2)
        if rng.randrange(3):
            a[1], b[1] = b[1], a[1]
        else:
            each.fields.remove(a)


def changed_json(rng, value, names):
    """The value with about one change."""
    if isinstance(value, dict):
        key = pick(rng, list(value))
        if key is None:
            return value
        if rng.randrange(8) == 0:
            return {k: v for k, v in value.items() if k != key}
        return {k: changed_json(rng, v, names) if k == key else v for k, v in value.items()}
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            return value[:at] + value[at + 1:]
        if kind == 1:
            return value + [value[at]]
        return value[:at] + [changed_json(rng, value[at], names)] + value[at + 1:]
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return rng.choice(EXTREMES)
    words = ["", "ring", "block", "static", "state", "fixed", "key", "value", "latent", "key_scale", "cross", "growing",
             "stateful", "blocks", "shared-buffer", "int8", "float16", "bool", "int64", "capacity", "has_past", "../x",
             "past_length", "total_length_per_batch", "tokens", "new"]
    return rng.choice(words + [rng.choice(names).decode(errors="replace"), rng.choice(EXTREMES), None])


def change_manifest(rng, message):
    for entry in message.values(14):
        if entry.values(1) == [b"kvopt.manifest"]:
            manifest = json.loads(entry.values(2)[0])
            for _ in range(rng.randrange(1, 4)):
                manifest = changed_json(rng, manifest, names_of(message))
            entry.entries(2)[0][1] = json.dumps(manifest).encode()


MUTATIONS = [change_operands, change_operands, change_results, change_attributes, change_attributes, change_operator,
             change_opsets, change_types, change_interface, change_initializer, change_order, change_manifest,
             change_manifest]


def commands(rng, path, original, output):
    all_commands = [
        ["inspect", path],
        ["run", path, "--tokens", "1,2", "--steps", "2"],
        ["rewrite", path, "-o", output, "--to", rng.choice(TARGETS), "--capacity", "32"],
        ["verify", path, path, "--prompt", "2", "--steps", "1"],
        ["explain", path],
        ["diff", path, original],
    ]
    return rng.sample(all_commands, 2)


def limit():
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_of(kvopt, command):
    """The exit code, and what is wrong with it or None."""
    try:
        done = subprocess.run([kvopt] + command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=SECONDS,
                              preexec_fn=limit, check=False)
    except subprocess.TimeoutExpired:
        return None, "takes longer than %d s" % SECONDS
    if 0 <= done.returncode <= 4:
        return done.returncode, None
    return done.returncode, "exit code %d: %s" % (done.returncode, done.stderr.decode(errors="replace").strip()[-300:])


def problem_of(kvopt, other, command):
    """What is wrong with how the command ended, or None. Another build of kvopt has to end it alike."""
    code, problem = end_of(kvopt, command)
    if problem or not other:
        return problem
    other_code, problem = end_of(other, command)
    if not problem and code != other_code:
        return "exit code %d, and %d of the other build" % (code, other_code)
    return problem


def seeds(kvopt, paths, folder):
    """The models, and what the targets make of them, which has manifests."""
    found = []
    for number, path in enumerate(paths):
        found.append(path)
        for target in ("kvopt", "int8", "blocks", "ort-gqa", "onnx24-ring:4"):
            output = os.path.join(folder, "seed%d_%s.onnx" % (number, target.replace(":", "_")))
            done = subprocess.run([kvopt, "rewrite", path, "-o", output, "--to", target, "--capacity", "32",
                                   "--verify", "off", "--external-data", "inline"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, check=False)
            if done.returncode == 0:
                found.append(output)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvopt")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep")
    parser.add_argument("--against")
    parser.add_argument("--sanitized", action="store_true")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        windowed = os.path.join(folder, "windowed.onnx")
        subprocess.run([options.kvopt, "gen", "window", "--window", "4", "--vocab", "32", "--hidden", "16", "--heads", "2",
                        "--layers", "1", "-o", windowed], stdout=subprocess.DEVNULL, check=True)
        paths = seeds(options.kvopt, options.models + [windowed], folder)
        for number in range(options.seed, options.seed + options.count):
            rng = random.Random(number)
            original = rng.choice(paths)
            message = read_model(original)
            applied = [rng.choice(MUTATIONS) for _ in range(rng.randrange(1, 4))]
            for mutate in applied:
                mutate(rng, message)
            path = os.path.join(folder, "case.onnx")
            write_model(path, message)
            for command in commands(rng, path, original, os.path.join(folder, "out.onnx")):
                problem = problem_of(options.kvopt, options.against, command)
                if not problem:
                    continue
                failed += 1
                print("seed %d, %s, %s: %s: %s" % (number, os.path.basename(original),
                                                  ", ".join(each.__name__ for each in applied),
                                                  " ".join(command[:1] + command[2:]), problem), flush=True)
                if options.keep:
                    os.makedirs(options.keep, exist_ok=True)
                    shutil.copy(path, os.path.join(options.keep, "case%d.onnx" % number))
    print("%d cases, %d commands failed" % (options.count, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
