"""run_page.py KVOPT PAGE: runs every command of a page, as a reader would: from the top, in one folder.

Blocks of the language `sh` are run, each by a shell of its own that ends at the first command that fails. A block whose
first line names a file (```python decode.py) is that file: it is compared with the project's file of that path, of which it
may be a part, or else written. Comments of the page say more:

  <!-- setup: COMMAND -->     runs before what follows, for files that a reader has
  <!-- exit: N -->            the next block ends with this code
  <!-- prints: TEXT -->       the next block prints TEXT, among other things
  <!-- not run: WHY -->       the next block is not run
  <!-- with: OLD -> NEW -->   the next block runs with NEW in place of OLD, which takes longer or runs in another test
  <!-- may skip -->           the next block may end with 77: an engine cannot be fetched
  <!-- needs: COMMAND -->     the next block is skipped where COMMAND fails
  <!-- in: RELEASE PACKAGE,… PATH… -->
                             the next block runs in a fresh Debian of this release, as root, with these packages and copies
                             of these paths (tests/install/in_debian.sh); it is skipped where none can be made

Ends with 77 if a block was skipped.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINKS = ("CMakeLists.txt", "LICENSE", "README.md", "bench", "docs", "examples", "models", "python", "scripts", "tests")
COMMENT = re.compile(r"<!-- (setup|exit|prints|not run|with|may skip|needs|in)(?:: (.*?))? -->$")


def parts(text):
    """What a page does, in order: ('sh', text, marks) or ('file', name, text)."""
    lines, marks, at = text.split("\n"), {}, 0
    while at < len(lines):
        comment = COMMENT.match(lines[at])
        if comment and comment[1] == "setup":
            yield "sh", comment[2] + "\n", {}
        elif comment:
            marks[comment[1]] = comment[2]
        elif lines[at].startswith("```"):
            words, start = lines[at][3:].split(), at + 1
            at = lines.index("```", start)
            body = "\n".join(lines[start:at]) + "\n"
            if words == ["sh"]:
                yield "sh", body, marks
            elif len(words) == 2:
                yield "file", words[1], body
            marks = {}
        at += 1


def prepare(folder, kvopt):
    for name in LINKS:
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(kvopt.parent.parent)
    return {**os.environ, "PATH": f"{folder}/build/release/bin:{os.environ['PATH']}"}


class Page:
    def __init__(self, folder, environment, systems):
        self.folder, self.environment, self.systems = folder, environment, systems
        self.count, self.failed, self.skipped = 0, 0, 0

    def file(self, name, text):
        """A part of the project's file, or a new one."""
        if (ROOT / name).exists():
            self.count += 1
            if text not in (ROOT / name).read_text(encoding="utf-8"):
                self.fail(f"the block is not a part of {name}", text)
        else:
            (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, text, marks):
        if "not run" in marks:
            return print(f"not run ({marks['not run']}):\n{text}", flush=True)
        self.count += 1
        if "with" in marks:
            shown, quicker = marks["with"].split(" -> ")
            if shown not in text:
                return self.fail(f"the block does not have '{shown}'", text)
            text = text.replace(shown, quicker)
        if "needs" in marks and subprocess.run(["bash", "-c", marks["needs"]], cwd=self.folder, env=self.environment,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            self.skipped += 1
            return print(f"SKIPPED ({marks['needs']} fails):\n{text}", flush=True)
        command, given = ["bash", "-euo", "pipefail", "-c", text], None
        if "in" in marks:
            release, packages, *paths = marks["in"].split()
            command = ["bash", str(ROOT / "tests/install/in_debian.sh"), self.systems, release, packages, ".", *paths]
            given = text
            marks = {**marks, "may skip": None}
        done = subprocess.run(command, cwd=self.folder, env=self.environment, input=given, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        print(f"{text}→ exit code {done.returncode}", flush=True)
        if "may skip" in marks and done.returncode == 77:
            self.skipped += 1
            print(f"SKIPPED: {done.stdout}")
        elif done.returncode != int(marks.get("exit", 0)):
            self.fail(f"exit code {done.returncode}", f"{text}{done.stdout}")
        elif marks.get("prints", "") not in done.stdout:
            self.fail(f"does not print '{marks['prints']}'", f"{text}{done.stdout}")

    def fail(self, what, text):
        self.failed += 1
        print(f"FAILED: {what}:\n{text}", flush=True)


def main(kvopt, path):
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as systems:
        folder = pathlib.Path(name)
        page = Page(folder, prepare(folder, pathlib.Path(kvopt).resolve()), systems)
        for kind, text, more in parts(pathlib.Path(path).read_text(encoding="utf-8")):
            if kind == "file":
                page.file(text, more)
            else:
                page.run(text, more)
    if page.count == 0:
        print("the page has no block to run")
    return 1 if page.failed or page.count == 0 else 77 if page.skipped else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
