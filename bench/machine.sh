# Sourced by scripts that write results: what the machine is (`machine`, `slug` for a file name, `simd`), and which commit
# is measured (`commit`).

# cpu KEY: the first processor's value in /proc/cpuinfo.
cpu() { sed -n "s/^$1[[:space:]]*: *//p" /proc/cpuinfo | head -n 1; }

model=$(cpu 'model name' | sed -E 's/\((R|TM)\)|@.*|CPU|Processor//g; s/ +/ /g; s/ $//')
details="family $(cpu 'cpu family'), model $(cpu model)"
if [ -z "$model" ]; then
  model="$(uname -m) $(cpu 'CPU implementer')"
  details="part $(cpu 'CPU part')"
fi
case " $(cpu flags) $(cpu Features) " in
*' avx512_bf16 '*) simd="AVX-512 with bfloat16" ;;
*' avx512f '*) simd=AVX-512 ;;
*' avx2 '*) simd=AVX2 ;;
*' sve '*) simd=SVE ;;
*) simd="128-bit SIMD" ;;
esac
memory=$(awk '/^MemTotal:/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)
machine="$model ($details), $(nproc) CPUs, $simd, $memory"
slug=$model
# A virtual processor's name often has no number; its family and model then tell kinds apart.
[[ $slug == *[0-9]* ]] || slug+=" $details"
slug=$(tr '[:upper:]' '[:lower:]' <<<"$slug" | sed -E 's/[^a-z0-9]+/-/g; s/^-|-$//g')
commit=$(git rev-parse --short HEAD)
[ -z "$(git status --porcelain -- . ':!bench/results')" ] || commit+=" with local changes"

# How many threads other than the benchmarks' are running: the mean of a second.
others() {
  for _ in 1 2 3 4 5; do
    sleep 0.2
    cut -d ' ' -f 4 /proc/loadavg | cut -d / -f 1
  done | awk '{ sum += $1 - 1 } END { printf "%.0f", sum / NR }'
}

# result_page TITLE SCRIPT TABLE [REMARK]: a page of results, with what `note` says of the run below it.
result_page() {
  printf '# %s\n\nWritten by `bash %s`; do not edit.%s\n\n' "$1" "$2" "${4:+ $4}"
  cat "$3"
  printf '\n%s.\n' "$note"
}
