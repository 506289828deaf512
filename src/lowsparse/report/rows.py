"""Rows of a table that are wrong as a whole, and why: the card of the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..support.format import format_number, pluralize
from ..support.html import Markup, element
from .page import card

LISTED = 20  # rows in the card


class Cell(NamedTuple):
    """A value of a row, what the other rows let expect, and the difference in standard deviations."""

    column: str
    value: float
    expected: float
    deviations: float


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """A row that does not fit the others."""

    label: str
    filled: int  # missing values
    observed: int
    outliers: int
    many: bool  # whether it is the number of outliers that makes it a bad one
    distance: float  # root mean square of the deviations that are no outliers
    usual: float  # the largest distance of a usual row
    cells: Sequence[Cell]  # with the largest deviations, the largest first

    def __str__(self) -> str:
        cells = (f"{c.column} {format_number(abs(c.deviations))} too {_side(c)}" for c in self.cells)
        return f"{self.label} ({', '.join(cells)})"

    @property
    def severity(self) -> tuple[float, float]:
        """The larger, the worse."""
        return self.outliers / max(self.observed, 1), self.distance / self.usual

    @property
    def reason(self) -> str:
        """Why it is a bad one, in words."""
        if self.many:
            return f"{self.outliers:,} of {pluralize(self.observed, 'value')} are outliers"
        distance, usual = format_number(self.distance), format_number(self.usual)
        off = f"its values are {distance} standard deviations off throughout, {usual} at most is usual"
        return f"{off}; {pluralize(self.outliers, 'outlier')}" if self.outliers else off


def _side(cell: Cell) -> str:
    return "high" if cell.deviations > 0 else "low"


def guesses(filled: int) -> str:
    """What becomes of so many missing values in such rows."""
    return f"Missing values there ({filled:,}) are filled by what fits the row itself, and are guesses."


def bad_rows_card(rows: Sequence[BadRow], *, listed: bool = True) -> Markup | None:
    """The rows, the worst first, with the cells that differ most; None if there are none.

    If outliers are `listed` in the page, those of a row are shown on a click.

    >>> row = BadRow(label="r7", filled=0, observed=9, outliers=6, many=True, distance=1.0, usual=1.5,
    ...              cells=[Cell("speed", 90.0, 60.0, 12.0)])
    >>> "6 of 9 values are outliers" in str(bad_rows_card([row]))
    True
    """
    if not rows:
        return None
    text = (
        f"They do not fit the other rows, and these cells differ most.{' Click a row to list its outliers.' * listed}"
    )
    if len(rows) > LISTED:
        text += f" These are the {LISTED} worst of {len(rows):,}."
    if filled := sum(row.filled for row in rows):
        text += f" {guesses(filled)}"
    worst = sorted(rows, key=lambda row: row.severity, reverse=True)[:LISTED]
    table = element("table", element("tbody", *(_line(row, listed) for row in worst)), class_="meters reasons")
    return card("Rows that are wrong as a whole", element("p", text, class_="quiet"), table)


def _line(row: BadRow, listed: bool) -> Markup:
    label = element("button", row.label, type="button", class_="find") if listed else row.label
    cells = [
        element(
            "li",
            element("bdi", c.column),
            f": {format_number(c.value)} is too {_side(c)}, {format_number(c.expected)} is expected",
        )
        for c in row.cells
    ]
    reason = row.reason[0].upper() + row.reason[1:]
    return element(
        "tr", element("th", label, scope="row", dir="auto"), element("td", f"{reason}.", element("ul", *cells))
    )
