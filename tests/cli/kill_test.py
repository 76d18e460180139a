#!/usr/bin/env python3
"""Ends kvopt at random moments, and gives it full disks and names that are too long.

Usage: kill_test.py KVOPT [KILLS] [SEED]

After every run the folder holds the old set of files or the new one, whole. Nothing else is there,
except after SIGKILL, where a leftover temporary file is counted but is not an error.
"""
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]


def contents(folder):
    """Paths and bytes of all files beneath a folder, and the paths of empty folders."""
    found = {}
    for place, folders, names in os.walk(folder):
        where = os.path.relpath(place, folder)
        if place != folder and not folders and not names:
            found[where] = None
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.normpath(os.path.join(where, name))] = file.read()
    return found


class Scenario:
    """A command that writes files to the folder `out`, for an old and a new model. One that takes
    new names only is fresh: nothing is there before it."""

    def __init__(self, kvopt, root, name, arguments, fresh=False):
        self.name = name
        self.fresh = fresh
        self.kvopt = kvopt
        self.root = root
        self.arguments = arguments
        self.sets = {}
        self.seconds = 0.0

    def command(self, version, out):
        values = {"model": os.path.join(self.root, version, "m.onnx"), "out": out,
                  "inline": os.path.join(self.root, version, "i.onnx")}
        return [self.kvopt] + [word.format(**values) for word in self.arguments]

    def start(self, version, out, **settings):
        return subprocess.Popen(self.command(version, out), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, **settings)

    def before(self):
        """What is there when the command starts, unless nothing is."""
        return {} if self.fresh else self.sets["old"]

    def prepare(self):
        """Makes both sets, and measures how long the new one takes."""
        for version in ("old", "new"):
            out = os.path.join(self.root, "out")
            reset(out, {})
            begin = time.monotonic()
            code = self.start(version, out).wait()
            self.seconds = time.monotonic() - begin
            if code != 0:
                sys.exit(f"{self.name}: exit code {code}: {self.command(version, out)}")
            self.sets[version] = contents(out)
        if self.sets["old"] == self.sets["new"]:
            sys.exit(f"{self.name}: the sets do not differ")


def reset(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)  # only sets without folders are put back


class Tally:
    def __init__(self):
        self.errors = 0
        self.old = self.new = self.ended = self.left_by_kill = 0

    def error(self, text):
        self.errors += 1
        print(f"error: {text}", flush=True)


def check_set(scenario, before, out, what, tally, may_leave=False):
    found = contents(out)
    known = set(scenario.sets["new"])
    extra = [name for name in found if name not in known]
    if extra and may_leave and all(name.startswith(".kvopt-") for name in extra):
        tally.left_by_kill += 1
    elif extra:
        tally.error(f"{scenario.name}, {what}: left behind: {extra}")
    whole = {name: data for name, data in found.items() if name in known}
    if whole == scenario.sets["new"]:
        tally.new += 1
    elif whole == before:
        tally.old += 1
    else:
        tally.error(f"{scenario.name}, {what}: neither the old nor the new set")


def kill_once(scenario, number, tally):
    out = os.path.join(scenario.root, "out")
    before = scenario.before() if random.random() < 0.7 else {}
    reset(out, before)
    moment = random.uniform(0, scenario.seconds * 1.1)
    process = scenario.start("new", out)
    time.sleep(moment)
    process.send_signal(number)
    code = process.wait()
    if code not in (0, -number):
        tally.error(f"{scenario.name}: exit code {code} after {number.name}")
    tally.ended += code != 0
    check_set(scenario, before, out, number.name, tally, may_leave=number == signal.SIGKILL)


def limit_files(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


def starts(kvopt, size):
    """Whether the program starts with that limit: ThreadSanitizer writes a file before it does."""
    return subprocess.run([kvopt, "--version"], stdout=subprocess.DEVNULL, preexec_fn=limit_files(size),
                          check=False).returncode == 0


def full_disks(scenario, tally):
    """A limit on file sizes that stops each of the files, then a file system without room."""
    out = os.path.join(scenario.root, "out")
    for size in sorted({0, *(max(0, len(data) - 1) for data in scenario.sets["new"].values())}):
        if not starts(scenario.kvopt, size):
            continue
        reset(out, scenario.before())
        code = scenario.start("new", out, preexec_fn=limit_files(size)).wait()
        if code != 3:
            tally.error(f"{scenario.name}: exit code {code} with a limit of {size} bytes")
        if contents(out) != scenario.before():
            tally.error(f"{scenario.name}: a limit of {size} bytes changed the files")
    total = sum(len(data) for data in scenario.sets["new"].values())
    reset(out, {})
    script = (f'mount -t tmpfs -o size={max(4096, total // 2)} tmpfs "$0" || exit 99; '
              '"$@"; code=$?; [ -z "$(ls -A "$0")" ] || exit 98; exit $code')
    tried = subprocess.run(["unshare", "-m", "sh", "-c", script, out, *scenario.command("new", out)],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if tried.returncode in (1, 99):
        print(f"{scenario.name}: no permission to mount a small file system; not tried")
    elif tried.returncode != 3:
        tally.error(f"{scenario.name}: exit code {tried.returncode} on a full file system")


def long_names(kvopt, root, tally):
    """The name of the output fits, and those that are derived from it do not."""
    out = os.path.join(root, "out")
    model = os.path.join(root, "old", "m.onnx")
    for length in (244, 250, 255):
        for target in (["kvopt"], ["pyramid:16", "--capacity", "48"]):
            reset(out, {})
            path = os.path.join(out, "n" * (length - 5) + ".onnx")
            code = subprocess.run([kvopt, "rewrite", model, "-o", path, "--verify", "off",
                                   "--external-data", "copy", "--to", *target],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  check=False).returncode
            found = os.listdir(out)
            whole = code == 0 and len(found) >= 2
            nothing = code == 3 and not found
            if not (whole or nothing) or (length == 255 and not nothing):
                tally.error(f"a name of {length} characters, {target}: exit code {code}, {found}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    kvopt = os.path.abspath(sys.argv[1])
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    random.seed(seed)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="kvopt-kill-") as root:
        for number, version in enumerate(("old", "new")):
            os.mkdir(os.path.join(root, version))
            for name, placement in (("m.onnx", "always"), ("i.onnx", "never")):
                subprocess.run([kvopt, "gen", "llama", "-o", os.path.join(root, version, name),
                                "--layers", "2", "--hidden", "256", "--heads", "4", "--vocab",
                                "512", "--external-data", placement, "--seed", str(number)],
                               check=True, stdout=subprocess.DEVNULL)
        scenarios = [
            Scenario(kvopt, root, "rewrite",
                     ["rewrite", "{model}", "-o", "{out}/r.onnx", "--to", "ort-gqa", "--capacity",
                      "64", "--external-data", "copy", "--genai-config", "{out}/genai_config.json",
                      "--verify", "off"]),
            Scenario(kvopt, root, "data",
                     ["rewrite", "{model}", "-o", "{out}/r.onnx", "--to", "ort-gqa", "--verify",
                      "off"], fresh=True),
            Scenario(kvopt, root, "pyramid",
                     ["rewrite", "{model}", "-o", "{out}/p.onnx", "--to", "pyramid:16",
                      "--capacity", "48", "--external-data", "copy", "--verify", "off"]),
            Scenario(kvopt, root, "run",
                     ["run", "{model}", "--tokens", ",".join(["1"] * 200), "--steps", "2",
                      "--save-cache", "{out}/c.kv"]),
            Scenario(kvopt, root, "opt",
                     ["opt", "{inline}", "--pipeline", "", "-o", "{out}/o.onnx"]),
            Scenario(kvopt, root, "dump",
                     ["run", "{model}", "--tokens", "1,2,3", "--steps", "20", "--dump", "{out}/d"],
                     fresh=True),
        ]
        for scenario in scenarios:
            scenario.prepare()
            full_disks(scenario, tally)
        long_names(kvopt, root, tally)
        tally.old = tally.new = 0
        for kill in range(kills):
            kill_once(scenarios[kill % len(scenarios)],
                      SIGNALS[kill // len(scenarios) % len(SIGNALS)], tally)
    print(f"{kills} kills (seed {seed}): {tally.ended} ended by the signal; {tally.old} old sets, "
          f"{tally.new} new sets, {tally.left_by_kill} leftovers of SIGKILL, {tally.errors} errors")
    sys.exit(1 if tally.errors else 0)


if __name__ == "__main__":
    main()
