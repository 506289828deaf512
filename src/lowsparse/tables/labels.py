"""Labels and columns of any library, by way of Arrow: as places among the different ones, and back."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Codes = NDArray[np.int32]

WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"  # whole numbers as they are usually written, and no larger than an int64


def library(part: str = "") -> Any:
    """Pyarrow, or a part of it."""
    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError as error:
        raise ImportError("labelled tables need pyarrow: python -m pip install 'lowsparse[tables]'") from error


def arrow_column(data: Any, name: str) -> Any:
    """A column of any library as `pyarrow.ChunkedArray`."""
    arrow = library()
    if type(data).__module__.partition(".")[0] == "polars":
        data = data.to_arrow()
    if not isinstance(data, arrow.Array | arrow.ChunkedArray):
        if isinstance(data, np.ndarray) and data.dtype.kind in "fiu":
            data = data.astype(_plain(data.dtype), copy=False)
        try:
            data = arrow.array(data, from_pandas=True)
        except (arrow.ArrowException, TypeError, ValueError) as error:
            raise TypeError(
                f"{name!r} cannot be read as a column ({brief(error)}): it must be all numbers, all text or all times"
            ) from error
    return data if isinstance(data, arrow.ChunkedArray) else arrow.chunked_array([data])


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type of numbers as Arrow knows it: in this machine's byte order, of 4 or 8 bytes if floating-point."""
    if dtype.kind != "f":
        return dtype.newbyteorder("=")
    return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)


def codes_of(column: Any) -> tuple[Codes, Any]:
    """A column as places in an Arrow array of its different words; -1 where there is none."""
    arrow = library()
    if arrow.types.is_float16(column.type):
        column = column.cast(arrow.float32())
    if arrow.types.is_floating(column.type):
        column = library("compute").add(column, arrow.scalar(0, column.type))  # -0 is 0
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    merged = column.unify_dictionaries().combine_chunks()
    unique = merged.dictionary.dictionary_encode()  # a dictionary may name a word twice, or null
    where = np.append(_indices(unique), -1).astype(np.int32)
    return where[_indices(merged)], unique.dictionary


def _indices(array: Any) -> Array:
    indices = array.indices
    if indices.null_count:
        indices = indices.cast(library().int64()).fill_null(-1)
    return np.asarray(indices.to_numpy(zero_copy_only=False))


def encode(column: Any, name: str, *, text: bool = False) -> tuple[Codes, Array]:
    """A column of labels as places among the different labels, which ascend; in `text` whole numbers are numbers."""
    compute = library("compute")
    codes, words = codes_of(column)
    absent = flags(compute.is_null(words, nan_is_null=True))
    if text:
        absent = absent | flags(compute.equal(words, ""))
        words = whole_numbers(words)
    lost = np.append(absent, True)[codes]
    if lost.any():
        count, k = np.count_nonzero(lost), lost.argmax()
        raise ValueError(f"{count} records have no label in {name!r}, the first is record {k}, counted from 0")
    used = np.zeros(len(words), bool)
    used[codes] = True
    order = np.asarray(compute.array_sort_indices(words))
    order = order[used[order]]
    rank = np.empty(len(words), np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank[codes], label_array(words.take(library().array(order)))


def flags(truths: Any) -> NDArray[np.bool_]:
    """An Arrow array of truth values."""
    return np.asarray(truths.to_numpy(zero_copy_only=False), bool)


def whole_numbers(words: Any) -> Any:
    """Text that is nothing but whole numbers, as whole numbers; else as it is."""
    compute = library("compute")
    if len(words) and compute.all(compute.match_substring_regex(words, WHOLE)).as_py():
        return words.cast(library().int64())
    return words


def label_array(labels: Any) -> Array:
    """Labels as a NumPy array that cannot be written to, text as Python's strings."""
    if type(labels).__module__.partition(".")[0] == "pyarrow":
        kinds, kind = library().types, labels.type
        zoned = kinds.is_timestamp(kind) and kind.tz is not None
        simple = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
        if simple or kinds.is_date32(kind) or (kinds.is_timestamp(kind) and not zoned):
            labels = labels.to_numpy(zero_copy_only=False)
        else:
            labels = np.fromiter(labels.to_pylist(), object, len(labels))
    found = np.asarray(labels)
    found = (found.astype(object) if found.dtype.kind in "UST" else found).view()
    found.flags.writeable = False
    return found


def arrow_labels(labels: Array) -> Any:
    """Labels as one Arrow array."""
    return arrow_column(labels, "labels").combine_chunks()


def are_places(labels: Array) -> bool:
    """Whether labels say no more than 0, 1, 2, ..."""
    return labels.dtype.kind in "iu" and np.array_equal(labels, np.arange(labels.size))


def shown(label: Any) -> str:
    """A label or a cell in an error."""
    text = repr(label.item() if isinstance(label, np.generic) and label.dtype.kind != "M" else label)
    return text if len(text) <= 60 else text[:57] + "..."


def brief(error: BaseException) -> str:
    """The first line of what a library says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
