"""site_links.py ROOT: builds the site and follows every link of it. Nothing that a page loads may come from a network.

Ends with 77 where mkdocs is not installed.
"""
import html.parser
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if "id" in attributes:
            self.anchors.add(attributes["id"])
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag in ("script", "img") and attributes.get("src"):
            self.loaded.append(attributes["src"])
        if tag == "link" and attributes.get("rel") in ("stylesheet", "shortcut icon"):
            self.loaded.append(attributes["href"])


def problems(site):
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    count = 0
    for path, page in pages.items():
        for address in page.loaded:
            if "://" in address or address.startswith("//"):
                yield f"{path.relative_to(site)} loads {address}"
        for address in page.links + page.loaded:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or address.startswith("#") and len(address) == 1:
                continue
            count += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                yield f"{path.relative_to(site)} links to {address}, which does not exist"
            elif parts.fragment and target in pages and parts.fragment not in pages[target].anchors:
                yield f"{path.relative_to(site)} links to {address}, which has no such heading"
    if count < 500:
        yield f"only {count} links were found"


def main(root):
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run(["bash", f"{root}/scripts/site.sh", folder + "/site"], check=False)
        if built.returncode != 0:
            sys.exit(built.returncode)
        found = list(problems(pathlib.Path(folder, "site").resolve()))
        if not pathlib.Path(folder, "site/search/search_index.json").exists():
            found.append("the site has no search index")
    sys.exit("\n".join(found) if found else 0)


main(sys.argv[1])
