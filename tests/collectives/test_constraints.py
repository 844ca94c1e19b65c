"""Every documented constraint: what is accepted and what is refused, with the message.

Limitations that only strict mode reports are in test_limitations.
"""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.collectives.constraints import (
    TWO,
    hbm,
    launch,
    reduce,
    sbuf,
    sliced_metadata,
    t,
    variable,
    written,
)

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

ACCEPTED = {
    "several in HBM": reduce(t(4, 3, count=2), t(4, 3, count=2)),
    "one in SBUF": reduce(t(4, 3, make=sbuf), t(4, 3, make=sbuf)),
    "another shape, as many elements": reduce(t(4, 3), t(12)),
    "tuples of tensors": reduce(lambda: (hbm(4, 3),), lambda: (hbm(4, 3),)),
    "groups as lists": reduce(t(4, 3), t(4, 3), group=[(0,), (1,)]),
    "operators of NumPy": reduce(t(4, 3), t(4, 3), op=np.maximum),
    "gather along 0": lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 3)], TWO, 0),
    "gather, contiguous blocks": lambda: ncc.all_gather([hbm(2, 3)], [hbm(2, 2, 3)], TWO, 0),
    "gather along 1 in SBUF": lambda: ncc.all_gather([sbuf(2, 3)], [sbuf(2, 6)], TWO, 1),
    "packed types move": lambda: ncc.all_gather(
        [hbm(2, 3, dtype=nl.float8_e4m3fn_x4)], [hbm(4, 3, dtype=nl.float8_e4m3fn_x4)], TWO, 0
    ),
    "two channels": lambda: ncc.collective_permute_implicit(
        [[hbm(2, 3)], [hbm(3)]], [[hbm(2, 3)], [hbm(3)]], TWO, [0, 1]
    ),
}

REFUSED = {
    "PSUM": (
        reduce(lambda: [nl.ndarray((4, 3), nl.float32, buffer=nl.psum)], t(4, 3)),
        r"srcs\[0\] is in psum",
    ),
    "list lengths": (reduce(t(4, 3, count=2), t(4, 3)), r"srcs 2, dsts 1"),
    "list in a list": (reduce(lambda: [[hbm(4, 3)]], t(4, 3)), r"srcs\[0\] is a list"),
    "no list": (reduce(lambda: hbm(4, 3), t(4, 3)), r"srcs must be a list"),
    "one in no list": (
        lambda: ncc.collective_permute([hbm(4, 3)], hbm(4, 3), [(0, 1)]),
        r"dsts must be a list",
    ),
    "empty list": (reduce(list, list), r"srcs must be a list of at least one"),
    "sizes": (reduce(t(4, 3), t(4, 4)), r"dsts has shape \(4, 4\), srcs \(4, 3\)"),
    "partitions": (reduce(t(4, 3, make=sbuf), t(3, 4, make=sbuf)), r"partition by partition"),
    "more partitions": (reduce(t(3, 4, make=sbuf), t(4, 3, make=sbuf)), r"partition by partition"),
    "dtypes": (reduce(t(4, 3), t(4, 3, dtype=nl.int32)), r"doesn't convert: got dtypes"),
    "packed": (
        reduce(t(2, 3, dtype=nl.float8_e4m3fn_x4), t(2, 3, dtype=nl.float8_e4m3fn_x4)),
        r"packed dtype",
    ),
    "no groups": (reduce(t(4, 3), t(4, 3), group=[]), r"replica_group=\[\]; allowed: a Replica"),
    "empty group": (reduce(t(4, 3), t(4, 3), group=[[0, 1], []]), r"group 1 is \[\]"),
    "twice": (reduce(t(4, 3), t(4, 3), group=[[0, 1, 0]]), r"rank 0 is in group 0 twice"),
    "negative": (reduce(t(4, 3), t(4, 3), group=[[0, -1]]), r"names rank -1"),
    "no rank": (reduce(t(4, 3), t(4, 3), group=[[0, 1.5]]), r"names rank 1.5"),
    "gathered shape": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 4)], TWO, 0),
        r"dsts\[0\] has shape \(4, 4\); srcs\[0\] of shape \(2, 3\) and 2 ranks need \(4, 3\)",
    ),
    "shape of a later pair": (
        lambda: ncc.all_gather([hbm(2, 3), hbm(2, 3)], [hbm(4, 3), hbm(4, 4)], TWO, 0),
        r"dsts\[1\] has shape \(4, 4\); srcs\[1\] of shape \(2, 3\) and 2 ranks need \(4, 3\)",
    ),
    "scattered shape": (
        lambda: ncc.reduce_scatter([hbm(5, 3)], [hbm(2, 3)], TWO, 0, nl.add),
        r"srcs\[0\] has shape \(5, 3\); dsts\[0\] of shape \(2, 3\) and 2 ranks need \(4, 3\)",
    ),
    "collective_dim": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 3)], TWO, 2),
        r"collective_dim=2; tensors have 2 dimensions, allowed: 0 to 1\n",
    ),
    "unequal groups": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 3)], [[0, 1], [2]], 0),
        r"groups of \[2, 1\] ranks",
    ),
    "indivisible": (
        lambda: ncc.all_to_all([hbm(3, 2)], [hbm(3, 2)], TWO, 0),
        r"srcs\[0\] has 3 elements along collective_dim=0; must be a multiple of the 2",
    ),
    "sends twice": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1), (0, 0)]),
        r"rank 0 sends 2 times",
    ),
    "receives twice": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1), (1, 1)]),
        r"rank 1 receives 2 times",
    ),
    "negative rank": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, -1)]),
        r"rank -1; a rank is an int from 0",
    ),
    "two ranks send several times": (
        lambda: ncc.collective_permute(
            [hbm(2)], [hbm(2)], [(1, 0), (0, 1), (0, 2), (0, 3), (1, 4)]
        ),
        r"rank 0 sends 3 times",
    ),
    "pairs": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1, 2)]),
        r"allowed: \(source, target\) pairs",
    ),
    "sizes of permute": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(3)], [(0, 1)]),
        r"dsts has shape \(3,\), srcs \(2,\)",
    ),
    "sizes of a ring": (
        lambda: ncc.collective_permute_implicit([[hbm(2)]], [[hbm(3)]], TWO),
        r"dsts_by_channel has shape \(3,\), srcs_by_channel \(2,\)",
    ),
    "memories of a ring": (
        lambda: ncc.collective_permute_implicit([[hbm(2, 3)]], [[sbuf(2, 3)]], TWO),
        r"in SBUF and .* in HBM; a collective's tensors must all be",
    ),
    "types of a ring": (
        lambda: ncc.collective_permute_implicit_reduce(
            [[hbm(2)]], [[hbm(2, dtype=nl.bfloat16)]], [[hbm(2)]], TWO, nl.add
        ),
        r"doesn't convert: got dtypes",
    ),
    "operator of a ring": (
        lambda: ncc.collective_permute_implicit_reduce(
            [[hbm(2)]], [[hbm(2)]], [[hbm(2)]], TWO, nl.subtract
        ),
        r"op=nl.subtract; allowed: add, max",
    ),
    "channel count": (
        lambda: ncc.collective_permute_implicit(
            [[hbm(2)]] * 3, [[hbm(2)]] * 3, TWO, channel_ids=[0, 1, 2]
        ),
        r"3 channels for the group \[0, 1\] of 2 ranks; allowed: 4 for .* all 16 devices .* 2 for",
    ),
    "channels and ids": (
        lambda: ncc.collective_permute_implicit([[hbm(2)]] * 2, [[hbm(2)]] * 2, TWO),
        r"srcs_by_channel has 2 channels, channel_ids=\[0\] names 1",
    ),
    "flat lists": (
        lambda: ncc.collective_permute_implicit([hbm(2)], [hbm(2)], TWO),
        r"for each channel, a list of exactly one tensor",
    ),
    "two in a channel": (
        lambda: ncc.collective_permute_implicit([[hbm(2)] * 2], [[hbm(2)] * 2], TWO),
        r"for each channel, a list of exactly one tensor",
    ),
    "iteration": (
        lambda: ncc.collective_permute_implicit_current_processing_rank_id(-1, TWO),
        r"iteration_id=-1; allowed: an int from 0, or a register",
    ),
    "channel": (
        lambda: ncc.collective_permute_implicit_current_processing_rank_id(0, TWO, 4),
        r"channel_id=4; allowed: 0 to 3",
    ),
    "channel of few": (
        lambda: ncc.collective_permute_implicit_current_processing_rank_id(0, TWO, 2),
        r"3 channels for the group \[0, 1\] of 2 ranks; allowed: 4 for",
    ),
    "unknown keyword": (
        lambda: ncc.all_reduce([hbm(2)], [hbm(2)], TWO, operator=nl.add),
        r"unexpected keyword argument 'operator'; its parameters are",
    ),
}


ACCEPTED["metadata"] = variable()
REFUSED |= {
    "metadata shape": (variable(meta=(2, 2)), r"metadata_tensor has shape \(2, 2\).*\(3, 2\) or"),
    "metadata rows": (variable(has_rdispls=True), r"shape \(3, 2\) in shared_hbm; .*\(4, 2\)"),
    "metadata with gaps": (sliced_metadata, r"metadata_tensor has strides 4 and 1 .* 2 and 1"),
    "slots": (variable(dst=(1, 7)), r"dst has 7 elements; .* into 2 equal slots"),
    "variable in SBUF": (variable(src=sbuf), r"in SBUF and|must be in HBM"),
    "two in variable": (
        lambda: ncc.all_gather_v([hbm(8)] * 2, [hbm(8)] * 2, TWO, hbm(3, 2, dtype=nl.uint32)),
        r"srcs has 2 tensors; allowed: exactly one",
    ),
    "types of variable": (
        lambda: ncc.all_to_all_v(
            [hbm(8)], [hbm(8, dtype=nl.int32)], TWO, hbm(3, 2, dtype=nl.uint32)
        ),
        r"doesn't convert: got dtypes srcs float32, dsts int32",
    ),
    "flag": (variable(recv_counts_known=3), r"recv_counts_known=3; allowed: True or False"),
}


# Of some messages, what is counted in them as data.
NUMBERS = {
    "gathered shape": {"got": [4, 4], "allowed": [4, 3]},
    "channels and ids": {"got": 2, "allowed": 1},
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    launch(ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    body, message = REFUSED[name]
    with pytest.raises(NkiValidationError, match=message) as caught:
        launch(body)
    assert "constraints.py" in caught.value.location
    assert caught.value.instruction.startswith("ncc.")
    assert caught.value.numbers == NUMBERS.get(name, caught.value.numbers)


def every_operation(**options):
    """Each collective once, with these keywords."""
    ring = [[written(1, 2)]], [[hbm(1, 2)]]
    table = nl.zeros((3, 2), dtype=nl.uint32, buffer=nl.shared_hbm)
    src, dst = [written(2, 2)], [hbm(2, 2)]
    return {
        "all_reduce": lambda: ncc.all_reduce(src, dst, TWO, nl.add, **options),
        "all_gather": lambda: ncc.all_gather(src, [hbm(4, 2)], TWO, 0, **options),
        "all_gather_v": lambda: ncc.all_gather_v(src, dst, TWO, table, **options),
        "reduce_scatter": lambda: ncc.reduce_scatter(
            src, [hbm(1, 2)], TWO, 0, nl.minimum, **options
        ),
        "all_to_all": lambda: ncc.all_to_all(src, dst, TWO, 0, **options),
        "all_to_all_v": lambda: ncc.all_to_all_v(src, dst, TWO, table, **options),
        "collective_permute": lambda: ncc.collective_permute(src, dst, [(0, 1), (1, 0)], **options),
        "collective_permute_implicit": lambda: ncc.collective_permute_implicit(
            *ring, TWO, **options
        ),
        "collective_permute_implicit_reduce": lambda: ncc.collective_permute_implicit_reduce(
            ring[0], *ring, TWO, nl.add, **options
        ),
    }


OPERATIONS = [
    name
    for name in ncc.__all__
    if name.startswith(("all_", "reduce_", "collective_"))
    and not name.endswith(("_prepare", "_trigger"))  # tests/nki_0_7/test_collectives.py
]
OPERATIONS.remove("collective_permute_implicit_current_processing_rank_id")


@pytest.mark.parametrize("name", OPERATIONS)
def test_priority_and_name_of_every_operation(name):
    def body(**options):
        return lambda: every_operation(**options)[name]()

    launch(body(name="mine"))
    launch(body(priority=0), platform="trn3")
    for priority, platform, message in (
        (0, "trn2", "priority needs NeuronCore-v4"),
        (-1, "trn3", "priority=-1; allowed: 0 to 3"),
        (4, "trn3", "priority=4; allowed: 0 to 3"),
    ):
        with pytest.raises(NkiValidationError, match=message) as caught:
            launch(body(priority=priority), platform=platform)
        assert caught.value.instruction == f"ncc.{name}"


def test_a_group_outside_a_world_says_what_to_do():
    @nki.jit
    def kernel(x):
        ncc.all_reduce([hbm(2)], [hbm(2)], TWO, nl.add)
        return x

    with pytest.raises(NkiValidationError, match=r"names rank 1; .* one rank(?s:.*)World"):
        nki.simulate(kernel)(np.zeros((1, 1), np.float32))
