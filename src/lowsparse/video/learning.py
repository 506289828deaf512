"""The background of a video is learnt from a random sample of its pixels, and from some whole pictures."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..entries.frames import Frame
from ..entries.pictures import Picture
from ..support.checks import check_count
from ..support.memory import release_memory
from .background import WITNESSES, Background, is_uneven
from .fitting import OnProgress, fit_background
from .foreground import Mask
from .local_light import with_local_light
from .registration import Steadiness, share_lost
from .relearning import complete, learn_behind
from .sampling import TARGET, EvenlySpaced, PixelSampler, default_share
from .witnesses import place_in, share_staying, share_undecided, signs_in

MANY_WITNESSES, WITNESS_BYTES = 48, 30_000_000  # of small pictures so many are kept, or as many as need so much
MOSTLY, GAIN = 0.9, 0.02  # rank 2 is tried below such a share as well; it must explain so much more,
LITTLE = 0.03  # and cannot, as something is in front, if rank 1 leaves no more than this


def learn(
    frames: Iterable[Frame],
    *,
    rank: int | None = None,
    observe: float | None = None,
    length: int | None = None,
    random_state: int = 0,
    backend: str = "auto",
    on_progress: OnProgress | None = None,
) -> Background:
    """Learn the background of a video from a random sample of its pixels; the frames are iterated once.

    Parameters
    ----------
    frames
        The frames in order, for example `lowsparse.video.Frames`.
    rank
        Of the background: 1 follows the brightness, more also lights that are switched and shadows that wander.
        None: 1, or 2 if that explains more of the frames, and the light is why.
    observe
        Share of the pixels of each frame to sample; None: 80 samples of each pixel, but a tenth at least.
    length
        Number of frames, if known; for `observe`.
    random_state
        Seed of the sample.
    backend
        Of the solve: see `lowsparse.solve`. With "cuda" the regression of the pixels runs on the GPU, too.
    on_progress
        Called with the stage ("reading", "solving"), the number done and the total.

    Returns
    -------
    Background
        It separates these frames, or others of the same scene.

    Examples
    --------
    >>> from lowsparse.datasets import moving_blocks
    >>> clip = moving_blocks(60, 40, 48, random_state=2)
    >>> frames = [Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames)]
    >>> found = learn(frames, observe=0.5)
    >>> one = next(found.separate(frames[30:]))
    >>> float(np.mean(one.mask == clip.moving[30])) > 0.97
    True
    """
    if rank is not None:
        check_count("rank", rank)
    share, most = (default_share(length), 2 * TARGET) if observe is None else (observe, None)
    sampler = PixelSampler(share, most=most, random_state=random_state)
    witnesses, camera = EvenlySpaced[tuple[int, Picture]](MANY_WITNESSES), Steadiness()
    shifts = array("i")
    for frame in frames:
        aligned = camera.align(frame)
        picture = aligned.picture
        shifts.extend(aligned.shift)
        witnesses.most = most_witnesses(picture)
        witnesses.add((sampler.frames, picture))
        sampler.add(picture)
        if on_progress is not None:
            on_progress("reading", sampler.frames, length)
    at, some = [t for t, _ in witnesses.kept], [picture for _, picture in witnesses.kept]
    del witnesses
    if camera.shakes and len(sampled := sampler.samples(at_end=True)):
        sampled.uncover(_unseen(np.reshape(shifts, (-1, 2)), sampled.layout.shape))
        del sampled
    found = fit_background(sampler, rank or 1, backend, on_progress)
    if rank is None and found.n_samples >= 4:
        found = _with_lights(found, sampler, some, backend, on_progress)
    found = replace(found, drift=camera.drift, lost=share_lost(found.still, some))
    samples = sampler.samples(at_end=True)
    del sampler
    found, _ = complete(found, some, samples) if found.moves else learn_behind(found, some, at, samples)
    del samples  # the larger part of the memory
    lost = share_lost(found.still, some)
    seen = found.shares_explained(some)
    signs = signs_in(found, some) + place_in(found, some)
    stays, undecided = share_staying(found, some), share_undecided(found, some)
    found = replace(found, lost=lost, seen=seen, signs=signs, stays=stays, undecided=undecided)
    del some
    release_memory()
    registration = camera.registration if camera.shakes else None
    return replace(found, registration=registration, drift=camera.drift)


def _unseen(shifts: NDArray[np.intc], shape: tuple[int, int]) -> Callable[[slice, NDArray[np.int64]], Mask]:
    """Which blocks of 2 x 2 pixels were beyond the border of frames with these shifts; for `PixelSamples.uncover`."""
    H, W = (2 * -(-side // 2) for side in shape)

    def unseen(blocks: slice, frames: NDArray[np.int64]) -> Mask:
        row, column = np.divmod(np.arange(blocks.start, blocks.stop), W // 2)
        y, x = 2 * row + shifts[frames, 0], 2 * column + shifts[frames, 1]
        return np.asarray((y < 0) | (y > H - 2) | (x < 0) | (x > W - 2))

    return unseen


def most_witnesses(picture: Picture) -> int:
    """How many whole frames as large as this are kept."""
    return int(np.clip(WITNESS_BYTES // picture.nbytes, WITNESSES, MANY_WITNESSES))


def _with_lights(
    plain: Background, sampler: PixelSampler, pictures: list[Picture], backend: str, on_progress: OnProgress | None
) -> Background:
    """The background of rank 1, or of rank 2 if lights are switched, or light changes in a part of these pictures.

    Lights are switched if rank 2 explains more of the pictures, and all of them. Something large in front is no light:
    rank 2 explains the pictures with it less than the others. So it may be by what is in front if rank 2 explains
    almost any picture better than rank 1 almost all.
    """

    def fit() -> Background:
        return fit_background(sampler, 2, backend, on_progress, plain)

    shares = plain.shares_explained(pictures)
    is_known = plain.result.diagnostics.recovered or shares.mean() >= 1 - LITTLE
    if is_known and np.median(shares) > MOSTLY and not is_uneven(shares):
        return with_local_light(plain, pictures, fit)
    lit = fit()
    lit_shares = lit.shares_explained(pictures)
    better = np.quantile(lit_shares, 0.1) > np.quantile(shares, 0.9)
    is_light = lit_shares.mean() > shares.mean() + GAIN and (better or not is_uneven(lit_shares))
    return lit if is_light else plain
