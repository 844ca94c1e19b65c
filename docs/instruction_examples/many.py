"""Examples: two cores of a rank, and several ranks."""

from __future__ import annotations

from instruction_examples.example import Example

_TWO = "x = [np.float32([[1, 2]]), np.float32([[10, 20]])]  # one array per rank"
_SOURCE = (
    "src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
    "nisa.dma_copy(dst=src, src=x)\n"
)
_GROUP = "group = ncc.ReplicaGroup([[0, 1]])\n"
_BOTH = "assert all(np.array_equal(out, {}) for out in outs)"
_RING = (
    "a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n"
    "b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\nnisa.dma_copy(dst=a, src=x)\n"
)


def _group(call: str, want: str, dst: str = "x.shape", arrays: str = _TWO) -> Example:
    return Example(arrays, _SOURCE + _GROUP + call, want, dst=dst, in_hbm=True, ranks=2)


EXAMPLES = {
    "sendrecv": Example(
        "x = np.float32([[1, 2], [3, 4]])  # a row per core",
        "me = nl.program_id(0)\n"
        "mine = nl.load(x[me : me + 1])\n"
        "theirs = nl.ndarray((1, 2), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.sendrecv("
        "src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)\n"
        "nl.store(dst[me : me + 1], theirs)",
        "assert np.array_equal(out, x[::-1])",
        in_hbm=True,
        cores=2,
    ),
    "core_barrier": Example(
        "x = np.float32([[1, 2], [3, 4]])  # a row per core",
        "me = nl.program_id(0)\nboth = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "nisa.dma_copy(dst=both[me], src=x[me])\n"
        "nisa.core_barrier(data=both, cores=(0, 1))  # now the other core's row is there, too\n"
        "nisa.dma_copy(dst=dst[me], src=both[1 - me])",
        "assert np.array_equal(out, x[::-1])",
        in_hbm=True,
        cores=2,
    ),
    "all_reduce": _group(
        "ncc.all_reduce(srcs=[src], dsts=[dst], replica_group=group, op=nl.add)",
        _BOTH.format("x[0] + x[1]"),
    ),
    "all_gather": _group(
        "ncc.all_gather(srcs=[src], dsts=[dst], replica_group=group, collective_dim=0)",
        _BOTH.format("np.concatenate(x)"),
        dst="(2, 2)",
    ),
    "reduce_scatter": _group(
        "ncc.reduce_scatter("
        "srcs=[src], dsts=[dst], replica_group=group, collective_dim=0, op=nl.add)",
        "assert [out.tolist() for out in outs] == [[[11, 22]], [[33, 44]]]",
        dst="(1, 2)",
        arrays="x = [np.float32([[1, 2], [3, 4]]), np.float32([[10, 20], [30, 40]])]",
    ),
    "all_to_all": _group(
        "ncc.all_to_all(srcs=[src], dsts=[dst], replica_group=group, collective_dim=0)",
        "assert [out.tolist() for out in outs] == [[[1, 2], [10, 20]], [[3, 4], [30, 40]]]",
        arrays="x = [np.float32([[1, 2], [3, 4]]), np.float32([[10, 20], [30, 40]])]",
    ),
    "all_to_all_v": Example(
        "x = [np.float32([1, 2, 3]), np.float32([10, 20, 30])]\n"
        "# Counts and displacements of what goes to rank 0 and 1; counts received; unused.\n"
        "meta = [np.uint32([[1, 2], [0, 1], [0, 0]]), np.uint32([[2, 1], [0, 2], [0, 0]])]",
        _SOURCE
        + "table = nl.ndarray(meta.shape, dtype=meta.dtype, buffer=nl.shared_hbm)\n"
        + "nisa.dma_copy(dst=table, src=meta)\nzeros = nl.ndarray((1, 4), dtype=x.dtype, "
        "buffer=nl.sbuf)\nnisa.memset(dst=zeros, value=0.0)\n"
        "nisa.dma_copy(dst=dst, src=zeros)\n"
        + _GROUP
        + "ncc.all_to_all_v(srcs=[src], dsts=[dst], replica_group=group, metadata_tensor=table)",
        "assert [out.tolist() for out in outs] == [[[1, 0, 10, 20]], [[2, 3, 30, 0]]]",
        dst="(1, 4)",
        in_hbm=True,
        ranks=2,
    ),
    "all_gather_v": Example(
        "x = [np.float32([n, n]) for n in range(4)]  # rank n sends its first element or both\n"
        "meta = [np.uint32([[1 + n % 2, 0, 0, 0], [0] * 4, [0] * 4]) for n in range(4)]",
        _SOURCE
        + "table = nl.ndarray(meta.shape, dtype=meta.dtype, buffer=nl.shared_hbm)\n"
        + "nisa.dma_copy(dst=table, src=meta)\nempty = nl.ndarray((1, 8), dtype=x.dtype, "
        "buffer=nl.sbuf)\nnisa.memset(dst=empty, value=-1.0)\n"
        "nisa.dma_copy(dst=dst, src=empty)\n"
        "group = ncc.ReplicaGroup([[0, 1, 2, 3]])\n"
        "ncc.all_gather_v(srcs=[src], dsts=[dst], replica_group=group, metadata_tensor=table)",
        _BOTH.format("[[0, -1, 1, 1, 2, -1, 3, 3]]"),
        dst="(1, 8)",
        in_hbm=True,
        ranks=4,
    ),
    "collective_permute": _group(
        "ncc.collective_permute(srcs=[src], dsts=[dst], source_target_pairs=[[0, 1], [1, 0]])",
        "assert np.array_equal(outs, x[::-1])",
    ),
    "collective_permute_implicit": Example(
        _TWO,
        _RING
        + _GROUP
        + "ncc.collective_permute_implicit([[a]], [[b]], group)  # to the next rank\n"
        "nisa.dma_copy(dst=dst, src=b)",
        "assert np.array_equal(outs, x[::-1])",
        in_hbm=True,
        ranks=2,
    ),
    "collective_permute_implicit_reduce": Example(
        _TWO,
        _RING
        + _GROUP
        + "ncc.collective_permute_implicit_reduce([[a]], [[a]], [[b]], group, nl.add)"
        "\nnisa.dma_copy(dst=dst, src=b)",
        "assert np.array_equal(outs, [2 * x[1], 2 * x[0]])  # each sends its sum on",
        in_hbm=True,
        ranks=2,
    ),
    "rank_id": Example(
        _TWO,
        "rank = ncc.rank_id()  # known when the kernel runs\n"
        "rows = nl.ndarray((2, 1, 2), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.memset(dst=rows, value=0.0)\nnisa.dma_copy(dst=dst, src=rows)\n"
        "nisa.dma_copy(dst=dst.select(0, rank), src=x)",
        "assert outs[1].tolist() == [[[0, 0]], [[10, 20]]]",
        dst="(2, 1, 2)",
        in_hbm=True,
        ranks=2,
    ),
    "collective_permute_implicit_current_processing_rank_id": Example(
        _TWO,
        _RING + _GROUP + "for step in range(2):\n"
        "    # Whose block is here now: the own one, then that of the rank before.\n"
        "    rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group)\n"
        "    nisa.dma_copy(dst=dst.select(0, rank), src=a)\n"
        "    if step == 0:\n"
        "        ncc.collective_permute_implicit([[a]], [[b]], group)\n"
        "        a = b",
        _BOTH.format("np.stack(x)"),
        dst="(2, 1, 2)",
        in_hbm=True,
        ranks=2,
    ),
}
