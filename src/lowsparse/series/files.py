"""Series on disk: a moments x series array in an .npy file is filled into another one, some groups of series at a time.

The groups are those of `groups`, found from a sample of the moments. As many groups as fit into the memory are read in
one pass over the file, fitted and filled, and written in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..support.files import replacing
from ..support.sizes import bytes_of
from .anomalies import Anomalies, find_anomalies
from .groups import find_groups, for_each, join_anomalies, sampled_periods
from .model import SeriesModel
from .runs import Index

ROWS = 1 << 26  # bytes that are read or written at once
SHARE = 0.5  # of the memory, for series that were read and not yet written


def fill_npy(
    source: Path,
    target: Path,
    *,
    periods: tuple[int, ...] | None = None,
    clean: bool = False,
    random_state: int | np.random.Generator | None = 0,
    memory: int | str | None = None,
) -> tuple[tuple[int, ...], Anomalies]:
    """Fill the series of an .npy file, NaN missing, and write them to another; their periods and anomalies.

    Good readings are kept, bad ones too unless `clean`. A series without any reading stays empty.
    """
    X = _opened(source)
    if target.resolve() == source.resolve():
        raise ValueError(f"{target} is the file that is read; write the filled series to another one")
    groups = find_groups(X)
    periods = sampled_periods(X) if periods is None else periods
    width = max(1, int(SHARE * bytes_of(memory) / (X.dtype.itemsize * len(X))))
    rng = np.random.default_rng(random_state)
    found: list[Anomalies] = []
    order: list[Index] = []
    with replacing(target) as path:
        with path.open("wb") as file:  # a name that need not end in .npy
            np.lib.format.write_array_header_2_0(file, {"descr": X.dtype.str, "fortran_order": False, "shape": X.shape})
            offset = file.tell()
            file.truncate(offset + X.nbytes)
        Y = np.memmap(path, X.dtype, "r+", offset, (X.shape[0], X.shape[1]))
        for slab in _slabs(groups, width):
            columns = np.sort(np.concatenate(slab))
            values = _read(X, columns)
            places = [np.searchsorted(columns, group) for group in slab]
            found += for_each(partial(_fill, values, periods, clean), places, rng)
            order += slab
            _write(Y, columns, values)
        Y.flush()
        del Y
    return periods, join_anomalies(tuple(order), found)


def _opened(source: Path) -> NDArray[np.floating]:
    X = np.load(source, mmap_mode="r")
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind != "f" or min(X.shape) < 2:
        raise ValueError(f"{source} must hold one array of moments x series, 2 or more of each, as floats, NaN missing")
    return X


def _slabs(groups: tuple[Index, ...], width: int) -> Iterator[list[Index]]:
    """Groups whose series are read together: of `width` series at most, or one group."""
    slab: list[Index] = []
    for group in groups:
        if slab and sum(map(len, slab)) + len(group) > width:
            yield slab
            slab = []
        slab.append(group)
    yield slab


def _read(X: NDArray[np.floating], columns: Index) -> NDArray[np.floating]:
    values = np.empty((len(X), len(columns)), X.dtype)
    for rows in _pieces(X):
        values[rows] = X[rows][:, columns]
    return values


def _write(Y: NDArray[np.floating], columns: Index, values: NDArray[np.floating]) -> None:
    for rows in _pieces(Y):
        Y[rows, columns] = values[rows]


def _pieces(X: NDArray[np.floating]) -> Iterator[slice]:
    size = max(1, ROWS // (X.shape[1] * X.dtype.itemsize))
    return (slice(first, first + size) for first in range(0, len(X), size))


def _fill(values: NDArray[np.floating], periods: tuple[int, ...], clean: bool, group: Index, seed: int) -> Anomalies:
    """Fill some of the series in their place; their anomalies."""
    present = group[~np.isnan(values[:, group]).all(axis=0)]
    if not present.size:
        return Anomalies.none()
    given = values[:, present].astype(np.float64)
    model, good = SeriesModel.fit(given, periods, seed)
    filled = model.fill(given, good=good)
    listed, bad = find_anomalies(model, given, filled)
    values[:, present] = np.where(np.isnan(given) | (bad & clean), filled.values, given)
    return replace(listed, series=np.searchsorted(group, present)[listed.series])
