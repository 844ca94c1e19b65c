"""What `foreign` lets pass, each with the reason: wrong on purpose, of a corpus that never ran, or
a warning that is right.

A row holds for what is found in files or programs whose path, `corpus/path`, begins with `where`,
and for these codes; no codes: for all, also for programs that launch nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """Something that is known."""

    where: str
    codes: tuple[str, ...]
    why: str


ENTRIES: tuple[Entry, ...] = (
    Entry("", ("spilled",), "Beta 1's compiler spills, and so do we; the warning says how much"),
    Entry(
        "nki-library/src/nkilib_src/nkilib/core/utils/kernel_assert.py",
        ("kernel-raised",),
        "the library's own refusals, which its tests ask for",
    ),
    Entry(
        "nki-library/src/nkilib_src/nkilib/core/qkv/qkv.py",
        ("call-signature",),
        "one of its tests passes is_input_swizzled, which this version of the kernel doesn't have",
    ),
    Entry(
        "nki-library/test/integration/nkilib/core/subkernels/test_rmsnorm_mx_quantize_tkg.py",
        ("unwritten-rows",),
        "scales of MX use 4 rows of 32; the test's kernel returns the others as they are",
    ),
    Entry(
        "nki-library/",
        ("release-removed",),
        "written for NKI 0.6, whose loops NKI 0.7 has removed; the warning names the release",
    ),
    Entry(
        "aws-neuron-sdk/nki/test/test_nki_isa_nc_match_replace8.py",
        ("unwritten-output",),
        "stores a tile that its mask left partly unwritten; only simulated",
    ),
    Entry(
        "autocomp/trn-tutorial-nki2/2_gemm",
        ("no-such-attribute",),
        "harness and solution say nl.par_dim, which NKI no longer has",
    ),
    Entry(
        "autocomp/trn-advanced-nki2/",
        ("transpose-dtype",),
        "kernels for trn1 that leave a transpose of bfloat16 as float32; no record that they ran",
    ),
    Entry(
        "nki-autotune/kernel_transforms.py",
        ("partition-bytes",),
        "the first of a series of rewrites, simulated only: 128 KiB of PSUM where there are 16",
    ),
    Entry(
        "nki-autotune/test/",
        ("partition-bytes",),
        "as the same rewrites begin: whole matrices in PSUM, simulated only",
    ),
    Entry(
        "aws-neuron-sdk/nki/examples/layout-violation.py",
        (),
        "wrong on purpose: the documentation shows its error",
    ),
    Entry("aws-neuron-sdk/nki/examples/layout-dynamic-loop.py", (), "isn't valid Python"),
    Entry(
        "nkipy/examples/playground/simple_nki_kernel.py",
        ("index-kind",),
        "indexes by whole nl.affine_range objects, which no document knows; no record that it ran",
    ),
    Entry(
        "triton-viz/examples/nki/rope.py",
        ("shape-broadcast", "partition-mismatch"),
        "a tile without nl.par_dim (its own TODO) has its rows in one partition",
    ),
)


def entry(place: str, code: str) -> Entry | None:
    """The row for a code found at a place (`corpus/path`), or None."""
    for each in ENTRIES:
        if place.startswith(each.where) and (code in each.codes or not each.codes):
            return each
    return None
