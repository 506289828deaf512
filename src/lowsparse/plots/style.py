"""Colours, and figures and axes as all plots here have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..support.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, for all kinds of colour vision; the two families also differ in their dashes.
STYLES = {
    "ladder": ("Ladder", "#000000", "-"),
    "amanpgc": ("AManPGC", "#0072B2", "-"),
    "manpgc": ("ManPGC", "#D55E00", "-"),
    "rmc": ("RMC", "#009E73", "-"),
    "lmafit": ("LMaFit", "#CC79A7", "-"),
    "subgm": ("SubGM", "#999999", "-"),
    "amanpg": ("AManPG (fixed γ sets its floor)", "#56B4E9", (0, (5, 1.6))),
    "manpg": ("ManPG (fixed γ sets its floor)", "#E69F00", (0, (5, 1.6))),
}
OTHERS = ("#009E73", "#CC79A7", "#999999", "#F0E442")
AXIS_NAMES = {"seconds": "seconds", "iteration": "iterations", "error": "relative error", "change": "relative change"}
NOTHING = (188, 211, 238)  # behind a cut-out: a light blue, against which black and white stand out
FAINT, PALE, INK = "#e4e4e4", "#888888", "#222222"
# For all kinds of colour vision: levels from dark to light, signs diverging from white; missing entries are white.
LEVELS, SIGNS = "cividis", "PuOr_r"
# Of residuals in units of the noise: blue is too low, red too high, and what is usual, up to 3, is pale.
RESIDUALS = ((-10.0, "#2166ac"), (-3.0, "#f3ecc9"), (3.0, "#f3ecc9"), (10.0, "#b2182b"))


def matplotlib(module: str) -> Any:
    """A module of matplotlib, imported when needed."""
    return import_optional(f"matplotlib.{module}", "plot", "figures")


def new_or_given(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes to draw on, or those of a new figure."""
    new: Axes = ax or matplotlib("pyplot").subplots(figsize=size, layout="constrained")[1]
    return new


def new_figure(
    size: tuple[float, float], *, dpi: int = 120, padding: tuple[float | None, float | None] = (None, None)
) -> Figure:
    """A figure that need not be closed; loading the backend of pyplot lets notebooks show it."""
    matplotlib("pyplot").draw_if_interactive()
    spacing = matplotlib("layout_engine").ConstrainedLayoutEngine(w_pad=padding[0], h_pad=padding[1])
    figure: Figure = matplotlib("figure").Figure(figsize=size, dpi=dpi, layout=spacing)
    return figure


def plain_axes(ax: Axes) -> None:
    """A faint grid, and no frame at the top and right."""
    ax.grid(which="major", color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", color=PALE, labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(PALE)
