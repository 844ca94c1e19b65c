"""Cost rules that several instructions share.

Sources: "Cost" of the per-instruction documentation of SDK 2.26 (NeuronCore-v2), the width of the
Vector engine's data path and its performance modes in the Trainium2 and Trainium3 guides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nki_dist.isa.spec import Access, Arch, Cost, Instruction
from nki_dist.isa.tensor_engine import ArrayTile, tile_holding

CostRule: TypeAlias = "Callable[[Instruction, Arch], Cost]"


def reads_sums(i: Instruction) -> bool:
    """Whether accumulator registers are written to a tensor."""
    return i["reduce_res"] is not None


def per_element(
    name: str,
    share: float | str = 1,
    flops: int = 0,
    known: bool = True,
    sums: Callable[[Instruction], bool] | None = None,
) -> CostRule:
    """Vector and Scalar: cycles for each element that a partition of an operand has.

    Args:
        share: cycles for one of them; or the figure of the architecture that says how many.
        flops: operations for each element of the operand.
        sums: in which instructions accumulator registers are read out afterwards.
    """

    def cost(i: Instruction, arch: Arch) -> Cost:
        each = getattr(arch, share) if isinstance(share, str) else share
        cycles = issue_cycles(each * i[name].free_size, arch)
        if sums is not None and sums(i):
            cycles += arch.accumulator_read_cycles
        return Cost(cycles=cycles, flops=flops * i[name].size, known=known)

    return cost


def on_gpsimd(name: str, share: float = 1, flops: int = 0, known: bool = True) -> CostRule:
    """GpSimd: the same, after its start."""

    def cost(i: Instruction, arch: Arch) -> Cost:
        cycles = arch.gpsimd_start + share * i[name].free_size
        return Cost(cycles=cycles, flops=flops * i[name].size, known=known)

    return cost


def fixed(figure: str) -> CostRule:
    """So many cycles, whatever the operands: a figure of the architecture, by its name."""
    return lambda i, arch: Cost(cycles=getattr(arch, figure), known=False)


def issue_cycles(cycles: float, arch: Arch) -> float:
    """Vector and Scalar: `cycles` after those that reaching the operands takes, and at least what
    lies between two instructions of one engine.
    """
    return max(arch.min_issue_cycles, arch.access_cycles + cycles)


def product_cycles(n: float, columns: int, arch: Arch, passes: float = 1) -> float:
    """Tensor: `n` rows of the moving operand pass, then comes the change to the next product.

    Few rows take as long as a product needs to begin, or as its columns need if they are fewer
    (A2, ISA26). From gen3 loading the stationary operand is hidden behind the product before.
    """
    shortest = min(arch.matmul_init_cycles, columns)
    rows = n + arch.matmul_exposed_cycles + arch.matmul_switch_cycles / passes
    return passes * max(shortest, rows)


def array_tile(i: Instruction, arch: Arch) -> ArrayTile | None:
    """What a product takes of the Tensor engine's array: None for all of it."""
    size = i["tile_size"] and tile_holding(i["tile_size"], arch)
    return ArrayTile(*i["tile_position"], *size) if size else None


def copy_cycles(engine: str, dst: Access, src: Access, arch: Arch) -> float:
    """tensor_copy and tensor_scalar: N cycles, fewer in the Vector engine's two 16-bit modes."""
    n = dst.free_size
    if engine == "gpsimd":
        return arch.gpsimd_start + n
    sides = (dst, src)
    if engine != "vector" or any(a.dtype.bits != 16 for a in sides):
        return issue_cycles(n, arch)
    in_psum = sum(a.region.value == "psum" for a in sides)
    packed = all(a.strides[-1] == 1 or a.shape[-1] == 1 for a in sides)
    # Each of the two that doesn't hold takes a mode away. The second has half the elements of the
    # fastest, but at least one.
    modes = (n / arch.vector_width_16bit, n / max(1, arch.vector_width_16bit / 2), n, n)
    return issue_cycles(modes[in_psum + (not packed)], arch)


def pair_cycles(dst: Access, a: Access, b: Access, arch: Arch, modes: bool = True) -> float:
    """Vector reads two tiles for each element of dst: both come through one path from SBUF.

    N cycles if one of them comes from PSUM, which has a path of its own; otherwise what the width
    takes: 2N on gen2, N from gen3, N/2 with `modes` when all three are in 16 bits. Source: ISA26
    tensor_tensor; A3, A4: 512 elements per cycle in 16 bits, 256 in others, for 128 lanes.
    """
    n = dst.free_size
    if (a.region.value == "psum") != (b.region.value == "psum"):
        return n
    narrow = modes and all(t.dtype.bits == 16 for t in (dst, a, b))
    return 2 * n / (arch.vector_width_16bit if narrow else arch.vector_width)
