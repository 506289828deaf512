"""A subtractor of backgrounds for frames in arrays, used like those of OpenCV.

Frames go through a `Follower`, which holds some of them back until it is sure of a background or of a new scene. Here
every frame is answered at once: with the background that is known, or that the frames held back give.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from ..entries.clips.reader import RATE
from ..entries.frames import Frame
from ..entries.pictures import Grey, Picture
from ..support.checks import check_choice
from ..sweeps import Float
from .background import THRESHOLD, Background
from .foreground import Separated
from .learning import learn
from .registration import Aligned
from .sampling import MIN_SAMPLES
from .tracking import FIRST, NEW_SCENE, SHARE, Follower
from .views import mask

EARLY = 3, 6, NEW_SCENE, 20, 40, 70, FIRST, 150, 220  # numbers of frames held back from which a background is learnt


class BackgroundSubtractor:
    """Masks of what is in front, frame by frame, without a delay; the background follows the scene.

    Parameters
    ----------
    rank, observe, threshold, clean, random_state, backend
        As for `Follower`.
    order
        Of the colours of a frame: "bgr", as OpenCV reads it, or "rgb".

    Notes
    -----
    The first two frames have nothing in front, as nothing else is known of the scene. Then the background is
    learnt from the frames so far, and again after 6, 10, 20, 40, 70 and 100, and where leaves or water move after 150,
    220 and 300; from then on it is learnt again every 20 to 50 frames while the next five pass.

    Examples
    --------
    >>> from lowsparse.datasets import moving_blocks
    >>> clip = moving_blocks(100, 40, 48, random_state=2)
    >>> subtractor = BackgroundSubtractor()
    >>> masks = [subtractor.apply(frame) for frame in clip.frames]
    >>> masks[0].dtype.name, float(np.mean((masks[90] > 0) == clip.moving[90])) > 0.97
    ('uint8', True)
    >>> bool(np.abs(subtractor.getBackgroundImage().astype(int) - clip.background[-1]).mean() < 3)
    True
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        observe: float = SHARE,
        threshold: float = THRESHOLD,
        clean: int = 1,
        order: str = "bgr",
        random_state: int = 0,
        backend: str = "auto",
    ) -> None:
        self.order = check_choice("order", order, ("bgr", "rgb"))
        self._follower = Follower(
            rank=rank, observe=observe, threshold=threshold, clean=clean, random_state=random_state, backend=backend
        )
        self._frames = 0
        self._shape: tuple[int, ...] | None = None  # of a frame
        self._known: Background | None = None  # in use
        self._separate: Callable[[Aligned, Float, float], Separated] | None = None  # by that, if it was needed
        self._latest: Picture | None = None  # the background of the latest frame

    def apply(self, image: ArrayLike, fgmask: Grey | None = None, learningRate: float = -1) -> Grey:
        """The mask of the next frame.

        Parameters
        ----------
        image
            The frame: (H, W), or (H, W, 3) in colour, of uint8.
        fgmask
            An array that the mask is written to, if it is given.
        learningRate
            0: nothing is learnt from this frame; otherwise the background adapts by itself.

        Returns
        -------
        array of uint8
            255 where something is in front, 0 elsewhere.

        Raises
        ------
        ValueError
            If the frame is not one, has another shape than those before, `fgmask` cannot take the mask, or
            `learningRate` is above 0.
        """
        if not (isinstance(learningRate, Real) and learningRate <= 0):
            raise ValueError(f"learningRate must be -1 (the background adapts) or 0 (it stays), not {learningRate!r}")
        frame = Frame(self._picture(image), self._frames, self._frames, float(self._frames / RATE))
        if fgmask is not None:
            _check_can_take_mask(fgmask, frame.picture.shape)
        self._frames += 1
        found = self._separate_known(frame) if learningRate == 0 else self._follow(frame)
        self._latest = frame.picture if found is None else found.background
        pixels = np.zeros(frame.picture.shape, np.uint8) if found is None else mask(found).luma
        if fgmask is None:
            return pixels
        np.copyto(fgmask, pixels)
        return fgmask

    def getBackgroundImage(self) -> Grey:  # noqa: N802
        """The background of the latest frame.

        Returns
        -------
        array of uint8
            As frames are given: (H, W), or (H, W, 3) in colour.

        Raises
        ------
        RuntimeError
            If there was no frame yet.
        """
        if self._latest is None or self._shape is None:
            raise RuntimeError("no frame has been seen yet: apply the subtractor to one")
        if len(self._shape) == 2:
            return self._latest.luma.copy()  # the picture of the first frames is still needed
        rgb = self._latest.rgb()
        return rgb if self.order == "rgb" else np.ascontiguousarray(rgb[..., ::-1])

    def _picture(self, image: ArrayLike) -> Picture:
        if image is None:
            raise ValueError("there is no frame, but None: the camera or the file has ended, or cannot be read")
        pixels = np.asarray(image)
        if (
            pixels.dtype != np.uint8
            or pixels.ndim not in (2, 3)
            or pixels.shape[2:] not in ((), (3,))
            or not pixels.size
        ):
            raise ValueError(
                f"a frame is (H, W) or (H, W, 3) of uint8, not {pixels.shape} of {pixels.dtype}: numbers from 0 to 1 "
                "are converted by (255 * frame).astype(np.uint8), and a fourth channel is left out by frame[..., :3]"
            )
        if self._shape is not None and pixels.shape != self._shape:
            raise ValueError(
                f"frames keep their shape, {self._shape}, not {pixels.shape}: make a new subtractor for others"
            )
        self._shape = pixels.shape
        if pixels.ndim == 2:
            return Picture(pixels.copy())  # the caller may use the array again
        return Picture.of_rgb(pixels if self.order == "rgb" else pixels[..., ::-1], halved=True)

    def _follow(self, frame: Frame) -> Separated | None:
        """The frame, separated by the follower, or if it is held back, by the background that is known."""
        follower = self._follower
        released = deque(follower.take(frame), maxlen=1)
        if released and released[0].frame.number == frame.number:
            self._know(follower.background)
            return released[0]
        held = follower.waiting
        new = self._known is None or held >= NEW_SCENE
        if new and held in EARLY and held >= max(MIN_SAMPLES, 2 * follower.rank):
            waiting = follower.frames_waiting()
            self._know(learn(waiting, rank=follower.rank, observe=1.0, backend=follower.backend))
        return self._separate_known(frame)

    def _separate_known(self, frame: Frame) -> Separated | None:
        if self._known is None:
            return None
        background, separate = self._known, self._separate
        if separate is None:
            separate = self._separate = background.separator(self._follower.threshold, self._follower.clean)
        aligned = background.align(frame)
        v, explained = background.coefficients_of([aligned.picture])
        return separate(aligned, v[0], explained[0])

    def _know(self, background: Background) -> None:
        if background is not self._known:
            self._known, self._separate = background, None


def _check_can_take_mask(fgmask: object, shape: tuple[int, int]) -> None:
    """Raise if a mask of this shape cannot be written to this."""
    if isinstance(fgmask, np.ndarray) and fgmask.dtype == np.uint8 and fgmask.shape == shape and fgmask.flags.writeable:
        return
    what = f"{fgmask.shape} of {fgmask.dtype}" if isinstance(fgmask, np.ndarray) else type(fgmask).__name__
    raise ValueError(f"fgmask must be an array {shape} of uint8 that can be written to, not {what}; or leave it out")
