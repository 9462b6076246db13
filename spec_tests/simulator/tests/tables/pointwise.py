"""Pointwise operators."""

import operator

import torch
from torch.nn import functional

from .inputs import (
    Function,
    OperatorCase,
    booleans,
    complex_normal,
    integers,
    normal,
    positive,
    probabilities,
)

__all__ = ["POINTWISE"]

X = normal(3, 4)
#: Pairs of an input and the names of one-tensor operators that are called with it.
_UNARY = (
    (X, "abs neg sign ceil floor round trunc frac sin cos tan sinh cosh tanh asinh atan exp"),
    (X, "exp2 expm1 erf erfc sigmoid relu square signbit isnan isfinite nan_to_num deg2rad sgn"),
    (X, "rad2deg positive i0 sinc logical_not isinf isneginf sin_ tanh_ neg_ exp_"),
    (positive(3, 4), "log log2 log10 log1p sqrt rsqrt reciprocal digamma lgamma sqrt_ log_"),
    (probabilities(3, 4), "acos asin atanh logit erfinv special.ndtri special.entr"),
    (
        complex_normal(3, 4),
        "conj conj_physical real imag angle resolve_conj conj_physical_ view_as_real",
    ),
    (integers(20, 3, 4), "bitwise_not"),
)
_UNARY_FUNCTIONAL = "elu celu selu gelu silu mish hardtanh hardswish hardsigmoid softplus"
_UNARY_FUNCTIONAL += " softsign tanhshrink softshrink hardshrink leaky_relu relu6 logsigmoid"
_BINARY = "add sub mul atan2 maximum minimum fmax fmin copysign hypot logaddexp logaddexp2"
_BINARY += " eq ne lt le gt ge logical_and logical_or logical_xor isclose add_ mul_"
_BINARY_POSITIVE = "div pow fmod remainder true_divide xlogy special.xlog1py div_"
_BINARY_INTEGER = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift gcd lcm"


def _function_named(name: str) -> Function:
    if name.endswith("_"):
        return lambda x, *rest: getattr(x.clone(), name)(*rest)
    function: Function = operator.attrgetter(name)(torch)
    return function


def _make_cases() -> dict[str, OperatorCase]:
    cases: dict[str, OperatorCase] = {}
    for x, names in _UNARY:
        cases |= {name: (_function_named(name), (x,)) for name in names.split()}
    cases |= {name: (getattr(functional, name), (X,)) for name in _UNARY_FUNCTIONAL.split()}
    cases |= {name: (_function_named(name), (X, normal(4))) for name in _BINARY.split()}
    cases |= {
        name: (_function_named(name), (positive(3, 4), positive(3, 1)))
        for name in _BINARY_POSITIVE.split()
    }
    pair = (integers(9, 3, 4), integers(5, 4))
    cases |= {name: (_function_named(name), pair) for name in _BINARY_INTEGER.split()}
    return cases


POINTWISE: dict[str, OperatorCase] = _make_cases() | {
    "add of scalar": (lambda x: x + 2, (X,)),
    "rsub": (lambda x: 2 - x, (X,)),
    "pow of scalar": (lambda x: x**3, (X,)),
    "scalar to the power": (lambda x: 2**x, (X,)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (X,)),
    "clamp by tensors": (torch.clamp, (X, normal(4), positive(4))),
    "lerp": (torch.lerp, (X, X, probabilities(4))),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=2), (X, X, X)),
    "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=2), (X, X, positive(3, 4))),
    "where": (torch.where, (booleans(3, 4), X, normal(4))),
    "masked_fill": (lambda x, m: x.masked_fill(m, 2.0), (X, booleans(3, 4))),
    "prelu": (functional.prelu, (X, positive(4))),
    "glu": (functional.glu, (X,)),
    "threshold": (lambda x: functional.threshold(x, 0.1, 2.0), (X,)),
    "complex": (torch.complex, (X, X)),
    "polar": (torch.polar, (positive(3, 4), X)),
    "mul of complex": (torch.mul, (complex_normal(3, 4), complex_normal(4))),
    "div of complex": (torch.div, (complex_normal(3, 4), complex_normal(4))),
    "round to decimals": (lambda x: x.round(decimals=1), (X,)),
    "div rounded": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, positive(4))),
    "to float64": (lambda x: x.to(torch.float64), (X,)),
    "to int64": (lambda x: x.to(torch.int64), (X,)),
    "frexp": (lambda x: tuple(torch.frexp(x)), (X,)),
    "polygamma": (lambda x: torch.polygamma(1, x), (positive(3, 4),)),
    "heaviside": (lambda x, y: torch.heaviside(x.detach(), y.detach()), (X, normal(4))),
    "floor_divide": (lambda x, y: torch.floor_divide(x.detach(), y.detach()), (X, positive(4))),
    "float_power": (lambda x: torch.float_power(x, 2), (X,)),
}
