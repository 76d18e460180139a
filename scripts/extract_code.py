"""extract_code.py PAGE FOLDER: writes the fenced blocks of a Markdown page that name a file.

A block that opens with ```LANGUAGE PATH is written to FOLDER/<last part of PATH>. Files whose
content stays the same are not touched.
"""

import pathlib
import sys


def blocks(lines):
    """The named blocks: (file name, text)."""
    name, content = None, []
    for line in lines:
        if line.startswith("```"):
            words = line[3:].split()
            if name:
                yield name, "".join(content)
                name = None
            elif len(words) == 2:
                name, content = pathlib.PurePosixPath(words[1]).name, []
        elif name:
            content.append(line)


def main(page, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(page, encoding="utf-8") as stream:
        found = list(blocks(stream.readlines()))
    if not found:
        sys.exit(f"{page}: no block names a file")
    for name, text in found:
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


main(*sys.argv[1:])
