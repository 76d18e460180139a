"""``python -m kvopt`` is the program ``kvopt``."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Replaces this process by the program: ``$KVOPT_PROGRAM``, the one in this package, or the one on the PATH."""
    carried = os.path.join(os.path.dirname(__file__), "bin", "kvopt")
    program = os.environ.get("KVOPT_PROGRAM") or (carried if os.path.exists(carried) else shutil.which("kvopt"))
    if not program:
        sys.exit("kvopt: the program is neither in this package nor on the PATH")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
