"""Measurements as cells of a table, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from lowsparse import plots

COLOURS = ("#000000", "#0072B2", *(plots.OTHERS[:2] * 9))
MARKERS = "osD^vPX*h"


def cell(value: Any, form: str, unit: float | None = None) -> str:
    """A number in this form, of this unit, and nothing where there is none."""
    return "" if value is None else format(value if unit is None else value / unit, form)


def error_against_seconds(
    panels: Mapping[str, Sequence[Mapping[str, Any]]],
    contestants: Iterable[str],
    *,
    title: str,
    y_name: str,
    size: tuple[float, float],
    same_y: bool = False,
) -> Figure:
    """A panel with a title for the rows of each, a colour and a marker for each contestant."""
    looks = dict(zip(contestants, zip(COLOURS, MARKERS, strict=False), strict=False))
    picture = Figure(figsize=size, dpi=140, layout="constrained")
    axes = picture.subplots(1, len(panels), squeeze=False, sharey=same_y)[0]
    drawn: dict[str, Any] = {}
    for ax, (name, rows) in zip(axes, panels.items(), strict=True):
        for row in (row for row in rows if row["seconds"] is not None):
            colour, marker = looks[row["contestant"]]
            (drawn[row["label"]],) = ax.plot(
                row["seconds"], row["error"], marker, color=colour, markersize=8, linestyle="none"
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("seconds")
        ax.set_title(name, fontsize=10)
        ax.margins(0.2)
        plots.plain_axes(ax)
    axes[0].set_ylabel(y_name)
    picture.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    picture.suptitle(title, x=0.014, ha="left", fontsize=12)
    return picture
