"""The report on a video: a player with original, background and foreground side by side, frame by frame."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..support.charts import area
from ..support.html import Markup, element, joined
from .film import Filmstrip, inline, size
from .page import (
    Run,
    card,
    icon,
    listed,
    pane,
    write,
)

__all__ = ["video_report"]

PANES = {
    "Original": "what the camera saw",
    "Background": "what stays",
    "Foreground": "what moves",
}
BUTTONS = {"first": "First frame", "back": "Frame before", "play": "Play", "next": "Next frame", "last": "Last frame"}
PACE = 8.0  # pictures a second, so that one sees what moves
FRAMES_A_SECOND = 10.0  # where the video does not say


def video_report(
    path: str | os.PathLike[str],
    run: Run,
    film: Filmstrip,
    *,
    density: ArrayLike,
    fps: float | None = None,
    scores: Mapping[str, str] | None = None,
) -> None:
    """Write the report on a video, in the place of an earlier one.

    Parameters
    ----------
    path
        Of the HTML file.
    run
        What was done.
    film
        The pictures.
    density
        For every frame, also those without pictures, the share of its pixels in the foreground.
    fps
        Frames a second, of those that were looked at.
    scores
        How well it agrees with a truth that was given: names, and what to write behind them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> film, rng = Filmstrip(), np.random.default_rng(1)
    >>> for t in range(3):
    ...     frame = rng.integers(0, 256, (36, 48)).astype(np.uint8)
    ...     film.add(t, frame, background=np.full_like(frame, 128), foreground=frame)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder, "report.html")
    ...     video_report(page, Run(title="noise.avi"), film, density=[0.5, 0.4, 0.6], fps=10)
    ...     page.read_text("utf-8").count("<figure")
    3
    """
    shares = np.asarray(density, dtype=np.float64)
    if not film.numbers:
        raise ValueError("the film is empty: add a frame")
    if shares.ndim != 1 or shares.size <= film.numbers[-1]:
        raise ValueError(f"density needs a number for each frame up to {film.numbers[-1]}, its shape is {shares.shape}")
    if not (np.isfinite(shares).all() and (shares >= 0).all() and (shares <= 1).all()):
        raise ValueError("density must hold shares from 0 to 1")
    if fps is not None and not 0 < fps < float("inf"):
        raise ValueError(f"fps must be positive, not {fps}")
    pictures = list(dict.fromkeys(picture for moment in film.moments for picture in moment))
    place = {picture: k for k, picture in enumerate(pictures)}
    data = {
        "pictures": [inline(picture) for picture in pictures],
        "panes": [[place[moment[k]] for moment in film.moments] for k in range(len(PANES))],
        "numbers": film.numbers,
        "frames": shares.size,
        "density": [round(float(share), 6) for share in shares[film.numbers]],
        "fps": fps,
    }
    write(
        Path(path),
        run,
        kind="video report",
        body=_player(film, shares, fps),
        cards=[card("Against the truth", listed(scores))] if scores else (),
        reading="Here a row is a frame, a column is a pixel, and an entry is a pixel of a frame.",
        scripts=["player.js"],
        data=data,
    )


def _player(film: Filmstrip, shares: NDArray[np.float64], fps: float | None) -> Markup:
    width, height = size(film.moments[0][0])
    panes = [
        pane(
            name,
            words,
            element("img", src=inline(picture), alt=name, width=width, height=height, decoding="sync"),
        )
        for (name, words), picture in zip(PANES.items(), film.moments[0], strict=True)
    ]
    buttons = [
        element(
            "button", icon(name), icon("pause") if name == "play" else None, type="button", id=name, aria_label=said
        )
        for name, said in BUTTONS.items()
    ]
    scrubber = element(
        "input",
        type="range",
        id="scrubber",
        min=0,
        max=len(film.numbers) - 1,
        value=0,
        step=1,
        autocomplete="off",
        aria_label="Frame",
        aria_keyshortcuts="ArrowLeft ArrowRight Home End Space",
    )
    keys = "Keys: ← → one frame, Page ↑ ↓ ten, Home and End, space to play."
    return element(
        "section",
        element("div", *panes, class_="panes"),
        element(
            "div",
            element(
                "div",
                element("div", *buttons, class_="buttons"),
                element("p", f"Frame 1 of {shares.size:,}", id="where"),
                _speeds(film.every, fps),
                class_="controls",
            ),
            scrubber,
            _density(shares),
            class_="transport",
        ),
        element("p", keys, class_="keys quiet"),
        element("noscript", element("p", "The player needs JavaScript; this is the first frame.", class_="quiet")),
        class_="player",
        id="player",
        aria_label="Player",
    )


def _speeds(every: int, fps: float | None) -> Markup:
    """A choice of speeds, as multiples of the video's own, around one at which the eye can follow."""
    usual = (fps or FRAMES_A_SECOND) / every  # pictures a second at the video's own speed
    best = 2.0 ** round(np.log2(PACE / usual))
    options = [
        element("option", f"{multiple:g}×", value=f"{multiple * usual:.6g}", selected=multiple == best)
        for multiple in (best * 2.0**power for power in range(-3, 3))
    ]
    return element("label", "Speed ", element("select", *options, id="speed", autocomplete="off"), class_="speed")


def _density(shares: NDArray[np.float64]) -> Markup:
    peak = int(np.argmax(shares))
    words = (
        f"Share of pixels in the foreground over time: {_share(np.median(shares))} as a rule, at most "
        f"{_share(shares[peak])} at frame {peak + 1:,}."
    )
    head = element("line", x1="0%", x2="0%", y1="0", y2="100%", class_="playhead", id="playhead")
    return joined(
        element("div", element("svg", area(shares), head), id="density", role="img", aria_label=words),
        element(
            "p",
            element("span", "In the foreground now: ", element("strong", _share(shares[0]), id="now")),
            element(
                "span", f"{_share(np.median(shares))} as a rule, most at frame {peak + 1:,}: {_share(shares[peak])}"
            ),
            class_="quiet below",
        ),
    )


def _share(share: float) -> str:
    """As the script writes it, moment by moment."""
    return f"{100 * share:.1f} %"
