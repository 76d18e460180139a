#!/usr/bin/env bash
# Runs the commands of its standard input as root in a fresh Debian, which is removed afterwards:
#   tests/install/in_debian.sh SYSTEMS RELEASE PACKAGE,… FOLDER [PATH…] < COMMANDS
# The commands run in a folder with copies of FOLDER's PATHs. The folder SYSTEMS keeps each release's system without the packages for
# the next call. The exit code is that of the commands, or 77 where mmdebstrap, the rights that it needs or Debian's archive are
# missing.
set -euo pipefail
systems=$1 release=$2 packages=$3 folder=$4
shift 4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v mmdebstrap >/dev/null || { echo "skipped: mmdebstrap is not installed" >&2 && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
skip() {
  echo "skipped: no Debian $release: $(grep -m 1 '^E:' "$work/log" || tail -1 "$work/log")" >&2
  exit 77
}

# The lists of packages stay for apt-get install. The commands read neither documentation nor translations.
system=$systems/$release.tar
if [ ! -e "$system" ]; then
  archive=$(bash "$here/../../scripts/debian_archive.sh") || exit 77
  mkdir -p "$systems" && chmod 755 "$systems"
  mmdebstrap --quiet --variant=apt --skip=cleanup/apt/lists --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "$release" "$work/system.tar" "$archive" >"$work/log" 2>&1 || skip
  mv "$work/system.tar" "$system"
fi

{
  echo 'cd /root && export HOME=/root DEBIAN_FRONTEND=noninteractive && exec 2>&1'
  cat
} >"$work/commands"
tar --create --dereference --directory "$folder" --file "$work/files.tar" "$@"
# mmdebstrap has exit codes of its own.
cat >"$work/run" <<EOF
set -e
DEBIAN_FRONTEND=noninteractive chroot "\$1" apt-get install -y -q --no-install-recommends ${packages//,/ }
tar --extract --no-same-owner --directory "\$1/root" --file "$work/files.tar"
cp "$work/commands" "\$1/commands"
chroot "\$1" bash -euo pipefail /commands </dev/null >"$work/output" && code=0 || code=\$?
echo "\$code" >"$work/code"
EOF
chmod 755 "$work/run"
mmdebstrap --quiet --variant=custom --skip=setup,update,cleanup --setup-hook="tar --extract --directory \"\$1\" --file $system" \
  --customize-hook="sh $work/run \"\$1\"" --format=null "$release" - "$system" >"$work/log" 2>&1 || true
[ -s "$work/code" ] || skip
cat "$work/output"
exit "$(cat "$work/code")"
