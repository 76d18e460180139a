"""Decodes greedily in ONNX Runtime: python3 -m kvopt.onnxruntime MODEL TOKENS STEPS."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from ._decoder import Decoder, read_manifest

if TYPE_CHECKING:
    import numpy.typing as npt


def _first_step(model: str, manifest: Mapping[str, Any], inputs: Dict[str, npt.ArrayLike]) -> Dict[str, npt.ArrayLike]:
    """The caches that the model of an encoder computes from inputs, which are removed."""
    import onnxruntime

    session = onnxruntime.InferenceSession(os.path.join(os.path.dirname(model), manifest["first_step"]),
                                           providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    absent = [name for name in names if name not in inputs]
    if absent:
        raise ValueError(f"the encoder, {manifest['first_step']}, reads {', '.join(absent)}: give --input NAME=FILE.npy")
    results = session.run(None, {name: inputs[name] for name in names})
    return dict(zip((value.name for value in session.get_outputs()), results))


def _decode(model: str, prompt: List[int], steps: int, capacity: Optional[int], arrays: Sequence[str]) -> List[int]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    manifest = read_manifest(session, None)
    inputs: Dict[str, npt.ArrayLike] = {}
    for given in arrays:
        name, _, file = given.rpartition("=")
        inputs[name] = np.load(file)
    if manifest.get("first_step"):
        inputs.update(_first_step(model, manifest, inputs))
    names = {value.name for value in session.get_inputs()}
    if capacity is None and manifest["capacity"]["value"] is None:
        capacity = len(prompt) + steps
    decoder = Decoder(session, manifest, capacity=capacity,
                      inputs={name: array for name, array in inputs.items() if name in names})
    if decoder.missing:
        what = "the results of an encoder" if decoder.reads_encoder() else "more than tokens"
        raise ValueError(f"the model reads {what}: give " +
                         " ".join(f"--input {name}=FILE.npy" for name in decoder.missing))
    return decoder.generate(prompt, steps)[0]


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Decodes greedily: MODEL TOKENS STEPS."""
    import argparse

    parser = argparse.ArgumentParser(prog="python3 -m kvopt.onnxruntime",
                                     description="Decodes greedily with a model that kvopt wrote, in ONNX Runtime.")
    parser.add_argument("model", help="ONNX file")
    parser.add_argument("tokens", help="prompt as token ids, separated by commas")
    parser.add_argument("steps", type=int, nargs="?", default=8, help="number of tokens to generate (default: 8)")
    parser.add_argument("--capacity", type=int, help="number of tokens that buffers have room for (default: as needed)")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy",
                        help="array for an input, such as the results of an encoder; repeatable")
    given = parser.parse_args(arguments)
    try:
        prompt = [int(token) for token in given.tokens.split(",")]
    except ValueError:
        parser.error(f"'{given.tokens}' is not a list of token ids")
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        parser.exit(1, "kvopt: ONNX Runtime is not installed: pip install onnxruntime\n")
    try:
        print(",".join(map(str, _decode(given.model, prompt, given.steps, given.capacity, given.input))))
    except Exception as error:  # ONNX Runtime's errors have no common class
        parser.exit(1, f"kvopt: {str(error).splitlines()[0]}\n")


if __name__ == "__main__":
    main()
