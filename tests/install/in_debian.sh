#!/usr/bin/env bash
# Runs the commands of its standard input as root in a fresh Debian, which is removed afterwards:
#   tests/install/in_debian.sh RELEASE PACKAGE,… FOLDER [PATH…] < COMMANDS
# The commands run in a folder with copies of FOLDER's PATHs. The exit code is that of the commands, or 77 where mmdebstrap, the
# rights that it needs or Debian's archive are missing.
set -euo pipefail
release=$1 packages=$2 folder=$3
shift 3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v mmdebstrap >/dev/null || { echo "skipped: mmdebstrap is not installed" >&2 && exit 77; }
archive=$(bash "$here/../../scripts/debian_archive.sh") || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

{
  echo 'cd /root && export HOME=/root DEBIAN_FRONTEND=noninteractive && exec 2>&1'
  cat
} >"$work/commands"
tar --create --dereference --directory "$folder" --file "$work/files.tar" "$@"
# mmdebstrap has exit codes of its own.
cat >"$work/run" <<EOF
tar --extract --no-same-owner --directory "\$1/root" --file "$work/files.tar"
cp "$work/commands" "\$1/commands"
chroot "\$1" bash -euo pipefail /commands </dev/null >"$work/output" && code=0 || code=\$?
echo "\$code" >"$work/code"
EOF
chmod 755 "$work/run"
mmdebstrap --quiet --dpkgopt=force-unsafe-io --variant=minbase --include="$packages" --customize-hook="sh $work/run \"\$1\"" \
  --format=null "$release" - "$archive" >"$work/log" 2>&1 || true
if [ ! -s "$work/code" ]; then
  echo "skipped: no Debian $release: $(grep -m 1 '^E:' "$work/log" || tail -1 "$work/log")" >&2
  exit 77
fi
cat "$work/output"
exit "$(cat "$work/code")"
