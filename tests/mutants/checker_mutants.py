#!/usr/bin/env python3
"""Faults in the checker: each must make its tests fail.

    checker_mutants.py BUILD [--only TEXT] [--numbers 3-6,9] [--objects DIR]

Patches one place of one file of check/ in a copy, compiles that file, and links it with the other files of check/ and the tests
of BUILD. Files of check/ are compiled one by one: where a folder is compiled together, calls of a patched function need not
reach it. With --objects, they are kept for the next run. Not a ctest: every mutant takes a compilation. Prints which mutants are
found, and by which test.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# File, a text that occurs in it, its replacement, and what is wrong then.
MUTANTS = [
    # Obligations.
    ("checker.cc", "if (paired.count(output) || replaced.count(output->name()))", "if (output)", "an output may be gone"),
    ("checker.cc", "if (isWritten) {", "if (isWritten && report.seed > 9) {", "other files are not noted"),
    ("checker.cc", "weakest = obligation.verdict;", "", "a weak region does not weaken what depends on it"),
    ("checker.cc", "((!output.pair || isSameForm(*output.pair)) &&", "(", "caches of other forms are aligned as they are"),
    ("checker.cc", "found.obstacle = pair->obstacle;", "", "an obstacle of a cache is forgotten"),
    ("checker.cc", "gap = sizeArgumentGap(feeding.after().model, regions.last().nodes[true], covered);", ";",
     "operators of the second model need no argument"),
    # Regions and frontiers.
    ("regions/regions.cc", "answer == Answer::Equal && evidence.elements == 0", "false", "nothing compared is equal"),
    ("evaluation/evaluation.cc", "if (math.isExhausted())", "if (math.work < 0)", "work has no limit"),
    ("regions/regions.cc", "math.work = 0;", "", "regions share a limit of work"),
    ("evaluation/evaluation.cc", "|| !hooks.isRead(node.result(i))", "|| node.result(i).isUnused()", "dead readers evaluate a result"),
    ("regions/regions.cc", "outcome.gap = models.math.thresholds.gap();", "{}", "thresholds leave no gap"),
    ("regions/regions.cc", "if (step.batch == 1 && step.past <= small && step.tokens <= small)", "if (step.batch > 99)",
     "a rejected small step raises no doubt"),
    ("regions/regions.cc", "if (!step.excludedBy.empty())", "if (step.batch > 99)", "excluded steps that differ leave no gap"),
    ("regions/regions.cc", "return after.isInvalid() ? StepAnswer::Different : StepAnswer::Failed;", "return StepAnswer::LeftOut;",
     "a second model that fails is left out"),
    ("regions/aligned_models.cc", "shapes.placesOf(*first) == shapes.placesOf(*second) &&", "", "caches with other places are one input"),
    ("regions/aligned_models.cc", "a->integers == b->integers", "true", "inputs with other contents are one input"),
    ("regions/regions.cc", "outcome.hasOrderedPatterns |=", "outcome.hasOrderedPatterns |= false &&", "what one order hides is hidden in all"),
    ("regions/leaves.cc", "math.usesOrder && isOfAll &&", "false &&", "elements that both models have are those of one order"),
    ("checker.cc", "answer == Answer::Equal && regions.last().hasOrderedPatterns", "false", "regions stop at what one order hides"),
    ("regions/stops.cc", "if (isShared(before.of(*from), frontier))", "if (from)", "no region stops at an arrangement"),
    ("regions/regions.cc", "question.isHasty && lastDifferent > 0", "lastDifferent > 0", "the first differing step is not looked for"),
    # Keys of regions.
    ("regions/region_walk.cc", "add(addressOf(form));", "", "equal regions may have other shapes"),
    ("regions/region_walk.cc", "add(addressOf(sources.shapes.placesOf(*cache)));", "", "equal regions may have other cache rows"),
    ("regions/region_walk.cc", "add(sources.digests.contentsOf(model(), *value.initializer()));", "",
     "equal regions may have other constants"),
    ("regions/region_walk.cc", "add(use.value() ? numbers.lookup(use.value()) : uint64_t(Part::Absent) << 32);", "",
     "equal regions may have other operands"),
    ("regions/region_walk.cc", "region.key.insert(region.key.end(), own.begin(), own.end());", "",
     "equal regions may have other operators"),
    # Classes.
    ("alignment/classes.cc", "hash.add(attributesOf(node.attributes()));", "", "attributes do not matter"),
    ("alignment/classes.cc", "if (isCommutative(node))\n    std::sort", "std::sort", "the order of operands never matters"),
    ("alignment/classes.cc", 'set(result, classOf("result", operands, {i}));', 'set(result, classOf("result", operands, {0}));',
     "all results are one"),
    ("alignment/element_types.cc", "if (at->isInitializer() ||", "if (at->type().elementType() != ElementType::Undefined ||",
     "declared types are right"),
    ("alignment/element_types.cc", "of(*node.operand(0)) == to", "true", "every cast is none"),
    ("alignment/constant_digests.cc", "other.data->shape() == data.shape() &&", "", "constants of equal bytes have one shape"),
    ("alignment/classes.cc", "hash.add(bodyOf(*function));", "", "bodies of functions do not matter"),
    ("alignment/classes.cc", "if (node.is(\"Split\"))", "if (node.is(\"Never\"))", "the number of parts does not matter"),
    ("alignment/classes.cc", "hash.number(static_cast<uint64_t>(meaningOf(node)));", "", "versions of operators do not matter"),
    # What is fed.
    ("caches/cache_contents.cc", "math.field.arbitrary(place >= 0", "place < 0 ? Exact{} : math.field.arbitrary(place >= 0",
     "rows that no token wrote are zeros"),
    ("caches/cache_pairs.cc", "if (contradicts(second, cache))", "if (false)",
     "a manifest may contradict declared shapes"),
    ("caches/feeding.cc", "if (feed == InputFeed::Any)\n    return", "if (feed == InputFeed::Segments)\n    return",
     "inputs of unknown role prove something"),
    ("caches/step.cc", "if (!padsRight)\n    return token < hidden;", "return token < hidden;", "padding is on the left only"),
    ("caches/step.cc", "const int64_t hidden = padding - (batch - 1 - row);", "const int64_t hidden = padding;",
     "all rows are padded alike"),
    ("caches/row_places.cc", "row = first + ((place[axis] - first) % extent + extent) % extent;", "row = first + place[axis];",
     "slots of rings are in order"),
    # Scope.
    ("regions/scope.cc", "step.excludedBy = limitOn(after.manifest, step);", "step.batch = 1;", "batches are not varied"),
    ("regions/scope.cc", "step.excludedBy = limitOn(after.manifest, step);", "step.past = 0;", "earlier tokens are not varied"),
    ("regions/scope.cc", "step.excludedBy = limitOn(after.manifest, step);", "step.tokens = 1;", "new tokens are not varied"),
    ("regions/scope.cc", "step.excludedBy = limitOn(after.manifest, step);", "step.spare = 0;", "buffers are always full"),
    ("regions/scope.cc", "step.excludedBy = limitOn(after.manifest, step);", "step.padding = 0;", "nothing is padded"),
    ("regions/scope.cc", "addComparedSizes(before, after, add, covered);", "", "no steps around constants"),
    ("regions/scope.cc", "addLimit(before, after, add);", "", "no steps at the capacity"),
    ("regions/scope.cc", "    addRounds(side->manifest, add);", "    (void)side;", "no rounds of rings"),
    # Larger sizes.
    ("arithmetic/thresholds.cc", "if (isLarger && after < before)\n        return true;\n    }\n  return false;",
     "(void)after, (void)before;\n    }\n  return false;", "nothing comes nearer"),
    ("arithmetic/thresholds.cc", "(comparison.period <= 0 || seen.comesNearerByPeriods(comparison.period))", "comparison.period <= 0",
     "remainders repeat from the start"),
    ("arithmetic/thresholds.cc", "if (seen.isCrossed(comparison.isExact))", "if (seen.below || seen.above)", "one side is enough"),
    ("arithmetic/thresholds.cc", "known.ofConstants[element.constant].add", "known.ofConstants[0].add", "all constants are one threshold"),
    ("regions/size_argument.cc", "operators.of(node).isUniform", "true",
     "every operator treats all places alike"),
    ("regions/size_argument.cc", "return size > alwaysCovered", "return size < 0", "no window is far"),
    # Comparison and arithmetic.
    ("regions/comparison.cc", "if (before->shape != after->shape) {", "if (before->shape.size() != after->shape.size()) {",
     "only ranks are compared"),
    ("regions/comparison.cc", "if (a.status == Status::Undecided || b.status == Status::Undecided) {", "if (false) {",
     "undecided elements are compared"),
    ("regions/comparison.cc", "(allowsHidden && b.status == Status::Unspecified)", "b.status == Status::Unspecified",
     "elements that the second model leaves open are not compared"),
    ("arithmetic/field.cc", "if (!a.hasExponent)\n    return", "if (false)\n    return", "an exponential of an exponential is decided"),
    ("arithmetic/field.cc", "bits = mixBits(bits ^ residue ^ (static_cast<uint64_t>(operand.status) << 40));", "(void)residue;",
     "functions do not depend on operands"),
    ("arithmetic/constants.cc", "error > root * 2e-7 * power", "error > 2e-2 * power", "constants are rounded"),
    ("regions/leaves.cc", "if (!numbers || Constants::hasSpecial(*numbers))", "if (!numbers)", "masks are any numbers"),
    ("arithmetic/call.cc", "if (!shape || a->isReal() || b->isReal() || a->kind != b->kind || a->isBool())", "if (shape)",
     "comparisons note no threshold"),
    # Operators.
    ("rules/arithmetic.cc", "return need(call, addReals(call, a, negative(call, b)));", "return need(call, addReals(call, a, b));",
     "Sub adds"),
    ("rules/comparison.cc", 'name == "Greater" || name == "LessOrEqual"', 'name == "LessOrEqual"', "Greater of reals is Less"),
    ("rules/comparison.cc", "more == Status::Number && areFunctions && !areEqual", "false", "different functions are never equal"),
    ("rules/comparison.cc", "more != Status::NotANumber && x.isEqual(y)", "x.isEqual(y)", "what is not a number equals itself"),
    ("rules/comparison.cc", "return x.status == Status::Undecided;", "return false;", "what is undecided is a number"),
    ("rules/arithmetic.cc", "if (limit && limit->count() != 1)", "if (limit && limit->count() < 0)", "limits have many elements"),
    ("arithmetic/field.cc", "return {0, 0, Status::Undecided, false};\n  const Status status = a.status == Status::Fill",
     "return {0, 0, Status::NotANumber, false};\n  const Status status = a.status == Status::Fill",
     "an inverse of zero is not a number"),
    ("rules/comparison.cc", "return int64_t(x <= y); }", "return int64_t(x < y); }", "LessOrEqual of integers is Less"),
    ("rules/comparison.cc", "? at : count + at;", "? count + at : at;", "Where takes the other part"),
    ("rules/index.cc", "first[static_cast<size_t>(place[0])] % capacity + index", "first[0] % capacity + index",
     "rows of a batch are written at one place"),
    ("rules/parts.cc", "if (isUpper ? diagonal < 0 : diagonal > 0) {", "if (isUpper ? diagonal < 0 : diagonal >= 0) {",
     "Trilu is off by one"),
    ("rules/parts.cc", "strides[i] *= ranges[i].step;", "", "Slice has no steps"),
    ("rules/product.cc", 'call.integer("transB", 0) ? flipped(call.in(1)) : call.in(1);\n  Ref result = matrixProduct(call, '
     "call.real(a), call.real(b));\n  const double", "call.in(1);\n  Ref result = matrixProduct(call, call.real(a), call.real(b));\n"
     "  const double", "Gemm never transposes"),
    ("rules/reduction.cc", "result = scaledBy(call, result, reduction->combined);", "", "ReduceMean is a sum"),
    ("rules/reduction.cc", "element = field.multiply(element, inverses[row]);", "(void)inverses;", "Softmax has no denominator"),
    ("rules/attention.cc", "const int64_t offset = call.in(4) ? keys - rows : 0;", "const int64_t offset = keys - rows;",
     "Attention without a past is causal from the end"),
    ("rules/attention.cc", "key > position - window", "key >= position - window", "a window has one more key"),
    ("rules/attended.cc", "isFirst ? field.add(field.multiply(a, cos), field.negate(field.multiply(b, sin)))",
     "isFirst ? field.add(field.multiply(a, cos), field.multiply(b, sin))", "rotations have no sign"),
    ("rules/attended.cc", "place[1] / times * strides[1]", "place[1] % heads->shape[1] * strides[1]",
     "query heads read other groups"),
]

FLAGS = ["-std=c++20", "-O0", "-DFMT_SHARED", f"-I{ROOT}", "-isystem", "/usr/lib/llvm-14/include", "-c"]


def compiled(source, result):
    """The errors of a compilation."""
    done = subprocess.run(["g++", *FLAGS, str(source), "-o", str(result)], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


class Linker:
    """The objects of the tests and of check/, and the libraries."""

    def __init__(self, build, folder):
        self.build, self.folder = build, pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        rule = re.search(r"^build tests/check_tests [^:]*: \S+ (.*?)\n\n", (build / "build.ninja").read_text(), re.M | re.S)[1]
        self.tests = [name for name in rule.split("|")[0].split() if name.endswith(".o")]
        self.libraries = [name for name in re.search(r"LINK_LIBRARIES = (.*)", rule)[1].split() if "kvopt_check" not in name]
        sources = sorted((ROOT / "check").rglob("*.cc"))
        newest = max(path.stat().st_mtime for path in (ROOT / "check").rglob("*.*"))
        self.objects = {source: self.folder / (source.stem + "_" + source.parent.name + ".o") for source in sources}
        old = [source for source, made in self.objects.items() if not made.exists() or made.stat().st_mtime < newest]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for errors in pool.map(compiled, old, [self.objects[source] for source in old]):
                assert not errors, errors

    def link(self, source, replacement):
        """The tests with one object replaced; both None for the right ones."""
        binary = self.folder / "tests"
        objects = [str(replacement if each == source else made) for each, made in self.objects.items()]
        subprocess.run(["g++", *self.tests, *objects, *self.libraries, "-o", str(binary)], cwd=self.build, check=True)
        return binary


def first_failure(binary):
    """The first test that fails; empty if none does."""
    done = subprocess.run(["timeout", "300", str(binary), "--gtest_fail_fast", "--gtest_brief=1"], capture_output=True, text=True,
                          check=False)
    failed = re.search(r"\[  FAILED  \] (\S+)", done.stdout)
    return failed[1].rstrip(",") if failed else "" if done.returncode == 0 else "exit code %d" % done.returncode


def numbers_of(text):
    bounds = [part.split("-") for part in text.split(",")]
    return {number for part in bounds for number in range(int(part[0]), int(part[-1]) + 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--only", default="")
    parser.add_argument("--numbers", type=numbers_of, default=range(len(MUTANTS)), help="places in the list, from 0 on")
    parser.add_argument("--objects")
    options = parser.parse_args()
    chosen = [each for at, each in enumerate(MUTANTS) if at in options.numbers and options.only in each[0] + ": " + each[3]]
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.objects or temporary
        linker = Linker(options.build, folder)
        failure = first_failure(linker.link(None, None))
        assert not failure, failure
        for path, before, after, words in chosen:
            source = ROOT / "check" / path
            text = source.read_text()
            assert text.count(before) >= 1, f"{path} has no {before!r}"
            mutant = pathlib.Path(folder, "mutant.cc")
            mutant.write_text(text.replace(before, after, 1))
            errors = compiled(mutant, pathlib.Path(folder, "mutant.o"))
            failure = "" if errors else first_failure(linker.link(source, pathlib.Path(folder, "mutant.o")))
            missed += not failure
            print("does not compile: %s: %s\n%s" % (path, words, errors[:600]) if errors else
                  "%s: %s: %s" % (failure or "NOT FOUND", path, words), flush=True)
    print("%d of %d not found" % (missed, len(chosen)))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
