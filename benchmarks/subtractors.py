"""Who separates a clip into background and foreground: ours, the plain median, OpenCV's subtractors, and SuBSENSE.

All run with their defaults. OpenCV's, SuBSENSE and our stream see every frame once, in order; the median and ours learn
from the whole clip first. Each takes a scene and returns its masks, of all frames.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowsparse.video.foreground import majority
from lowsparse.video.learning import learn
from lowsparse.video.tracking import Follower

from .apart import load
from .scenes import Mask, Scene

OWN = "ours"
FAR = 25  # grey levels from the median
SHADOW = 127  # what MOG2 and KNN write where they take something for a shadow

Subtractor = Callable[[Scene], Mask]


def batch(scene: Scene, rank: int | None = None) -> Mask:
    frames = scene.as_frames()
    found = learn(frames, rank=rank, length=len(frames))
    return np.stack([one.mask for one in found.separate(frames)])


def stream(scene: Scene, rank: int | None = None) -> Mask:
    return np.stack([one.mask for one in Follower(rank=rank).follow(scene.as_frames())])


def median(scene: Scene) -> Mask:
    """Farther than 25 grey levels from the median over time, in any colour, as most of 3 x 3 pixels are."""
    frames = scene.frames.reshape(*scene.frames.shape[:3], -1)
    usual = np.median(frames, axis=0)
    return np.stack([majority((np.abs(frame - usual) > FAR).any(axis=2), 1) for frame in frames])


def _of_opencv(name: str, scene: Scene) -> Mask:
    subtractor = _creator(name)()
    return np.stack([subtractor.apply(frame) > SHADOW for frame in _bgr(scene)])


def subsense(scene: Scene) -> Mask:
    """SuBSENSE (St-Charles, Bilodeau and Bergevin, 2015) as BGSLibrary has it; it wants a folder for settings."""
    frames = scene.frames if scene.frames.ndim == 3 else _bgr(scene)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("config").mkdir()
        subtractor = load("pybgs").SuBSENSE()
        return np.stack([subtractor.apply(frame) > SHADOW for frame in frames])


def _bgr(scene: Scene) -> NDArray[np.uint8]:
    """The frames as OpenCV takes them; GSOC and LSBP in colours only."""
    if scene.frames.ndim == 3:
        return np.repeat(scene.frames[..., None], 3, axis=3)
    return np.ascontiguousarray(scene.frames[..., ::-1])


def _creator(name: str) -> Callable[[], Any]:
    opencv = load("cv2")
    if name in ("MOG2", "KNN"):
        return getattr(opencv, f"createBackgroundSubtractor{name}")  # type: ignore[no-any-return]
    return getattr(opencv.bgsegm, f"createBackgroundSubtractor{name}")  # type: ignore[no-any-return]


OPENCV = ("MOG2", "KNN", "CNT", "GSOC", "LSBP")
SUBTRACTORS: dict[str, Subtractor] = {
    OWN: batch,
    "stream": stream,
    "rank 2": partial(batch, rank=2),
    "stream, rank 2": partial(stream, rank=2),
    "median": median,
    **{name: partial(_of_opencv, name) for name in OPENCV},
    "SuBSENSE": subsense,
}


def missing() -> dict[str, list[str]]:
    """By the package that is not installed, those that need it: all of OpenCV, or those of its extra modules."""
    opencv = OPENCV if find_spec("cv2") is None else () if hasattr(load("cv2"), "bgsegm") else ("CNT", "GSOC", "LSBP")
    others = () if find_spec("pybgs") else ("SuBSENSE",)
    of_package = {"opencv-contrib-python-headless": list(opencv), "pybgs": list(others)}
    return {package: absent for package, absent in of_package.items() if absent}
