"""same.py headline | models | picture KVOPT | operators KVOPT: what pages show is what a command wrote.

headline: its measured table is that of bench/results/headline.md. models: README counts what docs/models.md counts. picture: scripts/picture.sh draws the picture.
operators: `kvopt list ops --markdown` prints docs/operators.md.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def table(path):
    """The lines of the page's table that counts tokens in the cache, and the note behind it."""
    lines = (ROOT / path).read_text(encoding="utf-8").split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith("| tokens in the cache"))
    end = next(at for at in range(start, len(lines)) if lines[at] == "")
    return lines[start:end] + [lines[end + 1]]


def headline():
    shown, measured = table("README.md"), table("bench/results/headline.md")
    if shown != measured or len(measured) < 6:
        sys.exit("README's table is not that of bench/results/headline.md: run bash bench/headline.sh --write")


def models():
    def rows(path):
        text = (ROOT / path).read_text(encoding="utf-8").split("<!-- models -->\n")[1].split("<!-- end of models -->")[0]
        head, _, *lines = text.splitlines()
        return head, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    def sums(lines):
        return [sum(map(int, column)) for column in zip(*(line[-4:] for line in lines))]

    head, exporters = rows("README.md")
    _, (*families, total) = rows("docs/models.md")
    if not sums(exporters) == sums(families) == list(map(int, total[-4:])):
        sys.exit("README and docs/models.md count different files: run scripts/models_page.py")
    named = f"{sum(not family[0].startswith('hand-written') for family in families)} families"
    if named not in head or named not in total[0]:
        sys.exit(f"README and docs/models.md do not both say {named}")


def picture(kvopt):
    with tempfile.TemporaryDirectory() as folder:
        drawn = pathlib.Path(folder) / "attention.svg"
        subprocess.run(["bash", ROOT / "scripts/picture.sh", kvopt], env={**os.environ, "PICTURE": str(drawn)}, check=True)
        if drawn.read_text() != (ROOT / "docs/pictures/attention.svg").read_text():
            sys.exit("docs/pictures/attention.svg is not what kvopt draws: run bash scripts/picture.sh")


def operators(kvopt):
    printed = subprocess.run([kvopt, "list", "ops", "--markdown"], stdout=subprocess.PIPE, text=True, check=True).stdout
    if printed != (ROOT / "docs/operators.md").read_text(encoding="utf-8") or "\n\n\n" in printed:
        sys.exit("docs/operators.md is not what kvopt prints, or an operator has no sentence: "
                 "kvopt list ops --markdown > docs/operators.md")


{"headline": headline, "models": models, "picture": picture, "operators": operators}[sys.argv[1]](*sys.argv[2:])
