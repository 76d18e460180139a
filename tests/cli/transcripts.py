"""Runs the commands of tests/cli/transcripts/*.txt and compares their whole answers with the files.

    transcripts.py KVOPT            compare
    transcripts.py KVOPT --update   write the answers into the files
    transcripts.py KVOPT --only 07  one of them

A file begins with the task, in lines that start with `#`. A line `$ COMMAND` is run by a shell in an empty folder in which
`models` and `tests` are those of the repository and `kvopt` is the program; what follows is its output, of both streams, and `exit N` where
that is not 0. A line `$$ COMMAND` prepares a file: its output is not shown. Times and rounding errors, which depend on the machine, are masked.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent

# What depends on the machine, and what stands for it.
masks = [
    (re.compile(r"\b\d+(\.\d+)?e[-+]\d+"), "#e#"),
    (re.compile(r"\b\d+(\.\d+)? (ms|us|s|GB/s|tok/s|tokens/s|GFLOPS)\b"), r"# \2"),
    (re.compile(r"\d+ most likely tokens stay \([\d.]+ %\)"), "# most likely tokens stay (# %)"),
    (re.compile(r"\d+ of \d+ most likely tokens"), "# of # most likely tokens"),
    (re.compile(r"max ulp \d+"), "max ulp #"),
    (re.compile(r"\b[0-9a-f]{16}…"), "#…"),  # digests, which change with the checker's report
    (re.compile(r"perplexity [\d.]+ and [\d.]+ \([-+][\d.]+ %\)"), "perplexity # and # (# %)"),
]


def masked(text, masks_all_numbers):
    for pattern, replacement in masks:
        text = pattern.sub(replacement, text)
    if not masks_all_numbers:
        return text
    # Columns are as wide as their numbers.
    return re.sub(r"-{2,}", "-", re.sub(r" {2,}", " ", re.sub(r"\d+(\.\d+)?", "#", text)))


def run(command, folder, environment):
    """The output of both streams in the order in which a reader wants them, and the exit code."""
    result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, timeout=300)
    return (result.stdout + result.stderr).decode(errors="replace"), result.returncode


def answers(path, kvopt):
    """The file as it is when the program runs now."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("models", "tests"):
            os.symlink(root / name, os.path.join(folder, name))
        os.mkdir(os.path.join(folder, "bin"))
        os.symlink(kvopt, os.path.join(folder, "bin", "kvopt"))
        environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": folder}
        for line in path.read_text().splitlines():
            if line.startswith("#"):
                lines.append(line)
            elif line.startswith("$"):
                output, code = run(line.lstrip("$ "), folder, environment)
                lines.append(line)
                if not line.startswith("$$"):
                    lines += masked(output, " bench " in line).splitlines()
                if code != 0:
                    lines.append(f"exit {code}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvopt")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    kvopt = os.path.realpath(arguments.kvopt)
    paths = sorted((here / "transcripts").glob(f"{arguments.only}*.txt"))
    failed = 0
    for path in paths:
        actual = answers(path, kvopt)
        if arguments.update:
            path.write_text(actual)
        elif actual != path.read_text():
            failed += 1
            print(f"{path.name} differs; `python3 tests/cli/transcripts.py KVOPT --update` writes:\n{actual}")
    print(f"{len(paths)} transcripts, {failed} differ")
    return 0 if paths and failed == 0 else 1


sys.exit(main())
