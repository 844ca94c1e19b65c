"""A profile as text: what is shown, what is left out, units."""

from dataclasses import replace

import pytest

from nki_dist.timing.band import HELD
from nki_dist.timing.report import EngineUse, LineUse, Profile

NOTHING = Profile(
    kernel="k",
    platform="trn2",
    cores=1,
    total_us=2000.0,
    overhead_us=20.0,
    instructions=1234,
    engines=[EngineUse(0, "tensor", 1234, 500.0, 0.25), EngineUse(0, "sync", 0, 0.0, 0.0)],
    lines=[LineUse("/some/where/k.py:7", "nc_matmul", "tensor", 1234, 600.0, 5.0, 500.0)],
    critical={"tensor": 1500.0, "semaphores": 500.0},
    hbm_read=1023,
    hbm_written=3 << 10,
    flops=0,
    all_flops=0,
    tflops=1234.5,
    mfu=0.5,
    mbu=0.125,
    beta1=False,
    schedule="program",
    changes=[],
    assumed_us=0.0,
    assumed_costs={},
    assumed_parameters={},
    timeline=None,
)

TEXT = f"""\
k on trn2, 1 core: 2,000.000 us simulated, in program order
  1,234 instructions; 1,234.50 TFLOPS
  HBM: 1023 B read, 3.00 KiB written (12.5% of bandwidth)
  about 20 us around it on the device: 2,020.000 us in all
  band: {NOTHING.low_us:,.1f} to {NOTHING.high_us:,.1f} us ({HELD})

core  engine  instructions     busy us   busy
   0  tensor         1,234     500.000  25.0%

what bounded it             us  share
  tensor             1,500.000  75.0%
  semaphores           500.000  25.0%

critical us    total us      count  instruction (engine) at line
    500.000     600.000      1,234  nc_matmul (tensor) at k.py:7"""


def test_the_whole_table():
    assert str(NOTHING) == TEXT


def test_the_device_sees_what_is_around_a_kernel():
    assert NOTHING.device_us == 2020.0 == NOTHING.to_dict()["device_us"]


def test_the_share_of_the_peak_is_given_where_there_are_products():
    assert "1,234.50 TFLOPS (50.0% of peak)\n" in str(replace(NOTHING, flops=1))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        ((1 << 20) - 1024, "1,023.00 KiB"),
        (1 << 20, "1.00 MiB"),
        (5 << 29, "2.50 GiB"),
        (1 << 30, "1.00 GiB"),
    ],
)
def test_bytes(size, text):
    assert f"HBM: {text} read" in str(replace(NOTHING, hbm_read=size))


def test_four_cores_are_shown():
    uses = [EngineUse(n, "vector", n + 1, 1.0, 0.5) for n in range(6)]
    text = str(replace(NOTHING, cores=6, engines=uses))
    shown = [line.split()[0] for line in text.splitlines() if " vector " in line]
    assert shown == ["0", "1", "2", "3"]
    assert "k on trn2, 6 cores: " in text
    assert "      ... 2 more cores\n" in text
    assert "more cores" not in str(replace(NOTHING, cores=4, engines=uses[:4]))


def test_twelve_lines_are_shown():
    lines = [LineUse(f"k.py:{n}", "rng", "vector", 1, 1.0, 1.0, 1.0) for n in range(15)]
    text = str(replace(NOTHING, lines=lines))
    assert [n for n in range(15) if f"at k.py:{n}\n" in text] == list(range(12))
    assert text.endswith("\n... 3 more")
    assert str(replace(NOTHING, lines=lines[:12])).endswith("rng (vector) at k.py:11")


def test_what_is_empty_has_no_heading():
    text = str(replace(NOTHING, lines=[], critical={}))
    assert text.endswith("25.0%")
    assert "what bounded it" not in text


def test_guesses_are_at_the_end():
    text = str(
        replace(
            NOTHING,
            assumed_costs={"rng": 1000, "topk": 2},
            assumed_parameters={"semaphore_ns": "because", "dma_element_ns": "because"},
        )
    )
    assert text.startswith(TEXT)
    assert text[len(TEXT) :] == (
        "\n\nno documented cost, one was assumed: rng (1,000), topk (2)\n"
        "no published figure, one was assumed: semaphore_ns, dma_element_ns"
    )


def test_long_lists_of_guesses_are_folded():
    names = {f"instruction_{n}": 1 for n in range(9)}
    tail = str(replace(NOTHING, assumed_costs=names))[len(TEXT) + 2 :].splitlines()
    assert len(tail) == 3
    assert all(line.startswith("  instruction_") for line in tail[1:])
    assert 80 < max(map(len, tail)) <= 100
