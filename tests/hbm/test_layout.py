"""Layouts of HBM stacks: what lies where, what is read afterwards, what is filled in before.

The kernel has six tensors, none a multiple of 64 bytes: input 1 is written, input 3 returned.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.dtypes import poison
from nki_dist.hbm.layout import (
    CACHED_LAYOUTS,
    Layouts,
    common_inputs,
    fill_common,
    fill_stack,
    lay_out,
)
from tests.compiler.compiling import compiled

SHAPES = [
    ((3, 5), np.float32),  # 60 bytes
    ((2, 40), ml_dtypes.bfloat16),  # 160, written
    ((7, 9), np.int8),  # 63
    ((11, 3), np.int32),  # 132, returned
]


def kernel(a, b, c, d):
    mine = nl.ndarray((3, 5), nl.float32, buffer=nl.shared_hbm)  # 60 bytes
    other = nl.ndarray((65, 2), nl.bfloat16, buffer=nl.shared_hbm)  # 260
    nisa.dma_copy(dst=mine, src=a)
    nisa.dma_copy(dst=other[0:2, 0:2], src=b[:, 0:2])
    nisa.dma_copy(dst=b[0:1, 0:9], src=c[0:1])
    return mine, d, other


@pytest.fixture(scope="module")
def launch():
    return compiled(kernel, *SHAPES)


def arrays(seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(-90, 90, shape).astype(dtype) for shape, dtype in SHAPES]


def test_what_is_read_afterwards_comes_first(launch):
    """Inputs written or returned, then shared tensors, then the other inputs, each at 64 bytes."""
    layout = lay_out(launch)
    assert layout.offsets == {
        ("input", 1): 0,
        ("input", 3): 192,
        ("shared", 0): 192 + 192,
        ("shared", 1): 384 + 64,
        ("input", 0): 448 + 320,
        ("input", 2): 768 + 64,
    }
    assert (layout.stack_bytes, layout.common_bytes, layout.common) == (832 + 64, 0, ())
    assert layout.read_back == ((0, 160), (192, 324), (384, 444), (448, 708))
    assert [(start, end, raw) for start, end, _, raw in layout.unwritten] == [
        (384, 444, np.uint32),
        (448, 708, np.uint16),
    ]
    assert [s.shape for s in layout.inputs] == [shape for shape, _ in SHAPES]


def test_what_stays_in_hbm_has_no_place_in_the_stack(launch):
    layout = lay_out(launch, resident=frozenset({("shared", 0), ("input", 1)}))
    assert layout.offsets == {
        ("input", 3): 0,
        ("shared", 1): 192,
        ("input", 0): 192 + 320,
        ("input", 2): 512 + 64,
    }
    assert [part[:2] for part in layout.poisoned] == [(0, 60)]
    assert [part[:2] for part in layout.unwritten] == [(192, 452)]


@pytest.mark.parametrize(
    ("common", "there", "stack", "size"),
    [
        ({0}, {("common", 0): 0, ("input", 2): 768}, 832, 64),
        ({2, 1}, {("input", 0): 768, ("common", 2): 0}, 832, 64),
        ({0, 2}, {("common", 0): 0, ("common", 2): 64}, 768, 128),
        ({1, 3}, {("input", 0): 768, ("input", 2): 832}, 896, 0),
    ],
)
def test_what_ranks_have_in_common_is_elsewhere(launch, common, there, stack, size):
    """Unless it is read afterwards; what comes before it doesn't move."""
    alone, layout = lay_out(launch), lay_out(launch, frozenset(common))
    assert {k: at for k, at in layout.offsets.items() if k[1] in (0, 2) and k[0] != "shared"} == (
        there
    )
    assert layout.common == tuple(index for role, index in there if role == "common")
    assert (layout.stack_bytes, layout.common_bytes) == (stack, size)
    assert (layout.read_back, layout.unwritten) == (alone.read_back, alone.unwritten)
    assert {k: layout.offsets[k] for k in list(alone.offsets)[:4]} == {
        k: alone.offsets[k] for k in list(alone.offsets)[:4]
    }


def test_a_layout_is_worked_out_once_for_what_ranks_share(launch):
    layouts, rank = Layouts(), [np.zeros(s.shape, np.float32) for s in launch.inputs]
    other = [rank[0], *(a.copy() for a in rank[1:])]
    alone, shared = layouts.of(7, launch, [rank]), layouts.of(7, launch, [rank, other])
    assert layouts.of(7, launch, [other]) is alone
    assert layouts.of(7, launch, [other, rank]) is shared
    assert layouts.of(8, launch, [rank]) is not alone
    for key in range(100, 100 + CACHED_LAYOUTS):
        layouts.of(key, launch, [rank])
    assert layouts.of(7, launch, [rank]) is not alone
    with pytest.raises(FrozenInstanceError):
        alone.stack_bytes = 0


def test_inputs_of_a_rank_are_copied_and_shared_tensors_poisoned(launch):
    layout, mine = lay_out(launch, frozenset({2})), arrays(1)
    memory = np.full(layout.stack_bytes, 9, np.uint8)
    fill_stack(layout, memory, [*mine[:2], None, mine[3]])
    touched = np.zeros(memory.size, bool)
    for index in (0, 1, 3):
        at = layout.offsets["input", index]
        touched[at : at + mine[index].nbytes] = True
        assert memory[at : at + mine[index].nbytes].tobytes() == mine[index].tobytes()
    for start, dtype in ((384, dtypes.float32), (448, dtypes.bfloat16)):
        end = start + (60 if start == 384 else 260)
        touched[start:end] = True
        assert poison.is_poison(memory[start:end].view(dtype.storage), dtype).all()
    assert (memory[~touched] == 9).all(), "wrote between the tensors"


def test_what_the_kernel_writes_whole_before_it_reads_is_left_as_it_is(launch):
    layout = lay_out(launch, replaced=frozenset({("input", 1), ("shared", 0)}))
    memory, mine = np.full(layout.stack_bytes, 9, np.uint8), arrays(4)
    fill_stack(layout, memory, [mine[0], None, *mine[2:]])
    assert (memory[:192] == 9).all() and (memory[384:448] == 9).all()
    assert memory[768:828].tobytes() == mine[0].tobytes()


def test_what_is_common_is_copied_once(launch):
    layout, mine = lay_out(launch, frozenset({0, 2})), arrays(2)
    memory = np.full(layout.common_bytes, 9, np.uint8)
    fill_common(layout, memory, [mine[0], None, mine[2], None])
    assert memory[:60].tobytes() == mine[0].tobytes()
    assert memory[64:127].tobytes() == mine[2].tobytes()
    assert (memory[60:64] == 9).all() and memory[127] == 9


def test_inputs_may_be_views_of_any_strides_and_of_raw_words(launch):
    """As bits: bfloat16 arrives as it is or as 16-bit words."""
    layout, mine = lay_out(launch), arrays(3)
    plain, other = (np.zeros(layout.stack_bytes, np.uint8) for _ in range(2))
    fill_stack(layout, plain, mine)
    turned = [np.asfortranarray(a) for a in mine]
    turned[1] = mine[1].view(np.uint16)
    turned[2] = mine[2].reshape(9, 7)
    fill_stack(layout, other, turned)
    assert plain.tobytes() == other.tobytes()


def test_inputs_are_common_if_every_rank_passes_the_same_memory():
    a, b = np.arange(12).reshape(3, 4), np.arange(12).reshape(3, 4)
    assert common_inputs([[a, b]]) == frozenset(), "one rank shares with nobody"
    assert common_inputs([[a, b], [a, b], [a, b]]) == {0, 1}
    assert common_inputs([[a, b], [a, b], [a, a]]) == {0}
    assert common_inputs([[a, b], [b, b]]) == {1}, "equal values aren't the same memory"
    assert common_inputs([[a], [a[:]]]) == {0}


@pytest.mark.parametrize(
    "other",
    [
        lambda a: a[1:],  # begins elsewhere
        lambda a: a[:2],
        lambda a: a.reshape(4, 3),
        lambda a: a.view(np.uint64),
        lambda a: a[:, ::2],
        lambda a: np.lib.stride_tricks.as_strided(a, a.shape, (8, 24)),
    ],
)
def test_other_views_of_the_same_memory_are_not_the_same_input(other):
    a = np.arange(12).reshape(3, 4)
    assert common_inputs([[a], [other(a)]]) == frozenset()
    assert common_inputs([[other(a)], [a]]) == frozenset()
