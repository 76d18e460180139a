#!/usr/bin/env bash
# Unpacks packages of Debian's testing release, with all that they need, into a folder and prints its path. Nothing is installed:
# apt works on a state of its own, and the machine's packages and sources stay as they are.
#   root=$(bash scripts/debian_packages.sh FOLDER [--alone] PACKAGE…)
# --alone leaves out what the packages need, for example for headers. Without apt or Debian's archive the script says
# "packages skipped: …" on stderr and exits with 77.
set -euo pipefail
folder=$1
shift
alone=
if [ "${1:-}" = --alone ]; then
  alone=1
  shift
fi

skip() {
  echo "packages skipped: $*" >&2
  exit 77
}

command -v apt-get >/dev/null || skip "apt-get is not installed"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] || skip "$keys does not exist"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Tests that run side by side unpack once.
exec 9>"$folder/.lock"
flock 9
if [ "$(cat "$folder/.packages" 2>/dev/null)" = "$*" ]; then
  echo "$folder/root"
  exit
fi

state=$folder/apt
rm -rf "$state" "$folder/root"
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$folder/root"
# The archive that this machine's own packages come from.
archive=$(cd "$state" && apt-get download --print-uris base-files 2>/dev/null | sed -n "s,^'\(.*\)/pool/.*,\1,p")
[ -n "$archive" ] || skip "apt-get does not know where Debian's archive is: run apt-get update"
echo "deb [signed-by=$keys] $archive forky main" >"$state/sources"
: >"$state/status"
architecture=$(dpkg --print-architecture)
apt() {
  apt-get -q -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
    -o Dir::Etc::SourceList="$state/sources" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root \
    -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o Debug::NoLocking=true "$@"
}
{
  apt update
  if [ -n "$alone" ]; then
    (cd "$state/cache/archives" && apt download "$@")
  else
    apt install -y --no-install-recommends --download-only "$@"
  fi
} >"$folder/apt.log" 2>&1 || skip "apt-get could not fetch $*: see $folder/apt.log"
for package in "$state"/cache/archives/*.deb; do
  dpkg-deb --extract "$package" "$folder/root"
done
rm -rf "$state"
echo "$*" >"$folder/.packages"
echo "$folder/root"
