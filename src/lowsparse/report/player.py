"""The report on a video: a player with original, background and foreground side by side."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..support.charts import area
from ..support.html import Markup, element, joined
from .film import Filmstrip, inline, size
from .page import Run, card, icon, pane, settings_list, write

PANES = {"Original": "as recorded", "Background": "the low-rank part", "Foreground": "what differs from it"}
BUTTONS = {"first": "First frame", "back": "Previous frame", "play": "Play", "next": "Next frame", "last": "Last frame"}
PACE = 8.0  # pictures a second at the initial speed
DEFAULT_FPS = 10.0


def video_report(
    path: str | os.PathLike[str],
    run: Run,
    film: Filmstrip,
    *,
    density: ArrayLike,
    fps: float | None = None,
    scores: Mapping[str, str] | None = None,
    cards: Sequence[Markup] = (),
) -> None:
    """Write the report on a video.

    `density` is the share of foreground pixels of every frame, also of those without pictures; `scores` are names and
    values of the agreement with the ground truth, if there is one; `cards` are further sections.
    """
    shares = _checked(film, density, fps)
    pictures = list(dict.fromkeys(picture for moment in film.moments for picture in moment))
    index = {picture: k for k, picture in enumerate(pictures)}
    data = {
        "pictures": [inline(picture) for picture in pictures],
        "panes": [[index[moment[k]] for moment in film.moments] for k in range(len(PANES))],
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
        cards=[*cards, *([card("Agreement with the ground truth", settings_list(scores))] if scores else [])],
        scripts=["player.js"],
        data=data,
    )


def _checked(film: Filmstrip, density: ArrayLike, fps: float | None) -> NDArray[np.float64]:
    shares = np.asarray(density, dtype=np.float64)
    if not film.numbers:
        raise ValueError("the film is empty: add a frame")
    if shares.ndim != 1 or shares.size <= film.numbers[-1]:
        raise ValueError(f"density needs a number for each frame up to {film.numbers[-1]}, its shape is {shares.shape}")
    if not (np.isfinite(shares).all() and (shares >= 0).all() and (shares <= 1).all()):
        raise ValueError("density must hold shares from 0 to 1")
    if fps is not None and not 0 < fps < float("inf"):
        raise ValueError(f"fps must be positive, not {fps}")
    return shares


def _player(film: Filmstrip, shares: NDArray[np.float64], fps: float | None) -> Markup:
    width, height = size(film.moments[0][0])
    panes = [
        pane(name, caption, element("img", src=inline(picture), alt=name, width=width, height=height, decoding="sync"))
        for (name, caption), picture in zip(PANES.items(), film.moments[0], strict=True)
    ]
    buttons = []
    for name, label in BUTTONS.items():
        icons = [icon(name), icon("pause") if name == "play" else None]
        buttons.append(element("button", *icons, type="button", id=name, aria_label=label))
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
    where = element("p", f"Frame 1 of {shares.size:,}", id="where")
    controls = [element("div", *buttons, class_="buttons"), where, _speeds(film.every, fps)]
    keys = "Keys: ← → one frame, Page ↑ ↓ ten, Home and End, space to play."
    if film.every > 1:
        keys = f"One frame in {film.every} is shown, {len(film.numbers):,} of {shares.size:,}. {keys}"
    return element(
        "section",
        element("div", *panes, class_="panes"),
        element("div", element("div", *controls, class_="controls"), scrubber, _density(shares), class_="transport"),
        element("p", keys, class_="keys quiet"),
        element("noscript", element("p", "The player needs JavaScript; this is the first frame.", class_="quiet")),
        class_="player",
        id="player",
        aria_label="Player",
    )


def _speeds(every: int, fps: float | None) -> Markup:
    """A choice of speeds, as multiples of the original, around one that is easy to follow."""
    original = (fps or DEFAULT_FPS) / every  # pictures a second
    best = 2.0 ** round(np.log2(PACE / original))
    options = [
        element("option", f"{multiple:g}×", value=f"{multiple * original:.6g}", selected=multiple == best)
        for multiple in (best * 2.0**power for power in range(-3, 3))
    ]
    return element("label", "Speed ", element("select", *options, id="speed", autocomplete="off"), class_="speed")


def _density(shares: NDArray[np.float64]) -> Markup:
    peak = int(np.argmax(shares))
    median, most = _share(np.median(shares)), _share(shares[peak])
    label = f"Share of foreground pixels over time: median {median}, at most {most} at frame {peak + 1:,}."
    head = element("line", x1="0%", x2="0%", y1="0", y2="100%", class_="playhead", id="playhead")
    current = element("span", "Foreground in this frame: ", element("strong", _share(shares[0]), id="now"))
    summary = element("span", f"median {median}, most at frame {peak + 1:,}: {most}")
    return joined(
        element("div", element("svg", area(shares), head), id="density", role="img", aria_label=label),
        element("p", current, summary, class_="quiet below"),
    )


def _share(share: float) -> str:
    """As the script writes it."""
    return f"{100 * share:.1f} %"
