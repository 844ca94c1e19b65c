"""A process that dies between two tokens."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")

import nki_dist as nki
from tests.llm.reference import generated, small
from tests.llm.running import PROMPT, write

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore::nki_dist.errors.RetryWarning")
def test_the_same_tokens_or_the_name_of_the_cache(tmp_path: Path) -> None:
    from checkpoint import Checkpoint
    from config import Config
    from model import Model
    from weights import Layout

    shape = small("qwen3")
    tokens, _ = generated(shape, write(tmp_path, shape), PROMPT, 3)
    found: list[Any] = []
    with nki.World(2, 1, host="ray", retries=1) as world:
        source = Checkpoint(tmp_path)
        model = Model(world, Config.of(shape), Layout(2, 1), source, np.float32, 128)
        step = model.prompt([PROMPT])
        found.append(model.tokens(step)[0])
        for n in range(2):
            if n == 1:
                os.kill(_process_of_a_core(world), signal.SIGKILL)
            try:
                step = model.token(step, len(PROMPT) + n)
                found.append(model.tokens(step)[0])
            except nki.errors.CoreLostError as error:
                assert n == 1 and "cache" in str(error)
                found = tokens
    assert found == tokens


def _process_of_a_core(world: nki.World) -> int:
    """The id of a process that simulates a core of this program."""
    import subprocess

    lines = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in lines.splitlines()[1:]]
    family = {os.getpid()}
    for _ in range(6):
        family |= {int(pid) for pid, parent, *_ in rows if int(parent) in family}
    found = [
        int(pid)
        for pid, _, *args in rows
        if int(pid) in family and args and "ray::NeuronCore" in args[0]
    ]
    return found[0]
