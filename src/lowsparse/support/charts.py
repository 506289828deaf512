"""Small charts as inline SVG: they take the width there is, and letters and strokes keep their size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .format import number
from .html import Markup, element, joined

__all__ = ["area", "bars", "convergence", "curve"]

Floats = NDArray[np.float64]
MOST_POINTS = 600


def curve(x: ArrayLike, y: ArrayLike, *, x_name: str, y_name: str, words: str) -> Markup:
    """A curve of positive numbers on a logarithmic scale; what is not positive or not finite is left out."""
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    drawn = np.isfinite(across) & np.isfinite(up) & (up > 0)
    across, up = across[drawn], np.log10(up[drawn])
    if not across.size:
        return element("p", "There is nothing to draw.", class_="quiet")
    left, right = min(0.0, across.min()), max(across.max(), 1e-12)
    low, high = math.floor(up.min()), max(math.ceil(up.max()), math.floor(up.min()) + 1)
    places = 100 * (across - left) / (right - left), 100 * (high - up) / (high - low)
    decades = range(low, high + 1, max(1, math.ceil((high - low) / 5)))
    line = element("path", d=_path(*places), class_="line", vector_effect="non-scaling-stroke")
    end = element("circle", cx=_percent(places[0][-1]), cy=_percent(places[1][-1]), r=4, class_="end")
    return _chart(
        joined(_stretched(line), end),
        rows=[(100 * (high - power) / (high - low), _power(power)) for power in decades],
        columns=[(100 * (tick - left) / (right - left), number(tick)) for tick in _ticks(left, right)],
        x_name=x_name,
        y_name=y_name,
        words=words,
    )


def convergence(trace: Mapping[str, ArrayLike]) -> tuple[str, Markup] | None:
    """How L settled, in words and as a curve; None if the trace does not tell.

    >>> words, drawn = convergence({"change": [0.1, 0.001]})
    >>> words
    'The relative change of L falls to 0.001 in 2 iterations.'
    """
    changes = np.asarray(trace.get("change", ()), dtype=np.float64)
    drawn = np.isfinite(changes) & (changes > 0)
    if not drawn.any():
        return None
    iterations = np.asarray(trace.get("iteration", np.arange(1, changes.size + 1)), dtype=np.float64)
    last = number(float(changes[drawn][-1]))
    words = f"The relative change of L falls to {last} in {changes.size} iterations."
    return words, curve(iterations, changes, x_name="iteration", y_name="relative change of L", words=words)


def bars(values: ArrayLike, names: Sequence[str], *, x_name: str, y_name: str, words: str) -> Markup:
    """Bars from zero."""
    heights = np.asarray(values, dtype=np.float64)
    ticks = _ticks(0.0, float(heights.max(initial=0.0)) or 1.0)
    top = max(float(heights.max(initial=0.0)), ticks[-1])
    pitch = 100 / len(heights)
    width = min(0.72 * pitch, 12.0)
    drawn = [
        element(
            "rect",
            element("title", f"{name}: {number(height)}"),
            x=_percent((k + 0.5) * pitch - width / 2),
            y=_percent(100 - 100 * height / top),
            width=_percent(width),
            height=_percent(100 * height / top),
            class_="bar",
        )
        for k, (name, height) in enumerate(zip(names, heights, strict=True))
    ]
    step = math.ceil(len(names) / 10)
    return _chart(
        joined(*drawn),
        rows=[(100 - 100 * tick / top, number(tick)) for tick in ticks],
        columns=[((k + 0.5) * pitch, names[k]) for k in range(0, len(names), step)],
        x_name=x_name,
        y_name=y_name,
        words=words,
    )


def area(values: ArrayLike) -> Markup:
    """What lies under a curve, from the left edge to the right one, without axes; the largest number touches the top.

    Of many numbers the largest of each bin is drawn: a single frame that stands out must be seen.
    """
    heights = np.asarray(values, dtype=np.float64)
    if heights.size > MOST_POINTS:
        starts = np.arange(MOST_POINTS) * heights.size // MOST_POINTS
        heights = np.maximum.reduceat(heights, starts)
    if heights.size == 1:
        heights = np.repeat(heights, 2)
    top = float(heights.max()) or 1.0
    places = np.linspace(0, 100, heights.size), 100 - 97 * heights / top
    closed = f"{_path(*places)}V100H0Z"
    return _stretched(
        element("path", d=closed, class_="area"),
        element("path", d=_path(*places), class_="line", vector_effect="non-scaling-stroke"),
    )


# ---------------------------------------------------------------------- parts


def _chart(
    drawn: Markup,
    *,
    rows: Sequence[tuple[float, str]],
    columns: Sequence[tuple[float, str]],
    x_name: str,
    y_name: str,
    words: str,
) -> Markup:
    """A frame around what is drawn: places in percent from the upper left corner, and what to write there."""
    grid = [element("line", x1="0%", x2="100%", y1=_percent(y), y2=_percent(y), class_="grid") for y, _ in rows]
    labels = [element("text", text, x="100%", y=_percent(y), dy="0.32em", text_anchor="end") for y, text in rows]
    below = [element("text", text, x=_percent(x), y="12", text_anchor=_anchor(x)) for x, text in columns]
    return element(
        "div",
        element("div", y_name, class_="y-name"),
        element("svg", *labels, class_="y-axis"),
        element("svg", *grid, drawn, class_="plot"),
        element("svg", *below, class_="x-axis"),
        element("div", x_name, class_="x-name"),
        class_="chart",
        role="img",
        aria_label=words,
    )


def _stretched(*drawn: Markup) -> Markup:
    """Something drawn on 100 x 100, over all the room there is."""
    return element("svg", *drawn, viewBox="0 0 100 100", preserveAspectRatio="none", width="100%", height="100%")


def _path(x: Floats, y: Floats) -> str:
    return "M" + "L".join(f"{a:.5g} {b:.5g}" for a, b in zip(x, y, strict=True))


def _percent(value: float) -> str:
    return f"{value:.5g}%"


def _anchor(x: float) -> str:
    """Labels at the ends stay inside."""
    return "start" if x < 2 else "end" if x > 98 else "middle"


def _power(exponent: int) -> Markup:
    if 0 <= exponent <= 3:
        return Markup(f"{10**exponent:d}")
    return joined("10", element("tspan", f"{exponent}".replace("-", "−"), class_="power", dy="-0.45em"))


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, four to six of them or so.

    >>> _ticks(0, 45), _ticks(0, 0.7)
    ([0.0, 10.0, 20.0, 30.0, 40.0], [0.0, 0.2, 0.4, 0.6])
    """
    raw = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= 0.75 * raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
