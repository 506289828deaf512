"""Bands about the predictions of a table, calibrated on entries that a second fit did not see."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..robust.calibration import Calibration
from ..sweeps import Float
from ..validation import holdout
from .model import Imputation

HELD_OUT = 0.1  # share of the entries
GROSS = 3.0  # errors that are left out, relative to the bound of outliers
MOST = 12  # log2 of the entries of a row, at which the classes of rows end


@dataclass(frozen=True)
class Bands:
    """Half widths of bands by column, in units of its scale, and by the number of entries of the row."""

    calibration: Calibration
    scale: Float

    @classmethod
    def fit(cls, model: Imputation, rank: int | str, **options: object) -> Self:
        """Fit the table of a model again without a tenth of its entries; the errors there count, but for gross ones.

        An entry that is flagged may be right, in a column with heavy tails; one that is far beyond that is left out.

        The options are those of `Imputation.fit`.
        """
        M = _as_given(model)
        split = holdout(M, HELD_OUT, random_state=0)
        again = Imputation.fit(split.M, rank, **options)  # type: ignore[arg-type]
        scale = model.preparation.scale
        residual = split.residual(again.lowrank())
        errors, fair = (
            residual / scale[split.columns],
            np.abs(residual) <= GROSS * again.prediction.tolerance[split.columns],
        )
        classes = classes_of_rows(split.M.row_counts)[split.rows]
        columns = split.columns.astype(np.intp)
        return cls(Calibration.fit(errors[fair], columns[fair], classes[fair], M.shape[1]), scale)

    def half_widths(self, counts: NDArray[np.int64], level: float) -> Float:
        """Of all entries of rows with these numbers of entries."""
        rows, columns = np.indices((len(counts), len(self.scale))).reshape(2, -1)
        widths = self.calibration.half_width(level, columns, classes_of_rows(counts)[rows])
        return widths.reshape(len(counts), -1) * self.scale


def classes_of_rows(counts: NDArray[np.int64]) -> NDArray[np.intp]:
    """The class of a row with so many entries: twice as many are one more.

    >>> classes_of_rows(np.array([0, 1, 2, 5, 9])).tolist()
    [0, 1, 2, 4, 5]
    """
    return np.minimum(np.ceil(np.log2(np.maximum(counts, 0.5))).astype(np.intp) + 1, MOST)


def _as_given(model: Imputation) -> ObservedMatrix:
    """The entries that were fitted, in their own units."""
    M, prepared = model.result.to_host().M.to_host(), model.preparation
    columns = M.columns_of_entries()
    values = prepared.scale[columns] * (prepared.level[columns] + prepared.offset[M.rows] + M.values)
    return M.with_values(values)
