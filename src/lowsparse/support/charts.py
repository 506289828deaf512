"""Small charts as inline SVG that fill the available width; text and strokes keep their size."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .format import format_number
from .html import Markup, element, joined

Floats = NDArray[np.float64]
MOST_POINTS = 600


def convergence(trace: Mapping[str, ArrayLike]) -> tuple[str, Markup] | None:
    """The relative change of L over the iterations, as a sentence and a chart; None if the trace lacks it.

    >>> sentence, chart = convergence({"change": [0.1, 0.001]})
    >>> sentence
    'The relative change of L falls to 0.001 in 2 iterations.'
    """
    changes = np.asarray(trace.get("change", ()), dtype=np.float64)
    iterations = np.asarray(trace.get("iteration", np.arange(1, changes.size + 1)), dtype=np.float64)
    valid = np.isfinite(iterations) & np.isfinite(changes) & (changes > 0)
    if not valid.any():
        return None
    x, y = iterations[valid], np.log10(changes[valid])
    left, right = min(0.0, x.min()), max(x.max(), 1e-12)
    low, high = math.floor(y.min()), max(math.ceil(y.max()), math.floor(y.min()) + 1)
    points = 100 * (x - left) / (right - left), 100 * (high - y) / (high - low)
    decades = range(low, high + 1, max(1, math.ceil((high - low) / 5)))
    line = element("path", d=_path(*points), class_="line", vector_effect="non-scaling-stroke")
    end = element("circle", cx=_percent(points[0][-1]), cy=_percent(points[1][-1]), r=4, class_="end")
    last = format_number(float(changes[valid][-1]))
    sentence = f"The relative change of L falls to {last} in {changes.size} iterations."
    return sentence, _chart(
        joined(_stretched(line), end),
        rows=[(100 * (high - power) / (high - low), _power(power)) for power in decades],
        columns=[(100 * (tick - left) / (right - left), format_number(tick)) for tick in _ticks(left, right)],
        x_name="iteration",
        y_name="relative change of L",
        label=sentence,
    )


def bars(values: ArrayLike, names: Sequence[str], *, x_name: str, y_name: str, label: str) -> Markup:
    """A bar chart from zero."""
    heights = np.asarray(values, dtype=np.float64)
    ticks = _ticks(0.0, float(heights.max(initial=0.0)) or 1.0)
    top = max(float(heights.max(initial=0.0)), ticks[-1])
    pitch = 100 / len(heights)
    width = min(0.72 * pitch, 12.0)
    rectangles = [
        element(
            "rect",
            element("title", f"{name}: {format_number(height)}"),
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
        joined(*rectangles),
        rows=[(100 - 100 * tick / top, format_number(tick)) for tick in ticks],
        columns=[((k + 0.5) * pitch, names[k]) for k in range(0, len(names), step)],
        x_name=x_name,
        y_name=y_name,
        label=label,
    )


def area(values: ArrayLike) -> Markup:
    """The filled area under a curve over the full width, without axes.

    Many values are drawn as the maxima of bins, so that a single peak stays visible.
    """
    heights = np.asarray(values, dtype=np.float64)
    if heights.size > MOST_POINTS:
        starts = np.arange(MOST_POINTS) * heights.size // MOST_POINTS
        heights = np.maximum.reduceat(heights, starts)
    if heights.size == 1:
        heights = np.repeat(heights, 2)
    top = float(heights.max()) or 1.0
    points = np.linspace(0, 100, heights.size), 100 - 97 * heights / top
    closed = f"{_path(*points)}V100H0Z"
    return _stretched(
        element("path", d=closed, class_="area"),
        element("path", d=_path(*points), class_="line", vector_effect="non-scaling-stroke"),
    )


def _chart(
    content: Markup,
    *,
    rows: Sequence[tuple[float, str]],
    columns: Sequence[tuple[float, str]],
    x_name: str,
    y_name: str,
    label: str,
) -> Markup:
    """Axes around the content; ticks are positions in percent from the upper left corner, and their labels."""
    grid = [element("line", x1="0%", x2="100%", y1=_percent(y), y2=_percent(y), class_="grid") for y, _ in rows]
    labels = [element("text", text, x="100%", y=_percent(y), dy="0.32em", text_anchor="end") for y, text in rows]
    below = [element("text", text, x=_percent(x), y="12", text_anchor=_anchor(x)) for x, text in columns]
    return element(
        "div",
        element("div", y_name, class_="y-name"),
        element("svg", *labels, class_="y-axis"),
        element("svg", *grid, content, class_="plot"),
        element("svg", *below, class_="x-axis"),
        element("div", x_name, class_="x-name"),
        class_="chart",
        role="img",
        aria_label=label,
    )


def _stretched(*content: Markup) -> Markup:
    """Content drawn on 100 x 100, stretched over the available space."""
    return element("svg", *content, viewBox="0 0 100 100", preserveAspectRatio="none", width="100%", height="100%")


def _path(x: Floats, y: Floats) -> str:
    return "M" + "L".join(f"{a:.5g} {b:.5g}" for a, b in zip(x, y, strict=True))


def _percent(value: float) -> str:
    return f"{value:.5g}%"


def _anchor(x: float) -> str:
    """Keep the labels at both ends inside the chart."""
    return "start" if x < 2 else "end" if x > 98 else "middle"


def _power(exponent: int) -> Markup:
    if 0 <= exponent <= 3:
        return Markup(f"{10**exponent:d}")
    return joined("10", element("tspan", f"{exponent}".replace("-", "−"), class_="power", dy="-0.45em"))


def _ticks(low: float, high: float) -> list[float]:
    """About four to six round numbers from low to high.

    >>> _ticks(0, 45), _ticks(0, 0.7)
    ([0.0, 10.0, 20.0, 30.0, 40.0], [0.0, 0.2, 0.4, 0.6])
    """
    raw = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= 0.75 * raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
