"""``python -m kvopt`` is the program ``kvopt``."""

import os
import shutil
import sys


def main():
    carried = os.path.join(os.path.dirname(__file__), "bin", "kvopt")
    program = os.environ.get("KVOPT_PROGRAM") or (carried if os.path.exists(carried) else shutil.which("kvopt"))
    if not program:
        sys.exit("kvopt: the program is neither in this package nor on the PATH")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
