#!/usr/bin/env bash
# Installs into a folder of its own, and uses what is there.
#
#   install_test.sh CMAKE BUILD_FOLDER
set -euo pipefail
unset DESTDIR
cmake=$1
build=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
fail() {
  echo "failed: $*" >&2
  exit 1
}

"$cmake" --install "$build" --prefix "$prefix" >"$prefix/log" || fail "$(cat "$prefix/log")"
cd "$prefix"
PATH="$prefix/bin:$PATH"
[ "$(command -v kvopt)" = "$prefix/bin/kvopt" ] || fail "the program is not in bin"
kvopt gen llama -o model.onnx --vocab 64 >/dev/null
kvopt rewrite model.onnx -o fused.onnx >/dev/null
kvopt verify model.onnx fused.onnx >/dev/null
[[ $(kvopt diff model.onnx fused.onnx --format svg) == *"<svg"* ]] || fail "Graphviz draws nothing"

page=share/man/man1/kvopt.1
cmp "$page" <(kvopt help --man)
for command in $(kvopt list commands | cut -d' ' -f1); do
  grep -qF ".SH \"kvopt ${command//-/\\-}\"" "$page" || fail "$page has no section for $command"
done
if command -v groff >/dev/null; then
  warnings=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
  [ -z "$warnings" ] || fail "groff: $warnings"
fi
if command -v man >/dev/null; then
  man -l --warnings "$page" 2>&1 | grep -q 'kvopt make-dynamic' || fail "man shows no page"
fi

completions=share/bash-completion/completions/kvopt
bash -c "source $completions && complete -p kvopt" | grep -q _kvopt || fail "bash completes nothing"
head -1 share/zsh/site-functions/_kvopt | grep -qx '#compdef kvopt' || fail "zsh finds no function"
if command -v zsh >/dev/null; then
  zsh -n share/zsh/site-functions/_kvopt
fi
if command -v fish >/dev/null; then
  fish --no-execute share/fish/vendor_completions.d/kvopt.fish
  # What fish offers is one word a line, with its description after a tab.
  offered=$(fish -c "source share/fish/vendor_completions.d/kvopt.fish; complete -C 'kvopt list re'")
  [ "${offered%%$'\t'*}" = reasons ] || fail "fish offers '$offered'"
fi
echo "installed: $(kvopt --version), manual page, completion for bash, zsh and fish"
