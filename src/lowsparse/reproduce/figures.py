"""Figures: the panels of the paper, and the backgrounds side by side."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plots
from . import settings
from .settings import label
from .synthetic import Case
from .video import Scene, psnr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 4  # panels in a row


def panels(cases: Sequence[Case]) -> Figure:
    """The relative difference against seconds, and below it against iterations, four cases in a row."""
    rows = -(-len(cases) // ACROSS)
    across = min(ACROSS, len(cases))
    figure = plots.new_figure((3.5 * across + 0.3, 5.4 * rows + 0.5), dpi=110, padding=(0.04, 0.05))
    grid: Any = figure.subplots(2 * rows, across, squeeze=False)
    for panel in grid.flat:
        panel.set_visible(False)
    for k, case in enumerate(cases):
        traces = {
            method: {name: record[name] for name in ("iteration", "seconds", "error")}
            for method, record in case.selected.items()
        }
        for below, x in enumerate(("seconds", "iteration")):
            ax: Axes = grid[2 * (k // ACROSS) + below, k % ACROSS]
            ax.set_visible(True)
            plots.convergence(traces, x=x, ax=ax)
            limit = _axis_end(traces, x)
            ax.set_xlim(0, limit)
            for line in ax.lines:  # the dots at the ends of curves are not clipped
                line.set_visible(line.get_marker() != "o" or float(np.asarray(line.get_xdata())[-1]) <= limit)
            ax.set_ylim(0.3 * settings.GOAL, 3.0)
            ax.set_ylabel("relative difference" if k % ACROSS == 0 else "")
            ax.set_title(f"Case {case.number}", fontsize=10.5, loc="left")
            if k % ACROSS:
                ax.tick_params(labelleft=False)
    shown = [method for method in settings.METHODS if any(method in case.runs for case in cases)]
    styles = {method: plots.STYLES[method] for method in shown}
    entry = importlib.import_module("matplotlib.lines").Line2D
    handles = [entry([], [], color=c, linestyle=style, label=label(method)) for method, (_, c, style) in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(shown), frameon=False, fontsize=10)
    return figure


def _axis_end(traces: dict[str, dict[str, Any]], x: str) -> float:
    """The end of the x axis: just behind the last curve that reaches the difference judged by."""
    ends = []
    for trace in traces.values():
        error = np.asarray(trace["error"])
        if (error <= settings.JUDGED).any():
            ends.append(trace[x][-1] if error[-1] <= settings.TARGETS[-1] else trace[x][int(np.argmin(error))])
    return 1.04 * float(max(ends or [trace[x][-1] for trace in traces.values()]))


def backgrounds(scenes: Sequence[Scene], folder: Path) -> Figure:
    """A frame, the trusted background, and those of all methods: a block for each share of the pixels.

    The backgrounds of the methods are pictures in the folder.
    """
    blocks = [_pictures(scene, folder) for scene in scenes]
    across = min(ACROSS, max(map(len, blocks)))
    rows = -(-max(map(len, blocks)) // across)
    _, H, W = scenes[0].clip.frames.shape
    width = 2.6
    size = width * across + 0.3, (width * H / W + 0.28) * rows * len(scenes)
    figure = plots.new_figure(size, dpi=110, padding=(0.04, 0.05))
    grid: Any = figure.subplots(rows * len(scenes), across, squeeze=False)
    for panel in grid.flat:
        panel.set_axis_off()
    for k, (scene, pictures) in enumerate(zip(scenes, blocks, strict=True)):
        block = grid[rows * k : rows * (k + 1)]
        for panel, (caption, pixels) in zip(block.flat, pictures, strict=False):
            panel.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            panel.set_title(caption, fontsize=10, pad=3)
        first = block[0, 0]
        first.text(-0.04, 0.5, f"{scene.share:.0%}", transform=first.transAxes, rotation=90, va="center", ha="right")
    return figure


def _pictures(scene: Scene, folder: Path) -> list[tuple[str, Any]]:
    """The captions and pictures of a block."""
    clip = scene.clip
    t = clip.busiest
    trusted = "true background" if clip.truth_is_known else "trusted background"
    shown: list[tuple[str, Any]] = [(f"frame {t + 1}", clip.frames[t]), (trusted, clip.trusted[t])]
    image = importlib.import_module("matplotlib.image")
    for method, record in scene.selected.items():
        pixels = 255 * image.imread(folder / record["files"][0])[..., 0]
        shown.append((f"{plots.STYLES[method][0]}, {psnr(record):.1f} dB", pixels))
    return shown
