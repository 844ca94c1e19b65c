"""What isn't documented, or not by all of AWS's documents: warnings."""

from __future__ import annotations

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import BF16, F32, Rule, made, sb

NOTES = "release-notes/components/nki.rst (0.4.0, known issues carried forward to 0.6.0)"
RAND = "trnsci/trnrand, CHANGELOG.md"
SKILL = "aws-neuron/neuron-agentic-development, skills/neuron-nki-writing"


def appends(b):
    widths = []
    for n in range(3):
        widths.append(n + 1)
    nisa.memset(sb(8, widths[2]), value=0.0)


def comprehends(b):
    widths = [n + 1 for n in range(3)]
    nisa.memset(sb(8, widths[2]), value=0.0)


def generates(b):
    nisa.memset(sb(8, max(n + 1 for n in range(3))), value=0.0)


def clear(tile):
    nisa.memset(tile, value=0.0)


def calls_outer(b):
    clear(sb(8, 6))


def calls_inner(b):
    def fill(tile):
        nisa.memset(tile, value=0.0)

    fill(sb(8, 6))


def asserts(b, width=6):
    assert width > 0
    nisa.memset(sb(8, width), value=0.0)


def raises(b, width=6):
    if width <= 0:
        raise ValueError("width")
    nisa.memset(sb(8, width), value=0.0)


def unpacks_names(b):
    first, second = 3, 4
    nisa.memset(sb(8, first + second), value=0.0)


def unpacks_items(b):
    sizes = [0, 0]
    sizes[0], sizes[1] = 3, 4
    nisa.memset(sb(8, sizes[0] + sizes[1]), value=0.0)


def counts(b):
    sizes = (3, 4)
    for n in range(2):
        nisa.memset(sb(8, sizes[n]), value=0.0)


def enumerates(b):
    for _, size in enumerate((3, 4)):
        nisa.memset(sb(8, size), value=0.0)


def takes_largest(b):
    nisa.memset(sb(8, max((3, 4))), value=0.0)


def sorts(b):
    nisa.memset(sb(8, sorted((3, 4))[1]), value=0.0)


def counts_bits(b):
    nisa.memset(sb(8, (6).bit_length()), value=0.0)


PAGES = "the page of the function doesn't say so"
REPORTED = "reported"

RULES = [
    Rule(
        "comprehension",
        "Lists are filled in loops, not by comprehensions",
        RAND,
        "a comprehension",
        pair=(appends, comprehends),
        warns=REPORTED,
        code="python-comprehension",
    ),
    Rule(
        "generator",
        "There are no generator expressions",
        'a port of a protein model ("generator expressions, or list comprehensions")',
        "a generator expression",
        pair=(takes_largest, generates),
        warns=REPORTED,
        code="python-generator",
    ),
    Rule(
        "inner-function",
        "Functions aren't defined inside kernels",
        RAND + "; message `inner function definitions` of AWS's parser",
        "fill is defined inside calls_inner",
        pair=(calls_outer, calls_inner),
        warns=REPORTED,
        code="python-inner-function",
    ),
    Rule(
        "raise",
        "There are no raise statements",
        "kernels of several ports (`NKI does not support raise statements`)",
        "a raise statement; AWS's compiler is reported to refuse it wherever it stands in a",
        pair=(asserts, raises),
        warns=REPORTED,
        code="python-raise",
    ),
    Rule(
        "unpack-items",
        "Values are unpacked into names, not into subscripts",
        RAND,
        "unpacking into subscripts (`(sizes[0], sizes[1])`); AWS's compiler is reported to",
        pair=(unpacks_names, unpacks_items),
        warns=REPORTED,
        code="python-targets",
    ),
    Rule(
        "unpack-loop",
        "A for loop has one loop variable",
        "kernels of ports (`the NKI tracer rejects tuple-unpacking loop targets`)",
        "several loop variables (`(_, size)`); AWS's compiler is reported to refuse it. Unpack",
        pair=(counts, enumerates),
        warns=REPORTED,
        code="python-targets",
    ),
    Rule(
        "sorted",
        "`sorted`, `.sort` and sets aren't known",
        "NeuroTile (`NKI tracer rejects set, .sort() method, and sorted builtin`)",
        "a call of sorted(); AWS's compiler is reported not to know it. Compute the value",
        pair=(takes_largest, sorts),
        warns=REPORTED,
        code="python-builtin",
    ),
    Rule(
        "integer-method",
        "Methods of integers aren't known",
        "kernels of ports (`.bit_length() ... rejected by the parser frontend`)",
        "a call of bit_length(); AWS's compiler is reported not to know it. Compute the value",
        pair=(takes_largest, counts_bits),
        warns=REPORTED,
        code="python-builtin",
    ),
    Rule(
        "numpy-dtype",
        "Data types are nl's, not NumPy's",
        "aws-neuron/nki-library, tests of moe_tkg; " + SKILL,
        "AWS's compiler is reported to refuse others in kernels",
        lambda b: sb(8, 6, dtype=np.float32 if b else F32),
        warns=REPORTED,
        code="dtype-of-numpy",
    ),
    Rule(
        "long-free-dimension",
        "A free dimension has at most 32,767 elements",
        SKILL,
        "AWS's advice for kernel writers says at most 32767 in sbuf",
        lambda b: sb(8, 32768 if b else 32767),
        warns=REPORTED,
        code="free-dimension-long",
    ),
    Rule(
        "divide",
        "`nl.divide` isn't an operator of instructions",
        NOTES + "; nki/api/nki.api.shared.rst",
        "nl.divide isn't among the operators of AWS's table, and its release notes say",
        lambda b: nisa.tensor_tensor(
            sb(8, 6), made(8, 6), made(8, 6), nl.divide if b else nl.multiply
        ),
        warns=PAGES,
        code="operator-without-instruction",
    ),
    Rule(
        "divide-call",
        "`nl.divide` is written as a product with `nl.reciprocal`",
        NOTES,
        "nl.divide isn't among the operators of AWS's table, and its release notes say",
        lambda b: (
            nl.divide(made(8, 6), made(8, 6))
            if b
            else nl.multiply(made(8, 6), nl.reciprocal(made(8, 6)))
        ),
        warns=PAGES,
        code="operator-without-instruction",
    ),
    Rule(
        "modulo",
        "`nl.mod` and `nl.fmod` don't compile",
        NOTES,
        "nl.fmod isn't among the operators of AWS's table, and its release notes say",
        lambda b: (nl.fmod if b else nl.add)(made(8, 6), 2.0),
        warns=PAGES,
        code="operator-without-instruction",
    ),
    Rule(
        "power-number",
        "`nl.power` takes two tiles",
        NOTES,
        "AWS's release notes say that both must be tiles",
        lambda b: nl.power(made(8, 6), 2.0 if b else made(8, 6)),
        warns=PAGES,
        code="language-limit",
    ),
    Rule(
        "broadcast-call",
        "Tiles of `nl.add` and its kin have the same shape",
        NOTES,
        "nl.add of tiles of shapes (8, 6) and (8, 1); AWS's release notes say that both must",
        lambda b: nl.add(made(8, 6), made(8, 1 if b else 6)),
        warns=PAGES,
        code="language-limit",
    ),
    Rule(
        "matmul-transposed",
        "`nl.matmul` is called with `transpose_x=True`",
        NOTES,
        "AWS's release notes say that it fails",
        lambda b: nl.matmul(made(32, 32, dtype=BF16), made(32, 32, dtype=BF16), transpose_x=not b),
        warns=PAGES,
        code="language-limit",
    ),
]
