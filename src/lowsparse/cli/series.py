"""`lowsparse complete` for a table whose rows are moments: its columns are series, with gaps and bad readings."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..imputation.offsets import NEGLIGIBLE
from ..linalg.scale import robust_scale
from ..notebook import Remark
from ..report.page import Run
from ..report.series import SeriesView, series_report
from ..series.anomalies import KINDS
from ..support.format import percent, pluralize
from ..support.optional import import_optional
from ..tables import Table, write_table
from ..tables.timeline import Timeline
from ..tables.write import write_columns
from .failure import fail
from .progress import Meter
from .verdict import Verdict, too_many_outliers

LEVEL = 0.9  # of the bands in the report, unless --interval gives another
WIDE = 1.3  # half width of the usual band, relative to the spread of its series, at which nothing predicts values


class SeriesCompletion:
    """The completion of series in time, by `RobustSeriesImputer`; see `lowsparse.cli.table.TableCompletion`."""

    unit = ""

    def __init__(self, table: Table, times: Timeline, *, clean: bool, interval: float | None, seed: int) -> None:
        self.table, self.times = table, times
        self.clean, self.interval, self.seed = clean, interval, seed
        self.given = table.M.to_dense()
        self.names = _unique([str(label) for label in table.columns])

    def solve(self, meter: Meter) -> None:
        """Fit the model, fill the gaps, and list the bad readings."""
        from ..estimators.series import RobustSeriesImputer  # needs scikit-learn

        times, pandas = self.times, import_optional("pandas", "tables", "series in time")
        by_month = isinstance(times.step, int)
        # without times, rows are taken as equally spaced, as months are
        X = self._on_grid(self._without_negligible()) if by_month else self._without_negligible()
        rows = times.positions if by_month else np.arange(len(X))
        frame = pandas.DataFrame(X, index=None if by_month else pandas.DatetimeIndex(times.stamps), columns=self.names)
        imputer = RobustSeriesImputer(clean=True, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RobustSeriesImputer")  # these are its notes
            warnings.simplefilter("ignore", RuntimeWarning)  # of numbers; the result is looked at below
            band = imputer.fit(frame).predict(frame, interval=self.interval or LEVEL)
        self.value, self.lower, self.upper = (
            np.where(part.to_numpy()[rows] == X[rows], self.given, part.to_numpy()[rows]) for part in band
        )
        if not np.isfinite(self.value[:, np.isfinite(self.given).any(axis=0)]).all():
            fail(
                "the readings differ by too many orders of magnitude: leave those out that are wrong, or give --no-time"
            )
        self.bad = ~np.isnan(self.given) & (self.value != self.given)
        self.flagged = int(np.count_nonzero(self.bad))
        self.periods, self._notes = imputer.periods_, imputer.notes_
        self.anomalies = self._with_rows(imputer.anomalies_, times.positions if by_month else times.stamps)

    def _with_rows(self, listed: Any, moments: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The anomalies as columns, with numbers of series and of rows."""
        number = {name: k for k, name in enumerate(self.names)}
        found = {name: listed[name].to_numpy() for name in ("kind", "observed", "expected", "sure")}
        ends = {name: np.searchsorted(moments, listed[name].to_numpy()) for name in ("begin", "end")}
        return {"series": np.array([number[name] for name in listed["series"]], np.intp), **ends, **found}

    def _without_negligible(self) -> NDArray[Any]:
        """The readings; zeros for those so small, relative to the largest of their series, that powers underflow."""
        sizes = np.abs(self.given)
        largest = np.max(np.where(np.isnan(sizes), 0.0, sizes), axis=0)
        return np.where(sizes < NEGLIGIBLE * largest, 0.0, self.given)

    def _on_grid(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows at their moments; NaN at moments that are no rows of the table."""
        positions = self.times.positions
        grid = np.full((int(positions[-1]) + 1, rows.shape[1]), np.nan, rows.dtype)
        grid[positions] = rows
        return grid

    def write(self, paths: dict[str, Path]) -> int:
        """Write the tables; return the number of cells left empty."""
        kept = self.given == self.value if self.clean else ~np.isnan(self.given)
        for name, part in (("completed", self.value), ("lower", self.lower), ("upper", self.upper)):
            if name in paths:
                write_table(paths[name], np.where(kept, self.given, part), self.table)
        found, rows = self.anomalies, self.table.rows
        listed = found | {"series": self.table.columns[found["series"]]}
        listed |= {name: rows[found[name]] for name in ("begin", "end")} | {"kind": found["kind"].astype(object)}
        write_columns(paths["outliers"], listed, self.table.layout)
        return int(np.count_nonzero(np.isnan(self.value)))

    def facts(self) -> dict[str, Any]:
        """Figures that only series have."""
        kinds = {kind: int(np.sum(self.anomalies["kind"] == kind)) for kind in KINDS}
        step = self.times.span(1)
        return {"time": self.table.layout.index, "step": step, "periods": list(self.periods), "anomalies": kinds}

    def judge(self, facts: dict[str, Any]) -> Verdict:
        """How far to trust the result: the usual band about a filled value, relative to the spread of its series."""
        if verdict := too_many_outliers(facts["flagged"] / facts["observed"]):
            return verdict
        filled = np.isnan(self.given) & ~np.isnan(self.value)
        spreads = np.array(
            [robust_scale(x[~np.isnan(x)] - np.nanmedian(x)) if np.isfinite(x).any() else 0.0 for x in self.given.T]
        )
        filled &= spreads > 0
        if not filled.any():
            return Verdict("good", "no value had to be predicted")
        usual = float(np.median(((self.upper - self.value) / np.where(spreads > 0, spreads, 1.0))[filled]))
        within = f"{percent(self.interval or LEVEL)} of the filled values"
        if not np.isfinite(usual):
            return Verdict(
                "doubtful", "too few values to keep some aside, by which to tell how far filled ones are off"
            )
        if usual > WIDE:
            return Verdict("doubtful", f"nothing predicts the values: {within} are only known to {usual:.2g} spreads")
        return Verdict("good", f"{within} are off by {percent(usual)} of the spread of their series at most")

    def summary(self) -> list[list[str]]:
        """Lines of the summary."""
        counts = {kind: count for kind, count in self.facts()["anomalies"].items() if count}
        listed = ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "none"
        return [["anomalies", listed]]

    def notes(self) -> list[str]:
        """That times are used, with which steps and periods, and what is said of single series."""
        periods = " and ".join(self.times.span(period) for period in self.periods)
        column = f"The column {self.table.layout.index!r}" if self.table.layout.index else "The first column"
        found = f"periods of {periods}" if periods else "no period"
        used = (
            f"{column} is time: steps of {self.times.span(1)}, {found}; --no-time completes it without regard to time."
        )
        return [used, *(f"{note[0].upper()}{note[1:]}." for note in self._notes)]

    def headline(self) -> tuple[str, str]:
        """A number of the report, and its meaning."""
        runs = len(self.anomalies["kind"])
        return f"{runs:,}", "runs of outliers, judged as a whole" if runs != 1 else "run of outliers, judged as a whole"

    def about(self, verdict: Verdict) -> dict[str, Any]:
        """What the report says about the solve."""
        level = percent(self.interval or LEVEL)
        good = verdict.level == "good"
        periods = ", ".join(self.times.span(period) for period in self.periods) or "none"
        return {
            "settings": {
                "model": "RobustSeriesImputer",
                "step": self.times.span(1),
                "periods": periods,
                "bands": level,
            },
            "remarks": [
                Remark(f"{verdict.level.capitalize()}: {verdict.why}.", good),
                Remark(f"Bands hold {level} of values that were kept aside, in gaps like those that were filled."),
                Remark("A level that shifts and stays is no error; a run that jumps off and back again is."),
            ],
        }

    def report(self, path: Path, run: Run) -> None:
        """Write the report."""
        times, ends = self.times, {name: self.times.positions[self.anomalies[name]] for name in ("begin", "end")}
        view = SeriesView(
            names=[str(label) for label in self.table.columns],
            start=times.stamps[0],
            step=times.step,
            given=self._on_grid(self.given),
            value=self._on_grid(self.value),
            lower=self._on_grid(self.lower),
            upper=self._on_grid(self.upper),
            level=self.interval or LEVEL,
            anomalies=self.anomalies | ends,
            labels=dict(zip(times.positions.tolist(), map(str, self.table.rows), strict=True)),
        )
        shown = view.shown().size
        if shown < len(view.names):
            note = (
                f"The chart shows {pluralize(shown, 'series', 'series')} of {len(view.names):,}: those with most gaps."
            )
            run = replace(run, notes=[*run.notes, note])
        series_report(path, run, view)


def _unique(names: list[str]) -> list[str]:
    """Names, with their positions if one stands twice.

    >>> _unique(["a", "b", "a"])
    ['a (0)', 'b (1)', 'a (2)']
    """
    return names if len(set(names)) == len(names) else [f"{name} ({k})" for k, name in enumerate(names)]
