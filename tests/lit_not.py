"""lit_not.py [--code N] COMMAND…: succeeds when the command fails, with exit code N if one is given.

A command that a signal ended has not failed in an orderly way: that is an error either way.
"""

import subprocess
import sys


def main(arguments):
    wanted = None
    if arguments[:1] == ["--code"]:
        wanted = int(arguments[1])
        arguments = arguments[2:]
    code = subprocess.run(arguments).returncode
    if code < 0:
        print(f"lit_not: the command was ended by signal {-code}", file=sys.stderr)
        return 1
    if code == 0 or (wanted is not None and code != wanted):
        print(f"lit_not: the command ended with {code}", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
