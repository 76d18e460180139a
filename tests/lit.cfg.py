"""Runs every *.onnxtxt below tests/: its RUN lines are shell commands.

Parameters (--param NAME=VALUE, or the environment): KVOPT_BIN, FILECHECK_BIN, KVOPT_TEST_OUTPUT.
"""

import os
import shlex
import sys

import lit.formats


def setting(name):
    return lit_config.params.get(name) or os.environ.get(name)


def tool(name, *candidates):
    """The command of a tool, quoted; a fatal error when it is not there."""
    for candidate in candidates:
        path = candidate and lit.util.which(candidate, config.environment["PATH"])
        if path:
            return shlex.quote(path)
    lit_config.fatal(f"{name} not found (tried {', '.join(str(c) for c in candidates)})")


config.name = "kvopt"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".onnxtxt"]
# The tests of docs/write-a-rule.md need its rule, and the others are models of other tests.
config.excludes = ["golden", "write_a_rule", "instances", "python"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = setting("KVOPT_TEST_OUTPUT") or os.path.join(os.getcwd(), "lit-output")

for name in ("KVOPT_CORPUS", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

negate = os.path.join(config.test_source_root, "lit_not.py")
config.substitutions.append(("%kvopt", tool("kvopt", setting("KVOPT_BIN"), "kvopt")))
config.substitutions.append(
    ("%FileCheck", tool("FileCheck", setting("FILECHECK_BIN"), "/usr/lib/llvm-14/bin/FileCheck",
                        "FileCheck", "FileCheck-14")))
config.substitutions.append(("%not", f"{shlex.quote(sys.executable)} {shlex.quote(negate)}"))
