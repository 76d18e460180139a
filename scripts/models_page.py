"""models_page.py KVOPT CORPUS…: writes the tables of docs/models.md and README.md anew.

CORPUS is a folder of exported decoders, each a folder with model.onnx and model.json. Every model is rewritten for
ONNX Runtime's operators, for ONNX's and for kvopt's. Models that were exported without caches get them (add-cache).
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

HAND_WRITTEN = "hand-written modules, rare spellings"
ENGINES = ("ort", "onnx", "kvopt")
EXPORTERS = {"ts": "TorchScript", "dynamo": "dynamo", "genai": "GenAI builder", "merged": "Optimum, merged",
             "optimizer": "ONNX Runtime's optimizer"}
def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


def is_written(kvopt, model, engine, folder):
    """Whether the model can be rewritten for the engine, or has that form already."""
    output = f"{folder}/out.onnx"
    common = [str(model), "-o", output, "--to", engine, "--verify", "off", "-q"]
    if run(kvopt, "rewrite", *common).returncode == 0:
        return True
    return run(kvopt, "add-cache", *common).returncode == 0


def exporter_of(model):
    name = model.parent.name
    if "+ort" in name:
        return EXPORTERS["optimizer"]
    short = json.loads((model.parent / "model.json").read_text()).get("exporter_short", "")
    return EXPORTERS.get(short.rstrip("0123456789"), "other")


def family_of(model):
    family = json.loads((model.parent / "model.json").read_text())["family"]
    if family.startswith(("custom", "own module")):
        return HAND_WRITTEN
    return family.split(" (")[0].replace("_", " ").removesuffix(" mqa").removesuffix(" gqa").removesuffix(" sw")


class Counts:
    """How many files there are, and how many of them are written for each engine."""

    def __init__(self):
        self.files, self.exporters = 0, set()
        self.written = dict.fromkeys(ENGINES, 0)

    def add(self, exporter, written):
        self.files += 1
        self.exporters.add(exporter)
        for engine in ENGINES:
            self.written[engine] += written[engine]

    def cells(self):
        return " | ".join(map(str, (self.files, *self.written.values())))


def replace_table(path, lines):
    """Puts the lines between the page's two comments."""
    start, end = "<!-- models -->\n", "<!-- end of models -->\n"
    page = pathlib.Path(__file__).parent.parent / path
    before, rest = page.read_text(encoding="utf-8").split(start)
    page.write_text(before + start + "\n".join(lines) + "\n" + rest[rest.index(end):], encoding="utf-8")


def main(kvopt, *corpora):
    families, exporters = (collections.defaultdict(Counts) for _ in range(2))
    total = Counts()
    with tempfile.TemporaryDirectory() as folder:
        for corpus in corpora:
            for model in sorted(pathlib.Path(corpus).glob("*/model.onnx")):
                if not (model.parent / "model.json").exists():
                    continue
                written = {engine: is_written(kvopt, model, engine, folder) for engine in ENGINES}
                family, exporter = family_of(model), exporter_of(model)
                families[family].add(exporter, written)
                total.add(exporter, written)
                exporters[HAND_WRITTEN if family == HAND_WRITTEN else exporter].add(exporter, written)
    head = "files | for ONNX Runtime | for ONNX | for kvopt |"
    rule = "--:|--:|--:|--:|"
    lines = [f"| family | exported by | {head}", f"|---|---|{rule}"]
    for family, row in sorted(families.items(), key=lambda pair: pair[0].lower()):
        lines.append(f"| {family} | {', '.join(sorted(row.exporters))} | {row.cells()} |")
    count = len(families) - (HAND_WRITTEN in families)
    replace_table("docs/models.md", [*lines, f"| all {count} families, and hand-written modules | | {total.cells()} |"])
    lines = [f"| {count} families, exported by | {head}", f"|---|{rule}"]
    for exporter, row in sorted(exporters.items(), key=lambda pair: (pair[0] == HAND_WRITTEN, -pair[1].files)):
        lines.append(f"| {exporter} | {row.cells()} |")
    replace_table("README.md", lines)


main(*sys.argv[1:])
