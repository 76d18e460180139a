#!/usr/bin/env python3
"""Writes which faults in which forms of which models `kvopt check` finds, as tests/mutants/matrix.md.

    check_matrix.py KVOPT COMPARE_LENGTHS --out DIR [--models A,B] [-j N] [--minutes M] [--seed S] [--write]

Each of ten models is rewritten to each form (families.py). --models names others: sources of families.py, or folders of
KVOPT_CORPUS and of its siblings corpus2 and corpus3. Each kind of change (mutations.py) is made once to each of these
rewrites until the time is over, first once in each form, and is judged as in check_mutants.py. If the check decides nothing
about an unchanged rewrite, the form has one model only. Results are in DIR/matrix.jsonl, and a run that was ended continues,
also with other models. Prints the tables, or writes them into matrix.md with --write. Exits with 1 after a crash, and after a
mutant that the check calls equal and that differs, unless check_misses.txt has the reason.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import sys
import tempfile
import threading
import time

from check_mutants import OUTCOMES, checked, judged
from families import PRESETS, SOURCES, Copy, Families
from mutations import KINDS
from structural_mutants import digest
import structural_mutants

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, "matrix.md")
MODELS = ["llama", "gpt2", "gqa", "half", "hybrid", "mha", "mla", "mqa", "packed-qkv", "window"]
# Changes that only make an invalid file, or that repeat another kind at another place.
LEFT_OUT = {"attribute exaggerated", "output dropped", "outputs dropped", "function body dropped", "declared extent changed",
            "manifest entry dropped", "manifest entry repeated", "manifest field added", "whole of tiles",
            "external weight changed", "logits of batches", "logits of later chunks", "query of several tokens",
            "query of later chunks"}
MARKS = {"found": "", "tested": "t", "refused": "r", "undecided": "?", "equal": "=", "not run": "n", "missed": "!",
         "crash": "crash"}
LEGEND = """\
A cell has the number of mutants that are found, and then those with another outcome:

| mark | outcome |
|---|---|
| none | found: the check says that the mutant differs |
| `t` | tested: the check says that equality is not proved, and the mutant differs at some length |
| `r` | refused: the mutant is not a valid model, or contradicts its manifest |
| `?` | undecided: the check skips an output, and finds no difference |
| `=` | equal: neither the check nor runs at every length find a difference |
| `n` | not run: the check finds no difference, and the runtime does not run the mutant |
| `!` | missed: the check says equal, and the mutant differs at some length |
"""


def first_difference(text):
    """The node that the check names for a difference, and whether it has a step that shows it."""
    document = json.loads(text)
    for part in document["outputs"] + document["regions"]:
        if part["verdict"] == "different":
            return part.get("node", ""), bool(part.get("counterexample"))
    return "", False


def reason_undecided(text):
    document = json.loads(text)
    return next(part["reason"] for part in document["outputs"] + document["regions"] if part["verdict"] == "skipped")


class Matrix:
    """Results by the preset, the model and the kind of change."""

    def __init__(self, options, families):
        self.options = options
        self.families = families
        self.program = digest(options.kvopt, options.compare_lengths)
        self.path = os.path.join(options.out, "matrix.jsonl")
        self.lock = threading.Lock()
        self.records = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                for line in file:
                    record = json.loads(line)
                    if (record["program"], record["seed"]) == (self.program, options.seed):
                        self.records[self.key(record)] = record

    @staticmethod
    def key(record):
        return record["preset"], record["model"], record["kind"]

    def keep(self, record):
        record.update(program=self.program, seed=self.options.seed)
        with self.lock:
            self.records[self.key(record)] = record
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def unchanged(self, preset, model):
        """What is said of a rewrite without a change."""
        if (preset, model, "") in self.records:
            return
        family = self.families.get(preset, model)
        record = {"preset": preset, "model": model, "kind": "", "outcome": "refused", "text": ""}
        if family:
            outcome, text = checked(self.options, family, family.model_path)
            record.update(outcome=outcome, text=reason_undecided(text) if outcome == "undecided" else text[-2000:])
        self.keep(record)

    def models(self):
        """All models of the results, and those of this run."""
        return sorted({model for _, model, _ in self.records} | set(self.options.models))

    def places(self, models):
        """Presets and models with a rewrite; one model only where nothing is decided."""
        found = []
        for preset in sorted(PRESETS):
            outcomes = {model: self.records[preset, model, ""]["outcome"] for model in models}
            decided = [model for model in models if outcomes[model] in ("equal", "tested")]
            undecided = [model for model in models if outcomes[model] == "undecided"]
            found += [(preset, model) for model in decided or undecided[:1]]
        return found

    def judge(self, preset, model, kind):
        key = preset, model, kind
        if key in self.records:
            return
        family = self.families.get(preset, model)
        rng = random.Random("%d/%s/%s/%s" % ((self.options.seed,) + key))
        record = {"preset": preset, "model": model, "kind": kind, "outcome": "none", "change": ""}
        for _ in range(4):
            copy = Copy(family)
            change = KINDS[kind](rng, copy)
            if not change:
                continue
            with tempfile.TemporaryDirectory(dir=self.options.out) as folder:
                path = copy.write(os.path.join(folder, "mutant"))
                start = time.monotonic()
                outcome, text = judged(self.options, family, path)
            record.update(outcome=outcome, change=change, seconds=round(time.monotonic() - start, 2))
            if outcome == "found":
                record["node"], record["step"] = first_difference(text)
            elif outcome == "undecided":
                record["text"] = reason_undecided(text)
            elif outcome in ("missed", "crash"):
                record["text"] = text[-400:]
            break
        self.keep(record)

    def cells(self, models):
        """Each kind in each place, in random order: a kind once in each form before a second time."""
        cells = [place + (kind,) for place in self.places(models) for kind in sorted(set(KINDS) - LEFT_OUT)]
        random.Random(self.options.seed).shuffle(cells)
        cells.sort(key=lambda cell: cell not in self.records)
        seen = collections.Counter()
        rounds = []
        for preset, model, kind in cells:
            rounds.append(seen[preset, kind])
            seen[preset, kind] += 1
        return [cells[at] for at in sorted(range(len(cells)), key=rounds.__getitem__)]

    def run(self):
        end = time.monotonic() + 60 * self.options.minutes
        for model in self.options.models:
            self.families.source_path(model)
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            places = [(preset, model) for preset in sorted(PRESETS) for model in self.options.models]
            list(pool.map(lambda place: self.unchanged(*place), places))
            list(pool.map(lambda cell: time.monotonic() < end and self.judge(*cell), self.cells(self.options.models)))


def misses():
    """Classes and reasons of misses that were reviewed: lines of a class, a pattern and a reason, separated by tabs."""
    with open(os.path.join(HERE, "check_misses.txt"), encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]


def reason_of(record, known):
    text = "%s of %s: %s: %s" % (record["preset"], record["model"], record["kind"], record["change"])
    for kind, pattern, reason in known:
        if re.search(pattern, text):
            return "%s: %s" % (kind, reason)
    return "not reviewed"


def cell_of(outcomes):
    parts = [str(outcomes["found"])] if outcomes["found"] else []
    parts += ["%d%s" % (outcomes[each], MARKS[each]) for each in OUTCOMES if each != "found" and outcomes[each]]
    return " ".join(parts)


def general_change(change):
    """The change without the names and numbers of nodes: few are left."""
    change = re.sub(r"(of|from|to|->|given instead of|operands of) \S*[\d_./]\S*", r"\1 …", change)
    return re.sub(r"\d+", "N", re.sub(r"(exchanged): .*", r"\1", change))


def undecided_table(mutants, decided):
    """Why mutants of forms are undecided whose unchanged rewrites are decided."""
    lines = ["", "## Undecided in other forms", "", "| reason | forms | mutants |", "|---|---|---|"]
    groups = collections.defaultdict(list)
    for record in mutants:
        if record["outcome"] == "undecided" and record["preset"] in decided:
            reason = re.sub(r"node (of )?'[^']*' \((\S+)\)", r"\2", record["text"])
            groups[re.sub(r"\d+", "N", reason)].append(record["preset"])
    return lines + ["| %s | %s | %d |" % (reason, ", ".join(sorted(set(forms))), len(forms))
                    for reason, forms in sorted(groups.items(), key=lambda group: -len(group[1]))]


def page(records, known, possible):
    """The tables as Markdown, and whether something must not be. `possible` is the number of cells of all models."""
    mutants = [record for record in records if record["kind"] and record["outcome"] != "none"]
    presets = sorted({record["preset"] for record in mutants})
    kinds = sorted({record["kind"] for record in mutants})
    cells = collections.defaultdict(collections.Counter)
    for record in mutants:
        for row in (record["kind"], "all"):
            for column in (record["preset"], "all"):
                cells[row, column][record["outcome"]] += 1
    total = cells["all", "all"]
    found = [record for record in mutants if record["outcome"] == "found"]
    models = collections.Counter(record["model"] for record in mutants)
    lines = ["# Faults that a check finds", "", "This page is written by:", "", "```",
             "python3 tests/mutants/check_matrix.py build/release/bin/kvopt build/release/tests/compare_lengths "
             "--out DIR --write", "```", "",
             "%d kinds of change in %d forms and %d models: %d mutants of about %d, %s." % (
                 len(kinds), len(presets), len(models), len(mutants), possible,
                 ", ".join("%d %s" % (total[each], each) for each in OUTCOMES)),
             "Of those found, %d name the node at which the difference begins, and %d the smallest step that shows it." % (
                 sum(bool(record["node"]) for record in found), sum(record["step"] for record in found)), "",
             "The models, and the number of their mutants: %s." % ", ".join("`%s` %d" % each for each in sorted(models.items())),
             "", LEGEND]
    columns = ["all"] + presets
    lines += ["| change | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += ["| %s | %s |" % (row, " | ".join(cell_of(cells[row, column]) for column in columns)) for row in kinds + ["all"]]
    lines += ["", "## Forms about which nothing is decided", "", "| form | reason |", "|---|---|"]
    unchanged = [record for record in records if not record["kind"]]
    decided = {record["preset"] for record in unchanged if record["outcome"] in ("equal", "tested")}
    lines += ["| %s | %s |" % (preset, next(r["text"] for r in unchanged
                                            if (r["preset"], r["outcome"]) == (preset, "undecided")))
              for preset in presets if preset not in decided]
    lines += undecided_table(mutants, decided)
    alarms = ["%s of %s" % (r["preset"], r["model"]) for r in unchanged if r["outcome"] == "found"]
    if alarms:
        lines += ["", "Unchanged rewrites that the check calls different: %s." % ", ".join(sorted(alarms))]
    bad = False
    for outcome, title in (("crash", "Crash"), ("missed", "Missed"), ("equal", "Equal"), ("not run", "Not run")):
        groups = collections.Counter()
        for record in mutants:
            if record["outcome"] == outcome:
                reason = reason_of(record, known)
                bad |= outcome == "missed" and reason == "not reviewed"
                groups[record["kind"], general_change(record["change"]), reason] += 1
        lines += ["", "## " + title, "", "| change | what | mutants | why |", "|---|---|---|---|"]
        lines += ["| %s | %s | %d | %s |" % (kind, change.replace("|", "\\|"), count, reason)
                  for (kind, change, reason), count in sorted(groups.items())]
    return "\n".join(lines) + "\n", bad or total["crash"] > 0


def path_in_corpora(name):
    corpus = os.path.abspath(os.environ.get("KVOPT_CORPUS", "."))
    paths = [os.path.join(folder, name, "model.onnx")
             for folder in (corpus, *(os.path.join(os.path.dirname(corpus), each) for each in ("corpus2", "corpus3")))]
    found = [path for path in paths if os.path.exists(path)]
    if not found:
        raise SystemExit("%s is neither a source nor a folder of a corpus" % name)
    return found[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvopt")
    parser.add_argument("compare_lengths")
    parser.add_argument("--out", required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.kvopt, options.compare_lengths = os.path.abspath(options.kvopt), os.path.abspath(options.compare_lengths)
    options.models = options.models.split(",")
    SOURCES.update({name: path_in_corpora(name) for name in options.models if name not in SOURCES})
    structural_mutants.SECONDS = 900  # other work on the machine must not fail a mutant
    os.makedirs(options.out, exist_ok=True)
    matrix = Matrix(options, Families(options.kvopt, os.path.join(options.out, "families")))
    matrix.run()
    text, bad = page(list(matrix.records.values()), misses(), len(matrix.cells(matrix.models())))
    if options.write:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
