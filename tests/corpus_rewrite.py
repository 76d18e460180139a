#!/usr/bin/env python3
"""Every model of the corpora can be driven, and no verification of it is a false alarm.

    corpus_rewrite.py KVOPT [PRESET...] [--one-of N] [--recordings] [-j N] [--out DIR]

`kvopt verify M M` ends with 0. For each preset (mutants/families.py; all of them if none is named), `kvopt rewrite`
ends with 0 or 1 (refused with a reason), and `kvopt verify M OUT` calls what it wrote equal. With --recordings,
`kvopt verify M --references` compares each model with its recorded steps. Prints a table of presets and verdicts, and
what must not be. Models are those of models/, of the folder KVOPT_CORPUS and of its siblings corpus2 and corpus3;
--one-of 4 takes every fourth. With --out, results are appended to DIR/corpus.jsonl, and a run that was ended continues.
Exits with 77 without corpora, and with 1 where something must not be: what golden/corpus_verdicts.txt lists with a reason
is expected, and must not end otherwise.
"""
import argparse
import concurrent.futures
import fnmatch
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "mutants"))
from families import PRESETS, check_targets  # noqa: E402

SECONDS = 600
CAPACITY = "96"
VERDICTS = ["equal", "different", "inconclusive", "fails", "refused by the target", "rewrite fails"]


def models():
    corpus = os.environ.get("KVOPT_CORPUS", "")
    siblings = [os.path.join(corpus, "..", name) for name in ("corpus2", "corpus3")]
    if not os.path.isdir(corpus) or not os.path.isdir(siblings[0]):
        print("corpus_rewrite SKIPPED: KVOPT_CORPUS names no folder with a sibling corpus2", file=sys.stderr)
        sys.exit(77)
    folders = [os.path.join(HERE, "..", "models"), corpus] + siblings
    return sorted(os.path.realpath(path) for folder in folders for path in glob.glob(os.path.join(folder, "*", "model.onnx")))


def name_of(path):
    return "/".join(path.split(os.sep)[-3:-1])


def end_of(command):
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
                              env=environment)
    except subprocess.TimeoutExpired:
        return None, "takes longer than %d s" % SECONDS
    return done.returncode, done.stdout.decode(errors="replace").strip()


def verdict(code, text):
    if code == 0:
        return "equal"
    if code == 1:
        return "inconclusive" if "INCONCLUSIVE" in text else "different"
    return "fails"


class Check:
    def __init__(self, kvopt, tokens):
        self.kvopt = kvopt
        self.tokens = tokens

    def judged(self, model, preset):
        """The verdict on one model and preset, and what was printed."""
        if preset == "itself":
            code, text = end_of([self.kvopt, "verify", model, model, "-t", "1"])
            return verdict(code, text), code, text
        if preset == "recordings":
            code, text = end_of([self.kvopt, "verify", model, "--references", "-t", "1"])
            return verdict(code, text), code, text
        values = {"CAPACITY": CAPACITY, "TOKENS": self.tokens}
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "m.onnx")
            arguments = [values.get(each, each) for each in PRESETS[preset][0]]
            code, text = end_of([self.kvopt, "rewrite", model, "-o", output] + arguments)
            if code not in (0, 1) or not text:
                return "rewrite fails", code, text
            if "not verified" in text or " DIFFERENT" in text or "computes something else" in text:
                return "rewrite fails", code, text
            if code == 1 or not os.path.exists(output):
                return "refused by the target", code, text
            code, text = end_of([self.kvopt, "verify", model, output, "-t", "1"])
            return verdict(code, text), code, text


def read_expected():
    """Rows of a pattern of models, a pattern of presets, a verdict and the reason."""
    rows = []
    with open(os.path.join(HERE, "golden", "corpus_verdicts.txt"), encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line and not line.startswith("#"):
                rows.append(line.split("\t"))
    return rows


def matches(row, record):
    return fnmatch.fnmatchcase(name_of(record["model"]), row[0]) and fnmatch.fnmatchcase(record["preset"], row[1])


def table(records, presets):
    lines = ["%-18s %s" % ("preset", " ".join("%21s" % each for each in VERDICTS))]
    for preset in presets + ["all"]:
        counts = [sum(record["verdict"] == each and preset in (record["preset"], "all") for record in records)
                  for each in VERDICTS]
        lines.append("%-18s %s" % (preset, " ".join("%21d" % count for count in counts)))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvopt")
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--one-of", type=int, default=1)
    parser.add_argument("--recordings", action="store_true")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--out")
    options = parser.parse_args()
    unknown = set(options.presets) - set(PRESETS)
    if unknown:
        parser.error("unknown presets: " + ", ".join(sorted(unknown)))
    check_targets(options.kvopt)
    chosen = models()[::options.one_of]
    presets = ["itself"] + (["recordings"] if options.recordings else []) + (options.presets or sorted(PRESETS))
    with open(options.kvopt, "rb") as file:
        program = hashlib.sha256(file.read()).hexdigest()[:12]
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or temporary
        os.makedirs(out, exist_ok=True)
        tokens = os.path.join(out, "tokens.txt")
        with open(tokens, "w", encoding="utf-8") as file:
            file.write(" ".join(str(7 * number % 16) for number in range(64)))
        check = Check(os.path.abspath(options.kvopt), tokens)
        results = os.path.join(out, "corpus.jsonl")
        records = {}
        if os.path.exists(results):
            with open(results, encoding="utf-8") as file:
                for record in map(json.loads, file):
                    if record["program"] == program:
                        records[record["model"], record["preset"]] = record

        def one(pair):
            found, code, text = check.judged(*pair)
            return {"program": program, "model": pair[0], "preset": pair[1], "verdict": found, "code": code,
                    "text": text[-1500:]}

        pairs = [(model, preset) for model in chosen for preset in presets]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, open(results, "a", encoding="utf-8") as file:
            for record in pool.map(one, [pair for pair in pairs if pair not in records]):
                records[record["model"], record["preset"]] = record
                file.write(json.dumps(record) + "\n")
                file.flush()
    judged = [records[pair] for pair in pairs]
    expected = read_expected()
    wrong = 0
    for record in judged:
        if record["verdict"] in ("equal", "refused by the target"):
            continue
        reasons = [row[3] for row in expected if matches(row, record) and row[2] == record["verdict"]]
        wrong += not reasons
        print("%s: %s, %s: exit code %s: %s" % (record["verdict"], name_of(record["model"]), record["preset"], record["code"],
                                                reasons[0] if reasons else record["text"][-600:].replace("\n", " / ")))
    for row in expected:
        concerned = [record for record in judged if matches(row, record)]
        if concerned and all(record["verdict"] != row[2] for record in concerned):
            print("no longer so, remove it from golden/corpus_verdicts.txt: " + ", ".join(row[:3]))
            wrong += 1
    print("%d models" % len(chosen))
    print(table(judged, presets))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
