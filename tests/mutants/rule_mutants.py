#!/usr/bin/env python3
"""Wrong conditions in rewrite rules: each must make the test of the rule's soundness fail.

    rule_mutants.py BUILD [--only TEXT]

Patches one condition of one rule in a copy of its source, compiles that file, and links it before the library of passes, so
that its rule replaces the right one. The object of tests/equivalence/rules/rule_soundness_test.cc is compiled once. Not a
ctest: every mutant takes a compilation. Prints which mutants are found.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# File of the rule, a text that occurs in it, and its replacement.
MUTANTS = [
    ("normalize/remove_noop_cast.cc", 'intAttr("to", 0) == static_cast<int64_t>(type)', 'intAttr("to", 0) != 0'),
    ("normalize/remove_unit_scale.cc", "reals->front() == 1.0", "reals->front() >= 1.0"),
    ("normalize/remove_unit_scale.cc", "axes == 0 ||", "axes <= 9 ||"),
    ("normalize/remove_unit_scale.cc", "integers->front() == 1", "integers->front() >= 1"),
    ("normalize/quotient_to_softmax.cc", "*axis + 1 == static_cast<int64_t>(type.rank())", "*axis + 1 > 0"),
    ("normalize/quotient_to_softmax.cc", 'node.intAttr("keepdims", 1) == 0', 'node.intAttr("keepdims", 1) == 2'),
    ("normalize/remove_noop_movement.cc", "stops[i].map.isIdentity()",
     "mayBeSameShape(stops[i].value->type(), end.type())"),
    ("normalize/delay_row_factor.cc", "(axis == 1 ||", "(axis == 9 ||"),
    ("normalize/mask_before_softmax.cc", "uniformValue(*filler) == 0.0", "uniformValue(*filler) != 7.0"),
    ("normalize/scatter_without_transpose.cc", "forth[static_cast<size_t>(back[axis])] != static_cast<int64_t>(axis)",
     "back.empty() && axis == 99"),
    ("normalize/scatter_without_transpose.cc", 'reduction != "none"', 'reduction == "other"'),
    ("normalize/compose_movement.cc", "{perm->begin(), perm->end()}", "{perm->rbegin(), perm->rend()}"),
    ("normalize/softmax_over_last_axis.cc", "type.dim(-axis).value() != 1", "type.dim(-axis).value() == 7"),
    ("normalize/softmax_over_last_axis.cc", "opsetVersion() >= 13", "opsetVersion() >= 1"),
    ("normalize/absorb_scale.cc", "llvm::count_if(value.uses(), isData) == 1", "llvm::count_if(value.uses(), isData) >= 1"),
    ("normalize/bias_softmax_to_softmax.cc", 'attrs({{"axis", -1}})', 'attrs({{"axis", -2}})'),
    ("normalize/fold_scalar_arithmetic.cc", "arrays.push_back(&operand)", "arrays.insert(arrays.begin(), &operand)"),
    ("normalize/fold_scalar_arithmetic.cc", "numbers.push_back(*number)", "numbers.push_back(*number + 1)"),
    ("normalize/fused_matmul_to_matmul.cc", 'fused.intAttr("transA", 0) != 0', 'fused.intAttr("transB", 0) != 0'),
    ("normalize/fused_matmul_to_matmul.cc", 'fused.floatAttr("alpha", 1.0f)', "1.0"),
    ("normalize/shape_of_concat.cc", 'std::max(start, clamp(shape.intAttr("end", rank)))', "std::max(start, clamp(rank))"),
    ("normalize/select_row_to_scatter.cc", "element->dim.isKnownEqual(slot)", "!element->dim.isKnownDifferent(slot)"),
    ("raise/raise_onnx_attention.cc", 'frame.causal = node.intAttr("is_causal", 0) != 0', "frame.causal = false"),
    ("raise/raise_onnx_attention.cc", 'parts.softcap = node.floatAttr("softcap", 0.0f)', "parts.softcap = 0.0f"),
    ("raise/raise_multi_head_attention.cc", 'node.intAttr("unidirectional", 0) == 1', "false"),
    ("raise/ungroup_queries.cc", 'match.root().intAttr("causal", 0) == 0', 'match.root().intAttr("causal", 0) >= 0'),
    ("raise/raise_spelled_attention.cc", "only(&match[starts]) == 0", "only(&match[starts]) != 9"),
    ("raise/raise_group_query_attention.cc", 'node.floatAttr("softcap", 0.0f)', "0.0f"),
]

FLAGS = ["-std=c++20", "-O0", "-DFMT_SHARED", f"-I{ROOT}", f"-I{ROOT}/include", "-isystem", "/usr/lib/llvm-14/include"]


def libraries(build):
    rule = re.search(r"^build tests/equivalence_tests .*?\n\n", (build / "build.ninja").read_text(), re.M | re.S)[0]
    return re.search(r"LINK_LIBRARIES = (.*)", rule)[1].split()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        test, binary = f"{folder}/test.o", f"{folder}/test"
        subprocess.run(["g++", *FLAGS, f'-DKVOPT_SOURCE_DIR="{ROOT}"', "-c",
                        str(ROOT / "tests/equivalence/rules/rule_soundness_test.cc"), "-o", test], check=True)
        for path, before, after in MUTANTS:
            if only not in path + before:
                continue
            source = ROOT / "passes/rules" / path
            text = source.read_text()
            assert text.count(before) >= 1, f"{path} has no {before!r}"
            mutant = pathlib.Path(folder, source.name)
            mutant.write_text(text.replace(before, after, 1))
            compiled = subprocess.run(["g++", *FLAGS, "-c", str(mutant), "-o", f"{folder}/mutant.o"], capture_output=True, text=True)
            if compiled.returncode != 0:
                print(f"does not compile: {path}: {before!r}\n{compiled.stderr[:600]}")
                survivors += 1
                continue
            subprocess.run(["g++", test, f"{folder}/mutant.o", "-Wl,--allow-multiple-definition", *libraries(build), "-o", binary],
                           cwd=build, check=True)
            run = subprocess.run([binary, f"--gtest_filter=*/{source.stem}"], capture_output=True, text=True)
            found = run.returncode != 0
            survivors += not found
            print(f"{'found' if found else 'NOT FOUND'}: {path}: {before!r} -> {after!r}", flush=True)
    print(f"{survivors} not found")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
