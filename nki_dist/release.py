"""Releases of NKI: what each added, deprecated and removed.

One value says which release a kernel is checked against: "0.6", "0.7", or "any", the default, under
which both work and what 0.7 removed gives a warning. Whatever differs between releases asks the
value by the name of the construct; the names below are all there are.

Follows: migration guide of SDK 2.33.1, "Migrating from NKI 0.6.0 to NKI 0.7.0"; release notes of
NKI 0.7.0; the pages named in docs/releases.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from nki_dist.errors import CompileError, LaunchError, ReleaseWarning

# What 0.7 has and 0.6 hasn't, and what 0.6 has instead.
ADDED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nl.int64": "use nl.int32",
        "nl.uint64": "use nl.uint32",
        "nl.tiles": "slice the tensor",
        "nl.blocks": "slice the tensor",
        "nl.alloc_tiles": "use nl.ndarray",
        "nl.alloc_blocks": "use nl.ndarray",
        "nl.empty_like(transpose_axes=)": "use nl.ndarray",
        "nl.empty_like(address=)": "use nl.ndarray",
        "nisa.scalar_load": "use nisa.register_load",
        "nisa.scalar_store": "use nisa.register_store",
        "depends_on(kind=)": "leave kind out",
        "ncc.all_to_all_v_prepare": "use ncc.all_to_all_v",
        "ncc.all_gather_v_prepare": "use ncc.all_gather_v",
        "nki.jit(compile_config=)": "leave it out",
        "nki.jit(specialization_config=)": "leave it out",
        "fori_loop with an NkiScalar": "",  # asked, never refused: 0.6 gives a VirtualRegister
        "all of Python": "",  # likewise: rules of 0.6 for the text of kernels
    }
)
REMOVED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nl.dynamic_range": "use nl.fori_loop",
        "while register": "use nl.while_loop",
    }
)
DEPRECATED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nl.affine_range": "use range",
        "nl.sequential_range": "use range",
        "nl.static_range": "use range",
        "the launch grid": (
            "set NEURON_LOGICAL_NC_CONFIG, or nki.World(lnc=), and call the kernel without brackets"
        ),
        "depends_on without kind": "pass kind=nisa.dependency.runtime or .schedule",
    }
)


@dataclass(frozen=True)
class Release:
    """The release that kernels are checked against.

    Attributes:
        name: "0.6", "0.7" or "any".
    """

    name: str

    def has(self, construct: str) -> bool:
        """Whether the release has something that 0.7 added."""
        assert construct in ADDED, construct
        return self.name != "0.6"

    def strictly(self, construct: str) -> bool:
        """Whether kernels are checked against a release that has something; under "any", they
        aren't."""
        return self.has(construct) and self.name == "0.7"

    def check(self, construct: str) -> ReleaseWarning | None:
        """What is to be said of a construct that a kernel uses.

        Raises:
            CompileError: the release doesn't have it.
        """
        if construct in ADDED:
            if self.name == "0.6":
                raise CompileError(
                    f"{construct} came with NKI 0.7, and the kernel is checked against 0.6; "
                    f"{ADDED[construct]}, or check it against 0.7 (NKI_DIST_RELEASE=0.7)",
                    code="release-added",
                )
            return None
        if construct in REMOVED:
            return self._removed(construct)
        if self.name != "0.7":
            return None
        return ReleaseWarning(
            f"{construct} is deprecated in NKI 0.7; {DEPRECATED[construct]}",
            code="release-deprecated",
        )

    def _removed(self, construct: str) -> ReleaseWarning | None:
        advice = REMOVED[construct]
        if self.name == "0.6":
            return None
        if self.name == "0.7":
            raise CompileError(
                f"NKI 0.7 has removed {construct}, and the kernel is checked against 0.7; {advice}",
                code="release-removed",
            )
        return ReleaseWarning(
            f"NKI 0.7 has removed {construct}; {advice}. NKI_DIST_RELEASE=0.6 says that the kernel "
            "is one of 0.6",
            code="release-removed",
        )


RELEASES: Final[Mapping[str, Release]] = MappingProxyType(
    {name: Release(name) for name in ("any", "0.6", "0.7")}
)
ANY: Final = "any"


def release_name(value: object, what: str) -> str:
    """The name of a release that a user wrote, such as "0.7" or "0.7.0".

    Raises:
        LaunchError: there is no such release here.
    """
    text = str(value).strip()
    text = text.removesuffix(".0") if text.count(".") > 1 else text
    if text not in RELEASES:
        raise LaunchError(
            f"{what}={value!r}; allowed: {', '.join(RELEASES)}",
            code="release-unknown",
            numbers={"got": str(value)},
        )
    return text
