#!/usr/bin/env bash
# Builds the pages as a static site with search, which needs no network to be read: build/site/index.html.
#   bash scripts/site.sh [FOLDER]
# Needs Debian's package mkdocs. Exits with 77 where it is not installed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
site=$(realpath -m "${1:-$root/build/site}")

if ! command -v mkdocs >/dev/null; then
  echo "site skipped: mkdocs is not installed (apt-get install mkdocs)" >&2
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$root/scripts/site_pages.py" "$root" "$work"
PYTHONPATH=$root/scripts PYTHONDONTWRITEBYTECODE=1 mkdocs build --quiet --strict --config-file "$work/mkdocs.yml" --site-dir "$site"
echo "$site/index.html"
