"""The background of a video, learnt from a share of its pixels; and what is in front of it.

A random share of the pixels of each frame is looked at, by blocks of two by two pixels and their colour (`looks`). With
x_it the value of pixel i in frame t (of chroma the difference to grey),

    x_it = b_i · v_t + noise,  unless something is in front,

where v_t (r numbers for each frame) is the same for all pixels and colours: for rank 1 the brightness. v is learnt by
`lowsparse.solve` from some of the pixels. Given v each block is regressed by itself, with one weight for all of its
values in a frame,

    b = argmin Σ_t w_t Σ_i (x_it - b_i · v_t)²,   w_t = 1 / (1 + mean_i (x_it - b_i · v_t)² / c_i²),

so that what is in front in one colour is in front in all, and colour takes half as much time again, not three times
the time. c_i is 2.385 √(s_i s), s_i the noise of the pixel and s that of the usual one: with s_i alone a pixel that is
often covered would take what covers it for noise, with s alone a pixel on a tree that waves would be left to chance.

A frame is placed on the background by the robust regression of some pixels. A pixel is in front if it differs by more
than `threshold` times √(s_i²/4 + 4 s² + 10²) grey levels, and so do most of its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..entries.observed import ObservedMatrix
from ..linalg.arrays import beside, host, on_device
from ..places.gpu.launch import need_cupy
from ..result import Result
from ..robust.regression import EFFICIENT, WILD, Placement
from ..solve import solve
from ..sweeps import Float
from ..sweeps.native import num_threads
from .foreground import Separated, in_front
from .frames import Frame
from .looks import (
    LEAST,
    USUAL,
    Looks,
    Samples,
    Single,
    share_for,
)
from .pictures import NEUTRAL, Picture, levels

__all__ = [
    "THRESHOLD",
    "Background",
    "Separator",
    "Told",
    "TooFewError",
    "check_rank",
    "check_separation",
    "fitted",
    "learn",
    "regressed",
    "usual_noise",
]

PER_FRAME = 400  # pixels of each frame from which v is learnt, for each rank
TILE = 1024  # blocks that are regressed together: larger arrays come from the system, page by page
TILE_ON_GPU = 16_384  # so many on a GPU, which is told what to do for each tile,
AT_ONCE_ON_GPU = 2  # and of which so many are there at once, each with half a GB at most
TURNS = 4  # of the weights
CANDIDATES, OTHERS = 12, 40  # looks that may be the usual one, and looks it is compared with
WIDE = np.float32(1.5)  # times c, to begin with
DARK = 0.05  # a frame of less brightness says nothing
COVERED = 0.3  # the quantile of the residuals that tells the noise: a pixel may be covered most of the time
QUIET = 0.5  # grey levels: less noise than this is not believed
UNSEEN = np.array([10.0, 5.0])  # levels of luma and of chroma that nobody sees
PROBES = 4096  # pixels by which a frame is placed, for each rank
THRESHOLD = 1.5
TOGETHER = 16  # frames that are placed at once
EXPLAINED = 0.25  # of the probes: a frame with fewer has the usual brightness


class TooFewError(ValueError):
    """There are not enough frames for a background."""


Told = Callable[[str, int, int | None], object]  # stage, done, of how many


# ---------------------------------------------------------------------- regression of blocks


def regress(x: Single, v: Single, b: Single, c: Single, turns: int) -> Single:
    """b (r x values x blocks) of x (values x blocks x looks) on v (r x blocks x looks), from a first b on."""
    for _ in range(turns):
        e = x - np.einsum("rnk,rin->ink", v, b)
        e /= c[..., None]
        w = (1 / (1 + squares(e) / len(x))).astype(np.float32, copy=False)
        b = least_squares(x, v, w)
    return b


def squares(e: Single) -> Single:
    """Σ_i e_i² of values x blocks x looks; CuPy's einsum makes a product of tiny matrices of each look."""
    total: Single = (e * e).sum(axis=0) if on_device(e) else np.einsum("ink,ink->nk", e, e)
    return total


def least_squares(x: Single, v: Single, w: Single) -> Single:
    """b with the least Σ w (x - v b)²."""
    wv = w * v
    right = np.einsum("rnk,ink->rin", wv, x)
    if len(v) == 1:
        b: Single = right / np.maximum(np.einsum("nk,nk->n", wv[0], v[0]), 1e-12)
        return b.astype(np.float32, copy=False)
    left = np.einsum("rnk,snk->nrs", wv, v).astype(np.float64)
    eye = beside(np.eye(len(v)), v)
    left += 1e-9 * np.trace(left, axis1=1, axis2=2)[:, None, None] * eye + 1e-30 * eye
    b = np.linalg.solve(left, right.transpose(2, 0, 1).astype(np.float64))
    return b.transpose(1, 2, 0).astype(np.float32)


def first_guess(x: Single, v: Single, c: Single) -> Single:
    """b to begin with: the usual look; if the rank is not 1, least squares with c coming down."""
    if len(v) == 1:
        bright = np.where(np.abs(v) < DARK, np.float32(DARK), v).astype(np.float32)
        b = usual_look(x / bright, WIDE * c)[None]
        return regress(x, v, b, WIDE * c, 2)
    b = least_squares(x, v, np.ones_like(x[0]))
    for wider in np.geomspace(64.0, 1.0, 10, dtype=np.float32):
        b = regress(x, v, b, wider * c, 1)
    return b


def usual_look(x: Single, c: Single) -> Single:
    """Of each block the look (values x blocks) that agrees best with the others.

    Its Σ q / (1 + q) is the least, q = mean (Δ/c)². What is seen most often need not be seen half of the time, as for
    a median it must.
    """
    looks = x.shape[-1]
    candidates, others = (np.unique(np.linspace(0, looks - 1, many).astype(int)) for many in (CANDIDATES, OTHERS))
    scaled = x[..., beside(others, x)] / c[..., None]
    least = np.full_like(x[0, :, 0], np.inf)
    best = x[..., 0]
    for k in candidates.tolist():
        e = scaled - (x[..., k] / c)[..., None]
        q = squares(e) / len(x)
        loss = (q / (1 + q)).sum(axis=-1)
        best = np.where(loss < least, x[..., k], best)
        least = np.minimum(loss, least)
    return best


def noise_of(x: Single, v: Single, b: Single) -> Single:
    """Of each value of each block: a quantile of its residuals, in terms of a standard deviation."""
    e = np.abs(x - np.einsum("rnk,rin->ink", v, b))
    looks = e.shape[-1]
    k = int(COVERED * looks)
    normal = float(ndtri(0.5 + 0.5 * (k + 0.5) / looks)) * math.sqrt(max(1 - len(v) / looks, 0.1))
    return (np.partition(e, k, axis=-1)[..., k] / normal).astype(np.float32, copy=False)


# ---------------------------------------------------------------------- the background


@dataclass(frozen=True)
class Background:
    """What is behind: b and the noise of every pixel, and how a frame is placed on it."""

    luma: Single  # (r, H, W)
    chroma: Single | None  # (r, 2, h, w), around grey
    noise: Single  # (H, W), in grey levels
    chroma_noise: Single | None  # (2, h, w)
    usual: Float  # v: what most frames have
    coefficients: Float  # T x r: v of the frames that were looked at
    level: tuple[float, float]  # the noise of the usual pixel: of luma, of chroma
    looks: int  # at each pixel
    entries: int  # pixels that were looked at
    result: Result  # of the matrix from which v was learnt

    @property
    def rank(self) -> int:
        """Numbers by which a frame is described."""
        return len(self.luma)

    @cached_property
    def still(self) -> Picture:
        """The background as it usually is."""
        return self.behind(self.usual)

    def behind(self, v: Float) -> Picture:
        """The background with these coefficients."""
        chroma = None if self.chroma is None else levels(_combined(v, self.chroma) + np.float32(NEUTRAL))
        return Picture(levels(_combined(v, self.luma)), chroma)

    def place(self, pictures: list[Picture]) -> tuple[Float, Float]:
        """v of each picture (n x r), and the share of the pixels asked that agree with it."""
        pixels, placement, turn = self._probe
        M = _columns(np.stack([picture.luma.ravel()[pixels] for picture in pictures], axis=1).astype(np.float32))
        on_basis = placement.coefficients(M, self.result.backend)
        e = np.abs(placement.B @ on_basis.T - M.values.reshape(len(pictures), -1).T)
        explained = (e <= placement.c).mean(axis=0)
        v = on_basis @ turn.T
        v[explained < EXPLAINED] = self.usual
        return v, explained

    @cached_property
    def _probe(self) -> tuple[NDArray[np.intp], Placement, Float]:
        """Pixels that are quiet, an orthonormal basis of their b, and what turns coefficients on it into v."""
        quiet = np.flatnonzero(self.noise.ravel() <= np.median(self.noise))
        rng = np.random.default_rng(0x70726F6265)
        pixels = np.sort(rng.permutation(quiet)[: PROBES * self.rank])
        b = self.luma.reshape(self.rank, -1)[:, pixels].T.astype(np.float64)
        Q, R = np.linalg.qr(b)
        unit = float(np.median(np.abs(b @ self.usual))) or 1.0
        usual = float(np.linalg.norm(R @ self.usual))
        turn = np.linalg.pinv(R)
        return pixels, Placement(Q, EFFICIENT * self.level[0], unit, WILD * usual or math.inf), turn

    @cached_property
    def spread(self) -> tuple[Single, Single | None]:
        """√(s_i²/4 + 4 s² + 10²) of luma, and the like of chroma: what a difference is measured by."""
        luma, chroma = (
            None if noise is None else np.sqrt(noise**2 / 4 + np.float32(4 * level**2 + unseen**2))
            for noise, level, unseen in zip((self.noise, self.chroma_noise), self.level, UNSEEN, strict=True)
        )
        assert luma is not None
        return luma, chroma

    def distance(self, picture: Picture, background: Picture) -> Single:
        """How far each pixel is from the background, in units of `spread`: the larger of luma and chroma."""
        luma, chroma = self.spread
        far = np.abs(picture.luma.astype(np.float32) - background.luma) / luma
        if chroma is not None and picture.chroma is not None and background.chroma is not None:
            coloured = np.abs(picture.chroma.astype(np.float32) - background.chroma) / chroma
            far = np.maximum(far, picture.full(coloured.max(axis=0)))
        return np.asarray(far, np.float32)

    def separate(self, frames: Iterable[Frame], *, threshold: float = THRESHOLD, clean: int = 1) -> Iterator[Separated]:
        """What is behind and in front of each frame; `clean` is the radius within which most pixels must agree."""
        separator = Separator(self, threshold, clean)
        waiting: list[Frame] = []
        with ThreadPoolExecutor(num_threads()) as threads:
            for frame in frames:
                waiting.append(frame)
                if len(waiting) == TOGETHER:
                    yield from threads.map(separator.one, waiting, *self.place(_pictures(waiting)))
                    waiting = []
            if waiting:
                yield from threads.map(separator.one, waiting, *self.place(_pictures(waiting)))


class Separator:
    """A background, and how much a pixel must differ from it."""

    def __init__(self, background: Background, threshold: float = THRESHOLD, clean: int = 1) -> None:
        check_separation(threshold, clean)
        self.background, self.clean = background, clean
        luma, chroma = background.spread
        coloured = None if chroma is None else levels(np.floor(threshold * chroma))
        self.bounds = levels(np.floor(threshold * luma)), coloured

    def one(self, frame: Frame, v: Float, explained: float) -> Separated:
        """What is behind and in front of a frame that has been placed."""
        behind = self.background.behind(v)
        mask = in_front(frame.picture, behind, self.bounds, self.clean)
        return Separated(frame, v, behind, mask, float(explained))


def check_separation(threshold: float, clean: int) -> None:
    """Raise if a pixel cannot be told to be in front by these."""
    if not 0 < threshold < math.inf:
        raise ValueError(f"threshold must be a positive number, not {threshold!r}")
    if isinstance(clean, bool) or not isinstance(clean, int) or not 0 <= clean <= 20:
        raise ValueError(f"clean must be a whole number of pixels from 0 to 20, not {clean!r}")


def _pictures(frames: list[Frame]) -> list[Picture]:
    return [frame.picture for frame in frames]


def _combined(v: Float, planes: Single) -> Single:
    """Σ v_k planes_k; `tensordot` is many times slower."""
    total: Single = np.float32(v[0]) * planes[0]
    for number, plane in zip(v[1:], planes[1:], strict=True):
        total += np.float32(number) * plane
    return total


def _columns(X: NDArray[np.float32]) -> ObservedMatrix:
    """A matrix all of whose entries are observed."""
    m, n = X.shape
    rows = np.tile(np.arange(m, dtype=np.int32), n)
    return ObservedMatrix(m * np.arange(n + 1), rows, X.T.ravel(), (m, n))


# ---------------------------------------------------------------------- learning


def learn(
    frames: Iterable[Frame],
    *,
    rank: int = 1,
    observe: float | None = None,
    length: int | None = None,
    random_state: int = 0,
    backend: str = "auto",
    told: Told | None = None,
) -> Background:
    """The background of a video from a share of the pixels of its frames, which are gone through once.

    Parameters
    ----------
    frames
        One after the other, for example `lowsparse.video.frames.Frames`.
    rank
        Of the background: 1 follows the brightness, more also lights that are switched and shadows that wander.
    observe
        The share of the pixels of each frame that is looked at; None: what the number of frames needs.
    length
        How many frames there are, as far as known; for `observe`.
    random_state
        A seed for the choice of the pixels.
    backend
        Of the solve: see `lowsparse.solve`. With "cuda" the regression of the blocks runs on the GPU, too.
    told
        Called with the stage ("reading", "solving"), how much of it is done, and of how much.

    >>> from lowsparse.datasets import moving_blocks
    >>> clip = moving_blocks(60, 40, 48, random_state=2)
    >>> frames = [Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames)]
    >>> found = learn(frames, observe=0.5)
    >>> one = next(found.separate(frames[30:]))
    >>> float(np.mean(one.mask == clip.moving[30])) > 0.97
    True
    """
    check_rank(rank)
    samples = None
    for t, frame in enumerate(frames):
        if samples is None:
            share, most = (share_for(length), 2 * USUAL) if observe is None else (observe, None)
            samples = Samples(share, most=most, random_state=random_state)
        samples.take(frame.picture)
        if told is not None:
            told("reading", t + 1, length)
    if samples is None:
        raise TooFewError("there is no frame: a background needs several")
    return fitted(samples, rank, backend, told)


def check_rank(rank: int) -> None:
    """Raise if it is none."""
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ValueError(f"rank must be a whole number of 1 or more, not {rank!r}")


def fitted(samples: Samples, rank: int, backend: str = "auto", told: Told | None = None) -> Background:
    """The background that explains what was seen."""
    need = max(LEAST, 2 * rank)
    if samples.frames < need:
        few = f"{samples.frames} frame{'s are' if samples.frames > 1 else ' is'} too few"
        raise TooFewError(f"{few}: a background of rank {rank} needs {need} or more")
    looks = samples.looks(to_the_end=True)
    if len(looks) < need:
        least = math.ceil(1000 * need / samples.frames) / 1000
        raise ValueError(
            f"observing {samples.share:g} of the pixels of {samples.frames} frames does not show each often enough: "
            f"observe {least:g} or more"
        )
    rng = np.random.default_rng([samples.frames, looks.layout.blocks])
    enough = max(4000, math.ceil(PER_FRAME * rank / samples.share))
    some = np.sort(rng.permutation(looks.layout.blocks)[:enough])
    result, v = _brightness(looks, some, rank, samples.frames, backend)
    level = _level(looks, some, v)
    return regressed(looks, v, level, result, samples.entries, told)


def regressed(
    looks: Looks, v: Single, level: tuple[float, float], result: Result, entries: int, told: Told | None = None
) -> Background:
    """The background that explains the looks, given v of all frames, and the usual noise of luma and chroma.

    The blocks are regressed where the matrix was solved, on the processor or on a GPU.
    """
    layout, rank = looks.layout, v.shape[1]
    send, size, workers = np.asarray, TILE, num_threads()
    if result.backend == "cuda":
        send, size, workers = need_cupy().asarray, TILE_ON_GPU, AT_ONCE_ON_GPU
    c = send(np.repeat(np.array(level, np.float32), (4, layout.values - 4))[:, None])
    tiles = [slice(k, min(k + size, layout.blocks)) for k in range(0, layout.blocks, size)]
    b = np.empty((rank, layout.values, layout.blocks), np.float32)
    noise = np.empty((layout.values, layout.blocks), np.float32)

    def one(tile: slice) -> None:
        x, at = send(looks.values(tile)), send(_looked(v, looks.times(tile)))
        guess = first_guess(x, at, np.float32(EFFICIENT) * c)
        own = np.sqrt(np.maximum(noise_of(x, at, guess), c) * c)
        found = regress(x, at, guess, np.float32(EFFICIENT) * own, TURNS)
        b[..., tile], noise[..., tile] = host(found), host(noise_of(x, at, found))

    with ThreadPoolExecutor(workers) as threads:
        for k, _ in enumerate(threads.map(one, tiles)):
            if told is not None:
                told("solving", k + 1, len(tiles))
    luma, chroma = layout.planes(b)
    luma_noise, chroma_noise = layout.planes(noise)
    return Background(
        luma=luma,
        chroma=chroma,
        noise=luma_noise,
        chroma_noise=chroma_noise,
        usual=np.median(v[np.abs(v).sum(axis=1) > 0], axis=0).astype(np.float64),
        coefficients=v.astype(np.float64),
        level=level,
        looks=len(looks),
        entries=entries,
        result=result,
    )


def _looked(v: Single, times: NDArray[np.int64]) -> Single:
    """v (r x blocks x looks) in the frames in which the blocks were looked at."""
    return np.moveaxis(v[times], -1, 0).copy()


def _brightness(looks: Looks, blocks: NDArray[np.intp], rank: int, frames: int, backend: str) -> tuple[Result, Single]:
    """v (frames x r), from a pixel of each of these blocks."""
    times, x = looks.times(blocks), looks.values(blocks)[0]
    new = np.ones(times.shape, bool)
    new[:, 1:] = times[:, 1:] > times[:, :-1]  # a look that stands in for another does not count
    seen, rows = np.unique(times[new], return_inverse=True)
    indptr = np.concatenate([[0], np.cumsum(new.sum(axis=1))])
    M = ObservedMatrix(indptr, rows.astype(np.int32), x[new], (seen.size, blocks.size))
    result = solve(M, rank, backend=backend)
    V = result.L.U * np.where(result.L.U.sum(axis=0) < 0, -1, 1)
    bright = V[V[:, 0] > 0.1 * V[:, 0].max(), 0]
    V /= np.median(bright) if rank == 1 and bright.size else np.sqrt(np.mean(V**2)) or 1.0
    v = np.zeros((frames, rank), np.float32)
    v[seen] = V
    return result, v


def _level(looks: Looks, blocks: NDArray[np.intp], v: Single) -> tuple[float, float]:
    """The noise of the usual pixel: of luma and of chroma."""
    x, vs = looks.values(blocks), _looked(v, looks.times(blocks))
    c = np.full((len(x), 1), 10.0, np.float32)
    noise = noise_of(x, vs, regress(x, vs, first_guess(x, vs, c), c, 2))
    return usual_noise(noise[:4], noise[4:])


def usual_noise(luma: Single, chroma: Single | None) -> tuple[float, float]:
    """Of most pixels."""
    parts = luma, np.empty(0, np.float32) if chroma is None else chroma
    one, other = (max(float(np.median(part)), QUIET) if part.size else QUIET for part in parts)
    return one, other
