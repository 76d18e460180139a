"""site_pages.py ROOT FOLDER: arranges the project's pages for mkdocs.

README.md becomes the first page. Pages keep their paths, so that links between them hold. Links to files that are not pages
lead to the copies of these files in the site.
"""
import pathlib
import re
import shutil
import sys

# Title and path, in the order of docs/README.md; a list is a group.
NAVIGATION = [
    ("kvopt", "README.md"),
    ("Install kvopt", "docs/install.md"),
    ("Drive a rewritten model", "docs/drive.md"),
    ("Use kvopt from Python, C++ or C", "docs/library.md"),
    ("Which models", "docs/models.md"),
    ("Which form", "docs/targets.md"),
    ("Memory and speed", "docs/speed.md"),
    ("What is proved", "docs/proof.md"),
    ("Prove that two models are equal", "docs/check.md"),
    ("When kvopt refuses", "docs/refusals.md"),
    ("Reference", [
        ("Commands and options", "docs/cli.md"), ("Reasons", "docs/reasons.md"), ("Manifest", "docs/manifest.md"),
        ("Cache file", "docs/cache-file.md"), ("Operators", "docs/operators.md"), ("Security", "docs/security.md"),
        ("Changes", "CHANGELOG.md"),
    ]),
    ("Contributing", [
        ("Contributing", "CONTRIBUTING.md"), ("Architecture", "docs/architecture.md"),
        ("Write a rule", "docs/write-a-rule.md"), ("Mask predicates", "docs/mask-predicates.md"),
        ("Examples", "examples/README.md"), ("Benchmarks", "bench/README.md"), ("Models", "models/README.md"),
    ]),
]
LINK = re.compile(r"(?<!!)\]\(([^)\s#]+)(#[^)\s]*)?\)")
NAMED_BLOCK = re.compile(r"^(```\w+) \S+$", re.MULTILINE)
SKIPPED = {"build", ".git", "node_modules"}


def navigation(root, entries, indent=2):
    lines = []
    for title, target in entries:
        if isinstance(target, list):
            lines += [f"{' ' * indent}- '{title}':", *navigation(root, target, indent + 4)]
        elif (root / target).exists():
            lines.append(f"{' ' * indent}- '{title}': '{target}'")
    return lines


def page_text(root, page):
    """The page, with links to folders leading to their README.md, and those to folders without one as plain text."""
    text = page.read_text(encoding="utf-8")

    def link(match):
        target = (page.parent / match[1]).resolve()
        if "://" in match[1] or not target.is_dir():
            return match[0]
        if (target / "README.md").exists():
            return f"]({match[1].rstrip('/')}/README.md{match[2] or ''})"
        return f"]({match[1].rstrip('/')}/index.md)"

    return LINK.sub(link, NAMED_BLOCK.sub(r"\1", text))


def anchor(heading, separator):
    """The anchor of a heading, as hosts of repositories make it."""
    kept = "".join(letter for letter in heading if letter.isascii() and letter.isalnum() or letter in "-_ ")
    return kept.strip().lower().replace(" ", separator)


def folder_index(folder):
    """A page for a folder without one."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix == ".md")
    title = folder.name.capitalize()
    return f"# {title}\n\n" + "".join(f"* [{name.removesuffix('.md')}]({name})\n" for name in names)


def main(root, folder):
    root, folder = pathlib.Path(root), pathlib.Path(folder)
    pages = folder / "pages"
    linked = set()
    for page in sorted(root.rglob("*.md")):
        if SKIPPED & set(page.relative_to(root).parts):
            continue
        target = pages / page.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page_text(root, page), encoding="utf-8")
        for name, _ in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in name:
                linked.add((page.parent / name).resolve())
    shutil.copytree(root / "docs/pictures", pages / "docs/pictures")
    for path in linked:
        target = pages / path.relative_to(root)
        if path.is_file() and path.suffix != ".md":
            target.parent.mkdir(parents=True, exist_ok=True)
            # A text file is shown by every browser, whatever its name ends in.
            shutil.copyfile(path, target)
        elif path.is_dir() and not (path / "README.md").exists():
            target.mkdir(parents=True, exist_ok=True)
            (target / "index.md").write_text(folder_index(path), encoding="utf-8")
    lines = ["site_name: kvopt", "docs_dir: pages", "use_directory_urls: false", "plugins: [search]",
             "theme:", "  name: mkdocs", "  highlightjs: false", "  locale: en", "extra_css: [site.css]",
             "extra_javascript: [site.js]",
             "markdown_extensions:", "  - tables", "  - fenced_code", "  - toc:", "      slugify: !!python/name:site_pages.anchor", "nav:", *navigation(root, NAVIGATION)]
    (folder / "mkdocs.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("site.css", "site.js"):
        shutil.copyfile(root / "scripts" / "site" / name, pages / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
