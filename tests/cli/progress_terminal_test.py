"""Progress appears on a terminal, with time left, and is gone in the end. Tables fit it.

usage: progress_terminal_test.py KVOPT
"""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading

KVOPT = os.path.abspath(sys.argv[1])
ERASE = "\r\x1b[K"


def run(arguments, folder, is_terminal=True):
    """The exit code, stdout, and what stderr got, which is a terminal or a pipe."""
    if not is_terminal:
        result = subprocess.run([KVOPT] + arguments, cwd=folder, capture_output=True, text=True)
        return result.returncode, result.stdout, result.stderr
    leader, follower = pty.openpty()
    environment = dict(os.environ)
    environment.pop("COLUMNS", None)
    process = subprocess.Popen([KVOPT] + arguments, cwd=folder, stdout=subprocess.PIPE, stderr=follower,
                               env=environment, text=True)
    os.close(follower)
    received = []

    def read():
        try:
            while data := os.read(leader, 4096):
                received.append(data)
        except OSError:  # Linux's way to say that the terminal was closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    out = process.stdout.read()
    code = process.wait()
    reader.join()
    os.close(leader)
    return code, out, b"".join(received).decode(errors="replace")


def check(condition, message):
    if not condition:
        print("failed:", message)
        sys.exit(1)


def check_line(name, code, shown):
    check(code == 0, f"{name} ends with {code}: {shown!r}")
    lines = [line for line in re.split(r"\r|\x1b\[K|\n", shown) if line.strip()]
    timed = [line for line in lines if re.search(r"^[^:]+: \d+ %, .*\d+ (s|min) left$", line)]
    check(timed, f"{name} shows no time left: {shown[-400:]!r}")
    check(all(len(line) < 80 for line in lines), f"{name} shows a line that is too long: {lines}")
    check(shown.rfind(ERASE) > shown.rfind(" left"), f"{name} leaves its line: {shown[-80:]!r}")


def check_widths(folder):
    """Tables and lists fit a terminal of 70 columns, and have any width in a pipe."""
    for arguments in (["inspect", "a.onnx", "b.onnx"], ["list", "passes"], ["list", "reasons"],
                      ["list", "targets"], ["help", "rewrite"]):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
        environment = dict(os.environ)
        environment.pop("COLUMNS", None)
        process = subprocess.Popen([KVOPT] + arguments, cwd=folder, stdout=follower,
                                   stderr=subprocess.DEVNULL, env=environment)
        os.close(follower)
        shown = b""
        try:
            while data := os.read(leader, 4096):
                shown += data
        except OSError:
            pass
        process.wait()
        os.close(leader)
        wide = [line for line in shown.decode().splitlines() if len(line) > 70]
        # Lines to copy are not broken.
        wide = [line for line in wide if not line.startswith("  kvopt ")]
        check(shown and not wide, f"{arguments} is too wide: {wide}")
        piped = run(arguments, folder, False)[1]
        if arguments[0] != "help":
            check(any(len(line) > 70 for line in piped.splitlines()), f"{arguments} is cut in a pipe")


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = ["gen", "llama", "-o", "a.onnx", "--hidden", "256", "--layers", "4", "--vocab", "4000"]
        check(run(model, folder, False)[0] == 0, "gen")
        verify = ["verify", "a.onnx", "a.onnx", "--depth", "3000", "--threads", "1"]
        code, out, shown = run(verify, folder)
        check_line("verify", code, shown)
        # Redirected, nothing is shown, and the answer is the same; neither with --quiet.
        code, redirected, errors = run(verify, folder, False)
        check((code, redirected, errors) == (0, out, ""), f"verify in a file: {errors!r}")
        code, _, shown = run(verify + ["--quiet"], folder)
        check((code, shown) == (0, ""), f"verify --quiet shows {shown!r}")
        for name, arguments in {
                "rewrite": ["rewrite", "a.onnx", "-o", "b.onnx", "--to", "kvopt", "--verify", "full"],
                "bench": ["bench", "a.onnx", "-p", "64", "-d", "0,1024", "-t", "1", "-r", "3"],
                "gen": ["gen", "llama", "-o", "large.onnx", "--hidden", "4096", "--vocab", "100000"],
        }.items():
            code, _, shown = run(arguments, folder)
            check_line(name, code, shown)
        check_widths(folder)
    print("progress is shown by verify, rewrite, bench and gen")


main()
