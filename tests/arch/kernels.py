"""Small kernels for the probes: each looks at a figure of the architecture from outside.

`LIMITS` are just accepted or just refused, so that another limit turns the verdict round. The
others are for simulated time and do a little of everything that has a figure there.
"""

import nki_dist.isa as nisa
import nki_dist.language as nl


def sbuf(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def psum(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.psum)


def hbm(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


# ---- limits: by figure --------------------------------------------------------------------------


def matmul(columns, n, dst, rows=128, **tiling):
    operands = (sbuf(rows, columns, dtype=nl.bfloat16), sbuf(rows, n, dtype=nl.bfloat16))
    nisa.nc_matmul(dst, *operands, **tiling)


def matmul_mx(columns):
    data = (sbuf(128, n, dtype=nl.float8_e5m2_x4) for n in (columns, 8))
    scales = (sbuf(128, n, dtype=nl.uint8) for n in (columns, 8))
    nisa.nc_matmul_mx(psum(columns, 8), *data, *scales)


def moved(n, dtype):
    matmul(128, n, psum(128, n, dtype=dtype))


def many_alive(make, count):
    tiles = [make() for _ in range(count)]
    for tile in tiles:
        nisa.memset(tile, 0)
    for tile in tiles:
        nisa.tensor_copy(dst=tile, src=tile)


def from_partition(start):
    nisa.memset(sbuf(128, 4)[start : start + 16, :], 0)


def shuffled_from(start):
    tile = sbuf(128, 4)[start : start + 16, :]
    nisa.nc_stream_shuffle(dst=tile, src=tile, shuffle_mask=[0] * 32)


def gathered(partitions, columns, count):
    out, source = (sbuf(partitions, n, dtype=nl.bfloat16) for n in (count, 64))
    index = sbuf(partitions, columns, dtype=nl.uint16)
    nisa.local_gather(dst=out, src_buffer=source, index=index, num_valid_indices=count)


def largest(partitions):
    places = sbuf(partitions, 8, dtype=nl.uint32)
    values, source = (sbuf(partitions, 8, dtype=nl.bfloat16) for _ in range(2))
    nisa.topk(values, places, source, 64)


def nonzero(start):
    found, tile = (sbuf(128, n, dtype=nl.int32)[start:, :] for n in (5, 4))
    nisa.nonzero_with_count(dst=found, src=tile)


def sent_by_gpsimd():
    tiles = sbuf(128, 300), sbuf(128, 300)
    nisa.sendrecv(*tiles, 1, 1, pipe_id=0, dma_engine=nisa.dma_engine.gpsimd_dma)


def hwdge_transpose():
    source = hbm(16, 128, dtype=nl.bfloat16)
    nisa.dma_transpose(
        dst=sbuf(128, 16, dtype=nl.bfloat16), src=source, dge_mode=nisa.dge_mode.hwdge
    )


def transposed(size, engine):
    out = psum(size, size) if engine == nisa.engine.tensor else sbuf(size, size)
    nisa.nc_transpose(dst=out, data=sbuf(size, size), engine=engine)


def copied(**options):
    nisa.dma_copy(dst=sbuf(128, 4), src=hbm(128, 4), **options)


def transposed_first(priority):
    nisa.dma_transpose(dst=sbuf(4, 128), src=hbm(128, 4), priority=priority)


LIMITS = {
    "access_dims_max": [
        lambda: nisa.iota(dst=sbuf(8, 2, dtype=nl.int32), pattern=[[1, 1]] * 4 + [[1, 2]]),
        lambda: nisa.affine_select(
            dst=sbuf(8, 2),
            pattern=[[1, 1]] * 4 + [[1, 2]],
            channel_multiplier=0,
            on_true_tile=sbuf(8, 2),
            on_false_value=0.0,
        ),
    ],
    "bn_stats_fmax": [lambda: nisa.bn_stats(dst=sbuf(4, 6), data=sbuf(4, 600))],
    "dma_compute_sources_max": [
        lambda: nisa.dma_compute(sbuf(4, 4), [sbuf(4, 4) for _ in range(17)], nl.add)
    ],
    "dma_qos_classes": [lambda: copied(priority=1), lambda: transposed_first(1)],
    "dma_transpose_last_dim_max": [hwdge_transpose],
    "generation": [
        lambda: [nisa.memset(sbuf(4, 4), 0), copied(dge_mode=nisa.dge_mode.hwdge, priority=None)],
        lambda: copied(priority=0),
    ],
    "gpsimd_core_partitions": [
        lambda: gathered(24, 4, 16),
        lambda: largest(24),
        lambda: nonzero(8),
    ],
    "gpsimd_dma_max_elements": [sent_by_gpsimd],
    "hbm_stack_bytes": [lambda: hbm(5 << 18, 1 << 12)],
    "local_gather_indices_max": [lambda: gathered(16, 512, 8192)],
    "matmul_tile_min": [
        lambda: matmul(32, 8, psum(32, 8), tile_position=(0, 32), tile_size=(128, 32)),
    ],
    "max8_max": [
        lambda: nisa.max8(dst=sbuf(1, 8), src=sbuf(1, 20000)),
        lambda: nisa.nc_find_index8(sbuf(1, 8, dtype=nl.uint32), sbuf(1, 20000), sbuf(1, 8)),
        lambda: nisa.nc_match_replace8(sbuf(1, 20000), sbuf(1, 20000), sbuf(1, 8), 0.0),
    ],
    "moving_free_max.bfloat16": [lambda: moved(512, nl.bfloat16)],
    "moving_free_max.float32": [lambda: moved(512, nl.float32)],
    "partition_quadrant": [lambda: from_partition(16), lambda: shuffled_from(32)],
    "partitions": [
        lambda: sbuf(200, 4),
        lambda: matmul(8, 8, psum(8, 8), 64, tile_position=(128, 0), tile_size=(64, 64)),
    ],
    "psum_bank_bytes": [lambda: matmul(128, 512, psum(128, 1024)[:, 256:768])],
    "psum_partition_bytes": [lambda: psum(4, 4096)],
    "psum_usable_banks": [lambda: many_alive(lambda: psum(128, 512), 9)],
    "sbuf_partition_bytes": [lambda: sbuf(4, 44000)],
    "sbuf_usable_bytes": [lambda: many_alive(lambda: sbuf(128, 25000), 3)],
    "stationary_free_max": [
        lambda: matmul(128, 8, psum(128, 8)),
        lambda: matmul_mx(128),
        lambda: matmul(32, 8, psum(32, 8), tile_position=(0, 128), tile_size=(128, 64)),
    ],
    "transpose_tensor_max": [lambda: transposed(128, nisa.engine.tensor)],
    "transpose_vector_max": [lambda: transposed(64, nisa.engine.vector)],
}


# ---- simulated time -----------------------------------------------------------------------------


def busy(x):
    """Every engine with dependent instructions, every kind of DMA."""
    tile, wide = nl.load(x), sbuf(128, 4096)
    out, elsewhere = hbm(128, 512), hbm(128, 512)
    halves = sbuf(128, 512, dtype=nl.bfloat16)
    nisa.tensor_copy(dst=halves, src=tile)
    sums = sbuf(128, 1)
    nisa.activation_reduce(tile, nl.exp, tile, nl.add, sums)
    nisa.activation(dst=tile, op=nl.tanh, data=tile)
    positions = sbuf(128, 64, dtype=nl.int32)
    nisa.iota(dst=positions, pattern=[[1, 64]])
    nisa.tensor_partition_reduce(sbuf(1, 64), nl.add, tile[:, :64])
    nisa.tensor_copy(dst=positions, src=positions, engine=nisa.engine.gpsimd)
    for start in range(0, 4096, 512):  # more transfers than there are queues, two at a time
        nisa.dma_copy(dst=wide[:, start : start + 512], src=tile)
        nisa.dma_copy(dst=out, src=wide[:, start : start + 512])
        nisa.dma_copy(dst=sbuf(128, 512), src=x)
    nisa.dma_copy(dst=elsewhere[0:2, :], src=out[0:2, :])
    nisa.dma_copy(dst=sums, src=out[:, 0:1])
    nisa.dma_copy(dst=sbuf(4, 64), src=x.ap([[512, 4], [8, 64]]))
    nisa.dma_transpose(dst=sbuf(128, 2048), src=hbm(2048, 128))
    nisa.dma_transpose(dst=sbuf(64, 16, 128), src=sbuf(128, 16, 64))
    nisa.dma_compute(tile, [tile, wide[:, 0:512]], nl.add)
    nl.store(out, tile)


def copied_fast(x):
    tile = sbuf(128, 512, dtype=nl.bfloat16)
    nisa.tensor_copy(dst=tile, src=tile)


def copied_apart(x):
    """Elements that aren't neighbours."""
    tile = sbuf(128, 512, dtype=nl.bfloat16)
    nisa.tensor_copy(dst=tile[:, ::2], src=tile[:, ::2])


def combined(x):
    tile = sbuf(128, 512, dtype=nl.bfloat16)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.maximum)


def short(x):
    """Nothing but an instruction that takes no longer than one has to."""
    nisa.memset(sbuf(128, 1), 0)


def combined_wide(x):
    tile = sbuf(128, 512)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)


def inverted(x):
    tile = sbuf(128, 512)
    nisa.reciprocal(dst=tile, data=tile)


def selected(x):
    tile, bound = sbuf(128, 512), sbuf(128, 1)
    nisa.range_select(tile, tile, nl.greater_equal, nl.less, bound, bound, reduce_res=sbuf(128, 1))


def addressed(x):
    """Addresses in registers: the descriptors of DMA, and compute engines."""
    tile = nl.load(x)
    row = nisa.register_alloc(3)
    nisa.register_move(row, 2)
    nisa.dma_copy(dst=tile, src=x)
    picked = tile.select(1, row)
    nisa.tensor_copy(dst=sbuf(128, 1), src=picked)
    rows = nl.load(x)[0:1, :]
    nisa.dma_copy(dst=rows, src=x.select(0, row))
    nisa.dma_copy(dst=rows, src=x[0:1, :], dge_mode=nisa.dge_mode.swdge)


def multiplying(x):
    """Two thirds of the time busy, so that the clock's ramp shows and doesn't begin again."""
    tile = nl.load(x)
    stationary, moving = sbuf(128, 128, dtype=nl.bfloat16), sbuf(128, 512, dtype=nl.bfloat16)
    nisa.tensor_copy(dst=stationary, src=tile[:, 0:128])
    nisa.tensor_copy(dst=moving, src=tile)
    for _ in range(12):
        out = psum(128, 512)
        for _ in range(6):
            nisa.nc_matmul(out, stationary, moving)
        nisa.tensor_copy(dst=stationary, src=out[:, 0:128])
    nisa.nc_matmul(psum(96, 8), tile[:, 0:96], tile[:, 0:8])
    nisa.nc_transpose(dst=psum(128, 16), data=tile[0:16, 0:128])


def ports(x):
    """Vector beside GpSimd in SBUF, and beside Scalar in PSUM."""
    one, two = sbuf(128, 4096), sbuf(128, 4096)
    nisa.memset(one, 1, engine=nisa.engine.vector)
    nisa.memset(two, 1, engine=nisa.engine.gpsimd)
    three, four = psum(128, 512), psum(128, 512)
    nisa.memset(three, 1, engine=nisa.engine.vector)
    nisa.memset(four, 1, engine=nisa.engine.vector)
    for _ in range(3):
        nisa.activation(dst=three, op=nl.copy, data=three)
        nisa.tensor_copy(dst=four, src=four, engine=nisa.engine.vector)


def loading(x):
    """More than a stack delivers to its cores, in more transfers than there are queues."""
    for _ in range(20):
        nisa.dma_copy(dst=sbuf(*x.shape), src=x, dge_mode=nisa.dge_mode.none)


def scattered(x):
    """Pieces of 256 bytes, beside long rows on the same DMA engines."""
    for _ in range(6):
        nisa.dma_copy(dst=sbuf(*x.shape), src=x)
        nisa.dma_copy(dst=sbuf(128, 64), src=x[:, 0:64])


def rendezvous(x):
    """Both cores exchange a tile twice, and wait for each other."""
    me = nl.program_id(0)
    out = hbm(2, 128, 64)
    mine, theirs = sbuf(128, 64), sbuf(128, 64)
    nisa.memset(dst=mine, value=me)
    for engine in (nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma):
        nisa.sendrecv(mine, theirs, 1 - me, 1 - me, pipe_id=0, dma_engine=engine)
    nisa.dma_copy(dst=out[me], src=theirs)
    nisa.core_barrier(out, (0, 1))
    nisa.dma_copy(dst=theirs, src=out[1 - me])


def product_of(dtype):
    """One matmul of a dtype."""

    def kernel(x):
        tiles = sbuf(128, 64, dtype=dtype), sbuf(128, 64, dtype=dtype)
        for tile in tiles:
            nisa.memset(tile, 0)
        nisa.nc_matmul(psum(64, 64), *tiles)

    return kernel
