"""The programs of `wrong` and `wrong_cores` with what each must be reported as."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist.errors import (
    CollectiveMismatchError,
    DeadlockError,
    NkiError,
    NkiValidationError,
    OutOfBoundsError,
    OutOfMemoryError,
    RaceError,
)
from tests.collectives import wrong, wrong_cores

RANKS = 4
ONE = (1, 1, 1, 1)


@dataclass(frozen=True)
class Wrong:
    """A program, and its error.

    Attributes:
        name: of the kernel.
        error, message: type, and what the message matches.
        counts: the kernel's second argument, one number per rank.
        lnc: cores per rank in the test of one process; on Ray it is 2 unless the mistake needs 1.
        lnc_matters: it does.
    """

    name: str
    error: type[NkiError]
    message: str
    counts: tuple[int, ...] = ONE
    lnc: int = 2
    lnc_matters: bool = False

    @property
    def kernel(self) -> Any:
        return getattr(wrong, self.name, None) or getattr(wrong_cores, self.name)

    @property
    def lines(self) -> list[str]:
        """`file.py:line` of each marked line of the kernel."""
        source, first = inspect.getsourcelines(self.kernel.fn)
        file = f"{self.kernel.fn.__module__.rpartition('.')[2]}.py"
        return [f"{file}:{first + n}" for n, line in enumerate(source) if "# HERE" in line]

    @property
    def arguments(self) -> tuple[np.ndarray, np.ndarray]:
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        return x, np.array([self.counts], np.int32)

    def __str__(self) -> str:
        return f"{self.name}-{''.join(map(str, self.counts))}"


def both(one: str, other: str) -> str:
    """Matches a message that has both, whichever comes first: either side may notice."""
    return f"(?=.*{one})(?=.*{other})"


Mismatch, Deadlock, Invalid = CollectiveMismatchError, DeadlockError, NkiValidationError

PROGRAMS = [
    # Ranks that leave out, swap or change collectives.
    Wrong("one_rank_leaves_out_a_round", Deadlock, r"rank 2 core 0 has finished", (2, 2, 1, 2), 1),
    Wrong("one_rank_leaves_out_a_round", Deadlock, r"rank 1 core 0 has finished", (1, 0, 1, 1)),
    Wrong(
        "while_loop_left_early", Deadlock, r"rank 1 core 0 waits in ncc.all_reduce", (2, 3, 2, 2)
    ),
    Wrong("then_another_operation", Mismatch, both("all_gather", "all_reduce"), (1, 0, 1, 1), 1),
    Wrong("then_another_operation", Mismatch, both("all_gather", "all_reduce"), (2, 1, 2, 2), 1),
    Wrong("then_another_operation", Mismatch, both("all_gather", "all_reduce"), (1, 1, 1, 0)),
    Wrong(
        "then_another_reduction", Mismatch, both("reduce=add", "reduce=maximum"), (1, 1, 2, 1), 1
    ),
    Wrong("then_another_dimension", Mismatch, both("dim=0", "dim=1"), (1, 0, 1, 1), 1),
    Wrong(
        "then_more_channels",
        Mismatch,
        both(r"channel_ids=\[0, 1\]", r"channel_ids=\[0\]"),
        (1, 1, 0, 1),
    ),
    Wrong("then_other_shapes", Mismatch, both(r"\(3, 4\)", r"\(1, 4\)"), (0, 1, 1, 1), 1),
    Wrong("then_another_dtype", Mismatch, both("=float32", "=int32"), (0, 1, 1, 1), 1),
    Wrong(
        "then_other_groups", Mismatch, both(r"group=\[0, 1\]", r"group=\[\d, [23]"), (1, 0, 0, 1), 1
    ),
    Wrong("only_the_sender_permutes", Mismatch, r"sent rank 1 core 0 1 ", (1, 0, 1, 1), 1),
    Wrong("only_the_sender_permutes", Deadlock, r"rank 1 core 0 waits.* rank 0", (0, 1, 1, 1), 1),
    # Cores of a rank that disagree.
    Wrong("cores_call_different_collectives", Mismatch, both("reduce=add", "reduce=maximum")),
    Wrong("cores_name_different_tensors", Mismatch, r"tensors="),
    Wrong("one_core_alone", Deadlock, r"core 1 waits? in ncc.all_reduce.*core 0"),
    Wrong("kinds_of_hbm_mixed", Invalid, r"mixes tensors of the core"),
    Wrong("no_barrier_before_a_load", RaceError, r"a load by core 1 .*store by core 0"),
    Wrong("both_cores_store", RaceError, r"a store by core 0 .*store by core 1"),
    Wrong("barrier_on_one_core", Deadlock, r"ranks 0-3 core 0 wait in nisa.core_barrier"),
    Wrong(
        "barriers_of_uneven_loops",
        Deadlock,
        r"ranks 0-3 core 0 wait in nisa.core_barrier",
        (2, 1, 0, 0),
    ),
    Wrong("barrier_meets_collective", Deadlock, r"core 0 wait in nisa.c.*core 1 wait in ncc.all"),
    Wrong(
        "sendrecv_without_partner", Deadlock, r"core 0 have finished.*core 1 wait in nisa.sendrecv"
    ),
    Wrong(
        "sendrecv_on_two_pipes", Deadlock, r"core 0 .*nisa.sendrecv \(pipe_id 0.*1 .*\(pipe_id 1"
    ),
    Wrong("sendrecv_of_two_shapes", Mismatch, both(r"shape=\(3, 2\)", r"shape=\(3, 4\)")),
    Wrong("sendrecv_of_two_dtypes", Mismatch, both("=float32", "=int32")),
    Wrong("sendrecv_without_second_core", Invalid, r"has core 0 only", ONE, 1, True),
    # One rank or core fails by itself.
    Wrong("rank_used_beyond_a_table", OutOfBoundsError, r"index [23] is outside \[0, 2\)", ONE, 1),
    Wrong("one_rank_fails_while_others_wait", OutOfBoundsError, r"index 7 .*rank 2", (0, 1, 7, 2)),
    Wrong("collective_beyond_its_tensor", OutOfBoundsError, r"index 3 .*rank 2", (0, 2, 3, 0), 1),
    Wrong("chunks_beyond_the_source", OutOfBoundsError, r"chunk for rank 3.*has 12", (1, 2, 3, 13)),
    Wrong("one_core_needs_too_much", OutOfMemoryError, r"SBUF has \d+ .*needs 262144.* core 1"),
    Wrong("one_core_allocates_more", Invalid, r"core 0 makes 1 .*core 1 2; all"),
    # Groups that don't fit the world or each other.
    Wrong("rank_without_group", Invalid, r"rank 2 is in no group.*4 ranks", ONE, 1),
    Wrong("rank_beyond_the_world", Invalid, r"names rank 4.*ranks 0 to 3", ONE, 1),
    Wrong("pair_beyond_the_world", Invalid, r"names rank 7.*ranks 0 to 3", ONE, 1),
    Wrong("ring_register_of_another_group", Invalid, r"ranks 2, 3 are in no group", ONE, 1),
]
