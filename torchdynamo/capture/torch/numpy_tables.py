"""The tables of what NumPy may do in a graph, on arrays whose contents are not known: to teach one more, add its name.

A name may be here if the type and shape of what it gives do not depend on contents, and nothing else in the process.
"""

from __future__ import annotations

FUNCTIONS = frozenset(
    "concatenate stack vstack hstack dstack column_stack split array_split reshape ravel transpose swapaxes moveaxis "
    "squeeze expand_dims flip fliplr flipud rot90 roll tile pad sum mean std var median average prod min max amin amax "
    "ptp argmin argmax cumsum cumprod nansum nanmean nanmin nanmax nanstd any all sort argsort clip round around dot "
    "matmul inner outer vdot tensordot einsum kron cross trace diagonal diag tril triu diff gradient interp "
    "percentile quantile where zeros_like ones_like full_like array asarray asanyarray ascontiguousarray copy "
    "broadcast_to atleast_1d atleast_2d atleast_3d nan_to_num isclose real imag angle cov corrcoef meshgrid "
    "take_along_axis repeat searchsorted digitize isin take nanprod nanvar nanmedian nanpercentile nanquantile "
    "convolve correlate append cumulative_sum fix sinc unwrap trapezoid polyval "
    "linalg.norm linalg.inv linalg.det linalg.solve linalg.svd linalg.eigh linalg.eigvalsh linalg.cholesky linalg.qr "
    "linalg.pinv linalg.slogdet linalg.matrix_power fft.fft fft.ifft fft.rfft fft.irfft fft.fft2 fft.ifft2 fft.rfft2 "
    "fft.irfft2 fft.fftn fft.ifftn fft.rfftn fft.irfftn fft.fftshift fft.ifftshift".split()
)
ARITHMETIC = frozenset(
    [f"__{side}{name}__" for name in "add sub mul truediv floordiv mod pow and or xor".split() for side in ("", "r")]
    + [f"__{side}{name}__" for name in "matmul lshift rshift divmod".split() for side in ("", "r")]
    + [f"__{name}__" for name in "neg pos abs invert lt le gt ge eq ne".split()]
)
METHODS = ARITHMETIC | frozenset(
    "sum mean std var min max argmin argmax cumsum cumprod prod any all reshape ravel flatten transpose swapaxes "
    "squeeze astype copy clip round dot trace diagonal argsort ptp conj conjugate view repeat take searchsorted "
    "__getitem__ __len__".split()
)
IN_PLACE = frozenset(f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())
WRITERS = IN_PLACE | frozenset(["__setitem__", "fill", "sort", "partition", "put"])  # methods that write to the array
INTO_FIRST = frozenset("copyto put place putmask fill_diagonal put_along_axis".split())  # functions that do
# What takes numbers of the graph as data; elsewhere a whole number may say which axis, or how many.
BY_ELEMENT = (
    ARITHMETIC
    | WRITERS
    | INTO_FIRST
    | frozenset(
        "where clip isclose interp searchsorted digitize append nan_to_num dot inner outer isin take array asarray "
        "asanyarray stack concatenate percentile quantile __getitem__".split()
    )
)
READ = frozenset({"shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides"})  # attributes of all of a layout
PARTS = frozenset({"T", "real", "imag"})  # attributes that are arrays
# Where numbers of the graph are not among the arguments beside the first, even as arrays.
SHAPED = frozenset(
    "reshape tile pad roll broadcast_to full_like swapaxes moveaxis view repeat split array_split".split()
)
