"""What manifests exclude, and kvopt.onnxruntime.Decoder refuses: onnxruntime_limits_test.py PACKAGE FOLDER

A batch of prompts that differ in length gives what each prompt gives alone, or an error, in each form that FOLDER has:
padding on the left or on the right, in one step and in chunks.
"""
import contextlib
import glob
import io
import sys

import numpy as np
import onnxruntime
from without_library import decoder, main

PROMPTS = [[5, 9, 3, 7, 11], [4, 8], [6, 2, 10]]
STEPS = 5


def padded(side):
    """The prompts with padding on a side, and their mask."""
    most = max(map(len, PROMPTS))
    rows = [([0] * (most - len(prompt)), prompt) for prompt in PROMPTS]
    if side == "right":
        return ([prompt + zeros for zeros, prompt in rows], [[1] * len(prompt) + zeros for zeros, prompt in rows])
    return [zeros + prompt for zeros, prompt in rows], [zeros + [1] * len(prompt) for zeros, prompt in rows]


def generated(session, side, chunk):
    """Tokens of the batch, or the error."""
    tokens, mask = (np.array(rows) for rows in padded(side))
    batch = decoder.Decoder(session, batch=len(PROMPTS), capacity=16)
    last = (tokens.shape[1] - 1) // chunk * chunk
    try:
        for first in range(0, last, chunk):
            batch.feed(tokens[:, first:first + chunk], mask[:, first:first + chunk])
        return batch.generate(tokens[:, last:], STEPS, mask[:, last:])
    except ValueError as error:
        return str(error)


def refusal(call, *arguments):
    try:
        call(*arguments)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{arguments} are taken")


def check_form(path, counts):
    session = onnxruntime.InferenceSession(path)
    alone = [decoder.Decoder(session, capacity=16).generate(prompt, STEPS)[0] for prompt in PROMPTS]
    assert len({tuple(tokens) for tokens in alone}) == len(PROMPTS), alone
    made = {(side, chunk): generated(session, side, chunk) for side in ("left", "right") for chunk in (1, 2, 5)}
    for case, result in made.items():
        assert isinstance(result, str) or result == alone, (path, case, result, alone)
    # Padding on the left may be in chunks. A model that counts tokens by its mask takes padding of one step, on the right.
    taken = {case for case, result in made.items() if not isinstance(result, str)}
    assert taken == ({("right", 5)} if counts else {("left", 1), ("left", 2), ("left", 5), ("right", 5)}), (path, made)
    # A second chunk of a batch is as many steps as the operator needs, and its outputs are those of one.
    chunks = decoder.Decoder(session, batch=2, capacity=16)
    chunks.feed([[5], [6]])
    whole = decoder.Decoder(session, batch=2, capacity=16).feed([[5, 9, 3, 7], [6, 2, 1, 8]])["logits"]
    joined = chunks.feed([[9, 3, 7], [2, 1, 8]])["logits"]
    assert joined.shape[1] == 3 and np.abs(joined - whole[:, 1:]).max() < 1e-3, path


def check_fixed(path):
    session = onnxruntime.InferenceSession(path)
    assert "capacity is 16, not 8" in refusal(lambda: decoder.Decoder(session, capacity=8))
    assert decoder.Decoder(session).capacity == 16
    unpadded = decoder.Decoder(session, batch=2)
    assert "no row may be padded" in refusal(unpadded.feed, [[0, 1], [2, 3]], [[0, 1], [1, 1]])


def check_encoder(path):
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            main([path, "1,2,3", "4"])
        raise AssertionError("the results of an encoder are made up")
    except SystemExit as end:
        assert end.code == 1 and "the results of an encoder" in errors.getvalue(), errors.getvalue()
    assert errors.getvalue().count("\n") == 1 and "--input" in errors.getvalue()
    session = onnxruntime.InferenceSession(path)
    assert "the results of an encoder" in refusal(decoder.Decoder(session).feed, [1, 2])


folder = sys.argv[2]
for form in glob.glob(folder + "/counted.*.onnx"):
    check_form(form, counts=True)
for form in glob.glob(folder + "/masked.*.onnx"):
    check_form(form, counts=False)
check_fixed(folder + "/fixed.onnx")
check_encoder(folder + "/encoder.onnx")
print("ok", len(glob.glob(folder + "/*.onnx")), "models")
