"""What the rules of `nki-dist migrate` do, with an example of each.

`python docs/migrate_rules.py` prints the table of docs/migrating.md; tests compare both, and run
every example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nki_dist.migrate.rules import PAGES


@dataclass(frozen=True)
class Rule:
    """What is rewritten, or listed.

    Attributes:
        name: as reports have it.
        what: one sentence.
        before, after: an example; `after` is empty for what a person decides.
    """

    name: str
    what: str
    before: str
    after: str = ""

    @property
    def automatic(self) -> bool:
        """Whether the rule rewrites."""
        return bool(self.after)


_ALL: Final = (
    Rule("import", "`neuronxcc.nki` is `nki`.",
         "import neuronxcc.nki.language as nl", "import nki.language as nl"),
    Rule("range", "Loops that are unrolled are Python's; hints to the old compiler go.",
         "for i in nl.affine_range(4):\n    pass", "for i in range(4):\n    pass"),
    Rule("jit-mode",
         "`mode=` of nki.jit is gone, as are options of the old compiler; the arguments say which"
         " framework it is.",
         '@nki.jit(mode="trace")\ndef f(x):\n    return x', "@nki.jit\ndef f(x):\n    return x"),
    Rule("simulate", "`nki.simulate_kernel(kernel, ...)` is `nki.simulate(kernel)(...)`.",
         "y = nki.simulate_kernel(f, x)", "y = nki.simulate(f)(x)"),
    Rule("baremetal",
         "`nki.baremetal` and `nki.trace` are nki.jit, which runs on its own if the arguments are"
         " NumPy arrays.",
         "g = nki.baremetal(f)", "g = nki.jit(f)"),
    Rule("operator", "Operators of instructions are NKI's, not NumPy's.",
         "nisa.tensor_reduce(d, op=np.max, data=t, axis=1)",
         "nisa.tensor_reduce(d, op=nl.maximum, data=t, axis=1)"),
    Rule("index", "Index expressions of nl.arange and nl.mgrid are slices, or access patterns.",
         "i, j = nl.mgrid[0:128, 0:64]\nt = nl.load(x[i, j])", "t = nl.load(x[0:128, 0:64])"),
    Rule("mask", "A mask that bounds an index is the end of a slice.",
         "i, j = nl.mgrid[0:128, 0:64]\nnl.store(x[i, j], t, mask=i < 100)",
         "nl.store(x[0:100, 0:64], t[0:100])"),
    Rule("par-dim",
         "The partition dimension is the first; tensors with block dimensions are lists.",
         "t = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32)",
         "t = nl.ndarray((128, 4), dtype=nl.float32)"),
    Rule("allocator",
         "Allocation functions give way to memories: `address=` of nl.ndarray may be left out.",
         "t = nl.ndarray((128, 4), dtype=nl.float32,"
         " buffer=nki.compiler.sbuf.mod_alloc(base_addr=0))",
         "t = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)"),
    Rule("hint", "Decorators that told the old compiler how to go about it are gone.",
         "@nki.compiler.skip_middle_end_transformations\n@nki.jit\ndef f(x):\n    return x",
         "@nki.jit\ndef f(x):\n    return x"),
    Rule("dst", "Instructions write into a tile that they are given.",
         "t = nl.load(x)\nu = nisa.activation(op=nl.exp, data=t)",
         "t = nl.load(x)\n"
         "u = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf)\n"
         "nisa.activation(dst=u, data=t, op=nl.exp)"),
    Rule("tile-operator", "Operators on tiles are functions.",
         "t = nl.load(x)\nu = t * 2.0",
         "t = nl.load(x)\nu = nl.multiply(t, 2.0, dtype=nl.float32)"),
    Rule("loop-reduce", "A sum over the rounds of a loop is kept in float32 by the kernel itself.",
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
         "f[2](x)"),
    Rule("loop", "A loop on the device is a function: nl.fori_loop, nl.while_loop.",
         "for i in nl.dynamic_range(n):\n    nl.store(out[i], nl.load(x[i]))"),
    Rule("instances", "A grid of program instances is loops of the kernel.",
         "f[4](x)"),
    Rule("measure", "nki.benchmark and nki.profile were of neuronxcc; other tools measure.",
         "nki.benchmark(warmup=5)(f)(x)"),
    Rule("platform", "`platform_target=` is said by NEURON_PLATFORM_TARGET_OVERRIDE.",
         '@nki.jit(platform_target="trn2")\ndef f(x):\n    return x'),
    Rule("removed", "What NKI has no successor for.",
         "nl.all_reduce(t, op=np.add, program_axes=[0])"),
    Rule("undecided", "A statement of Beta 1 whose shapes, dtypes or masks the text doesn't say.",
         "t = nl.load(x)\nu = t * scale"),
)  # fmt: skip
RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in _ALL}


def table() -> str:
    """The rules in Markdown."""
    lines = ["| rule | what | before | after | page |", "|---|---|---|---|---|"]
    for rule in _ALL:
        after = _cell(rule.after) if rule.automatic else "a person decides"
        lines.append(
            f"| `{rule.name}` | {rule.what} | {_cell(rule.before)} | {after} | {PAGES[rule.name]} |"
        )
    return "\n".join(lines) + "\n"


def _cell(code: str) -> str:
    return " <br> ".join(f"`{line}`" for line in code.splitlines() if line.strip())


if __name__ == "__main__":
    print(table(), end="")
