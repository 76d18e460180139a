#!/usr/bin/env bash
# Unpacks packages of one of Debian's releases, with all that they need, into a folder and prints its path. Nothing is installed:
# apt works on a state of its own, and the machine's packages and sources stay as they are.
#   root=$(bash scripts/debian_packages.sh FOLDER [--release NAME] [--alone] PACKAGE…)     NAME: forky
# --alone leaves out what the packages need, for example for headers. Without apt or Debian's archive the script says
# "packages skipped: …" on stderr and exits with 77.
set -euo pipefail
folder=$1
shift
request=$*
release=forky
alone=
while [[ ${1:-} == --* ]]; do
  case $1 in
  --release) release=$2 && shift ;;
  --alone) alone=1 ;;
  *) echo "unknown option: $1" >&2 && exit 2 ;;
  esac
  shift
done

skip() {
  echo "packages skipped: $*" >&2
  exit 77
}

archive=$(bash "$(dirname "${BASH_SOURCE[0]}")/debian_archive.sh") || exit 77
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] || skip "$keys does not exist"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Tests that run side by side unpack once.
exec 9>"$folder/.lock"
flock 9
if [ "$(cat "$folder/.packages" 2>/dev/null)" = "$request" ]; then
  echo "$folder/root"
  exit
fi

state=$folder/apt
rm -rf "$state" "$folder/root"
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$folder/root"
echo "deb [signed-by=$keys] $archive $release main" >"$state/sources"
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
echo "$request" >"$folder/.packages"
echo "$folder/root"
