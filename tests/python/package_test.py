"""The Python package, with the library of a build: python3 package_test.py (KVOPT_LIBRARY, PYTHONPATH)."""
import doctest
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import typing
import unittest
import unittest.mock
import warnings

import kvopt
import numpy as np

try:
    import onnx
except ImportError:
    onnx = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models/llama_gqa-ts14-eager/model.onnx")
TOKENS = [96, 65, 84, 156, 149, 151, 94, 76]


class Rewriting(unittest.TestCase):
    def test_gives_back_the_type_that_it_took(self):
        with open(MODEL, "rb") as file:
            data = file.read()
        result = kvopt.rewrite(data, to="ort")
        self.assertIsInstance(result.model, bytes)
        self.assertEqual(result.manifest["target"], "ort-gqa")
        if onnx:
            proto = kvopt.rewrite(onnx.load(MODEL), to="ort").model
            self.assertIsInstance(proto, onnx.ModelProto)
            self.assertIn("GroupQueryAttention", {node.op_type for node in proto.graph.node})
            self.assertEqual(proto.SerializeToString(), onnx.ModelProto.FromString(result.model).SerializeToString())
        self.assertIsNone(kvopt.rewrite(MODEL, to="ort").model)

    @unittest.skipUnless(onnx, "onnx is not installed")
    def test_takes_and_gives_models_of_onnx_ir(self):
        modules = {} if importlib.util.find_spec("onnx_ir") else stand_in_for_onnx_ir()
        with unittest.mock.patch.dict(sys.modules, modules):
            import onnx_ir
            given = onnx_ir.serde.deserialize_model(onnx.load(MODEL))
            result = kvopt.rewrite(given, to="ort")
            self.assertIsInstance(result.model, onnx_ir.Model)
            proto = onnx_ir.serde.serialize_model(result.model)
            self.assertIn("GroupQueryAttention", {node.op_type for node in proto.graph.node})
            self.assertTrue(kvopt.verify(given, result, prompt=3, steps=1)["equal"])

    def test_writes_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "fused.onnx")
            result = kvopt.rewrite(MODEL, path, to="kvopt", verify="full")
            self.assertEqual(result.model, path)
            self.assertTrue(os.path.exists(os.path.join(folder, "fused.kv.json")))
            self.assertTrue(kvopt.verify(MODEL, path, prompt=4, steps=2)["equal"])
            report = kvopt.check(MODEL, path, seed=1)
            self.assertEqual((report["equal"], report["verdict"]), (True, "proved-reduced"))
            self.assertEqual(kvopt.check(MODEL, MODEL)["verdict"], "proved")
            with self.assertRaises(kvopt.KvoptError) as raised:
                kvopt.check(MODEL, path, seed=-1)
            self.assertEqual(raised.exception.code, "usage")
            self.assertTrue(kvopt.rewrite(path, to="kvopt").unchanged)
            self.assertEqual(kvopt.Session(path, capacity=16).capacity, 16)

    @unittest.skipUnless(onnx, "onnx is not installed")
    def test_writes_counterexamples(self):
        def scaling(factor):
            values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", "sequence", 4])
                      for name in ("inputs_embeds", "out")]
            node = onnx.helper.make_node("Mul", ["inputs_embeds", "factor"], ["out"])
            graph = onnx.helper.make_graph([node], "g", values[:1], values[1:],
                                           [onnx.helper.make_tensor("factor", onnx.TensorProto.FLOAT, [], [factor])])
            return onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
        before, after = scaling(0.5), scaling(0.75)
        with tempfile.TemporaryDirectory() as folder:
            recording = os.path.join(folder, "recording")
            self.assertNotIn("replay", kvopt.check(before, before, counterexample=recording))
            self.assertFalse(os.path.exists(recording))
            report = kvopt.check(before, after, counterexample=recording)
            self.assertEqual((report["verdict"], report["equal"]), ("different", False))
            self.assertEqual((report["replay"]["folder"], report["replay"]["visible"]), (recording, True))
            self.assertFalse(kvopt.verify(after, reference=recording)["equal"])
            self.assertTrue(kvopt.verify(before, reference=recording)["equal"])
            with self.assertRaises(kvopt.KvoptError) as raised:
                kvopt.check(before, after, counterexample=recording)
            self.assertEqual((raised.exception.code, raised.exception.file), ("usage", recording))

    @unittest.skipUnless(onnx, "onnx is not installed")
    def test_leaves_external_data_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(onnx.load(MODEL), path, save_as_external_data=True, location="weights", size_threshold=0)
            weights = os.path.join(folder, "weights")
            before = os.stat(weights)
            proto = onnx.load(path, load_external_data=False)
            with self.assertRaises(kvopt.KvoptError) as raised:
                kvopt.rewrite(proto, to="ort")
            self.assertIn("no folder is given", str(raised.exception))
            result = kvopt.rewrite(proto, folder=folder, to="ort")
            self.assertTrue(any(tensor.external_data for tensor in result.model.graph.initializer))
            self.assertEqual(kvopt.Session(result).generate([1, 2, 3], 4), [TOKENS[:4]])
            after = os.stat(weights)
            self.assertEqual((before.st_mtime_ns, before.st_size), (after.st_mtime_ns, after.st_size))

    @unittest.skipUnless(onnx, "onnx is not installed")
    def test_takes_external_data_by_location(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(onnx.load(MODEL), path, save_as_external_data=True, location="weights", size_threshold=0)
            proto = onnx.load(path, load_external_data=False)
            with open(os.path.join(folder, "weights"), "rb") as file:
                data = file.read()
        for contents in (data, bytearray(data), memoryview(data)):
            result = kvopt.rewrite(proto, folder={"weights": contents}, to="ort")
            self.assertFalse(any(tensor.external_data for tensor in result.model.graph.initializer))
        self.assertEqual(kvopt.Session(result).generate([1, 2, 3], 4), [TOKENS[:4]])
        self.assertEqual(kvopt.Session(proto, folder={"weights": data}).generate([1, 2, 3], 4), [TOKENS[:4]])
        for files, code in (({}, "io"), ({"others": data}, "io"), ({"weights": data[:-1]}, "invalid")):
            with self.assertRaises(kvopt.KvoptError) as raised:
                kvopt.inspect(proto, folder=files)
            self.assertEqual((raised.exception.code, raised.exception.file), (code, "weights"))
        with self.assertRaises(TypeError):
            kvopt.inspect(proto, folder={"weights": "text"})

    def test_errors_have_fields(self):
        with self.assertRaises(kvopt.KvoptError) as raised:
            kvopt.inspect("/nonexistent.onnx")
        self.assertEqual((raised.exception.code, raised.exception.file), ("io", "/nonexistent.onnx"))
        with self.assertRaises(kvopt.RefusedError) as raised:
            kvopt.rewrite(MODEL, to="kvopt", cache="ring")
        self.assertIn("no-window", raised.exception.report)
        self.assertIn("no-window", raised.exception.reason)
        with self.assertRaises(kvopt.KvoptError) as raised:
            kvopt.rewrite(MODEL, too="ort")
        self.assertEqual(raised.exception.hint, "did you mean --to?")
        with self.assertRaises(TypeError):
            kvopt.inspect(7)
        with self.assertRaises(TypeError):
            kvopt.rewrite(MODEL, to=b"ort")
        self.assertEqual(kvopt.KvoptError("raised by a program").code, "")

    def test_values_of_options_are_text(self):
        from kvopt._native import options
        given = {"to": "ort", "dry_run": True, "layer": np.int64(3), "atol": 1e-3, "rule": None,
                 "disable": ["a", pathlib.PurePosixPath("b/c"), False]}
        texts, count = options(given)
        self.assertEqual([(texts[i].name.decode(), texts[i].text.decode()) for i in range(count)], [
            ("--to", "ort"), ("--dry-run", "true"), ("--layer", "3"), ("--atol", "0.001"), ("--disable", "a"),
            ("--disable", "b/c"), ("--disable", "false")])

    def test_progress_is_reported_and_cancels(self):
        seen = []
        kvopt.rewrite(MODEL, to="kvopt", progress=lambda what, done, total: seen.append((what, done, total)))
        self.assertTrue(seen)
        with self.assertRaises(kvopt.CancelledError):
            kvopt.rewrite(MODEL, to="kvopt", progress=lambda what, done, total: True)
        with self.assertRaises(ZeroDivisionError):
            kvopt.rewrite(MODEL, to="kvopt", progress=lambda what, done, total: 1 / 0)

    def test_a_bar_shows_each_part_of_the_work(self):
        bars = []

        class Bar:
            def __init__(self, *, total, desc, file):
                self.n, self.total, self.desc, self.closed = 0, total, desc, False
                bars.append(self)

            def update(self, n):
                self.n += n

            def close(self):
                self.closed = True

        module = types.ModuleType("tqdm")
        module.tqdm = Bar
        seen = []
        kvopt.rewrite(MODEL, to="kvopt", progress=lambda what, done, total: seen.append(what))
        with unittest.mock.patch.dict(sys.modules, {"tqdm": module}):
            kvopt.rewrite(MODEL, to="kvopt", progress=True)
        self.assertLessEqual({bar.desc for bar in bars}, set(seen))
        self.assertTrue(bars)
        self.assertTrue(all(bar.closed and 0 <= bar.n <= (bar.total or bar.n) for bar in bars))

    def test_inspects_explains_and_compares(self):
        self.assertEqual(len(kvopt.inspect(MODEL)["sites"]), 2)
        self.assertEqual(kvopt.explain(MODEL, layer=0)["sites"][0]["status"], "matched")
        result = kvopt.rewrite(MODEL, to="ort")
        changes = kvopt.diff(MODEL, result)
        self.assertFalse(changes["same"])
        self.assertEqual(changes["schema"], "kvopt/diff/1")
        self.assertTrue(kvopt.diff(MODEL, MODEL)["same"])
        self.assertTrue(kvopt.verify(MODEL, result, prompt=3, steps=1)["equal"])

    @unittest.skipUnless(os.environ.get("KVOPT_PROGRAM"), "KVOPT_PROGRAM names no program")
    def test_verifies_against_recorded_steps_and_a_text(self):
        with tempfile.TemporaryDirectory() as folder:
            steps, text = os.path.join(folder, "steps"), os.path.join(folder, "tokens")
            command = [os.environ["KVOPT_PROGRAM"], "run", MODEL, "--dump", steps, "--tokens", "1,2,3", "--steps", "2",
                       "-q"]
            self.assertEqual(subprocess.run(command, stdout=subprocess.DEVNULL).returncode, 0)
            self.assertTrue(kvopt.verify(MODEL, reference=steps)["equal"])
            with open(text, "w") as file:
                file.write("1 2 3 4 5 6")
            report = kvopt.verify(MODEL, kvopt.rewrite(MODEL, to="kvopt"), token_file=text, prompt=3, steps=1)
            self.assertEqual(report["likelihood"]["tokens"], 5)
            for wrong in ({}, {"reference": steps, "steps": 3}):
                with self.assertRaises(kvopt.KvoptError) as raised:
                    kvopt.verify(MODEL, **wrong)
                self.assertEqual(raised.exception.code, "usage")

    @unittest.skipUnless(os.environ.get("KVOPT_PROGRAM"), "KVOPT_PROGRAM names no program")
    def test_large_sparse_weights_are_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "large.onnx")
            command = [os.environ["KVOPT_PROGRAM"], "gen", "llama", "-o", path, "--sparse", "--external-data", "always",
                       "--layers", "4", "--hidden", "2048", "--heads", "16", "-q"]
            self.assertEqual(os.spawnv(os.P_WAIT, command[0], command), 0)
            data = [os.path.join(folder, name) for name in os.listdir(folder) if not name.endswith((".onnx", ".json"))]
            self.assertTrue(data)
            blocks = sum(os.stat(name).st_blocks for name in data)
            kvopt.rewrite(path, os.path.join(folder, "fused.onnx"), to="ort", verify="off")
            self.assertEqual(sum(os.stat(name).st_blocks for name in data), blocks)
            # Writing reports its bytes, and leaves nothing if it is cancelled.
            result, seen = kvopt.rewrite(path, to="ort", verify="off"), []
            before = sorted(os.listdir(folder))
            with self.assertRaises(kvopt.CancelledError):
                result.save(os.path.join(folder, "copied.onnx"), external_data="copy",
                            progress=lambda what, done, total: seen.append((what, total)) or True)
            self.assertEqual([what for what, _ in seen], [f"writing {os.path.join(folder, 'copied.onnx')}"])
            self.assertGreater(seen[0][1], 2**30)
            self.assertEqual(sorted(os.listdir(folder)), before)


def stand_in_for_onnx_ir():
    """A module with the part of onnx_ir that kvopt uses: the class Model, which is defined in onnx_ir._core, and the two
    functions of onnx_ir.serde that convert it. Debian 12 has no onnx_ir."""
    class Model:
        def __init__(self, proto):
            self.proto = proto

    Model.__module__ = "onnx_ir._core"
    module, serde = types.ModuleType("onnx_ir"), types.ModuleType("onnx_ir.serde")
    serde.serialize_model = lambda model: model.proto
    serde.deserialize_model = Model
    module.Model, module.serde = Model, serde
    return {"onnx_ir": module, "onnx_ir.serde": serde}


class Foreign:
    """An array of another library, which has nothing but the DLPack protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Decoding(unittest.TestCase):
    def test_generates(self):
        session = kvopt.Session(MODEL)
        self.assertEqual(session.generate([1, 2, 3], 8), [TOKENS])
        self.assertEqual(session.length, 10)
        self.assertIsNone(session.capacity)
        self.assertEqual(session.statistics["steps"], 8)

    @unittest.skipUnless(onnx, "onnx is not installed")
    def test_warns_of_what_no_run_shows(self):
        model = onnx.load(MODEL)
        for node in model.graph.node:
            node.output[:] = ["scores" if name == "logits" else name for name in node.output]
        model.graph.input.append(onnx.helper.make_tensor_value_info("gate", onnx.TensorProto.INT64, [1]))
        model.graph.initializer.append(onnx.helper.make_tensor("many", onnx.TensorProto.INT64, [1], [100]))
        model.graph.node.extend([onnx.helper.make_node("Div", ["gate", "many"], ["quotient"]),
                                 onnx.helper.make_node("Cast", ["quotient"], ["added"], to=onnx.TensorProto.FLOAT),
                                 onnx.helper.make_node("Add", ["scores", "added"], ["logits"])])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(model, path)
            with self.assertWarnsRegex(UserWarning, "what 'gate' is fed may be wrong"):
                session = kvopt.Session(path)
            self.assertIn("'gate'", session.statistics["remark"])
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertNotIn("remark", kvopt.Session(MODEL).statistics)

    def test_outputs_are_views_that_last(self):
        session = kvopt.Session(MODEL)
        logits = session.feed([1, 2, 3])["logits"]
        self.assertEqual(logits.shape, (1, 3, 160))
        self.assertFalse(logits.flags.owndata)
        copy = logits.copy()
        session.feed([4])
        del session
        np.testing.assert_array_equal(logits, copy)

    def test_takes_arrays_of_any_library(self):
        inputs = {"input_ids": Foreign(np.array([[1, 2, 3]])), "attention_mask": np.ones((1, 3), np.int64),
                  "position_ids": np.arange(6).reshape(1, 6)[:, :3]}
        self.assertEqual(kvopt.Session(MODEL).step(inputs, 3)["logits"][0, -1].argmax(), TOKENS[0])
        with self.assertRaises(kvopt.KvoptError):
            kvopt.Session(MODEL).step({"input_ids": np.ones((1, 3), np.float32)}, 3)

    def test_caches_seed_another_session(self):
        session = kvopt.Session(MODEL)
        session.feed([1, 2])
        self.assertEqual(len(session.caches), 4)
        self.assertEqual(session.caches["past_key_values.0.key"].shape, (1, 2, 2, 16))
        other = kvopt.Session(MODEL)
        other.seed(dict(session.caches), 2)
        self.assertEqual(other.generate([3], 1), [TOKENS[:1]])
        foreign = kvopt.Session(MODEL)
        foreign.seed({name: Foreign(np.array(rows)) for name, rows in session.caches.items()}, 2)
        self.assertEqual(foreign.generate([3], 1), [TOKENS[:1]])

    def test_goes_back_forks_and_reorders(self):
        session = kvopt.Session(MODEL, 2)
        session.feed([[1, 2], [9, 8]])
        fork = session.fork()
        fork.reorder([0, 0, 0])
        self.assertEqual(fork.generate([[3]] * 3, 2), [TOKENS[:2]] * 3)
        session.crop(1)
        self.assertEqual(session.length, 1)
        session.reset()
        self.assertEqual(session.length, 0)
        with self.assertRaises(ValueError):
            session.feed([[1, 2, 3]])
        with self.assertRaises(kvopt.KvoptError):
            session.crop(5)

    @unittest.skipUnless(os.environ.get("KVOPT_PROGRAM"), "KVOPT_PROGRAM names no program")
    def test_models_without_caches_start_over_only(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "full.onnx")
            command = [os.environ["KVOPT_PROGRAM"], "gen", "llama", "-o", path, "--cache", "none", "--layers", "1", "-q"]
            self.assertEqual(os.spawnv(os.P_WAIT, command[0], command), 0)
            session = kvopt.Session(path)
            made = session.generate([1, 2, 3], 3)
            self.assertEqual(session.length, 5)
            for change in (lambda: session.crop(1), session.fork, lambda: session.reorder([0]),
                           lambda: session.save(os.path.join(folder, "cache"))):
                with self.assertRaises(kvopt.KvoptError) as raised:
                    change()
                self.assertIn("has no caches", str(raised.exception))
            session.reset()
            self.assertEqual(session.generate([1, 2, 3], 3), made)

    def test_threads_decode_side_by_side(self):
        made = []
        threads = [threading.Thread(target=lambda: made.append(kvopt.Session(MODEL, threads=1).generate([1, 2, 3], 8)))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(made, [[TOKENS]] * 4)


class Documentation(unittest.TestCase):
    def test_public_names_have_docstrings(self):
        import kvopt.onnxruntime
        checked = 0
        for module in (kvopt, kvopt.onnxruntime):
            for name in module.__all__:
                value = getattr(module, name)
                members = vars(value) if isinstance(value, type) else {}
                documented = [(name, value)] if callable(value) and not typing.get_args(value) else []
                documented += [(f"{name}.{key}", member) for key, member in members.items()
                               if not key.startswith("_") and (callable(member) or isinstance(member, property))]
                for path, member in documented:
                    self.assertTrue(member.__doc__, path)
                    checked += 1
        self.assertGreater(checked, 40)

    def test_examples_in_docstrings(self):
        os.chdir(ROOT)
        from kvopt import _operations, _session
        for module in (_operations, _session):
            found = doctest.testmod(module)
            self.assertGreater(found.attempted, 0)
            self.assertEqual(found.failed, 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
