"""The rules of `nki-dist migrate`: names, what they do, an example, and the page they follow.

`python -m nki_dist.migrate.rules` prints the table of docs/migrate.md; tests compare both, and run
every example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_GUIDE: Final = "nki/migration/index.rst"
FROM_0_1: Final = f"{_GUIDE}, Migrating from NKI 0.1.0 to NKI 0.2.0"
FROM_0_2: Final = f"{_GUIDE}, Migrating from NKI 0.2.0 to NKI 0.3.0"
FROM_0_5: Final = f"{_GUIDE}, Migrating from NKI 0.5.0 to NKI 0.6.0"
TO_0_7: Final = "NKI Loops, Migrating from NKI 0.6.0 to NKI 0.7.0 (docs/nki_0_7.md)"
ALLOCATION: Final = f"{_GUIDE}, Improved allocation API"
BLOCKS: Final = f"{_GUIDE}, Removing block dimensions from NKI kernels"


@dataclass(frozen=True)
class Rule:
    """What is rewritten, or listed.

    Attributes:
        name: as reports have it.
        what: one sentence.
        page: of AWS's documentation.
        before, after: an example; `after` is empty for what a person decides.
    """

    name: str
    what: str
    page: str
    before: str
    after: str = ""

    @property
    def automatic(self) -> bool:
        """Whether the rule rewrites."""
        return bool(self.after)


_ALL: Final = (
    Rule("import", "`neuronxcc.nki` is `nki`.", FROM_0_1,
         "import neuronxcc.nki.language as nl", "import nki.language as nl"),
    Rule("range", "Loops that are unrolled are Python's; hints to the old compiler go.", TO_0_7,
         "for i in nl.affine_range(4):\n    pass", "for i in range(4):\n    pass"),
    Rule("jit-mode",
         "`mode=` of nki.jit is gone, as are options of the old compiler; the arguments say which"
         " framework it is.", FROM_0_2,
         '@nki.jit(mode="trace")\ndef f(x):\n    return x', "@nki.jit\ndef f(x):\n    return x"),
    Rule("simulate", "`nki.simulate_kernel(kernel, ...)` is `nki.simulate(kernel)(...)`.", FROM_0_2,
         "y = nki.simulate_kernel(f, x)", "y = nki.simulate(f)(x)"),
    Rule("baremetal",
         "`nki.baremetal` and `nki.trace` are nki.jit, which runs on its own if the arguments are"
         " NumPy arrays.", FROM_0_2,
         "g = nki.baremetal(f)", "g = nki.jit(f)"),
    Rule("operator", "Operators of instructions are NKI's, not NumPy's.", FROM_0_1,
         "nisa.tensor_reduce(d, op=np.max, data=t, axis=1)",
         "nisa.tensor_reduce(d, op=nl.maximum, data=t, axis=1)"),
    Rule("index", "Index expressions of nl.arange and nl.mgrid are slices, or access patterns.",
         FROM_0_1,
         "i, j = nl.mgrid[0:128, 0:64]\nt = nl.load(x[i, j])", "t = nl.load(x[0:128, 0:64])"),
    Rule("mask", "A mask that bounds an index is the end of a slice.", FROM_0_1,
         "i, j = nl.mgrid[0:128, 0:64]\nnl.store(x[i, j], t, mask=i < 100)",
         "nl.store(x[0:100, 0:64], t[0:100])"),
    Rule("par-dim",
         "The partition dimension is the first; tensors with block dimensions are lists.", BLOCKS,
         "t = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32)",
         "t = nl.ndarray((128, 4), dtype=nl.float32)"),
    Rule("allocator",
         "Allocation functions give way to memories: `address=` of nl.ndarray may be left out.",
         ALLOCATION,
         "t = nl.ndarray((128, 4), dtype=nl.float32,"
         " buffer=nki.compiler.sbuf.mod_alloc(base_addr=0))",
         "t = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)"),
    Rule("hint", "Decorators that told the old compiler how to go about it are gone.", FROM_0_1,
         "@nki.compiler.skip_middle_end_transformations\n@nki.jit\ndef f(x):\n    return x",
         "@nki.jit\ndef f(x):\n    return x"),
    Rule("dst", "Instructions write into a tile that they are given.", FROM_0_1,
         "t = nl.load(x)\nu = nisa.activation(op=nl.exp, data=t)",
         "t = nl.load(x)\n"
         "u = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf)\n"
         "nisa.activation(dst=u, data=t, op=nl.exp)"),
    Rule("tile-operator", "Operators on tiles are functions.", FROM_0_1,
         "t = nl.load(x)\nu = t * 2.0",
         "t = nl.load(x)\nu = nl.multiply(t, 2.0, dtype=nl.float32)"),
    Rule("loop-reduce", "A sum over the rounds of a loop is kept in float32 by the kernel itself.",
         FROM_0_1,
         "t = nl.zeros((128, 4), dtype=nl.float32)\n"
         "for i in nl.affine_range(8):\n"
         "    t[...] = nl.loop_reduce(nl.exp(t), op=np.add, loop_indices=[i])",
         "t = nl.zeros((128, 4), dtype=nl.float32)\n"
         "sums_1 = []\n"
         "for i in range(8):\n"
         "    tile_1 = nl.exp(t)\n"
         "    if i == 0:\n"
         "        sums_1.append(nl.copy(tile_1, dtype=nl.float32))\n"
         "    else:\n"
         "        nisa.tensor_tensor(dst=sums_1[0], data1=sums_1[0], data2=tile_1, op=nl.add)\n"
         "    nisa.tensor_copy(dst=t[...], src=sums_1[0])"),
    Rule("grid",
         "The launch grid is deprecated: how many cores a kernel has is said outside of it.",
         TO_0_7,
         "f[2](x)"),
    Rule("loop", "A loop on the device is a function: nl.fori_loop, nl.while_loop.", FROM_0_5,
         "for i in nl.dynamic_range(n):\n    nl.store(out[i], nl.load(x[i]))"),
    Rule("instances", "A grid of program instances is loops of the kernel.", FROM_0_1,
         "f[4](x)"),
    Rule("measure", "nki.benchmark and nki.profile were of neuronxcc; other tools measure.",
         FROM_0_1,
         "nki.benchmark(warmup=5)(f)(x)"),
    Rule("platform", "`platform_target=` is said by NEURON_PLATFORM_TARGET_OVERRIDE.", FROM_0_2,
         '@nki.jit(platform_target="trn2")\ndef f(x):\n    return x'),
    Rule("removed", "What NKI has no successor for.", FROM_0_1,
         "nl.all_reduce(t, op=np.add, program_axes=[0])"),
    Rule("undecided", "A statement of Beta 1 whose shapes, dtypes or masks the text doesn't say.",
         FROM_0_1,
         "t = nl.load(x)\nu = t * scale"),
)  # fmt: skip
RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _ALL}


def table() -> str:
    """The rules in Markdown."""
    lines = ["| rule | what | before | after | page |", "|---|---|---|---|---|"]
    for rule in _ALL:
        after = _cell(rule.after) if rule.automatic else "a person decides"
        lines.append(
            f"| `{rule.name}` | {rule.what} | {_cell(rule.before)} | {after} | {rule.page} |"
        )
    return "\n".join(lines) + "\n"


def _cell(code: str) -> str:
    return " <br> ".join(f"`{line}`" for line in code.splitlines() if line.strip())


if __name__ == "__main__":
    print(table(), end="")
