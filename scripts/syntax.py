"""syntax.py BUILD [--llvm FOLDER] [--compiler CXX] [--only TEXT] [--one-of N] [-j N]: checks the files of a build with
another compiler or with the headers of another LLVM, and lists those that do not compile. Nothing is written.

  bash scripts/debian_packages.sh build/debian/llvm-19 --release bookworm --alone llvm-19-dev
  python3 scripts/syntax.py build/release --compiler clang++-14 --llvm build/debian/llvm-19/root/usr/lib/llvm-19/include

--only takes files whose path has this text, and --one-of every N-th of them.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile


def command_of(entry, options, folder):
    """The compiler's command for one file, which checks it and writes nothing."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    del words[at:at + 2]
    command = [options.compiler or words[0], "-fsyntax-only", "-Wno-unknown-warning-option"]
    for word in words[1:]:
        # The text of a precompiled header: compiled, it would be the build's own LLVM.
        if word.endswith("/cmake_pch.hxx"):
            text = pathlib.Path(word)
            word = str(folder / f"{text.parent.name}.h")
            pathlib.Path(word).write_text(text.read_text(encoding="utf-8"), encoding="utf-8")
        elif options.llvm and re.fullmatch(r".*/llvm-\d+/include", word):
            word = options.llvm
        if word != "-Winvalid-pch":
            command.append(word)
    return command


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--llvm")
    parser.add_argument("--compiler")
    parser.add_argument("--only", default="")
    parser.add_argument("--one-of", type=int, default=1)
    parser.add_argument("-j", type=int, default=2)
    options = parser.parse_args()
    if options.llvm:
        options.llvm = str(pathlib.Path(options.llvm).resolve(strict=True))
    entries = json.loads(pathlib.Path(options.build, "compile_commands.json").read_text(encoding="utf-8"))
    entries = [entry for entry in entries
               if options.only in entry["file"] and not entry["file"].endswith("cmake_pch.hxx.cxx")]
    if options.llvm:
        entries = [entry for entry in entries if re.search(r"/llvm-\d+/include", entry["command"])]
    entries = entries[::options.one_of]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        commands = [command_of(entry, options, pathlib.Path(folder)) for entry in entries]

        def check(at):
            return subprocess.run(commands[at], cwd=entries[at]["directory"], text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        for at, done in enumerate(pool.map(check, range(len(entries)))):
            if done.returncode:
                failed += 1
                print(f"FAILED: {entries[at]['file']}\n{done.stdout}", flush=True)
    print(f"{len(entries) - failed} of {len(entries)} compile")
    return 1 if failed or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
