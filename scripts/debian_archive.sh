#!/usr/bin/env bash
# Prints the address of the Debian archive that this machine's own packages come from. Exits with 77 if it is not known.
set -euo pipefail
command -v apt-get >/dev/null || { echo "skipped: apt-get is not installed" >&2 && exit 77; }
archive=$(cd /tmp && apt-get download --print-uris base-files 2>/dev/null | sed -n "s,^'\(.*\)/pool/.*,\1,p")
[ -n "$archive" ] || { echo "skipped: apt-get does not know where Debian's archive is: run apt-get update" >&2 && exit 77; }
echo "$archive"
