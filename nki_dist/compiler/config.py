"""nki.compiler's CompileConfig and SpecializationConfig: what a kernel asks of the compiler.

Most options say how AWS's backend lays out and schedules; they have no effect on results, and none
here. Two say what is an error, and are checked against:

- `barrier_check=True`: races between the cores are errors, whatever the world's policy is. AWS's
  page says no more than that the core barrier checker is on.
- `nki_alloc_fallback=False`: what doesn't fit into SBUF or PSUM is an error, also where the policy
  is `capacity=spill`.

Follows: nki.compiler.CompileConfig, .SpecializationConfig, .AddressRotation and nki.jit of SDK
2.33. Where a page gives no default, an option is None until it is set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from nki_dist.checks import Checks
from nki_dist.errors import CompileError, LaunchError, NestedConfigWarning
from nki_dist.isa.spec import current_tracer, released

BARRIER_CHECK: Final = "barrier_check"  # a fact of programs
_ATTRIBUTE: Final = "__nki_config__"


class AddressRotation(Enum):
    """Whether AWS's backend may move an allocation to another address; no effect here."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


def _check_flags(config: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not isinstance(value, bool):
            message = f"{type(config).__name__}({name}={value!r}); allowed: True or False"
            raise LaunchError(message, code="compile-config")


@dataclass(frozen=True)
class CompileConfig:
    """`@nki.jit(compile_config=...)`: options for what comes after specialization.

    Args:
        address_rotation: an AddressRotation; no effect here.
        non_ssa_legalization: a pass of AWS's backend; no effect here.
        dead_code_elim: AWS's backend may drop what isn't used; results are the same, no effect.
        barrier_check: races between the cores are errors.
        prefetch_auto: AWS's compiler places loads in a ring; no effect here.
        nki_alloc_fallback: False makes an error of what SBUF or PSUM is too small for.

    Raises:
        LaunchError: another value.
    """

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool | None = None
    dead_code_elim: bool | None = None
    barrier_check: bool | None = None
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.address_rotation, AddressRotation):
            raise LaunchError(
                f"CompileConfig(address_rotation={self.address_rotation!r}); allowed: "
                + ", ".join(f"AddressRotation.{a.name}" for a in AddressRotation),
                code="compile-config",
            )
        _check_flags(self, tuple(f.name for f in fields(self))[1:])

    def applied_to(self, checks: Checks) -> Checks:
        """What a kernel with this configuration is checked against."""
        if self.barrier_check:
            checks = replace(checks, races="error")
        return checks if self.nki_alloc_fallback else replace(checks, capacity="error")


@dataclass(frozen=True)
class SpecializationConfig:
    """`@nki.jit(specialization_config=...)`: options for tracing.

    Args:
        allow_nested_config_override: a kernel that is called in this one, and asks for another
            CompileConfig, is traced with this one's and a NestedConfigWarning; otherwise it is an
            error.

    Raises:
        LaunchError: another value.
    """

    allow_nested_config_override: bool | None = None

    def __post_init__(self) -> None:
        _check_flags(self, ("allow_nested_config_override",))


@dataclass(frozen=True)
class Config:
    """Both of a kernel; None for what it doesn't say."""

    compile: CompileConfig | None = None
    specialization: SpecializationConfig | None = None


def check_config(compile_config: Any, specialization_config: Any) -> Config:
    """Both of a kernel, as `nki.jit` was given them.

    Raises:
        LaunchError: one is of another class.
    """
    for value, kind in (
        (compile_config, CompileConfig),
        (specialization_config, SpecializationConfig),
    ):
        if value is not None and not isinstance(value, kind):
            raise LaunchError(
                f"nki.jit: {value!r} of type {type(value).__name__}; allowed: a "
                f"nki.compiler.{kind.__name__}",
                code="compile-config",
            )
    return Config(compile_config, specialization_config)


def with_config(function: Callable[..., Any], config: Config) -> Callable[..., Any]:
    """The function of a kernel with a configuration."""

    @functools.wraps(function)
    def configured(*args: Any, **kwargs: Any) -> Any:
        with current_tracer().configured(config):
            return function(*args, **kwargs)

    setattr(configured, _ATTRIBUTE, config)
    return configured


def config_of(function: Callable[..., Any]) -> Config | None:
    """The configuration of a kernel's function, if it has one."""
    found: Config | None = getattr(function, _ATTRIBUTE, None)
    return found


def checks_of(function: Callable[..., Any], checks: Checks) -> Checks:
    """What a kernel is checked against: its world's policy, and what its configuration asks for."""
    config = config_of(function)
    return checks if config is None or config.compile is None else config.compile.applied_to(checks)


class Configured:
    """The part of a trace that knows the configurations of the kernels being traced."""

    config: Config | None = None  # of the outermost kernel that has one
    warn: Callable[[Any], None]

    @contextmanager
    def configured(self, config: Config) -> Iterator[None]:
        """Trace a kernel with a configuration; inside another, it has to agree with that one's.

        Raises:
            CompileError: it doesn't; or the kernel is checked against NKI 0.6.
        """
        if config.compile is not None:
            released("nki.jit(compile_config=)")
        if config.specialization is not None:
            released("nki.jit(specialization_config=)")
        outer = self.config
        if outer is not None:
            self._agree(outer, config)
            yield
            return
        self.config = config
        try:
            yield
        finally:
            self.config = None

    def _agree(self, outer: Config, inner: Config) -> None:
        outside = outer.compile or CompileConfig()
        if inner.compile is None or inner.compile == outside:
            return
        differ = [
            f"{f.name}={getattr(inner.compile, f.name)} inside, {getattr(outside, f.name)} outside"
            for f in fields(outside)
            if getattr(inner.compile, f.name) != getattr(outside, f.name)
        ]
        message = f"a kernel inside another asks for another CompileConfig: {'; '.join(differ)}"
        special = outer.specialization
        if special is None or not special.allow_nested_config_override:
            raise CompileError(f"{message}; they are compiled as one", code="nested-config")
        self.warn(NestedConfigWarning(f"{message}. What is outside counts", code="nested-config"))
