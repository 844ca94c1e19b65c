"""NKI_PRECISE_FP in saved programs, and which values of it are taken."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.compiler.saved import dump, parse
from nki_dist.errors import ProgramFormatError
from nki_dist.launcher.results import inputs_as_run, read_outputs
from nki_dist.runtime.hosts import InProcessHost, Launch
from nki_dist.runtime.printing import Printer
from tests.test_precise_fp import exchanged, numbers, thrice


def test_time_is_that_of_the_declared_types(monkeypatch):
    profiles = []
    for value in ("1", "0"):
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        profiles.append(str(nki.profile(thrice, host="inprocess")(numbers(1, 100, 300)).profile))
    assert profiles[0] == profiles[1]


def run_compiled(compiled: Compiled, x: np.ndarray) -> np.ndarray:
    """Run a compiled kernel as a world does, with the arguments of `thrice`."""
    from nki_dist.launcher.binding import bind_arguments

    bound, as_run = bind_arguments(thrice.fn, (x,), {}), compiled.as_run
    host = InProcessHost(1, 1)
    result = host.launch(
        Launch("a key", compiled, inputs_as_run(as_run, [bound]), Printer(1, lambda *_: 0))
    )
    found = read_outputs(as_run, result.layout, result.memories[0], bound)
    host.close()
    return found


@pytest.mark.parametrize("value", ["1", "0"])
def test_saved_kernels_run_as_they_were_compiled(monkeypatch, tmp_path, value):
    x = numbers(14, 6, 5).astype(ml_dtypes.bfloat16)
    monkeypatch.setenv("NKI_PRECISE_FP", value)
    compiled = nki.simulate(thrice).compile(x)
    compiled.save(tmp_path / "kernel")
    monkeypatch.setenv("NKI_PRECISE_FP", "1" if value == "0" else "0")
    loaded = Compiled.load(tmp_path / "kernel")
    assert dump(loaded.programs, loaded.inputs) == dump(compiled.programs, compiled.inputs)
    want = x.astype(np.float32) * 3
    if value == "1":
        want = want.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(run_compiled(loaded, x), want)


@pytest.mark.parametrize("wrong", [1, True, False, "0", 0.0, None, [0]])
def test_a_damaged_fact_is_refused(monkeypatch, wrong):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    program = decode(encode(nki.simulate(thrice).compile(numbers(1, 2, 2)).programs[0]))
    assert program.facts["precise_fp"] == 0
    program.facts["precise_fp"] = wrong
    with pytest.raises(ProgramFormatError, match=r"the fact precise_fp is .*; allowed: 0"):
        decode(encode(program))


def test_cores_that_disagree_are_refused(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    compiled = nki.simulate(exchanged)[2].compile(numbers(1, 4, 4))
    compiled = Compiled(*parse(dump(compiled.programs, compiled.inputs)))
    del compiled.programs[1].facts["precise_fp"]
    with pytest.raises(ProgramFormatError, match=r"core 1 .*precise_fp"):
        parse(dump(compiled.programs, compiled.inputs))
