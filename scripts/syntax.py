"""syntax.py BUILD [--llvm FOLDER] [--compiler CXX] [--only TEXT] [--since REVISION] [--one-of N] [--most N] [-j N]:
checks the files of a build with another compiler or with the headers of another LLVM, each alone, and lists those that do
not compile. Nothing is written.

  bash scripts/debian_packages.sh build/debian/llvm-19 --release bookworm --alone llvm-19-dev
  python3 scripts/syntax.py build/release --compiler clang++-14 --llvm build/debian/llvm-19/root/usr/lib/llvm-19/include

--only takes files whose path has this text, --since those that have changed after a revision or include a header that
has, all files if git does not know the revision, --one-of every N-th of them, and --most as many, others for another
revision.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile


def header_of(precompiled, folder):
    """A copy of the text of a target's precompiled header."""
    header = folder / f"{precompiled.parent.name}.h"
    if not header.exists():
        # As the main file, it is no header of the system.
        text = precompiled.read_text(encoding="utf-8").replace("#pragma GCC system_header", "")
        header.write_text(text, encoding="utf-8")
    return header


def precompile(entry, options, folder):
    """Compiles the precompiled header of a target, which clang takes where it finds it next to the text."""
    words = command_of(entry, options, folder)
    at = words.index("-include")
    header = words[at + 1]
    words = [word for word in words[:at] + words[at + 2:-2] if word != "-fsyntax-only"]
    # Templates are made once, with the header, and not again with each file.
    words.append("-fpch-instantiate-templates")
    subprocess.run(words + [header, "-o", header + ".pch"], cwd=entry["directory"], check=True)


def command_of(entry, options, folder):
    """The compiler's command for one file, which checks it and writes nothing."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    del words[at:at + 2]
    command = [options.compiler or words[0], "-fsyntax-only", "-Wno-unknown-warning-option"]
    if options.compiler:
        command.append("-Wno-ignored-optimization-argument")
    if entry["file"].endswith(".c"):
        command += ["-x", "c"]
    for word in words[1:]:
        # The text of a precompiled header: compiled, it would be the build's own LLVM.
        if word.endswith("/cmake_pch.hxx"):
            word = str(header_of(pathlib.Path(word), folder))
        elif options.llvm and re.fullmatch(r".*/llvm-\d+/include", word):
            word = options.llvm
        if word != "-Winvalid-pch":
            command.append(word)
    return command


def changed_since(revision):
    """Paths of files that have changed after a revision of git; None if it is unknown."""
    found = subprocess.run(["git", "diff", "--name-only", revision, "--"], text=True, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return set(found.stdout.splitlines()) if found.returncode == 0 else None


def is_affected(path, changed):
    """Whether a file has changed, or a header that it includes itself."""
    root = pathlib.Path.cwd()
    included = re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    return any(name in changed for name in included + [str(path.relative_to(root)) if root in path.parents else ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--llvm")
    parser.add_argument("--compiler")
    parser.add_argument("--only", default="")
    parser.add_argument("--since")
    parser.add_argument("--one-of", type=int, default=1)
    parser.add_argument("--most", type=int, default=sys.maxsize)
    parser.add_argument("-j", type=int, default=2)
    options = parser.parse_args()
    if options.llvm:
        options.llvm = str(pathlib.Path(options.llvm).resolve(strict=True))
    entries = json.loads(pathlib.Path(options.build, "compile_commands.json").read_text(encoding="utf-8"))
    headers = [entry for entry in entries if entry["file"].endswith("cmake_pch.hxx.cxx")]
    entries = [entry for entry in entries if options.only in entry["file"] and entry not in headers]
    if options.llvm:
        entries = [entry for entry in entries if re.search(r"/llvm-\d+/include", entry["command"])]
    for entry in [entry for entry in entries if not pathlib.Path(entry["file"]).exists()]:
        print(f"not generated yet, and left out: {entry['file']}")
        entries.remove(entry)
    changed = changed_since(options.since) if options.since else None
    if changed is not None:
        entries = [entry for entry in entries if is_affected(pathlib.Path(entry["file"]), changed)]
    entries = entries[::options.one_of]
    if len(entries) > options.most:
        head = subprocess.run(["git", "rev-parse", "HEAD"], text=True, check=True, stdout=subprocess.PIPE).stdout
        print(f"{options.most} of {len(entries)} files")
        entries = random.Random(head).sample(entries, options.most)
    headers = [header for header in headers
               if any(header["file"].removesuffix(".cxx") in entry["command"] for entry in entries)]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        if options.compiler and "clang" in options.compiler:
            list(pool.map(lambda entry: precompile(entry, options, pathlib.Path(folder)), headers))
        commands = [command_of(entry, options, pathlib.Path(folder)) for entry in entries]

        def check(at):
            return subprocess.run(commands[at], cwd=entries[at]["directory"], text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        for at, done in enumerate(pool.map(check, range(len(entries)))):
            if done.returncode:
                failed += 1
                print(f"FAILED: {entries[at]['file']}\n{done.stdout}", flush=True)
    print(f"{len(entries) - failed} of {len(entries)} compile")
    return 1 if failed or not (entries or options.since) else 0


if __name__ == "__main__":
    sys.exit(main())
