#!/usr/bin/env python3
"""Faults in every layer: tests must find each.

    planted_faults.py FOLDER [--only TEXT] [-j N]

Copies the last commit to a folder, puts every fault below into the sources, and builds the tests once. A fault replaces one
expression by another where the environment variable KVOPT_FAULT has its number. Then runs the tests of each fault with it, and
once without any fault. Not a ctest: building takes as long as building all tests. The build stays in the folder, for
--only.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# File, an expression that occurs in it once, what replaces it, the test program, and its tests, if not all.
FAULTS = [
    ("support/escape.cc", "!isUnsafe(character.point)", "true", "support", "*"),
    ("ir/dims/dim.cc", "a.name() < b.name()", "a.name() > b.name()", "ir", "*"),
    ("ir/text/values.cc", "-static_cast<int64_t>(all / 2) - 1", "-static_cast<int64_t>(all / 2)", "ir", "*"),
    ("ir/text/values.cc", "negative ? 1 << bits : 0", "static_cast<int>(0 * bits)", "ir", "*"),
    ("ir/manifest/manifest_consistency.cc", "index < static_cast<int64_t>(files.size())", "true", "ir", "*"),
    ("ir/ops/kvopt/cache_function_body.cc", "joinedBlocksText(part.name, blocks, *part.layout)",
     "joinedBlocksText(part.name, blocks - 1, *part.layout)", "equivalence", "*FormsWithBodies*:LayoutsTest*"),
    ("check/rules/attention.cc", "key <= query + length - rows", "key <= query + length - rows + 1", "check", "*"),
    ("check/rules/attention.cc", "call.in(4) ? keys - rows : 0", "0 * keys", "check", "*"),
    ("check/rules/index.cc", "index < 0 ? index + shape.back() : index", "index", "check", "*"),
    ("check/arithmetic/integer_range.cc", "number < std::min(end, most)", "true", "check", "*"),
    ("meaning/operators/attention.cc", "key.at({i[0], quotient(i[1], group), i[3], d})",
     "key.at({i[0], remainder(i[1], key.extent(1)), i[3], d})", "meaning", "NodeNumbers*"),
    ("meaning/operators/attention.cc", "maximum(pastRows(i[0]), 0) + i[2]", "pastRows(i[0]) + i[2]", "meaning",
     "NodeNumbers*"),
    ("meaning/operators/attention.cc", "biased(value, width * 2.0)", "biased(value, width)", "meaning", "NodeNumbers*"),
    ("meaning/operators/attention.cc", "padding.at({i[0], i[3]})", "padding.at({i[0].integer(0), i[3]})", "meaning",
     "NodeNumbers*"),
    ("meaning/operators/conversion.cc", "apply(Function::Round, quotient)",
     "apply(Function::Floor, quotient + 0.5)", "meaning", "NodeNumbers*"),
    ("meaning/operators/conversion.cc", "maximum(minimum(code, high), low)", "minimum(code, high)", "meaning", "NodeNumbers*"),
    ("meaning/operators/conversion.cc", "parameterAt(scaleA, index, row)", "parameterAt(scaleA, index, column)", "meaning",
     "NodeNumbers*"),
    ("meaning/operators/elementwise.cc", "select(a > bound, a - bias, a.like(0))",
     "select(a >= bound, a - bias, a.like(0))", "meaning", "NodeNumbers*"),
    ("meaning/operators/index.cc", "both(same(other, own), k < index[axis])",
     "both(same(other, own), k > index[axis])", "meaning", "NodeNumbers*"),
    ("meaning/operators/movement.cc", "minimum(maximum(counted, least), most)", "minimum(counted, most)", "meaning",
     "NodeNumbers*"),
    ("meaning/operators/normalization.cc", "vector.at({quotient(index[0], size)})",
     "vector.at({remainder(index[0], vector.extent(0))})", "meaning", "NodeNumbers*"),
    ("passes/pattern/matcher.cc", "node.op() == \"OneHot\" ? rank + 1 : rank", "rank", "passes", "*"),
    ("passes/analysis/mask/mask_predicate.cc", "*number <= hidingThreshold", "true", "passes", "*"),
    ("passes/analysis/rotation/row_rotation.cc", "pair.high - pair.low == apart", "true", "passes", "*"),
    ("passes/builders/score_mask.cc", "number == 0.0 || number <= belowAbsorbing", "true", "equivalence",
     "*-*Corpus*"),
    ("passes/builders/attention_builder.cc", "concat(mask, columns, rank - 1)", "concat(mask, columns, rank - 2)",
     "equivalence", "*-*Corpus*"),
    ("passes/rules/raise/unflatten_attention.cc", "4 - static_cast<size_t>(axis)", "3 - static_cast<size_t>(axis)",
     "equivalence", "*-*Corpus*"),
    ("passes/rules/raise/raise_group_query_attention.cc", "scale != 0 ? static_cast<double>(scale) : defaultScale(width)",
     "scale != 0 ? static_cast<double>(scale) : 2 * defaultScale(width)", "equivalence", "*Raised*:*Rule*:*Fused*"),
    ("passes/targets/kvopt/kvopt_operands.cc", "sdpa.floatAttr(\"scale\", 1.0f)", "1.01f * sdpa.floatAttr(\"scale\", 1.0f)",
     "equivalence", "*Forms*"),
    ("passes/targets/kvopt/kvopt_operands.cc", "sdpa.intAttr(\"causal\", 0)", "0 * sdpa.intAttr(\"causal\", 0)", "equivalence",
     "*Forms*"),
    ("passes/targets/blocks/block_lowering.cc", "blockRows[i]", "blockRows[0]", "equivalence", "*Forms*:*Blocks*"),
    ("passes/targets/blocks/tiled_attention.cc", "sdpa.floatAttr(\"scale\", 1.0f)", "1.01f * sdpa.floatAttr(\"scale\", 1.0f)",
     "equivalence", "*Forms*:*Tiles*"),
    ("passes/targets/onnx/onnx_attention.cc", "isScaledBefore() ? 1.0 : attention.scale",
     "isScaledBefore() ? 1.0 : 1.01 * attention.scale", "equivalence", "*Forms*"),
    ("passes/targets/ort_gqa/gqa_lowering.cc", "fused.floatAttr(\"scale\", 1.0f)", "1.01f * fused.floatAttr(\"scale\", 1.0f)",
     "equivalence", "*Forms*"),
    ("passes/targets/primitive/spelled_attention.cc", "sdpa.floatAttr(\"scale\", 1.0f)",
     "1.01f * sdpa.floatAttr(\"scale\", 1.0f)", "equivalence", "*Forms*"),
    ("runtime/session/sampling.cc", "a.score != b.score ? a.score > b.score : a.token < b.token", "a.score > b.score", "runtime", "*"),
    ("runtime/cache/block_table.cc", "count - before", "count - before + 1", "runtime", "*"),
    ("runtime/cache/block_manager.cc", "static_cast<int64_t>(freeStack.size())", "int64_t{0}", "runtime", "*"),
    ("runtime/exec/static_sequences.cc", "values->front() + length", "values->front()", "runtime", "*"),
    ("runtime/exec/kernel.cc", "version <= kernel->until", "true", "runtime", "*"),
    ("runtime/memory/memory_plan.cc", "a.change > b.change", "a.change < b.change", "runtime", "*"),
    ("runtime/memory/narrow_codes.cc", "code & (format.sign - 1)", "code & format.sign", "runtime", "*"),
    ("runtime/equivalence/comparison.cc", "middle - magnitude", "middle + magnitude", "runtime", "*"),
    ("runtime/equivalence/interface_difference.cc", "!missing.empty()", "false", "equivalence", "*Tampered*"),
    ("runtime/kernels/reduction/reduction.cc", "value < total || value != value", "value < total", "runtime", "*"),
    ("runtime/kernels/reduction/selection.cc", "largest ? a > b : a < b", "largest ? a < b : a > b", "runtime", "*"),
    ("runtime/kernels/movement/scatter.cc", "b < a || b != b", "b < a", "runtime", "*"),
    ("runtime/kernels/elementwise/predicates.cc", "isLess(context, context.in(1), context.in(0))",
     "isLess(context, context.in(0), context.in(1))", "runtime", "*"),
    ("runtime/kernels/support/broadcast.cc", "row(to, offsets, count, steps)", "row(begin, offsets, count, steps)", "runtime", "*"),
    ("runtime/attention/attention_scores.cc", "position - key < operands.window", "position - key <= operands.window", "runtime",
     "*"),
    ("driver/generate/generation.cc", "endsWithTokens(sequence.tokens, end)", "false", "driver", "*"),
    ("driver/synthetic/masks.cc", "context.spec.window != 0", "context.spec.window == 0", "generated", "*"),
    ("driver/reduce/constant_edits.cc", "contents == Contents::Zeros && isZero(*value->initializer())", "true", "driver", "*"),
    ("driver/roles/role_guesses.cc", "recipe.kind == InputRecipe::Kind::Ones ? 1.0 : 0.0", "0.0", "driver", "*"),
    ("cli/running/bench_report.cc", "values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2",
     "values[middle]", "cli", "Bench*"),
    ("driver/verify/plan.cc", "plan.pastRows + plan.totalTokens()", "plan.totalTokens() - 1", "cli", "Verify*"),
]

FLAG = """
#include <cstdlib>
inline bool plantedFault(int number) {
  static const char* chosen = std::getenv("KVOPT_FAULT");
  static const int fault = chosen ? std::atoi(chosen) : 0;
  return fault == number;
}
"""


def plant(folder):
    for number, (path, right, wrong, _, _) in enumerate(FAULTS, 1):
        file = folder / path
        text = file.read_text(encoding="utf-8")
        if text.count(right) != 1:
            raise SystemExit(f"{path}: '{right}' is there {text.count(right)} times")
        file.write_text(text.replace(right, f"(plantedFault({number}) ? ({wrong}) : ({right}))"), encoding="utf-8")
    precompiled = folder / "cmake/precompiled.h"
    precompiled.write_text(precompiled.read_text(encoding="utf-8") + FLAG, encoding="utf-8")


def run(folder, number, program, tests):
    """The first test that fails with a fault; empty if none does."""
    command = [folder / f"build/release/tests/{program}_tests", "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={tests}"]
    try:
        done = subprocess.run(command, cwd=folder / "build/release/tests", env={**os.environ, "KVOPT_FAULT": str(number)},
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=900, check=False)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith("[  FAILED  ]")]
    return failed[0].removeprefix("[  FAILED  ] ") if failed else f"ends with {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("-j", type=int, default=2)
    options = parser.parse_args()
    folder = options.folder.resolve()
    programs = sorted({program for _, _, _, program, _ in FAULTS})
    if not folder.exists():
        folder.mkdir(parents=True)
        archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        plant(folder)
        subprocess.run(["cmake", "--preset", "release"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "-j", str(options.j), "--target", *(p + "_tests" for p in programs)],
                   cwd=folder, check=True, stdout=subprocess.DEVNULL)
    chosen = [(n, fault) for n, fault in enumerate(FAULTS, 1) if options.only in fault[0]]
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        runs = {(0, program, tests): None for _, (_, _, _, program, tests) in chosen}
        for key, failure in zip(runs, pool.map(lambda key: run(folder, *key), runs)):
            if failure:
                raise SystemExit(f"without a fault: {key[1]}: {failure}")
        for (number, fault), failure in zip(chosen, pool.map(lambda c: run(folder, c[0], c[1][3], c[1][4]), chosen)):
            missed += not failure
            print(f"{'found' if failure else 'MISSED'}: {number} {fault[0]}: {fault[1]} -> {fault[2]}: {failure}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults are found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
