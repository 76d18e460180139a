#!/usr/bin/env python3
"""Prints how many mutants of what kvopt writes `kvopt check` finds, for each kind of change and each preset.

    check_mutants.py KVOPT COMPARE_LENGTHS [--count N] [--seed S] [--presets A,B]

Each mutant is one change (mutations.py) to the files of one rewrite (families.py). `kvopt check SOURCE MUTANT` judges
it without running it; compare_lengths.cc compares it with the unchanged model at every length up to the capacity.

    found      check says that the mutant differs
    tested     check says that equality is not proved, compare_lengths finds a difference
    refused    the mutant is no valid model, or contradicts its manifest
    undecided  check skips an output, and finds no difference
    equal      both say that nothing has changed
    not run    check finds no difference, and compare_lengths cannot run the mutant or its model
    missed     check says equal, compare_lengths finds a difference

Exits with 1 after a missed mutant or a crash.
"""
import argparse
import json
import os
import sys
import tempfile

from families import PRESETS, Families
from structural_mutants import changed_copy, end_of

OUTCOMES = ["found", "tested", "refused", "undecided", "equal", "not run", "missed", "crash"]
# Exit codes of compare_lengths, and the outcome of those without a difference.
DIFFERENT = 1
OUTCOMES_OF_LENGTHS = {0: "equal", 2: "not run", 3: "not run"}


def checked(options, family, path):
    """The outcome as the check alone has it, `equal` and `tested` included, and what it says."""
    code, text = end_of([options.kvopt, "check", family.source_path, path, "--format", "json", "-q"])
    if code in (3, 4):
        return "refused", text
    if code not in (0, 1):
        return "crash", text
    outcomes = {"different": "found", "skipped": "undecided", "tested": "tested"}
    return outcomes.get(json.loads(text)["verdict"], "equal"), text


def judged(options, family, path):
    """The outcome of one mutant, and what check says."""
    outcome, text = checked(options, family, path)
    if outcome not in ("equal", "tested"):
        return outcome, text
    lengths, message = end_of([options.compare_lengths, path, family.reference_path()])
    if lengths == DIFFERENT:
        return ("tested", text) if outcome == "tested" else ("missed", message)
    return OUTCOMES_OF_LENGTHS.get(lengths, "crash"), text


def table(rows, name):
    width = max(len(row) for row in rows)
    lines = ["%-*s %s" % (width, name, " ".join("%9s" % outcome for outcome in OUTCOMES))]
    for row in sorted(rows) + ["all"]:
        counts = rows.get(row) or {each: sum(other[each] for other in rows.values()) for each in OUTCOMES}
        lines.append("%-*s %s" % (width, row, " ".join("%9d" % counts[each] for each in OUTCOMES)))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvopt")
    parser.add_argument("compare_lengths")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--presets", default="")
    options = parser.parse_args()
    chosen = options.presets.split(",") if options.presets else sorted(PRESETS)
    kinds, presets, missed, crashes = {}, {}, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        families = Families(options.kvopt, os.path.join(folder, "families"))
        number, done = 0, 0
        while done < options.count:
            number += 1
            if sorted(PRESETS)[number % len(PRESETS)] not in chosen:
                continue
            copy, kind, change = changed_copy(families, options.seed, number)
            path = copy.write(os.path.join(folder, "mutant"))
            outcome, text = judged(options, copy.family, path)
            for rows, key in ((kinds, kind), (presets, copy.family.preset)):
                rows.setdefault(key, dict.fromkeys(OUTCOMES, 0))[outcome] += 1
            if outcome in ("missed", "crash"):
                print("%s: %d %s %s: %s: %s\n    %s" % (outcome, number, copy.family.preset, copy.family.source, kind,
                                                      change, text[-300:]))
            missed += outcome == "missed"
            crashes += outcome == "crash"
            done += 1
    print(table(kinds, "change") + "\n\n" + table(presets, "preset"))
    return 1 if missed or crashes else 0


if __name__ == "__main__":
    sys.exit(main())
