"""Containers of a matrix: `unwrap` reads their numbers, `rewrap` puts numbers into a container of the same kind.

These are NumPy arrays, masked arrays and memory maps; nested lists; pandas and polars data frames, pyarrow tables,
xarray arrays; torch tensors and CuPy arrays; SciPy sparse arrays and matrices; `ObservedMatrix`; and whatever has
``__array__`` or ``__dlpack__``. They are recognised by the names of their types, so that no library is imported that is
not in use already.
"""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]
# A function that reads a container, and one that builds a container like it from (values, like, new columns).
_Kind = tuple[Callable[[Any], Array], Callable[[Array, Any, Any], Any]]

HOST = {1, 3, 11, 13}  # DLPack's devices whose memory the processor reads: its own, pinned, managed
FLOAT = np.dtype(np.float64)
ADVICE = {
    "O": "convert it to numbers first, e.g. with astype(float)",
    "c": "only real data can be solved; pass the real and the imaginary part separately",
}
REFUSED = {
    ("pandas", "Series"): "it is one column: X.to_frame()",
    ("polars", "Series"): "it is one column: X.to_frame()",
    ("polars", "LazyFrame"): "nothing is computed yet: X.collect()",
    ("xarray", "Dataset"): "it holds several arrays: choose one, X['name'], or stack them, X.to_dataarray()",
    ("pyarrow", "RecordBatch"): "make a table of it: pyarrow.Table.from_batches([X])",
    ("cupyx", "spmatrix"): "copy it to SciPy: X.get()",
    ("lowsparse", "StoredMatrix"): "it is on disk, and this needs memory: take some columns, X.take_columns([0, ...])",
    ("lowsparse", "ClusterMatrix"): "it is on a cluster, and this needs memory: take some columns",
}


def unwrap(X: Any) -> Any:
    """The numbers of a 2-D container as a NumPy array, NaN (or masked) where they are missing.

    Arrays, masked arrays, memory maps, sparse and observed matrices are returned as they are. float16 becomes float32;
    integers stay integers where none is missing. Columns of different types share the type that holds them all. A
    column that does not hold numbers is a TypeError that names it.
    """
    data = matrix_of(X)
    return data.astype(np.float32) if data.dtype == np.float16 else data


def rewrap(values: Any, like: Any, columns: Sequence[Any] | Array | None = None) -> Any:
    """A 2-D array in the kind of container that `like` is, with its row labels; NaN (or masked) is missing.

    Lists, sparse and observed matrices give a NumPy array. Without new names of the `columns`, those of `like` are
    kept, and their types where the new values fit them: integers within the range of an integer type, 0 and 1 in
    booleans, any number in a floating-point type. Values that do not fit become float64. Missing values fit only types
    that have them.

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
    kind = _kind_of(like)
    if kind is not None:
        return kind[1](values, like, columns)
    return _cast_if_fits(values, like.dtype) if isinstance(like, np.ndarray) and columns is None else values


def is_known(X: Any) -> bool:
    """Whether X is one of the containers known by name, not just something that NumPy can read."""
    return isinstance(X, np.ma.MaskedArray) or any(key in _KINDS or key in REFUSED for key in _type_names(X))


def boolean_columns(X: Any) -> NDArray[np.bool_]:
    """Which columns of a 2-D container hold True and False alone, and perhaps nothing.

    >>> boolean_columns(np.array([[True, False]])).tolist(), boolean_columns([[1.0, 0.0]]).tolist()
    ([True, True], [False, False])
    """
    types = list(X.schema.types) if hasattr(X, "schema") and hasattr(X, "num_rows") else getattr(X, "dtypes", None)
    if types is None:
        found = np.zeros(X.shape[1] if hasattr(X, "shape") else np.shape(X)[1], bool)
        return found | (getattr(getattr(X, "dtype", None), "kind", "") == "b")
    boolean = np.array([str(dtype).lower() in ("bool", "boolean", "bool[pyarrow]") for dtype in types], dtype=bool)
    for k in np.flatnonzero([str(dtype) == "object" for dtype in types]):  # of pandas, where something is missing
        kinds = set(map(type, X.iloc[:, k].dropna()))
        boolean[k] = bool(kinds) and kinds <= {bool, np.bool_}
    return boolean


def as_numpy(X: Any) -> Any:
    """The data of X as NumPy holds it, of any shape and type, without a copy where none is needed."""
    kind = _kind_of(X)
    if kind is not None:
        return kind[0](X)
    for key in _type_names(X):
        if key in REFUSED:
            raise TypeError(f"this {type(X).__name__} cannot be used as it is; {REFUSED[key]}")
    if isinstance(X, np.ma.MaskedArray | np.memmap):
        return X
    if hasattr(X, "__dlpack__") and not (isinstance(X, np.ndarray) or (hasattr(X, "__array__") and _on_host(X))):
        return _from_dlpack(X)
    try:
        data = np.asanyarray(X)
    except ValueError as error:
        if isinstance(X, list | tuple):  # NumPy's message is about inhomogeneous shapes
            raise ValueError(f"the rows of this {type(X).__name__} do not all have the same length") from error
        raise
    return data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)


def matrix_of(X: Any) -> Any:
    """As `unwrap`, but float16 stays float16, so that a memory map stays one."""
    if ("lowsparse", "ObservedMatrix") in _type_names(X):
        return X
    # A tuple is more likely (rows, cols, values) than a matrix, and must not be taken for a 3 x K one.
    data: Any = None if isinstance(X, tuple) else X if sp.issparse(X) else as_numpy(X)
    if data is None or data.ndim != 2:
        raise TypeError(
            f"this {type(X).__name__} is not a matrix; accepted are an ObservedMatrix, a scipy.sparse array or "
            "matrix, and 2-D arrays, masked arrays, tensors, data frames, tables and nested lists (NaN is missing); "
            "for triples use ObservedMatrix.from_coo"
        )
    check_numbers(data.dtype)
    return data


def numbers_of(column: Any) -> Array:
    """The numbers of a `pyarrow.ChunkedArray`, NaN where it is null; a TypeError if it holds none."""
    reader = _arrow_reader(column)
    if isinstance(reader, str):
        raise TypeError(f"a column of {reader} holds no numbers")
    return np.asarray(reader[1]())


def check_numbers(dtype: np.dtype[Any]) -> None:
    """Raise a TypeError with advice unless `dtype` holds real numbers or booleans."""
    if dtype.kind not in "fiub":
        advice = ADVICE.get(dtype.kind, "convert it to real numbers first")
        raise TypeError(f"a matrix of dtype {dtype} cannot be used: {advice}")


def _type_names(X: object) -> list[tuple[str, str]]:
    """The library and the name of each class that X belongs to, its own first."""
    return [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(X).__mro__]


def _kind_of(X: object) -> _Kind | None:
    return next((_KINDS[key] for key in _type_names(X) if key in _KINDS), None)


# ---------------------------------------------------------------------- numbers that fit


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` holds all values; a floating-point one may round them."""
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


def _cast_if_fits(values: Array, dtype: np.dtype[Any]) -> Array:
    """The values as `dtype` if they fit it; else floating-point ones as float64, and integers as they are."""
    if dtype.kind in "fiub" and _fits(values, dtype):
        return values.astype(dtype, copy=False)
    return values.astype(FLOAT, copy=False) if values.dtype.kind == "f" else values


def _missing(values: Array) -> NDArray[np.bool_]:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


def _cast_with_mask(values: Array, dtype: np.dtype[Any]) -> tuple[Array, NDArray[np.bool_]]:
    """As `_cast_if_fits`, where missing values fit any type; and which ones are missing."""
    missing = _missing(values)
    return _cast_if_fits(np.where(missing, values.dtype.type(1), values), dtype), missing


def _masked_like(values: Any, like: Any) -> Any:
    """A masked array, of the type and fill value of `like` if given."""
    data = np.ma.getdata(values)
    mask = np.ma.getmaskarray(values) | _missing(data)
    if like is None:
        return np.ma.MaskedArray(data, mask)
    if data.dtype != like.dtype:
        data = _cast_if_fits(np.where(mask, data.dtype.type(1), data), like.dtype)
    return np.ma.MaskedArray(data, mask, fill_value=like.fill_value if data.dtype == like.dtype else None)


# ---------------------------------------------------------------------- columns

# The dtype of a column and a function that reads it; or what it holds instead of numbers.
_Reader = tuple[np.dtype[Any], Callable[[], Array]] | str


def _read_columns(height: int, labels: Iterable[Any], readers: Iterable[_Reader]) -> Array:
    """The columns as one array."""
    good, bad = [], []
    for label, reader in zip(labels, readers, strict=True):
        if isinstance(reader, str):
            bad.append(f"{label!r} ({reader})")
        else:
            good.append(reader)
    if bad:
        listed, more = ", ".join(bad[:5]), f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise TypeError(
            f"{len(bad)} of the columns do not hold numbers: {listed}{more}; drop them, or turn them into numbers "
            "first (codes or indicators of categories, differences of dates, parsed text)"
        )
    data = np.empty((height, len(good)), np.result_type(*(dtype for dtype, _ in good)) if good else FLOAT, order="F")
    for k, (_, read) in enumerate(good):
        data[:, k] = read()
    return data


def _with_missing(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind == "f" else FLOAT


def _object_reader(values: Array) -> _Reader:
    """Python objects: numbers and None."""
    kinds = set(map(type, values))
    absent = {kind for kind in kinds if kind.__name__ in ("NoneType", "NAType", "NaTType")}
    wrong = {kind for kind in kinds - absent if not issubclass(kind, Real | Decimal | np.bool_)}
    if wrong:
        k = next(k for k, value in enumerate(values) if type(value) in wrong)
        return f"{reprlib.repr(values[k])} in row {k}"
    if not absent and all(issubclass(kind, Integral) for kind in kinds):
        with suppress(OverflowError):
            integers = values.astype(np.int64)
            return integers.dtype, lambda: integers
    numbers = np.array([np.nan if type(value) in absent else float(value) for value in values])
    return FLOAT, lambda: numbers


# ---------------------------------------------------------------------- pandas


def _read_pandas(X: Any) -> Array:
    kinds = {dtype.kind if isinstance(dtype, np.dtype) else "" for dtype in X.dtypes}
    if kinds and (kinds <= set("fiu") or kinds == {"b"}):
        return np.asarray(X.to_numpy())
    return _read_columns(len(X), X.columns, (_pandas_reader(X.iloc[:, k]) for k in range(X.shape[1])))


def _pandas_reader(column: Any) -> _Reader:
    dtype, kind = column.dtype, type(column.dtype).__name__
    if isinstance(dtype, np.dtype):
        if dtype.kind == "O":
            return _object_reader(column.to_numpy())
        return (dtype, column.to_numpy) if dtype.kind in "fiub" else str(dtype)
    if kind == "ArrowDtype":
        return _arrow_reader(column.array.__arrow_array__())
    if kind == "SparseDtype" and dtype.subtype.kind in "fiub":
        return dtype.subtype, lambda: np.asarray(column.array)
    base = getattr(dtype, "numpy_dtype", None)
    if base is None or base.kind not in "fiub":
        return str(dtype)
    if not column.isna().any():
        return base, lambda: column.to_numpy(base)
    return _with_missing(base), lambda: column.to_numpy(_with_missing(base), na_value=np.nan)


def _write_pandas(values: Array, like: Any, columns: Any) -> Any:
    pandas = import_module("pandas")
    dtypes = list(like.dtypes)
    if columns is not None:
        frame = pandas.DataFrame(values, index=like.index, columns=columns)
    elif dtypes and len(set(dtypes)) == 1 and dtypes[0] in (FLOAT, np.float32):
        frame = pandas.DataFrame(_cast_if_fits(values, dtypes[0]), index=like.index, columns=like.columns)
    else:
        truths = boolean_columns(like)
        dtypes = [np.dtype(bool) if truths[k] and str(dtype) == "object" else dtype for k, dtype in enumerate(dtypes)]
        made = {k: _pandas_like(values[:, k], dtype) for k, dtype in enumerate(dtypes)}
        frame = pandas.DataFrame(made, index=like.index)
        frame.columns = like.columns
    frame.attrs = dict(like.attrs)
    return frame


def _pandas_like(values: Array, dtype: Any) -> Any:
    arrays, kind = import_module("pandas").arrays, type(dtype).__name__
    if isinstance(dtype, np.dtype):
        return _cast_if_fits(values, dtype)
    if kind == "ArrowDtype":
        return arrays.ArrowExtensionArray(_arrow_like(values, dtype.pyarrow_dtype))
    if kind == "SparseDtype":
        data = _cast_if_fits(values, dtype.subtype)
        return arrays.SparseArray(data, fill_value=dtype.fill_value) if data.dtype == dtype.subtype else data
    data, missing = _cast_with_mask(values, dtype.numpy_dtype)
    nullable = {"b": arrays.BooleanArray, "f": arrays.FloatingArray}.get(data.dtype.kind, arrays.IntegerArray)
    return nullable(data, missing)


# ---------------------------------------------------------------------- Arrow


def _arrow_reader(column: Any) -> _Reader:
    arrow = import_module("pyarrow")
    kind = column.type
    if arrow.types.is_null(kind):
        return FLOAT, lambda: np.full(len(column), np.nan)
    if arrow.types.is_decimal(kind):
        return FLOAT, lambda: column.cast(arrow.float64()).to_numpy()
    if arrow.types.is_boolean(kind):
        base: np.dtype[Any] = np.dtype(bool)
        column = column.cast(arrow.uint8()) if column.null_count else column
    elif arrow.types.is_integer(kind) or arrow.types.is_floating(kind):
        base = np.dtype(kind.to_pandas_dtype())
    else:
        return str(kind)
    return (_with_missing(base) if column.null_count else base), column.to_numpy


def _write_arrow(values: Array, like: Any, columns: Any) -> Any:
    arrow = import_module("pyarrow")
    if columns is not None:
        return arrow.table([arrow.array(column) for column in values.T], names=[str(name) for name in columns])
    made = [_arrow_like(column, old.type, old.null_count) for column, old in zip(values.T, like.columns, strict=True)]
    fields = [field.with_type(column.type) for field, column in zip(like.schema, made, strict=True)]
    return arrow.Table.from_arrays(made, schema=arrow.schema(fields, metadata=like.schema.metadata))


def _arrow_like(values: Array, kind: Any, nulls: bool = True) -> Any:
    """An array of the type `kind` if that holds the values; NaN is null, or, without `nulls`, stays NaN if it can."""
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
    data, missing = _cast_with_mask(values, FLOAT if arrow.types.is_null(kind) else np.dtype(kind.to_pandas_dtype()))
    if data.dtype.kind == "f" and not nulls:
        data, missing = _cast_if_fits(values, data.dtype), np.zeros(values.size, bool)
    return arrow.array(data, mask=missing)


# ---------------------------------------------------------------------- polars


def _polars_reader(column: Any) -> _Reader:
    polars = import_module("polars")
    kind = column.dtype
    if not kind.is_numeric() and kind not in (polars.Boolean, polars.Null):
        return str(kind)
    base = column.head(0).to_numpy().dtype
    if base.kind == "f" or (base.kind in "iub" and not column.null_count()):
        return base, column.to_numpy
    return FLOAT, lambda: column.cast(polars.Float64).to_numpy()


def _write_polars(values: Array, like: Any, columns: Any) -> Any:
    polars = import_module("polars")
    if columns is not None:
        return polars.DataFrame({str(name): column for name, column in zip(columns, values.T, strict=True)})
    return polars.DataFrame([_polars_like(values[:, k], old) for k, old in enumerate(like.get_columns())])


def _polars_like(values: Array, old: Any) -> Any:
    polars = import_module("polars")
    base = old.head(0).to_numpy().dtype
    made = polars.Series(old.name, values, nan_to_null=base.kind != "f" or old.null_count() > 0)
    if old.dtype == polars.Null:
        return made.cast(polars.Null) if made.null_count() == made.len() else made
    if base.kind in "fiub":
        fits = _fits(values[~_missing(values)], base)
        return made.cast(old.dtype if fits else polars.Float64)
    # A decimal number, or an integer wider than NumPy's: only if nothing is lost.
    exact = made.cast(old.dtype, strict=False)
    return exact if exact.cast(made.dtype).equals(made) else made


# ---------------------------------------------------------------------- xarray


def _write_xarray(values: Array, like: Any, columns: Any) -> Any:
    if columns is None:
        return like.copy(data=_cast_if_fits(values, like.dtype))
    dim = like.dims[1]
    rows = like.isel({dim: 0}, drop=True)  # without coordinates of the columns
    return rows.expand_dims({dim: list(columns)}, axis=1).copy(data=values)


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
        return import_module("cupy").asarray(values if columns is not None else _cast_if_fits(values, like.dtype))


_KINDS: dict[tuple[str, str], _Kind] = {
    ("pandas", "DataFrame"): (_read_pandas, _write_pandas),
    ("polars", "DataFrame"): (
        lambda X: _read_columns(X.height, X.columns, map(_polars_reader, X.get_columns())),
        _write_polars,
    ),
    ("pyarrow", "Table"): (
        lambda X: _read_columns(X.num_rows, X.column_names, map(_arrow_reader, X.columns)),
        _write_arrow,
    ),
    ("xarray", "DataArray"): (lambda X: np.asarray(X.values), _write_xarray),
    ("torch", "Tensor"): (_read_torch, _write_torch),
    ("cupy", "ndarray"): (lambda X: np.asarray(X.get()), _write_cupy),
}
