#!/usr/bin/env python3
"""Checks that clang++-14 accepts what users may build with it: every file of a build that g++ made but for
the tests, with the same warnings as errors.

usage: check_clang.py BUILD_FOLDER [CLANG_BUILD_FOLDER]

What was compiled in the second folder, a build that clang++-14 made, is accepted already.

Only parses (-fsyntax-only): the build's generated headers must exist. Exits 1 and prints the compiler's
messages when a file is not accepted, or when there is no file to check.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def object_of(entry):
    """Its path in the build folder, by which files are the same in two builds: those that are compiled together
    are listed as one file, which each build generates."""
    words = shlex.split(entry["command"])
    return pathlib.Path(words[words.index("-o") + 1])


def clang_command(entry):
    words = shlex.split(entry["command"])
    while os.path.basename(words[0]) == "ccache":
        words.pop(0)
    at = words.index("-o")
    del words[at:at + 2]
    # What g++ precompiled clang cannot read; its headers are included by the files themselves.
    for at in [i for i, word in enumerate(words) if word == "-include"][::-1]:
        if words[at + 1].endswith("cmake_pch.hxx"):
            del words[at:at + 2]
    # g++'s flags may silence warnings that only g++ has.
    return ["clang++-14", "-fsyntax-only", "-Wno-unknown-warning-option", *words[1:]]


def check(entry):
    result = subprocess.run(clang_command(entry), cwd=entry["directory"], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, check=False)
    return entry["file"], result.returncode, result.stdout + result.stderr


def commands(folder):
    with open(pathlib.Path(folder) / "compile_commands.json", encoding="utf-8") as file:
        return json.load(file)


def compiled(folder):
    """The objects that are in a build folder."""
    return {object_of(e) for e in commands(folder) if (pathlib.Path(e["directory"]) / object_of(e)).exists()}


def main():
    accepted = compiled(sys.argv[2]) if len(sys.argv) > 2 else set()
    all_entries = [e for e in commands(sys.argv[1])
                   if not e["file"].endswith(".pb.cc") and object_of(e).parts[0] != "tests"]
    entries = [e for e in all_entries if object_of(e) not in accepted]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, text in pool.map(check, entries):
            if code != 0:
                bad += 1
                print(f"{file}:\n{text}")
    print(f"clang++-14 accepts {len(entries) - bad} of {len(entries)} files, "
          f"and compiled {len(all_entries) - len(entries)} others")
    return 1 if bad or not all_entries else 0


if __name__ == "__main__":
    sys.exit(main())
