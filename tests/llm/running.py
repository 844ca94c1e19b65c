"""Small checkpoints, and the programs of examples/llm as their users start them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.programs import python

LLM = Path(__file__).parents[2] / "examples" / "llm"
if str(LLM) not in sys.path:
    sys.path.insert(0, str(LLM))  # its modules have plain names, as a program's have

PROMPT = [7, 3, 250, 11, 99, 3, 3, 42, 18, 205, 64, 1, 130, 77, 5, 290, 31, 12, 8]


def write(
    folder: Path, shape: dict[str, Any], seed: int = 0, scale: float = 0.12
) -> dict[str, np.ndarray]:
    """A checkpoint in two shards, whose logits differ clearly; its tensors."""
    import shapes
    from config import Config
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    rng, made, files = np.random.default_rng(seed), {}, {}
    for number, tensors in enumerate(shapes.tensors_of(Config.of(shape))):
        shard = {}
        for name, size in tensors.items():
            value = rng.standard_normal(size, np.float32)
            shard[name] = value * np.float32(scale) if len(size) > 1 else 1 + value / 5
            files[name] = f"shard-{number}.safetensors"
        save_file(shard, folder / f"shard-{number}.safetensors")
        made.update(shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    (folder / "config.json").write_text(json.dumps(shape))
    return made


def run(program: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    return python(LLM / program, *arguments)


def generate(
    folder: Path, *options: Any, prompts: list[list[int]] | None = None, tokens: int = 3
) -> dict[str, Any]:
    """What `generate.py --json` says, in this process, with the logits as an array."""
    import contextlib
    import io

    import generate as program

    given = [x for p in prompts or [PROMPT] for x in ("--prompt", ",".join(map(str, p)))]
    said = io.StringIO()
    arguments = [str(folder), *given, "--tokens", str(tokens), "--json", *map(str, options)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()) as error:
        status = program.main(arguments)
    assert status == 0, error.getvalue()
    found: dict[str, Any] = json.loads(said.getvalue().splitlines()[-1])
    if found["logits_file"]:
        found["logits"] = np.load(found["logits_file"])
        Path(found["logits_file"]).unlink()
    return found
