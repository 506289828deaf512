"""How far a completed table is to be trusted: a verdict in one line, and remarks for the report."""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from ..imputation.model import Imputation
from ..notebook import Remark
from ..robust.regression import EFFICIENT
from ..support.format import format_number, percent, pluralize
from ..tables import Table
from ..tables.stream import LargeTable

FEW = 3  # rows and columns with fewer values are hardly determined
MANY_WITH_FEW = 0.1  # share of rows or columns with few values that makes a table doubtful
HELPS = 0.9  # low rank is of little use if its error is more than this share of that of levels and offsets alone
LIMIT = 0.35  # share of wrong entries near to what no method recovers
REPEATED = 5  # outliers with the same value may be a code for a missing one


@dataclass(frozen=True)
class Verdict:
    """Whether to use a completed table, and why."""

    level: Literal["good", "doubtful", "do not use"]
    why: str


@dataclass(frozen=True)
class Errors:
    """The typical error of the fit, and that of levels and offsets alone."""

    kind: str  # of the values: held out, or given where none was
    fit: float
    levels: float

    @classmethod
    def of(cls, model: Imputation) -> Self:
        """The errors of a model."""
        held_out = model.result.held_out
        if held_out is None:
            return cls("given", model.result.noise, model.width / EFFICIENT)
        return cls("held-out", held_out, model.width / EFFICIENT)

    @property
    def helps(self) -> bool:
        """Whether low rank predicts values better; nothing is left to predict where levels and offsets are exact."""
        return not self.levels or self.fit < HELPS * self.levels


def code_among_outliers(table: Table | LargeTable, model: Imputation) -> tuple[float, int] | None:
    """The value of most outliers and its count, if it occurs often: it may stand for a missing value."""
    flagged = model.result.flagged
    if not isinstance(table, Table) or flagged.size < REPEATED:
        return None
    values, counts = np.unique(table.M.values[flagged], return_counts=True)
    k = int(counts.argmax())
    often = counts[k] >= REPEATED and 2 * counts[k] > flagged.size
    return (float(values[k]), int(counts[k])) if often else None


def too_many_outliers(share: float) -> Verdict | None:
    """The verdict if this share of the values are outliers; None if they are not too many."""
    why = f"{percent(share)} of the values are outliers, too many to tell which are right"
    return Verdict("do not use", why) if share > LIMIT else None


def judge(table: Table | LargeTable, model: Imputation, facts: dict[str, Any]) -> Verdict:
    """The verdict on a completed table."""
    errors, share = Errors.of(model), facts["flagged"] / facts["observed"]
    if not model.is_reliable:
        return Verdict("do not use", "the method did not converge")
    if verdict := too_many_outliers(share):
        return verdict
    if code := code_among_outliers(table, model):
        value, count = f"{code[0]:.12g}", f"{code[1]:,} of {facts['flagged']:,}"
        return Verdict("doubtful", f"{count} outliers are {value}; if that means missing, give --missing {value}")
    if not errors.helps or (errors.levels and not model.rank):
        filled = "missing values are filled with little more than the level of their column"
        return Verdict("doubtful", f"nothing predicts the values, as in noise: {filled}")
    for name, counts in (("row", table.M.row_counts), ("column", table.M.column_counts)):
        few = int(np.count_nonzero((counts > 0) & (counts < FEW)))
        if few > MANY_WITH_FEW * counts.size and facts["filled"]:
            return Verdict("doubtful", f"{pluralize(few, name)} of {counts.size:,} have fewer than {FEW} values")
    if not errors.levels:
        return Verdict("good", "levels and offsets explain all values")
    error = percent(errors.fit / errors.levels)
    return Verdict("good", f"the error on {errors.kind} values is {error} of that of levels and offsets alone")


def remarks(table: Table | LargeTable, model: Imputation, verdict: Verdict) -> list[Remark]:
    """The verdict, and how well the given values determine the filled ones."""
    M, result, errors = table.M, model.result, Errors.of(model)
    good = verdict.level == "good"
    converged = "converged" if result.converged else "did not converge"
    listed = [
        Remark(f"{verdict.level.capitalize()}: {verdict.why}.", good),
        Remark(f"The method {converged}: {result.message}.", True if result.converged and good else None),
    ]
    if errors.levels > 0:
        text = f"The typical error on {errors.kind} values is {format_number(errors.fit)}, "
        text += f"with levels and offsets alone {format_number(errors.levels)}"
        poor = ", so low rank hardly helps, and filled values are little more than levels and offsets"
        listed.append(Remark(f"{text}{'' if errors.helps else poor}.", errors.helps))
    for name, counts in (("row", M.row_counts), ("column", M.column_counts)):
        few = int(np.count_nonzero((counts > 0) & (counts < FEW)))
        text = f"The median number of values in a {name} is {format_number(float(np.median(counts)))}"
        text += f"; {few:,} {name}s have fewer than {FEW}, and filled values there are guesses" if few else ""
        listed.append(Remark(f"{text}.", False if few else None))
    share = result.flagged.size / M.nnz
    text = f"{percent(share)} of the values are outliers" + (", near the limit of any method" if share > LIMIT else "")
    return [*listed, Remark(f"{text}.", False if share > LIMIT else None)]
