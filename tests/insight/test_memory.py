"""Recording a long kernel takes no more memory than running it, and questions not twice as much."""

from __future__ import annotations

import pytest

from tests.programs import said

KERNEL = """
import sys
import numpy as np
import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

INSTRUCTIONS = 100_000


def long(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    data, other = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    for n in range(INSTRUCTIONS // 2):
        nisa.tensor_scalar(dst=other, data=data, op0=nl.multiply, operand0=0.5)
        nisa.tensor_tensor(dst=data, data1=other, data2=data, op=nl.maximum)
    nl.store(out, data)
    return out


x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
if sys.argv[1] == "run":
    nki.simulate(long)(x)
else:
    record = nki.record(long)(x)
if sys.argv[1] == "questions":
    assert len(record.writes("out")) == 1
    assert record.first_non_finite() is None
    assert len(record.origin(0, (3, 3))) == 300
# Not getrusage's: that begins with what the process had that started this one.
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(line.split()[1])
"""


def peak(tmp_path, what: str) -> int:
    """Kilobytes that a process has had at most."""
    file = tmp_path / "long_kernel.py"
    file.write_text(KERNEL)
    done = said(file, what)
    return int(done)


@pytest.mark.slow
def test_memory_of_a_long_kernel(tmp_path):
    run = peak(tmp_path, "run")
    assert peak(tmp_path, "record") <= 1.2 * run
    assert peak(tmp_path, "questions") <= 2 * run
