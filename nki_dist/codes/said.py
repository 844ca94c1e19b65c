"""Kinds of mistakes whose messages say by themselves what repairs them.

Each names what is allowed, or ends with what to write instead; what is known of the code would be
said twice. A place that raises another code and says it all the same passes `hint=""`.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = """
    accumulate-onto-other architecture-value argument-choice argument-combination argument-kind
    argument-no-tensor argument-range array-as-operand beta1-blocks beta1-return branch-on-index
    branch-on-register branch-on-tensor call-limit call-signature call-value check-case check-option
    check-policy cluster-place cluster-start cluster-unused cluster-waits command-option compile
    compile-config compiler-may-reject core-not-reserved core-silent debug-view dtype-wide
    engine-lacks error exchange-unread foreign-tensor framework-dtype framework-transformation
    gpsimd-psum grid-and-world grid-data grid-made index-kind input-read-only input-shared
    instruction-result invalid jit-option kernel-pickle language-limit launch lnc-needed
    loaded-kernel loop-body loop-carries-name loop-made-inside loop-register mask-shape
    memory-unknown no-derivative no-such-attribute nodes-differ not-measured not-simulated
    object-store-full operand-kind operand-missing operand-vector operator-no-reduction
    operator-unknown outside-kernel overwritten package-conflict package-missing partition-limit
    partition-step pattern per-rank platform-unknown profile-dynamic-loop profile-graph
    profile-schedule program-version python-builtin python-identity python-keyword-only
    python-targets rank-form ranks-differ ray-forked ray-join ray-lost ray-start record-question
    register-as-value register-kind release-added release-deprecated release-removed release-unknown
    replica-group-form replica-group-overlap result-unknown return-memory return-value
    ring-transport scalar-comparison scalar-dtypes scalar-operand scalar-operator scalar-width
    scalar-written schedule setting-value shape-broadcast shape-form shuffle-mask slice-step
    source-needed spec-contents tensor-as-value tile-position timeout topology values-unknown
    warning world-closed world-option
    """
SAID: Final = frozenset(_NAMES.split())
