"""Functions of the Scalar engine: `nl.exp(x)`, ..., also operators of nisa.activation.

A call on a tile gives a new tile in SBUF with the dtype of `x` unless `dtype` says otherwise. The
meaning and the accuracy of each are those of its row in `isa.activations`.

Follows: `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from nki_dist.language import emit
from nki_dist.language.tokens import token


@token("exp")
def exp(x, dtype=None):
    """e to the power of x."""
    return emit.activate("exp", x, dtype)


@token("log")
def log(x, dtype=None):
    """Natural logarithm of x."""
    return emit.activate("log", x, dtype)


@token("tanh")
def tanh(x, dtype=None):
    """Hyperbolic tangent of x."""
    return emit.activate("tanh", x, dtype)


@token("sigmoid")
def sigmoid(x, dtype=None):
    """1 / (1 + exp(-x))."""
    return emit.activate("sigmoid", x, dtype)


@token("relu")
def relu(x, dtype=None):
    """x where positive, else 0."""
    return emit.activate("relu", x, dtype)


@token("gelu")
def gelu(x, dtype=None):
    """x * Phi(x), Phi the distribution function of the normal distribution."""
    return emit.activate("gelu", x, dtype)


@token("gelu_apprx_sigmoid")
def gelu_apprx_sigmoid(x, dtype=None):
    """gelu approximated as x * sigmoid(1.702 x)."""
    return emit.activate("gelu_apprx_sigmoid", x, dtype)


@token("gelu_apprx_tanh")
def gelu_apprx_tanh(x, dtype=None):
    """gelu approximated with tanh."""
    return emit.activate("gelu_apprx_tanh", x, dtype)


@token("gelu_dx")
def gelu_dx(x, dtype=None):
    """Derivative of gelu."""
    return emit.activate("gelu_dx", x, dtype)


@token("gelu_apprx_sigmoid_dx")
def gelu_apprx_sigmoid_dx(x, dtype=None):
    """Derivative of gelu_apprx_sigmoid."""
    return emit.activate("gelu_apprx_sigmoid_dx", x, dtype)


@token("silu")
def silu(x, dtype=None):
    """x * sigmoid(x)."""
    return emit.activate("silu", x, dtype)


@token("silu_dx")
def silu_dx(x, dtype=None):
    """Derivative of silu."""
    return emit.activate("silu_dx", x, dtype)


@token("softplus")
def softplus(x, dtype=None):
    """log(1 + exp(x))."""
    return emit.activate("softplus", x, dtype)


@token("mish")
def mish(x, dtype=None):
    """x * tanh(softplus(x))."""
    return emit.activate("mish", x, dtype)


@token("erf")
def erf(x, dtype=None):
    """Error function of x."""
    return emit.activate("erf", x, dtype)


@token("erf_dx")
def erf_dx(x, dtype=None):
    """Derivative of erf."""
    return emit.activate("erf_dx", x, dtype)


@token("arctan")
def arctan(x, dtype=None):
    """Inverse tangent of x."""
    return emit.activate("arctan", x, dtype)
