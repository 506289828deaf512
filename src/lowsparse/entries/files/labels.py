"""Labels and columns of any library, by way of Arrow: as codes into the distinct labels, and back."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...support.format import pluralize
from ...support.optional import import_pyarrow

Array = NDArray[Any]
Codes = NDArray[np.int32]

INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"  # as integers are usually written, and within the range of int64


def to_arrow(data: Any, name: str) -> Any:
    """A column of any library as `pyarrow.ChunkedArray`."""
    pyarrow = import_pyarrow()
    if type(data).__module__.partition(".")[0] == "polars":
        data = data.to_arrow()
    if not isinstance(data, pyarrow.Array | pyarrow.ChunkedArray):
        if isinstance(data, np.ndarray) and data.dtype.kind in "fiu":
            data = data.astype(_arrow_dtype(data.dtype), copy=False)
        try:
            data = pyarrow.array(data, from_pandas=True)
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise TypeError(
                f"{name!r} cannot be read as a column ({first_line(error)}): it must be all numbers, all text or all "
                "times"
            ) from error
    return data if isinstance(data, pyarrow.ChunkedArray) else pyarrow.chunked_array([data])


def _arrow_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type of numbers that Arrow knows: in native byte order, float32 or float64 if floating-point."""
    if dtype.kind != "f":
        return dtype.newbyteorder("=")
    return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)


def factorize(column: Any) -> tuple[Codes, Any]:
    """Codes of the entries of a column, and the Arrow array of distinct words they point into; -1 is null."""
    pyarrow = import_pyarrow()
    if pyarrow.types.is_float16(column.type):
        column = column.cast(pyarrow.float32())
    if pyarrow.types.is_floating(column.type):
        column = import_pyarrow("compute").add(column, pyarrow.scalar(0, column.type))  # -0 is 0
    if not pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    merged = column.unify_dictionaries().combine_chunks()
    distinct = merged.dictionary.dictionary_encode()  # a dictionary may hold a word twice, or null
    codes = np.append(_indices(distinct), -1).astype(np.int32)
    return codes[_indices(merged)], distinct.dictionary


def _indices(array: Any) -> Array:
    indices = array.indices
    if indices.null_count:
        indices = indices.cast(import_pyarrow().int64()).fill_null(-1)
    return np.asarray(indices.to_numpy(zero_copy_only=False))


def locate_record(k: int) -> str:
    """Where a record is, for error messages: counted from 1."""
    return f"record {k + 1}"


def encode_labels(
    column: Any, name: str, *, text: bool = False, locate: Callable[[int], str] = locate_record
) -> tuple[Codes, Array]:
    """Codes of a column of labels, and the distinct labels in ascending order; `text` parses integers."""
    compute = import_pyarrow("compute")
    codes, words = factorize(column)
    absent = to_bool(compute.is_null(words, nan_is_null=True))
    if text:
        absent = absent | to_bool(compute.equal(words, ""))
        words = parse_integers(words)
    missing = np.append(absent, True)[codes]
    if missing.any():
        k = int(missing.argmax())
        records = pluralize(int(missing.sum()), "record")
        raise ValueError(f"{records} without a label in {name!r}, the first at {locate(k)}")
    used = np.zeros(len(words), bool)
    used[codes] = True
    order = np.asarray(compute.array_sort_indices(words))
    order = order[used[order]]
    rank = np.empty(len(words), np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank[codes], label_array(words.take(import_pyarrow().array(order)))


def to_bool(array: Any) -> NDArray[np.bool_]:
    """An Arrow array of booleans as a NumPy array."""
    return np.asarray(array.to_numpy(zero_copy_only=False), bool)


def parse_integers(words: Any) -> Any:
    """Text as integers if all of it is integers; else as it is."""
    compute = import_pyarrow("compute")
    if len(words) and compute.all(compute.match_substring_regex(words, INTEGER)).as_py():
        return words.cast(import_pyarrow().int64())
    return words


def label_array(labels: Any) -> Array:
    """Labels as a read-only NumPy array; text as Python strings."""
    if type(labels).__module__.partition(".")[0] == "pyarrow":
        types, kind = import_pyarrow().types, labels.type
        numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        if numeric or types.is_date32(kind) or (types.is_timestamp(kind) and kind.tz is None):
            labels = labels.to_numpy(zero_copy_only=False)
        else:
            labels = np.fromiter(labels.to_pylist(), object, len(labels))
    array = np.asarray(labels)
    array = (array.astype(object) if array.dtype.kind in "UST" else array).view()
    array.flags.writeable = False
    return array


def arrow_labels(labels: Array) -> Any:
    """Labels as one Arrow array."""
    return to_arrow(labels, "labels").combine_chunks()


def is_range(labels: Array) -> bool:
    """Whether labels are just 0, 1, 2, ..."""
    return labels.dtype.kind in "iu" and np.array_equal(labels, np.arange(labels.size))


def short_repr(label: object) -> str:
    """A label or a cell, for an error message."""
    text = repr(label.item() if isinstance(label, np.generic) and label.dtype.kind != "M" else label)
    return text if len(text) <= 60 else text[:57] + "..."


def first_line(error: BaseException) -> str:
    """The first line of an error message of another library."""
    return (str(error).splitlines() or [type(error).__name__])[0]
