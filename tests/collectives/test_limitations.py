"""What the documentation calls a current limitation: it runs, and check="strict" reports it."""

import pytest

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError, UninitializedReadError
from tests.collectives.constraints import TWO, hbm, launch, sbuf, variable, written

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

# What AWS calls a current limitation runs here, and is reported by check="strict".
LIMITED = {
    "gather along 1 in HBM": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(2, 6)], TWO, 1),
        r"collective_dim=1 in shared_hbm; allowed: at most 0",
    ),
    "scatter along 1": (
        lambda: ncc.reduce_scatter([sbuf(2, 6)], [sbuf(2, 3)], TWO, 1, nl.add),
        r"collective_dim=1 in sbuf",
    ),
    "three dimensions in SBUF": (
        lambda: ncc.all_gather([sbuf(2, 3, 2)], [sbuf(2, 6, 2)], TWO, 1),
        r"SBUF tensors of 3 dimensions",
    ),
    "three dimensions reduced": (
        lambda: ncc.all_reduce([sbuf(2, 3, 2)], [sbuf(2, 3, 2)], TWO, nl.add),
        r"srcs: SBUF tensors of 3 dimensions; allowed: 2",
    ),
    "three dimensions in a ring": (
        lambda: ncc.collective_permute_implicit([[sbuf(2, 6)]], [[sbuf(2, 3, 2)]], TWO),
        r"dsts_by_channel: SBUF tensors of 3 dimensions; allowed: 2",
    ),
    "no ring": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1)]),
        r"source_target_pairs=\[\[0, 1\]\]; allowed: one ring",
    ),
    "group of two": (variable("all_gather_v"), r"groups of 2 ranks; allowed: exactly 4"),
    "displacements": (variable(meta=(4, 2), has_rdispls=True), r"has_rdispls=True on trn2"),
}


@pytest.mark.parametrize("name", LIMITED)
def test_limitations_are_reported_in_strict_mode_only(name):
    body, message = LIMITED[name]
    launch(body)
    with pytest.raises(NkiValidationError, match=message):
        launch(body, check="strict")


def test_four_channels_need_ranks_on_all_devices():
    """As many ranks as devices aren't enough: two of trn1's, eight of trn2's share one."""
    for ranks, platform, accepted in ((32, "trn1", True), (16, "trn1", False), (32, "trn2", False)):
        group = [list(range(ranks))]

        def body(group=group):
            four = [[[hbm(2)] for _ in range(4)] for _ in range(2)]
            ncc.collective_permute_implicit(*four, group, [0, 1, 2, 3])

        if accepted:
            launch(body, ranks, platform)
            continue
        with pytest.raises(NkiValidationError, match=r"4 channels .* of \d+ ranks; allowed: 4 for"):
            launch(body, ranks, platform)


# What depends on where ranks sit: body, ranks, platform, lnc, and what strict mode says or "".
ONE_CHIP, EIGHT = [[0, 1, 2, 3]], [list(range(8))]
ALIKE = [[r, r + 64] for r in range(64)]
OTHERWISE = [[r, 64 + (r + 1) % 64] for r in range(64)]
PLACES = {
    "gather_v on a chip": (variable("all_gather_v", (3, 4), group=ONE_CHIP), 4, "trn2", 2, ""),
    "gather_v, LNC=1": (
        variable("all_gather_v", (3, 4), group=ONE_CHIP),
        4,
        "trn2",
        1,
        r"all_gather_v with LNC=1; allowed: 2",
    ),
    "gather_v on two chips": (
        variable("all_gather_v", (3, 4), group=[[0, 1, 6, 7], [2, 3, 4, 5]]),
        8,
        "trn2",
        2,
        r"all_gather_v with the group \[0, 1, 6, 7\] of 4 ranks on several chips; allowed: on one",
    ),
    "to_all_v in a node": (
        variable(),
        2,
        "trn2",
        2,
        r"the group \[0, 1\] of 2 ranks on trn2; .* on different instances, such as 0 and 64",
    ),
    "to_all_v between nodes": (variable(group=ALIKE), 128, "trn2", 2, ""),
    "to_all_v, other places": (
        variable(group=OTHERWISE),
        128,
        "trn2",
        2,
        r"\[0, 65\] of 2 ranks has other places on one node than on another",
    ),
    "to_all_v through switches": (variable(meta=(3, 8), group=EIGHT), 8, "trn3", 2, ""),
    "to_all_v, displacements": (
        variable(meta=(4, 8), group=EIGHT, has_rdispls=True),
        8,
        "trn3",
        2,
        "",
    ),
    "to_all_v on a device": (
        variable(meta=(3, 4), group=ONE_CHIP),
        4,
        "trn3",
        2,
        r"sequential ranks that are all 4 of each of several devices",
    ),
    "to_all_v, parts of devices": (
        variable(meta=(3, 4), group=[[0, 1, 4, 5], [2, 3, 6, 7]]),
        8,
        "trn3",
        2,
        r"the group \[0, 1, 4, 5\] of 4 ranks on trn3; allowed: sequential",
    ),
    "to_all_v, LNC=1": (
        variable(meta=(3, 16), dst=(1, 16), group=[list(range(16))]),
        16,
        "trn3",
        1,
        r"all_to_all_v with LNC=1 on trn3; allowed: 2",
    ),
    "permute to a neighbour": (
        lambda: ncc.collective_permute([written(1, 2)], [hbm(1, 2)], [(0, 4), (4, 0)]),
        12,
        "trn2",
        2,
        "",
    ),
    "permute over two links": (
        lambda: ncc.collective_permute([written(1, 2)], [hbm(1, 2)], [(0, 8), (8, 0)]),
        12,
        "trn2",
        2,
        r"source_target_pairs has 0, 8, which are 2 links apart; allowed: ranks of one chip",
    ),
    "uneven nodes": (
        lambda: ncc.all_reduce([written(1, 2)], [hbm(1, 2)], [list(range(65))], nl.add),
        65,
        "trn2",
        2,
        r"\[0-64\] of 65 ranks has other places on one node than on another",
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_limitations_that_depend_on_places(name):
    body, ranks, platform, lnc, message = PLACES[name]
    launch(body, ranks, platform, lnc=lnc)
    if not message:
        launch(body, ranks, platform, "strict", lnc)
        return
    with pytest.raises(NkiValidationError, match=message) as caught:
        launch(body, ranks, platform, "strict", lnc)
    assert "tests/collectives" in caught.value.location


@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize(
    ("name", "written_rows", "columns", "options"),
    [
        ("all_gather_v", [0, 1], 1, {}),
        ("all_to_all_v", [0, 1], 8, {}),
        ("all_to_all_v", [0, 1, 3], 8, {"has_rdispls": True}),
    ],
)
def test_metadata_has_inputs_and_results(name, written_rows, columns, options, where):
    """Strict mode wants the rows that are read to be written, and no others."""
    size = 4 if name == "all_gather_v" else 8
    rows = 4 if options else 3

    def body(written_rows=written_rows):
        shape = (1, rows, size) if where == "sbuf" else (rows, size)
        table = nl.ndarray(shape, dtype=nl.uint32, buffer=nl.sbuf if where == "sbuf" else nl.hbm)
        nothing = nl.zeros((1, size), dtype=nl.uint32, buffer=nl.sbuf)
        for row in written_rows:
            place = table[:, row, :columns] if where == "sbuf" else table[row : row + 1, :columns]
            nisa.dma_copy(dst=place, src=nothing[:, :columns])
        function = getattr(ncc, name)
        function([written(1, 8)], [hbm(1, 8)], [list(range(size))], table, **options)

    platform = "trn2" if name == "all_gather_v" else "trn3"
    launch(body, size, platform, "strict", 2)
    for row in written_rows:
        rest = [r for r in written_rows if r != row]
        with pytest.raises(UninitializedReadError, match=f"{name} reads elements"):
            launch(lambda rest=rest: body(rest), size, platform, "strict", 2)
