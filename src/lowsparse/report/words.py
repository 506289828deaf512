"""A diagnosis in words."""

from __future__ import annotations

from dataclasses import dataclass

from ..diagnosis import Diagnosis
from ..support.format import number, percent

__all__ = ["Remark", "in_words"]


@dataclass(frozen=True)
class Remark:
    """A sentence, and whether it is reassuring (True), a warning (False) or neither.

    >>> Remark("The rank was chosen.").good is None
    True
    """

    text: str
    good: bool | None = None


def in_words(diagnosis: Diagnosis) -> list[Remark]:
    """What a diagnosis says to somebody who does not know its figures; the advice comes last.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(90, 80, rank=2, density=0.6, outliers=0.1, random_state=1)
    >>> said = in_words(ls.solve(problem.M, rank=2).diagnostics)
    >>> said[1].text
    'There are 12.9 entries for each number that describes a matrix of rank 2: plenty.'
    >>> said[-1]
    Remark(text='Nothing speaks against this result.', good=True)
    """
    d = diagnosis
    met = "The method met its own test" if d.recovered else "The method has not met its own test"
    enough = "plenty" if d.oversampling >= 4 else "enough" if d.oversampling >= 2 else "too few to rely on"
    said = [
        Remark(f"{met}: {d.message}.", d.recovered),
        Remark(
            f"There are {number(d.oversampling)} entries for each number that describes a matrix of rank {d.rank}: "
            f"{enough}.",
            d.oversampling >= 2,
        ),
        Remark(
            f"A row has {number(d.entries_per_row[1])} entries as a rule and {number(d.entries_per_row[0])} at least; "
            f"a column {number(d.entries_per_column[1])} and {number(d.entries_per_column[0])}."
        ),
        Remark(f"{percent(d.outlier_share)} of the entries do not fit and were set aside."),
    ]
    if d.signal > 0:
        relative = f", {percent(d.noise / d.signal)} of their usual size"
        said.append(Remark(f"The others scatter by {number(d.noise)} around the fit{relative}."))
    if d.held_out is not None:
        said.append(Remark(f"Entries kept aside were predicted to within {number(d.held_out)}, as a rule."))
    fine = d.advice == ("nothing speaks against this result",)
    return said + [Remark(_sentence(advice), fine) for advice in d.advice]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
