#!/usr/bin/env python3
"""Makes structural mutants of what kvopt writes, and lists those that `kvopt verify` with its defaults calls equal.

    structural_mutants.py KVOPT COMPARE_LENGTHS [--count N] [--fields] [--seed S] [-j N] [--out DIR]
                          [--known FILE [--update]] [--only N]

Each mutant is one change (mutations.py) to the files of one rewrite (families.py). `kvopt verify SOURCE MUTANT`
judges it, and compare_lengths.cc compares it with the unchanged model at every length up to the capacity. A mutant
that only the latter finds different is a survivor. A command that ends with anything but an exit code from 0 to 4 is
a crash. The same seed makes the same mutants. With --fields, every field that a manifest of some preset has is also
changed once and dropped once.

With --out, results are appended to DIR/results.jsonl, and a run that was ended continues; survivors and crashes stay
in DIR/kept, and DIR/survivors.tsv lists them. Exits with 1 after a crash, after a survivor without a reason in --known,
and where a mutant that is listed there is found; --update writes the list again, and then the reasons are to be added.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading

from families import PRESETS, Copy, Families, check_targets
from mutations import KINDS, fields_of, inline_bodies, mutate_field

SECONDS = 120
# The number of the first mutant of --fields.
FIRST_FIELD = 1000000
TARGETS = ["kvopt", "ring", "int8", "blocks:8", "pyramid:16", "ort-gqa", "onnx23", "onnx24", "primitive"]
OUTCOMES = ["refused", "different", "inconclusive", "equal", "not judged", "usage", "survivor", "crash"]


def digest(*paths):
    together = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            together.update(file.read())
    return together.hexdigest()[:12]


def end_of(command):
    """The exit code, None after SECONDS, and what was printed."""
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    # A sanitizer's report is no verdict.
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
        environment[name] = ":".join([each for each in [os.environ.get(name)] if each] + ["exitcode=99"])
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
                              env=environment)
    except subprocess.TimeoutExpired:
        return None, "takes longer than %d s" % SECONDS
    return done.returncode, done.stdout.decode(errors="replace").strip()


def changed_copy(families, seed, number):
    """The mutant of that number: a changed copy, its kind, and what was done."""
    rng = random.Random("%d/%d" % (seed, number))
    presets, kinds = sorted(PRESETS), sorted(KINDS)
    at = number % len(presets)
    # The steps have no divisor in common with the number of kinds: a preset gets each in turn.
    first = kinds[(number // len(presets) * 13 + at * 5) % len(kinds)]
    others = kinds[:]
    rng.shuffle(others)
    members = families.of_preset(presets[at])
    for kind in [first] + others:
        rng.shuffle(members)
        for family in members * 2:
            copy = Copy(family)
            done = KINDS[kind](rng, copy)
            if done:
                return copy, kind, done
    raise SystemExit("%s: no mutation applies" % presets[at])


def changed_field(families, rows, seed, number):
    """The mutant of that number among those of fields, as `changed_copy`; another one where it has no other value."""
    for again in range(10):
        rng = random.Random("%d/%d/%d" % (seed, number, again))
        row = rows[number - FIRST_FIELD] if again == 0 else rng.choice(rows)
        made = mutate_field(rng, families, row)
        if made:
            return made[0], row[2], made[1]
    raise SystemExit("no field can be changed")


def is_changed(family, folder):
    return any(digest(os.path.join(folder, name)) != digest(os.path.join(family.folder, name)) for name in family.files)


def inlined(copy, folder):
    inline_bodies(copy)
    return copy.write(folder)


class Judge:
    """Judges mutants with the program under test."""

    def __init__(self, options, families, fields):
        self.fields = fields
        self.kvopt = options.kvopt
        self.compare = options.compare_lengths
        self.seed = options.seed
        self.families = families
        self.lock = threading.Lock()

    def judged(self, number, folder):
        """The record of one mutant, whose files are in the folder afterwards."""
        with self.lock:
            if number >= FIRST_FIELD:
                copy, kind, done = changed_field(self.families, self.fields, self.seed, number)
            else:
                copy, kind, done = changed_copy(self.families, self.seed, number)
        family = copy.family
        path = copy.write(os.path.join(folder, "mutant"))
        record = {"number": number, "preset": family.preset, "source": family.source, "kind": kind, "change": done}
        code, text = end_of([self.kvopt, "verify", family.source_path, path, "-t", "1"])
        record["verify"] = {"code": code, "text": text[-600:]}
        compared, reference = path, family.reference_path()
        if copy.has_new_body:
            # Both by their bodies: kernels round elsewhere, which changes codes.
            compared = inlined(copy, os.path.join(folder, "inlined"))
            if not family.manifest.get("first_step"):
                reference = inlined(Copy(family), os.path.join(folder, "reference"))
        oracle, message = end_of([self.compare, compared, reference])
        if copy.has_new_body and oracle == 3 and kind == "function body changed":
            oracle = 1  # the body computes nothing
        record["lengths"] = {"code": oracle, "text": message[-400:]}
        command = self.other_command(number, folder, path)
        other, message = end_of([self.kvopt] + command)
        record["other"] = {"command": command[0], "code": other, "text": message[-400:]}
        record["outcome"] = self.outcome(code, text, oracle, other, is_changed(family, os.path.dirname(path)))
        return record

    def other_command(self, number, folder, path):
        rng = random.Random(number)
        return rng.choice([["run", path, "--tokens", "1,2", "--steps", "3"], ["explain", path], ["inspect", path],
                           ["rewrite", path, "-o", os.path.join(folder, "out.onnx"), "--to", rng.choice(TARGETS),
                            "--capacity", "32"]])

    @staticmethod
    def outcome(code, text, oracle, other, changed):
        if any(each not in (0, 1, 2, 3, 4) for each in (code, oracle, other)):
            return "crash"
        if code == 0:
            if not changed:
                return "equal"
            return {0: "equal", 1: "survivor"}.get(oracle, "not judged")
        if code == 1:
            return "inconclusive" if "INCONCLUSIVE" in text else "different"
        return "usage" if code == 2 else "refused"


KNOWN_KEYS = ["number", "preset", "source", "kind", "change"]


class Known:
    """Survivors that were reviewed: a line of tab-separated KNOWN_KEYS and the reason for each; `?` is no reason."""

    def __init__(self, path):
        self.path = path
        self.head = []
        self.reasons = {}
        if not path:
            return
        with open(path, encoding="utf-8") as file:
            for line in file.read().splitlines():
                if line.startswith("#"):
                    self.head.append(line)
                elif line:
                    self.reasons[tuple(line.split("\t")[:-1])] = line.split("\t")[-1]

    @staticmethod
    def key(record):
        return tuple(str(record[each]) for each in KNOWN_KEYS)

    def reason(self, record):
        reason = self.reasons.get(self.key(record), "?")
        return None if reason == "?" else reason

    def stale(self, records):
        """What is listed and no longer survives."""
        ended = {self.key(record)[0]: self.key(record) for record in records}
        surviving = {self.key(record) for record in records if record["outcome"] == "survivor"}
        return [key for key in self.reasons if key[0] in ended and key not in surviving]

    def update(self, records):
        """Writes the list again, with new survivors and without stale ones."""
        for key in self.stale(records):
            del self.reasons[key]
        for record in records:
            if record["outcome"] == "survivor":
                self.reasons.setdefault(self.key(record), "?")
        rows = sorted(self.reasons.items(), key=lambda row: int(row[0][0]))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("\n".join(self.head + ["\t".join(key + (reason,)) for key, reason in rows]) + "\n")


def table(records, key):
    rows = {}
    for record in records:
        row = rows.setdefault(record[key], dict.fromkeys(OUTCOMES + ["oracle misses"], 0))
        row[record["outcome"]] += 1
        # A difference that the comparison at all lengths does not see: it is not complete either.
        if record["outcome"] == "different" and record["lengths"]["code"] == 0:
            row["oracle misses"] += 1
    columns = OUTCOMES + ["oracle misses"]
    width = max(len(name) for name in rows)
    lines = ["%-*s %7s %s" % (width, key, "mutants", " ".join("%13s" % column for column in columns))]
    for name in sorted(rows) + ["all"]:
        counts = rows.get(name) or {c: sum(row[c] for row in rows.values()) for c in columns}
        total = sum(counts[column] for column in OUTCOMES)
        lines.append("%-*s %7d %s" % (width, name, total, " ".join("%13d" % counts[column] for column in columns)))
    return "\n".join(lines)


def read_results(path, program, seed):
    records = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if (record["program"], record["seed"]) == (program, seed):
                    records[record["number"]] = record
    return records


def judge_all(options, out, numbers, families, fields, program):
    """Judges mutants, each in a folder of its own, and yields their records."""
    judge = Judge(options, families, fields)

    def one(number):
        with tempfile.TemporaryDirectory(dir=out) as folder:
            record = judge.judged(number, folder)
            record.update(program=program, seed=options.seed)
            if record["outcome"] in ("survivor", "crash", "usage") or options.only is not None:
                kept = os.path.join(out, "kept", "%d-%d" % (options.seed, number))
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(os.path.join(folder, "mutant"), kept)
                record["kept"] = os.path.join(kept, "m.onnx")
            return record

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        yield from pool.map(one, numbers)


def report(records, families, known, out):
    """Prints tables and what must not be; whether anything must not."""
    stale = known.stale(records)
    for key in stale:
        print("no longer a survivor, remove it from the list: " + ", ".join(key))
    found = bool(stale)
    with open(os.path.join(out, "survivors.tsv"), "w", encoding="utf-8") as file:
        file.write("number\toutcome\tpreset\tsource\tkind\tchange\treason\tcommand\tfirst difference\n")
        for record in records:
            if record["outcome"] not in ("survivor", "crash", "usage"):
                continue
            reason = known.reason(record) if record["outcome"] != "crash" else None
            command = "kvopt verify %s %s" % (families.source_path(record["source"]), record.get("kept", "?"))
            file.write("\t".join([str(record["number"]), record["outcome"], record["preset"], record["source"], record["kind"],
                                  record["change"], reason or "?", command,
                                  record["lengths"]["text"].replace("\n", " ")]) + "\n")
            if record["outcome"] != "usage" and not reason:
                found = True
                print("%s: mutant %d, %s of %s, %s: %s\n    %s" % (record["outcome"], record["number"], record["preset"],
                                                               record["source"], record["kind"], record["change"],
                                                               problem_of(record)))
    print(table(records, "preset") + "\n\n" + table(records, "kind"))
    return found


def problem_of(record):
    for part in ("verify", "lengths", "other"):
        if record[part]["code"] not in (0, 1, 2, 3, 4):
            return "%s ends with %s: %s" % (part, record[part]["code"], record[part]["text"][-300:].replace("\n", " "))
    return record["lengths"]["text"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvopt")
    parser.add_argument("compare_lengths")
    parser.add_argument("--count", type=int, default=3600)
    parser.add_argument("--fields", action="store_true", help="also change and drop every field of manifests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--out")
    parser.add_argument("--known")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    options.kvopt = os.path.abspath(options.kvopt)
    options.compare_lengths = os.path.abspath(options.compare_lengths)
    check_targets(options.kvopt)
    with tempfile.TemporaryDirectory() as temporary:
        out = os.path.abspath(options.out or temporary)
        os.makedirs(out, exist_ok=True)
        # Results of another program, or of other mutants, are made again.
        here = os.path.dirname(os.path.abspath(__file__))
        program = digest(options.kvopt, options.compare_lengths,
                         *(os.path.join(here, name) for name in ("families.py", "mutations.py", "structural_mutants.py")))
        families = Families(options.kvopt, os.path.join(out, "families-" + program))
        path = os.path.join(out, "results.jsonl")
        records = read_results(path, program, options.seed)
        fields = fields_of(families) if options.fields or (options.only or 0) >= FIRST_FIELD else []
        numbers = list(range(options.count)) + list(range(FIRST_FIELD, FIRST_FIELD + len(fields)))
        if options.only is not None:
            numbers = [options.only]
        with open(path, "a", encoding="utf-8") as file:
            missing = [number for number in numbers if number not in records or options.only is not None]
            for record in judge_all(options, out, missing, families, fields, program):
                records[record["number"]] = record
                file.write(json.dumps(record) + "\n")
                file.flush()
        chosen = [records[number] for number in numbers]
        if options.only is not None:
            print(json.dumps(chosen[0], indent=2))
        known = Known(options.known)
        if options.update:
            known.update(chosen)
        found = report(chosen, families, known, out)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
