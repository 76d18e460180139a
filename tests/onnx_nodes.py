#!/usr/bin/env python3
"""ONNX's own test cases of all operators, run by kvopt and compared with the outputs that come with them.

    onnx_nodes.py KVOPT CASES.tar.xz [--update]

What every case that is not equal ends with is in golden/all_onnx_nodes.txt; --update writes it anew.
"""
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tarfile
import tempfile

golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "all_onnx_nodes.txt")


def outcome(kvopt, folder):
    """"equal", or the word for what happened and its reason."""
    command = [kvopt, "verify", os.path.join(folder, "model.onnx"), "--reference", folder]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    text = (result.stdout + result.stderr).strip().splitlines()
    if result.returncode == 0:
        return "equal"
    if result.returncode not in (1, 3, 4):
        return f"ended with {result.returncode}"
    if result.returncode == 1:
        return "different" if "nothing was compared" not in text[0] else "empty: nothing was compared"
    # Paths and names of nodes are not part of a reason.
    reason = re.sub(r"^kvopt: error: \S+: (node .*?\([\w.:]+\): )?", "", text[-1] if text else "")
    reason = re.sub(r"(a tensor)( holds|'s number| is split).*", r"\1 that is a sequence or an optional value", reason)
    return "refused: " + reason.split("; hint")[0]


def main():
    kvopt, archive = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as work:
        with tarfile.open(archive) as cases:
            cases.extractall(work)
        folders = sorted(folder for folder, _, files in os.walk(work) if "model.onnx" in files)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            outcomes = list(pool.map(lambda folder: outcome(kvopt, folder), folders))
    counts = collections.Counter(text.split(":")[0] for text in outcomes)
    lines = [f"# {len(folders)} cases: " + ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))]
    lines += [f"{os.path.basename(folder)} | {text}" for folder, text in zip(folders, outcomes) if text != "equal"]
    found = "\n".join(lines) + "\n"
    print(lines[0][2:])
    if "--update" in sys.argv:
        with open(golden, "w") as file:
            file.write(found)
        return 0
    with open(golden) as file:
        expected = file.read()
    for line in sorted(set(found.splitlines()) ^ set(expected.splitlines())):
        print(("now " if line in found.splitlines() else "before ") + line)
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main())
