"""What people hold a matrix in: the numbers out of it, and new numbers back into the same kind.

Data frames, labelled arrays, tensors and tables are recognised by the names of their types; no library is imported
for one that is not there.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["as_numpy", "check_numbers", "matrix_of", "names", "numbers_of", "recognised", "rewrap", "unwrap"]

Array = NDArray[Any]
Labels = tuple[Array | None, Array | None]

HOST = {1, 3, 11, 13}  # DLPack's devices whose memory the processor reads: its own, pinned, managed
FLOAT = np.dtype(np.float64)
ADVICE = {
    "O": "convert it to numbers first, e.g. with astype(float)",
    "c": "only real data can be solved; pass the real and the imaginary part on their own",
}
REFUSED = {
    ("pandas", "Series"): "it is one column: X.to_frame()",
    ("polars", "Series"): "it is one column: X.to_frame()",
    ("polars", "LazyFrame"): "nothing is computed yet: X.collect()",
    ("xarray", "Dataset"): "it holds several arrays: choose one, X['name'], or stack them, X.to_dataarray()",
    ("pyarrow", "RecordBatch"): "make a table of it: pyarrow.Table.from_batches([X])",
    ("cupyx", "spmatrix"): "copy it to SciPy: X.get()",
    (
        "lowsparse",
        "StoredMatrix",
    ): "it is on disk, and this needs memory: take some columns, X.take_columns([0, 1, ...])",
    ("lowsparse", "ClusterMatrix"): "it is on a cluster, and this needs memory: take some columns",
}


def unwrap(X: Any) -> Any:
    """The numbers of a 2-D container, NaN (or masked) where they are missing.

    Parameters
    ----------
    X
        A NumPy array, masked array or memory map; nested lists; a pandas or polars `DataFrame`, a `pyarrow.Table`, an
        xarray `DataArray`; a torch tensor or CuPy array (copied to the host); a SciPy sparse array or matrix; an
        `ObservedMatrix`; or whatever has ``__array__`` or ``__dlpack__``.

    Returns
    -------
    numpy.ndarray, numpy.ma.MaskedArray, scipy sparse or ObservedMatrix
        Arrays, masked arrays, memory maps, sparse and observed matrices are handed back as they are. float32 stays
        float32, float16 becomes float32, whole numbers stay whole where none is missing. Columns of different types
        share the type that holds them all.

    A column that does not hold numbers (text, categories, dates) is a TypeError with its name in it.

    Examples
    --------
    >>> unwrap([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    >>> unwrap(np.ones((2, 2), np.float16)).dtype.name
    'float32'
    """
    data = matrix_of(X)
    return data.astype(np.float32) if data.dtype == np.float16 else data


def rewrap(values: Any, like: Any, columns: Sequence[Any] | Array | None = None) -> Any:
    """`values` in the kind of container that `like` is, with its row labels.

    Parameters
    ----------
    values : 2-D array
        With as many rows as `like`. NaN (or masked) is missing.
    like
        What was given to `unwrap`. Lists, sparse and observed matrices give a NumPy array.
    columns : sequence, optional
        New names of the columns. By default those of `like` are kept, and their types where the new values fit them:
        whole numbers within the range of a column of whole numbers, 0 and 1 in one of truth values, any number in one
        of floating-point numbers. What does not fit is float64. Missing values fit only types that know them.

    Examples
    --------
    >>> rewrap(np.array([[1.0, 2.0]]), np.array([[7, 7]])).tolist()
    [[1, 2]]
    >>> rewrap(np.array([[1.5, 2.0]]), np.array([[7, 7]])).tolist()
    [[1.5, 2.0]]
    """
    values = values if isinstance(values, np.ma.MaskedArray) else as_numpy(values)
    shape = tuple(like.shape) if hasattr(like, "shape") else np.shape(like)
    width = shape[-1] if columns is None else len(columns)
    if values.shape != (shape[0], width):
        raise ValueError(f"values are {values.shape}, but {shape[0]} rows and {width} columns are needed")
    if isinstance(like, np.ma.MaskedArray):
        return _masked_like(values, None if columns is not None else like)
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(_with_missing(values.dtype)), np.nan)
    kind = _kind(like)
    if kind is not None:
        return kind.write(values, like, columns)
    return _fitted(values, like.dtype) if isinstance(like, np.ndarray) and columns is None else values


def recognised(X: Any) -> bool:
    """Whether X is one of the containers known by name, and not merely something NumPy can read.

    Examples
    --------
    >>> recognised([[1, 2]]), recognised(np.ma.ones((2, 2)))
    (False, True)
    """
    return isinstance(X, np.ma.MaskedArray) or any(key in _KINDS or key in REFUSED for key in _lineage(X))


def names(X: Any) -> Labels:
    """The labels of the rows and of the columns, each None where there are none.

    Examples
    --------
    >>> names([[1, 2], [3, 4]])
    (None, None)
    """
    kind = _kind(X)
    return (None, None) if kind is None else kind.labels(X)


def as_numpy(X: Any) -> Any:
    """The data of X as NumPy holds it, of any shape and type, without a copy where there need be none.

    Examples
    --------
    >>> as_numpy([1, 2]).shape
    (2,)
    """
    kind = _kind(X)
    if kind is not None:
        return kind.read(X)
    for key in _lineage(X):
        if key in REFUSED:
            raise TypeError(f"this {type(X).__name__} cannot be used as it is; {REFUSED[key]}")
    if isinstance(X, np.ma.MaskedArray | np.memmap):
        return X
    if hasattr(X, "__dlpack__") and not (isinstance(X, np.ndarray) or (hasattr(X, "__array__") and _on_host(X))):
        return _from_dlpack(X)
    try:
        data = np.asanyarray(X)
    except ValueError as error:
        if isinstance(X, list | tuple):  # NumPy's words are about inhomogeneous shapes
            raise ValueError(f"the rows of this {type(X).__name__} do not all have the same length") from error
        raise
    return data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)


def matrix_of(X: Any) -> Any:
    """What `unwrap` gives, but float16 as it is: a memory map of it stays one.

    Examples
    --------
    >>> matrix_of(np.ones((2, 2), np.float16)).dtype.name
    'float16'
    """
    if ("lowsparse", "ObservedMatrix") in _lineage(X):
        return X
    # A tuple is more likely (rows, cols, values) than a matrix, and must not be taken for a 3 x K one.
    data: Any = None if isinstance(X, tuple) else X if sp.issparse(X) else as_numpy(X)
    if data is None or data.ndim != 2:
        raise _not_a_matrix(X)
    check_numbers(data.dtype)
    return data


def numbers_of(column: Any) -> Array:
    """The numbers of a `pyarrow.ChunkedArray`, NaN where it is null; a TypeError if it holds none.

    Examples
    --------
    >>> import pyarrow
    >>> numbers_of(pyarrow.chunked_array([[1, None]])).tolist()
    [1.0, nan]
    """
    plan = _arrow_plan(column)
    if isinstance(plan, str):
        raise TypeError(f"a column of {plan} holds no numbers")
    return np.asarray(plan[1]())


def check_numbers(dtype: np.dtype[Any]) -> None:
    """A TypeError with advice unless `dtype` holds real numbers (or truth values).

    Examples
    --------
    >>> check_numbers(np.dtype(complex))
    Traceback (most recent call last):
    TypeError: a matrix of dtype complex128 cannot be used: only real data can be solved; pass the real and ...
    """
    if dtype.kind not in "fiub":
        advice = ADVICE.get(dtype.kind, "convert it to real numbers first")
        raise TypeError(f"a matrix of dtype {dtype} cannot be used: {advice}")


# ---------------------------------------------------------------------- kinds


@dataclass(frozen=True)
class _Kind:
    """How to read a container, build one like it, and find its labels."""

    read: Callable[[Any], Array]
    write: Callable[[Array, Any, Any], Any]
    labels: Callable[[Any], Labels] = lambda X: (None, None)


def _lineage(X: object) -> list[tuple[str, str]]:
    """The library and the name of each class that X belongs to, its own first."""
    return [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(X).__mro__]


def _kind(X: object) -> _Kind | None:
    return next((_KINDS[key] for key in _lineage(X) if key in _KINDS), None)


def _not_a_matrix(X: object) -> TypeError:
    return TypeError(
        f"this {type(X).__name__} is not a matrix; accepted are an ObservedMatrix, a scipy.sparse array or "
        "matrix, and 2-D arrays, masked arrays, tensors, data frames, tables and nested lists (NaN is missing); "
        "for triples use ObservedMatrix.from_coo"
    )


# ---------------------------------------------------------------------- numbers that fit


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` holds every one of the values; a floating-point one may round them."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return not (np.isinf(values.astype(dtype)) & np.isfinite(values)).any()
    if dtype.kind == "b":
        return bool(((values == 0) | (values == 1)).all())
    if dtype.kind not in "iu":
        return False
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if values.dtype.kind == "f":  # high + 1 is a power of 2, so that no bound is rounded
        return bool(((values == np.trunc(values)) & (values >= float(low)) & (values < float(high) + 1)).all())
    return not values.size or low <= int(values.min()) <= int(values.max()) <= high


def _fitted(values: Array, dtype: np.dtype[Any]) -> Array:
    """The values as `dtype` if they fit it, else as float64, or as the whole numbers they are."""
    if dtype.kind in "fiub" and _fits(values, dtype):
        return values.astype(dtype, copy=False)
    return values.astype(FLOAT, copy=False) if values.dtype.kind == "f" else values


def _missing(values: Array) -> NDArray[np.bool_]:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


def _known(values: Array, dtype: np.dtype[Any]) -> tuple[Array, NDArray[np.bool_]]:
    """The values as `dtype` if those that are not missing fit it, else as float64; and which ones are missing."""
    missing = _missing(values)
    return _fitted(np.where(missing, values.dtype.type(1), values), dtype), missing


def _masked_like(values: Any, like: Any) -> Any:
    """A masked array; `like` is None where its type and fill value are not wanted."""
    mask = np.ma.getmaskarray(values) | _missing(np.ma.getdata(values))
    data = np.ma.getdata(values)
    if like is None or data.dtype == like.dtype:
        result = np.ma.MaskedArray(data, mask)
    else:
        data = np.where(mask, data.dtype.type(1), data)
        result = np.ma.MaskedArray(_fitted(data, like.dtype), mask)
    if like is not None and result.dtype == like.dtype:
        result.fill_value = like.fill_value
    return result


# ---------------------------------------------------------------------- columns

# A column's type and how to read it as that; or, of one that is refused, what it holds instead of numbers.
_Plan = tuple[np.dtype[Any], Callable[[], Array]] | str


def _assemble(height: int, labels: Iterable[Any], plans: Iterable[_Plan]) -> Array:
    """The columns side by side, each read straight into its place."""
    good, bad = [], []
    for label, plan in zip(labels, plans, strict=True):
        if isinstance(plan, str):
            bad.append((label, plan))
        else:
            good.append(plan)
    if bad:
        listed = ", ".join(f"{label!r} ({what})" for label, what in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise TypeError(
            f"{len(bad)} of the columns do not hold numbers: {listed}{more}; leave them out (drop), or turn them into "
            "numbers first (codes or indicators of categories, differences of dates, text that is parsed)"
        )
    data = np.empty((height, len(good)), np.result_type(*(dtype for dtype, _ in good)) if good else FLOAT, order="F")
    for k, (_, read) in enumerate(good):
        data[:, k] = read()
    return data


def _with_missing(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "f" else FLOAT


def _object_plan(values: Array) -> _Plan:
    """Python's own numbers, and None."""
    kinds = set(map(type, values))
    absent = {kind for kind in kinds if kind.__name__ in ("NoneType", "NAType", "NaTType")}
    wrong = {kind for kind in kinds - absent if not issubclass(kind, Real | Decimal | np.bool_)}
    if wrong:
        k = next(k for k, value in enumerate(values) if type(value) in wrong)
        return f"{reprlib.repr(values[k])} in row {k}"
    if not absent and all(issubclass(kind, Integral) for kind in kinds):
        try:
            whole = values.astype(np.int64)
        except OverflowError:
            pass
        else:
            return whole.dtype, lambda: whole
    known = np.fromiter((type(value) not in absent for value in values), bool, values.size)

    def read() -> Array:
        data = np.full(values.size, np.nan)
        data[known] = values[known].astype(FLOAT)
        return data

    return FLOAT, read


# ---------------------------------------------------------------------- pandas


def _read_pandas(X: Any) -> Array:
    kinds = {dtype.kind if isinstance(dtype, np.dtype) else "" for dtype in X.dtypes}
    if kinds and (kinds <= set("fiu") or kinds == {"b"}):
        return np.asarray(X.to_numpy())
    return _assemble(len(X), X.columns, (_pandas_plan(X.iloc[:, k]) for k in range(X.shape[1])))


def _pandas_plan(column: Any) -> _Plan:
    dtype, kind = column.dtype, type(column.dtype).__name__
    if isinstance(dtype, np.dtype):
        if dtype.kind == "O":
            return _object_plan(column.to_numpy())
        return (dtype, column.to_numpy) if dtype.kind in "fiub" else str(dtype)
    if kind == "ArrowDtype":
        return _arrow_plan(column.array.__arrow_array__())
    if kind == "SparseDtype" and dtype.subtype.kind in "fiub":
        return dtype.subtype, lambda: np.asarray(column.array)
    plain = getattr(dtype, "numpy_dtype", None)
    if plain is None or plain.kind not in "fiub":
        return str(dtype)
    if not column.isna().any():
        return plain, lambda: column.to_numpy(plain)
    return _with_missing(plain), lambda: column.to_numpy(_with_missing(plain), na_value=np.nan)


def _write_pandas(values: Array, like: Any, columns: Any) -> Any:
    pandas = import_module("pandas")
    dtypes = list(like.dtypes)
    if columns is not None:
        frame = pandas.DataFrame(values, index=like.index, columns=columns)
    elif dtypes and len(set(dtypes)) == 1 and dtypes[0] in (FLOAT, np.float32):
        frame = pandas.DataFrame(_fitted(values, dtypes[0]), index=like.index, columns=like.columns)
    else:
        made = {k: _pandas_like(values[:, k], dtype) for k, dtype in enumerate(dtypes)}
        frame = pandas.DataFrame(made, index=like.index)
        frame.columns = like.columns
    frame.attrs = dict(like.attrs)
    return frame


def _pandas_like(values: Array, dtype: Any) -> Any:
    arrays, kind = import_module("pandas").arrays, type(dtype).__name__
    if isinstance(dtype, np.dtype):
        return _fitted(values, dtype)
    if kind == "ArrowDtype":
        return arrays.ArrowExtensionArray(_arrow_like(values, dtype.pyarrow_dtype))
    if kind == "SparseDtype":
        data = _fitted(values, dtype.subtype)
        return arrays.SparseArray(data, fill_value=dtype.fill_value) if data.dtype == dtype.subtype else data
    data, missing = _known(values, dtype.numpy_dtype)
    nullable = {"b": arrays.BooleanArray, "f": arrays.FloatingArray}.get(data.dtype.kind, arrays.IntegerArray)
    return nullable(data, missing)


# ---------------------------------------------------------------------- Arrow


def _read_arrow(X: Any) -> Array:
    return _assemble(X.num_rows, X.column_names, map(_arrow_plan, X.columns))


def _arrow_plan(column: Any) -> _Plan:
    """How to read a `pyarrow.ChunkedArray`."""
    arrow = import_module("pyarrow")
    kind = column.type
    if arrow.types.is_null(kind):
        return FLOAT, lambda: np.full(len(column), np.nan)
    if arrow.types.is_decimal(kind):
        return FLOAT, lambda: column.cast(arrow.float64()).to_numpy()
    if arrow.types.is_boolean(kind):
        plain: np.dtype[Any] = np.dtype(bool)
        column = column.cast(arrow.uint8()) if column.null_count else column
    elif arrow.types.is_integer(kind) or arrow.types.is_floating(kind):
        plain = np.dtype(kind.to_pandas_dtype())
    else:
        return str(kind)
    return (_with_missing(plain) if column.null_count else plain), column.to_numpy


def _write_arrow(values: Array, like: Any, columns: Any) -> Any:
    arrow = import_module("pyarrow")
    if columns is not None:
        return arrow.table([arrow.array(column) for column in values.T], names=[str(name) for name in columns])
    made = [_arrow_like(column, old.type, old.null_count) for column, old in zip(values.T, like.columns, strict=True)]
    fields = [field.with_type(column.type) for field, column in zip(like.schema, made, strict=True)]
    return arrow.Table.from_arrays(made, schema=arrow.schema(fields, metadata=like.schema.metadata))


def _arrow_like(values: Array, kind: Any, nulls: bool = True) -> Any:
    """An array of the type `kind` if that holds the values; NaN is null, or stays NaN where it can without `nulls`."""
    arrow = import_module("pyarrow")
    missing = _missing(values)
    if arrow.types.is_null(kind) and missing.all():
        return arrow.nulls(values.size)
    if arrow.types.is_decimal(kind):
        made = arrow.array(values, mask=missing)
        try:
            exact = made.cast(kind)
        except arrow.ArrowInvalid:  # too many digits
            return made
        return exact if exact.cast(made.type).equals(made) else made
    data, missing = _known(values, FLOAT if arrow.types.is_null(kind) else np.dtype(kind.to_pandas_dtype()))
    if data.dtype.kind == "f" and not nulls:
        data, missing = _fitted(values, data.dtype), np.zeros(values.size, bool)
    return arrow.array(data, mask=missing)


# ---------------------------------------------------------------------- polars


def _read_polars(X: Any) -> Array:
    return _assemble(X.height, X.columns, map(_polars_plan, X.get_columns()))


def _polars_plan(column: Any) -> _Plan:
    polars = import_module("polars")
    kind = column.dtype
    if not kind.is_numeric() and kind not in (polars.Boolean, polars.Null):
        return str(kind)
    plain = column.head(0).to_numpy().dtype
    if plain.kind == "f" or (plain.kind in "iub" and not column.null_count()):
        return plain, column.to_numpy
    return FLOAT, lambda: column.cast(polars.Float64).to_numpy()


def _write_polars(values: Array, like: Any, columns: Any) -> Any:
    polars = import_module("polars")
    if columns is not None:
        return polars.DataFrame({str(name): column for name, column in zip(columns, values.T, strict=True)})
    return polars.DataFrame([_polars_like(values[:, k], old) for k, old in enumerate(like.get_columns())])


def _polars_like(values: Array, old: Any) -> Any:
    polars = import_module("polars")
    plain = old.head(0).to_numpy().dtype
    made = polars.Series(old.name, values, nan_to_null=plain.kind != "f" or old.null_count() > 0)
    if old.dtype == polars.Null:
        return made.cast(polars.Null) if made.null_count() == made.len() else made
    if plain.kind in "fiub":
        fits = _fits(values[~_missing(values)], plain)
        return made.cast(old.dtype if fits else polars.Float64)
    # A decimal number, or an integer wider than NumPy's: there and back without a loss, or not at all.
    exact = made.cast(old.dtype, strict=False)
    return exact if exact.cast(made.dtype).equals(made) else made


# ---------------------------------------------------------------------- xarray


def _read_xarray(X: Any) -> Array:
    return np.asarray(X.values)


def _write_xarray(values: Array, like: Any, columns: Any) -> Any:
    if columns is None:
        return like.copy(data=_fitted(values, like.dtype))
    across = like.dims[1]
    lines = like.isel({across: 0}, drop=True)  # what belongs to the rows alone
    return lines.expand_dims({across: list(columns)}, axis=1).copy(data=values)


def _xarray_labels(X: Any) -> Labels:
    if X.ndim != 2:
        raise _not_a_matrix(X)
    rows, columns = (X.coords[dim].values if dim in X.coords else None for dim in X.dims)
    return rows, columns


# ---------------------------------------------------------------------- tensors


def _on_host(X: Any) -> bool:
    return not hasattr(X, "__dlpack_device__") or int(X.__dlpack_device__()[0]) in HOST


def _from_dlpack(X: Any) -> Array:
    try:
        return np.from_dlpack(X) if _on_host(X) else np.from_dlpack(X, device="cpu", copy=True)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"this {type(X).__name__} cannot be read through DLPack ({error}): copy it to host memory as a NumPy array"
        ) from error


def _read_torch(X: Any) -> Array:
    if str(X.layout) != "torch.strided":
        raise TypeError("this sparse tensor cannot be used as it is: make a scipy.sparse.coo_array of its entries")
    X = X.detach().cpu()
    return np.asarray((X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy())


def _write_torch(values: Array, like: Any, columns: Any) -> Any:
    torch = import_module("torch")
    made = torch.from_numpy(np.array(values))
    if columns is not None:
        return made.to(like.device)
    if like.is_floating_point():
        fits = not values.size or not np.nanmax(np.abs(values), initial=0) > torch.finfo(like.dtype).max
    else:
        fits = _fits(values, torch.empty(0, dtype=like.dtype).numpy().dtype)
    return made.to(like.device, like.dtype if fits else torch.float64)


def _write_cupy(values: Array, like: Any, columns: Any) -> Any:
    with like.device:
        return import_module("cupy").asarray(values if columns is not None else _fitted(values, like.dtype))


_KINDS = {
    ("pandas", "DataFrame"): _Kind(_read_pandas, _write_pandas, lambda X: (X.index.to_numpy(), X.columns.to_numpy())),
    ("polars", "DataFrame"): _Kind(_read_polars, _write_polars, lambda X: (None, np.array(X.columns, object))),
    ("pyarrow", "Table"): _Kind(_read_arrow, _write_arrow, lambda X: (None, np.array(X.column_names, object))),
    ("xarray", "DataArray"): _Kind(_read_xarray, _write_xarray, _xarray_labels),
    ("torch", "Tensor"): _Kind(_read_torch, _write_torch),
    ("cupy", "ndarray"): _Kind(lambda X: np.asarray(X.get()), _write_cupy),
}
