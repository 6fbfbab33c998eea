"""The tables of what NumPy may do in a graph, on contents that are not known, and of what may be unknown.

A function may be here if the type and shape of what it gives depend on no contents of the operands that its row names,
and if it changes nothing else in the process. To teach one more, add its name to a row.

A row lists parameters in their order. One that is named may be an array or a number of the graph, `.` stands for one
that must be known, `>a` is written to, `-a` may not be given, and `*` stands for all that follow. Keywords that are not
named must be known; `out` is always written to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Operands(NamedTuple):
    """The parameters of a function that may be unknown, or are written to."""

    named: tuple[str, ...]

    def rules(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Pair each argument with the row's entry for it."""
        rest = "*" if self.named[-1] == "*" else "."
        rules = [(self.named[at] if at < len(self.named) else rest, each) for at, each in enumerate(args)]
        by_name = {each.lstrip(">-"): each for each in self.named}
        return rules + [(">out" if name == "out" else by_name.get(name, "."), each) for name, each in kwargs.items()]


def of_rows(rows: Mapping[str, str]) -> dict[str, Operands]:
    """Return the operands by the name of each function."""
    return {name: Operands(tuple(row.split())) for row, names in rows.items() for name in names.split()}


def of_ufunc(fn: Any) -> Operands:
    """Return the operands of a function that NumPy applies to each element."""
    return Operands(("a",) * fn.nin + (">out",) * fn.nout + ("where",))


FUNCTIONS = of_rows(
    {
        "a": "hstack vstack dstack column_stack split array_split reshape ravel transpose swapaxes moveaxis squeeze "
        "expand_dims flip fliplr flipud rot90 tile sort argsort diagonal diag tril triu zeros_like ones_like array "
        "asarray asanyarray ascontiguousarray copy broadcast_to real imag angle repeat sinc unwrap cumulative_sum "
        "linalg.norm linalg.inv linalg.det linalg.svd linalg.eigh linalg.eigvalsh linalg.cholesky linalg.qr "
        "linalg.slogdet linalg.matrix_power fft.fftshift fft.ifftshift",
        "*": "meshgrid atleast_1d atleast_2d atleast_3d",
        "a *": "gradient",
        ". *": "einsum",
        "a b": "inner vdot kron cross tensordot polyval corrcoef digitize isin append convolve correlate full_like "
        "take_along_axis linalg.solve",
        "a shift": "roll",
        "a b >out": "dot outer",
        "a >out": "fix",
        "a . >out": "concatenate stack round around argmin argmax ptp",
        "a . >out -overwrite_input": "median nanmedian",
        "a q . >out -overwrite_input . . weights": "percentile quantile nanpercentile nanquantile",
        "a . >out . where": "any all",
        "a . >out . initial where": "min max amin amax nanmin nanmax",
        "a . . >out": "cumsum cumprod",
        "a . . >out . where": "mean nanmean",
        "a . . >out . initial where": "sum prod nansum nanprod",
        "a . . >out . . where mean correction": "std var nanstd nanvar",
        "a . . . >out": "fft.fft fft.ifft fft.rfft fft.irfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn "
        "fft.ifftn fft.rfftn fft.irfftn",
        "a . . . . >out": "trace",
        "a . weights": "average",
        "a a_min a_max >out min max": "clip",
        "a indices . >out": "take",
        "a v . sorter": "searchsorted",
        "a . . prepend append": "diff",
        "a . . constant_values": "pad",
        "a b rtol atol": "isclose",
        "a rcond . rtol": "linalg.pinv",
        "m y . . . fweights aweights": "cov",
        "x -copy nan posinf neginf": "nan_to_num",
        "x xp fp left right period": "interp",
        "y x dx": "trapezoid",
        "condition x y": "where",
        ">a b . where": "copyto",
        ">a b c": "put place putmask put_along_axis",
        ">a b": "fill_diagonal",
    }
)
ARITHMETIC = frozenset(
    [f"__{side}{name}__" for name in "add sub mul truediv floordiv mod pow and or xor".split() for side in ("", "r")]
    + [f"__{side}{name}__" for name in "matmul lshift rshift divmod".split() for side in ("", "r")]
    + [f"__{name}__" for name in "neg pos abs invert lt le gt ge eq ne".split()]
)
IN_PLACE = frozenset(f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())
METHODS = of_rows(
    {
        "a": "reshape ravel flatten transpose swapaxes squeeze astype copy argsort diagonal view repeat __len__",
        "a b": " ".join(["__getitem__", *ARITHMETIC]),
        "a >out": "conj conjugate",
        "a b >out": "dot",
        "a . >out": "round argmin argmax ptp",
        "a . >out . where": "any all",
        "a . >out . initial where": "min max",
        "a . . >out": "cumsum cumprod",
        "a . . >out . where": "mean",
        "a . . >out . initial where": "sum prod",
        "a . . >out . . where mean correction": "std var",
        "a . . . . >out": "trace",
        "a min max >out": "clip",
        "a indices . >out": "take",
        "a v . sorter": "searchsorted",
        ">a": "sort partition",
        ">a b": " ".join(["fill", *IN_PLACE]),
        ">a b c": "__setitem__ put",
    }
)
READ = frozenset({"shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides"})  # attributes of all of a layout
PARTS = frozenset({"T", "real", "imag"})  # attributes that are arrays
# Methods that draw, by the parameters that may be numbers of the graph: no sizes and shapes. Others take none.
DRAWN_OF = of_rows(
    {
        "a": "choice pareto power weibull zipf",
        "a b": "beta",
        "df": "chisquare standard_t",
        "df nonc": "noncentral_chisquare",
        "dfnum dfden": "f",
        "dfnum dfden nonc": "noncentral_f",
        "lam": "poisson",
        "left mode right": "triangular",
        "loc scale": "normal gumbel laplace logistic",
        "low high": "randint integers uniform",
        "mean scale": "wald",
        "mean sigma": "lognormal",
        "mu kappa": "vonmises",
        "n": "multinomial",
        "n p": "binomial negative_binomial",
        "ngood nbad nsample": "hypergeometric",
        "p": "geometric logseries",
        "scale": "exponential rayleigh",
        "shape": "standard_gamma",
        "shape scale": "gamma",
    }
)
NOTHING = Operands((".",))
# Operators of torch's, by name, whose result has no shape that a number among the arguments decides.
OF_NUMBERS = frozenset(
    "fill masked_fill clamp clip clamp_min clamp_max lerp where tensor as_tensor asarray scalar_tensor full_like "
    "getitem setitem".split()
    + [
        each
        for name in "add sub subtract mul multiply div divide truediv true_divide floordiv floor_divide mod remainder "
        "fmod pow eq ne lt le gt ge xor and or lshift rshift".split()
        for each in (name, f"i{name}", f"r{name}")
    ]
)
