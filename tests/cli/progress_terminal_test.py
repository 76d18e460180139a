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
import time

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
    for arguments in (["inspect", "2.onnx", "4.onnx"], ["list", "passes"], ["list", "reasons"],
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


def run_long(arguments_of, folder):
    """Runs a command with more and more work, until it takes as long as progress needs to show."""
    for scale in range(8):
        arguments = arguments_of(2**scale)
        start = time.monotonic()
        code, out, shown = run(arguments, folder)
        if time.monotonic() - start > 3:
            return arguments, code, out, shown
    return check(False, f"{arguments} takes no time")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for layers in (2, 4, 8, 16, 32, 64, 128, 256):
            model = ["gen", "llama", "-o", f"{layers}.onnx", "--hidden", "128", "--layers", str(layers),
                     "--vocab", "1000"]
            check(run(model, folder, False)[0] == 0, "gen")
        verify, code, out, shown = run_long(
            lambda scale: ["verify", "4.onnx", "4.onnx", "--depth", str(1500 * scale)], folder)
        check_line("verify", code, shown)
        # Redirected, nothing is shown, and the answer is the same; neither with --quiet.
        code, redirected, errors = run(verify, folder, False)
        check((code, redirected, errors) == (0, out, ""), f"verify in a file: {errors!r}")
        code, _, shown = run(verify + ["--quiet"], folder)
        check((code, shown) == (0, ""), f"verify --quiet shows {shown!r}")
        for name, arguments_of in {
                "rewrite": lambda scale: ["rewrite", f"{2 * scale}.onnx", "-o", "b.onnx", "--to", "kvopt",
                                          "--verify", "full"],
                "bench": lambda scale: ["bench", "2.onnx", "-p", "64", "-d", "0,256", "-t", "1",
                                        "-r", str(5 * scale)],
        }.items():
            _, code, _, shown = run_long(arguments_of, folder)
            check_line(name, code, shown)
        check_widths(folder)
    print("progress is shown by verify, rewrite and bench; tables fit the terminal")


main()
