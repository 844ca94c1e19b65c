"""What Python can't do with a tensor while a kernel is traced: everything that needs its values.

Invariant: no such question is answered by accident. Without these methods `tile == 0` would be
False and `if tile == 0:` would silently drop code; here each raises an error that says what to
use instead. Identity stays usable: tensors hash by identity and can be compared with None.

Follows nki.language.NkiTensor of the NKI 0.6 documentation, which defines no operators.
"""

from __future__ import annotations

from typing import Any, NoReturn

from nki_dist.errors import NoSuchAttribute, invalid

_UNKNOWN = "its values are only known when the kernel runs"
_NL = "Use the function of that name in nki.language, or an instruction of nki.isa"


# What people who know arrays of NumPy or torch look for first.
_INSTEAD = {
    **dict.fromkeys(
        ("T", "mT", "transpose", "t", "swapaxes"),
        "use nisa.nc_transpose on tiles, .permute for views of HBM, nl.load_transpose2d to load",
    ),
    **dict.fromkeys(
        ("astype", "to", "type", "float", "half", "bfloat16"),
        "use nl.copy(tile, dtype=...); instructions also convert to the dtype of dst",
    ),
    **dict.fromkeys(
        ("sum", "mean", "max", "min", "prod", "var", "all"),
        "use nl.{0}(tile, axis=...) or nisa.tensor_reduce",
    ),
    **dict.fromkeys(("exp", "sqrt", "abs", "sin", "tanh", "sigmoid"), "use nl.{0}(tile)"),
    **dict.fromkeys(
        ("item", "tolist", "cpu"),
        "values are only known when the kernel runs: nki.debug(kernel) has them, as .numpy(), and "
        "nl.device_print prints them",
    ),
    **dict.fromkeys(("copy", "clone"), "use nl.copy(tile) or nisa.tensor_copy"),
    **dict.fromkeys(("unsqueeze",), "use .expand_dim"),
    **dict.fromkeys(("squeeze",), "use .squeeze_dim"),
    **dict.fromkeys(("broadcast_to", "expand", "repeat"), "use .broadcast(dim, size)"),
    **dict.fromkeys(("flatten", "ravel"), "use .flatten_dims or .reshape"),
}


class NoValue:
    """Refuses comparisons, arithmetic and conversions."""

    __slots__ = ()

    def _refuse(self, what: str, instead: str) -> NoReturn:
        label: str = self.storage.label
        raise invalid(f"{what} of {label} in Python: {_UNKNOWN}. {instead}", code="tensor-as-value")

    def _comparison(self, *_: Any) -> Any:
        self._refuse(
            "a comparison",
            "Compare with nisa.tensor_scalar or nisa.tensor_tensor (op=nl.less, ...) into a mask "
            "tile and select with nl.where or nisa.select_reduce; loops on data take a register "
            "(nl.while_loop)",
        )

    __lt__ = __le__ = __gt__ = __ge__ = _comparison

    def __eq__(self, other: Any) -> Any:
        if other is self or other is None or isinstance(other, (str, type)):
            return NotImplemented  # by identity
        return self._comparison()

    __ne__ = __eq__
    __hash__ = object.__hash__

    def _arithmetic(self, *_: Any) -> Any:
        self._refuse(
            "arithmetic",
            "NKI tensors have no operators: use nisa.tensor_tensor, nisa.tensor_scalar or "
            "nl.add(x, y), nl.multiply(x, y), ...",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _arithmetic
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _arithmetic
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __pos__ = __abs__ = _arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _arithmetic
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _arithmetic

    def _conversion(self, *_: Any, **__: Any) -> Any:
        self._refuse(
            "a conversion to a number or array",
            "Load the value into a register with nisa.register_load for loop bounds and addresses; "
            "print it with nl.device_print",
        )

    def __array_ufunc__(self, ufunc: Any, *_: Any, **__: Any) -> Any:
        self._refuse(f"numpy.{ufunc.__name__}", _NL)

    def __array_function__(self, function: Any, *_: Any) -> Any:
        self._refuse(f"numpy.{function.__name__}", _NL)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python, copy and NumPy ask for these and expect none
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        names = ", ".join(n for n in dir(type(self)) if not n.startswith("_"))
        advice = _INSTEAD.get(name, f"its attributes are {names}").format(name)
        raise NoSuchAttribute(f"tensors have no .{name}; {advice}")

    __int__ = __float__ = __complex__ = __index__ = __round__ = __array__ = _conversion
