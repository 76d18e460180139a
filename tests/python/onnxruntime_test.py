"""kvopt.onnxruntime.Decoder with what the program writes: onnxruntime_test.py PACKAGE WRITTEN.onnx…"""
import contextlib
import io
import os
import sys

import onnxruntime
from without_library import decoder, main

TOKENS = [96, 65, 84, 156, 149, 151, 94, 76]
for path in sys.argv[2:]:
    session = onnxruntime.InferenceSession(path)
    made = decoder.Decoder(session, capacity=64)
    assert made.generate([1, 2, 3], 8) == [TOKENS], path
    assert made.length == 10
    made.crop(2)
    assert made.feed([3])["logits"][0, -1].argmax() == TOKENS[0], path
    chunks = decoder.Decoder(session, capacity=64)
    chunks.feed([1, 2])
    assert chunks.feed([3])["logits"][0, -1].argmax() == TOKENS[0], path
    beams = decoder.Decoder(session, batch=2, capacity=64)
    beams.feed([[9, 8], [1, 2]])
    beams.reorder([1, 1])
    assert beams.feed([[3], [3]])["logits"][:, -1].argmax(-1).tolist() == [TOKENS[0]] * 2, path
    padded = decoder.Decoder(session, batch=2, capacity=64)
    assert padded.generate([[0, 1, 2, 3], [5, 1, 2, 3]], 4, [[0, 1, 1, 1], [1, 1, 1, 1]])[0] == TOKENS[:4], path
    for refused, tokens in {"room for 4 tokens": [1] * 5, "no token -1": [1, -1], "[1, count]": [[1], [2]]}.items():
        try:
            decoder.Decoder(session, capacity=4).feed(tokens)
            raise AssertionError(f"{path}: {tokens} are taken")
        except ValueError as error:
            assert refused in str(error), path
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([path, "1,2,3", "8"])
    assert printed.getvalue() == ",".join(map(str, TOKENS)) + "\n", path
    print("ok", path)

if os.environ.get("KVOPT_ONNXRUNTIME_LIBRARY"):
    assert os.path.samefile(decoder.get_library_path(), os.environ["KVOPT_ONNXRUNTIME_LIBRARY"])
    for path in sys.argv[2:]:
        for options in {}, {"off": 1}:
            inside = onnxruntime.SessionOptions()
            assert decoder.register(inside, **options) == "provider"
            session = onnxruntime.InferenceSession(path, inside)
            assert decoder.get_ep_name() in session.get_providers()
            assert decoder.Decoder(session, capacity=64).generate([1, 2, 3], 8) == [TOKENS], path
    print("ok", decoder.get_library_path())
else:
    try:
        decoder.get_library_path()
        raise AssertionError("there is no library in the sources")
    except FileNotFoundError as error:
        assert "KVOPT_ONNXRUNTIME_LIBRARY" in str(error)
