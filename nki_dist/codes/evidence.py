"""Rules that published kernels break which ran on devices: evidence against a document.

A rule that is here is silent by default, whoever says that AWS's compiler refuses what breaks it:
a compiler that compiled the kernel doesn't. `refusals="all"` (`nki-dist check --strict`) reports it
with both sources. `make foreign` finds such kernels in checkouts; an entry is made of what it
found, and says how one knows that the kernel ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Evidence:
    """Two sources that contradict each other.

    Attributes:
        refused_by: the document or report that says that AWS's compiler refuses it.
        kernel: repository, path and line of a published kernel that does it.
        ran: how one knows that a device ran it.
    """

    refused_by: str
    kernel: str
    ran: str

    def __str__(self) -> str:
        return f"refused according to {self.refused_by}; done by {self.kernel}, {self.ran}"


_TRNRAND: Final = "trnsci/trnrand, CHANGELOG.md"
_NOTES: Final = "aws-neuron-sdk, release-notes/components/nki.rst"
_HANDTUNED: Final = "nki-autotune, kernel_library/matmul/lhs_rhs/kernel_handtuned_89.26mfu.py"
_MEASURED: Final = "measured on trn2 at 89 % of its peak"
_LIBRARY: Final = "nki-library, "
_TESTED: Final = "which AWS's tests run on devices"

EVIDENCE: Final[Mapping[str, Evidence]] = MappingProxyType(
    {
        "python-comprehension": Evidence(_TRNRAND, f"{_HANDTUNED}:43", _MEASURED),
        "python-raise": Evidence(
            "kernels of several ports (`NKI does not support raise statements`)",
            f"{_HANDTUNED}:84",
            _MEASURED,
        ),
        "barrier-memory": Evidence(
            "aws-neuron-sdk, nki/api/nki/isa (core_barrier)",
            _LIBRARY + "src/nkilib_src/nkilib/core/moe/moe_cte/bwmm_shard_on_I.py:577",
            _TESTED,
        ),
        "enum-number": Evidence(
            f"{_NOTES} (0.3.0)",
            _LIBRARY + "src/nkilib_src/nkilib/core/mlp/mlp_tkg/mlp_tkg_down_projection.py:259",
            _TESTED,
        ),
        "fill-float": Evidence(
            f"{_NOTES} (0.3.0)",
            _LIBRARY + "src/nkilib_src/nkilib/core/moe/moe_tkg/down_projection_mx.py:143",
            _TESTED,
        ),
        "return-private": Evidence(
            "aws-neuron-sdk, nki/migration/index.rst",
            "aws-neuron-sdk, nki/guides/tutorials/kernel-optimization.rst:246",
            "whose page shows its profile on a device",
        ),
        "free-dimension-long": Evidence(
            "aws-neuron/neuron-agentic-development, skills/neuron-nki-writing",
            _LIBRARY + "src/nkilib_src/nkilib/experimental/rng/rng.py:182",
            "whose docstring has its time on trn2",
        ),
        "matmul-tile-size": Evidence(
            "aws-neuron-sdk, nki/api/nki/isa (nc_matmul)",
            _LIBRARY + "src/nkilib_src/nkilib/experimental/gdn/gdn_cte.py:413",
            _TESTED,
        ),
        "python-identity": Evidence(
            "aws-neuron-sdk, nki/migration/index.rst",
            _LIBRARY + "test/integration/nkilib/core/utils/test_tensor_view.py:716",
            _TESTED,
        ),
    }
)
