#!/usr/bin/env python3
"""No mutable globals and no dynamic initializers in the product's libraries.

    globals.py OBJDUMP LIBRARY...

Reads the symbols of static libraries. An object of kvopt's in a writable section is an error unless
ALLOWED gives a reason for it; an entry of ALLOWED that no library has is an error, too. A dynamic
initializer is an error except in files that include a header whose own globals need one.
"""
import re
import subprocess
import sys

SIGNALS = "signal handlers read it, and nothing is passed to them"
TABLE = "a function's static const table, filled when it is first used"
ALLOWED = {
    r"ranges": SIGNALS,
    r"nextRange": SIGNALS,
    r"progress": SIGNALS,
    r"slots": SIGNALS,
    r"runningGroup": SIGNALS,
    r"isJson": SIGNALS,
    r"jsonCommand": SIGNALS,
    r"endsByClosedPipe": "what stdout means to a process is known where it starts",
    r"ShapeContext::type\(unsigned int\) const::absent": TABLE,
    r"IndexSpace::rowLength\(\)::symbol": TABLE,
    r"IndexSpace::variable\(.*\)::symbols": TABLE,
    r"table<.*>\(\)::numbers": TABLE,
    r"attentionKernels\(\)::registry": TABLE,
    r"definitions\(\)::all": TABLE,
    r"hasByteProducts\(\)::has": "a function's static const answer of the CPU",
}
# Constants of CLI11's header, and what <iostream> puts into every file that includes it.
FOREIGN = re.compile(r"CLI::\w+|std::__ioinit")

FILE = re.compile(r"(\S+):\s+file format ")
SYMBOL = re.compile(r"[0-9a-f]+ (.{7}) (\S+)\t[0-9a-f]+ +(?:\.hidden )?(.*)")


def is_writable(section):
    return section == "*COM*" or (
        re.match(r"\.(data|bss|tdata|tbss)\b", section) and not section.startswith(".data.rel.ro"))


def problems_of(listing, seen):
    """What is wrong in an `objdump -t --demangle`; adds the entries of ALLOWED that it met."""
    problems = []
    objects, initializers = {}, []
    file = "?"
    for line in listing.splitlines():
        if match := FILE.match(line):
            file = match[1]
        elif match := SYMBOL.match(line):
            flags, section, name = match.groups()
            if "_GLOBAL__sub_I" in name or "_GLOBAL__I_" in name:
                initializers.append((file, name))
            if flags[6] == "O" and is_writable(section):
                objects.setdefault(file, []).append(name)
    for file, names in objects.items():
        for name in names:
            if not name.startswith("kvopt::"):
                continue
            entry = next((e for e in ALLOWED if re.fullmatch(r"(?:.*::)?" + e, name)), None)
            if entry is None:
                problems.append(f"{file}: {name} is a mutable global")
            else:
                seen.add(entry)
    for file, name in initializers:
        if not any(FOREIGN.fullmatch(other) for other in objects.get(file, [])):
            problems.append(f"{file}: {name} is a dynamic initializer")
    return problems


def check_itself():
    def symbol(section, name, kind="O"):
        return f"0000000000000000 l     {kind} {section}\t0000000000000008 {name}\n"

    def count(*symbols):
        return len(problems_of("a.o:     file format elf64-x86-64\n" + "".join(symbols), set()))

    initializer = symbol(".text.startup", "_GLOBAL__sub_I_a.cc", "F")
    assert count(symbol(".bss", "kvopt::(anonymous namespace)::counter")) == 1
    assert count(symbol(".data", "kvopt::flag")) == 1
    assert count(symbol(".tbss", "kvopt::f()::last")) == 1
    assert count(symbol(".data.rel.ro", "vtable for kvopt::Pass")) == 0
    assert count(symbol(".rodata", "kvopt::names")) == 0
    assert count(symbol(".bss", "kvopt::(anonymous namespace)::slots")) == 0
    assert count(initializer) == 1
    assert count(initializer, symbol(".bss", "std::__ioinit")) == 0
    assert count(initializer, symbol(".bss", "kvopt::isFast")) == 2


def main():
    check_itself()
    objdump, libraries = sys.argv[1], sys.argv[2:]
    problems, seen = [], set()
    for library in libraries:
        listing = subprocess.run([objdump, "-t", "--demangle", library], check=True,
                                 capture_output=True, text=True).stdout
        found = problems_of(listing, seen)
        problems += [f"{library}: {problem}" for problem in found]
    problems += [f"{entry} is allowed and does not exist" for entry in ALLOWED if entry not in seen]
    for problem in problems:
        print(problem)
    return 1 if problems or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())
