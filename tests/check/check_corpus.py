#!/usr/bin/env python3
"""Prints what `kvopt check` says of the rewrites of many models.

    check_corpus.py KVOPT FOLDER... [--to A,B] [--only TEXT] [--every N] [--timeout SECONDS] [--list]

Each model.onnx in a folder of FOLDER is rewritten with `--verify off` and checked against itself. A table has the verdicts of models
and of their outputs and regions; then come the reasons of those that are not proved, with their number. Exits with 1 if a rewrite
differs or a command fails.
"""
import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

VERDICTS = ["proved", "proved-reduced", "tested", "skipped", "different"]
OUTCOMES = VERDICTS + ["late", "crash"]
FORMS = {
    "ort": ["--to", "ort"],
    "onnx": ["--to", "onnx"],
    "kvopt": ["--to", "kvopt"],
    "primitive": ["--to", "primitive"],
    "ring": ["--to", "ring"],
    "blocks": ["--to", "blocks:8", "--capacity", "40"],
    "tiles": ["--to", "tiles:16", "--capacity", "40"],
    "latent": ["--to", "latent", "--capacity", "40"],
    "int8": ["--to", "int8", "--capacity", "40"],
}


def models_of(folders):
    found = []
    for folder in folders:
        found += glob.glob(os.path.join(folder, "*", "model.onnx"))
    return sorted(found)


def general(reason):
    """A reason without the names of nodes and values, and without numbers."""
    reason = re.sub(r"'[^']*'", "'…'", reason)
    return re.sub(r"\d+", "N", reason)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvopt")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--to", default=",".join(FORMS))
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    models, parts = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    reasons, refused, bad = collections.Counter(), collections.Counter(), []
    forms = options.to.split(",")
    chosen = [path for path in models_of(options.folders) if options.only in path][::options.every]
    for path in chosen:
        for form in forms:
            name = "%s --to %s" % (os.path.basename(os.path.dirname(path)), form)
            with tempfile.TemporaryDirectory() as folder:
                written = os.path.join(folder, "written.onnx")
                made = subprocess.run([options.kvopt, "rewrite", path, "-o", written, "--verify", "off", "-q"] + FORMS[form],
                                      capture_output=True, text=True)
                if made.returncode != 0 or not os.path.exists(written):
                    refused[form] += 1
                    continue
                try:
                    judged = subprocess.run([options.kvopt, "check", path, written, "--format", "json", "-q"],
                                            capture_output=True, text=True, timeout=options.timeout)
                except subprocess.TimeoutExpired:
                    models[form]["late"] += 1
                    bad.append(name + ": late")
                    continue
            if judged.returncode not in (0, 1):
                models[form]["crash"] += 1
                bad.append("%s: exit code %d %s" % (name, judged.returncode, judged.stderr[-300:]))
                continue
            document = json.loads(judged.stdout)
            verdict = document["verdict"]
            models[form][verdict] += 1
            why = ""
            for part in document["outputs"] + document["regions"]:
                parts[form][part["verdict"]] += 1
                if part["verdict"] in ("tested", "skipped", "different"):
                    reasons[part["verdict"] + ": " + general(part.get("reason", ""))] += 1
                    if part["verdict"] == verdict and not why:
                        why = part["after"] + ": " + part.get("reason", "") + " " + json.dumps(part.get("counterexample", ""))
            if verdict == "different":
                bad.append(name + ": " + why)
            if options.list:
                print("%-60s %s %s" % (name, verdict, why), flush=True)
    for title, rows in (("models", models), ("outputs and regions", parts)):
        print("\n%-20s %s" % (title, " ".join("%14s" % word for word in OUTCOMES)))
        for form in forms:
            print("%-20s %s" % (form, " ".join("%14d" % rows[form][word] for word in OUTCOMES)))
        total = {word: sum(rows[form][word] for form in forms) for word in OUTCOMES}
        print("%-20s %s" % ("all", " ".join("%14d" % total[word] for word in OUTCOMES)))
    print("\nrewrites refused: " + ", ".join("%s %d" % entry for entry in sorted(refused.items())))
    for reason, count in reasons.most_common(60):
        print("%6d  %s" % (count, reason))
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
