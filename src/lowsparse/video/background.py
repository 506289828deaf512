"""The background of a video, learnt from a random sample of its pixels; frames are separated by it.

With x_it the value of pixel i in frame t (of chroma the difference to grey),

    x_it = b_i · v_t + noise,  unless something is in front,

where v_t (r numbers for each frame) is the same for all pixels and colours: for rank 1 the brightness. v is learnt by
`lowsparse.solve` from some of the sampled pixels; given v, b follows for each block of pixels (`pixel_regression`).
The coefficients v of a new frame come from the robust regression of some of its pixels. A pixel is in front if it
differs from its background by more than `threshold` times √(s_i²/4 + 4 s² + f_i²) grey levels, and so do most of its
neighbours; f_i is what nobody sees, 10 grey levels and less where it is dark. Leaves and water go farther by
themselves, in small spots: how far is learnt from some whole frames (`Background.flicker`), and a small region is in
front only if it goes farther somewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.compressed import offsets
from ..entries.frames import Frame
from ..entries.observed import ObservedMatrix
from ..entries.pictures import NEUTRAL, Grey, Picture, doubled, levels
from ..linalg.arrays import host
from ..places.gpu.launch import need_cupy
from ..result import Result
from ..robust.regression import EFFICIENT, WILD, SubspaceRegression
from ..solve import solve
from ..support.checks import check_count, check_positive
from ..support.memory import release_memory
from ..sweeps import Float, host_backend
from ..sweeps.native import num_threads
from . import compiled
from .foreground import FINE, Bounds, Separated, compiled_mask, foreground_mask, label_regions, majority, max_of_block
from .ghosts import Sightings, outline_ratio
from .light import NO_LIGHT, extremes, split_changes
from .pixel_regression import (
    BETWEEN,
    WIDTHS,
    estimate_noise,
    fit_samples,
    fit_samples_compiled,
    initial_estimate,
    regress,
)
from .registration import Aligned, Registration, Steadiness, move, share_lost, shifted
from .sampling import MIN_SAMPLES, TARGET, EvenlySpaced, PixelSampler, PixelSamples, Single, default_share

THRESHOLD = 1.5
PER_FRAME = 400  # pixels of each frame from which v is learnt, for each rank
TILE, COMPILED_TILE, GPU_TILE = 1024, 8192, 16_384  # blocks regressed together: larger arrays are slower to allocate
GPU_WORKERS = 2  # tiles on a GPU at the same time, half a GB each at most
MIN_NOISE = 0.5  # grey levels
INVISIBLE = 10.0, 5.0  # differences of luma and of chroma that nobody sees,
DARKEST = 2.5  # the first where it is dark,
BRIGHT = 100.0  # and the grey level from which on it is as said
WITNESSES = 24  # whole frames from which the flicker is learnt
SPOT = 200  # a region smaller than this part of the picture may be flicker
AGAIN = 7  # side of the square of blocks in which flicker is seen a second time: who walks by is elsewhere then
REACH = 3  # side of the square of blocks around a spot in which it flickers as well
BEYOND = 1.3  # times the flicker: what is in front goes that far
PROBES = 4096  # pixels that determine v of a frame, for each rank
LINES = 32  # of a picture that are computed together
BATCH = 4  # frames whose v is computed together
EXPLAINED = 0.25  # of the probes: a frame with fewer gets the usual v
# Share of the probes below which something large may be in front: then v near the usual one is likelier than another,
# by which a dark object is taken for the background without light, unless that explains three times as many.
COVERED = 0.6
PARTLY = 0.85  # of the usual share of pixels that are explained: with less, a part of a frame may have another light,
LIT = 0.2  # if this share of the pixels is in such a part;
SWITCHED, OFTEN = 0.9, 0.1  # lights may be switched if that is less for such a share of the frames
MOVES = 0.25  # share of the frames that do not show the background if the camera moves,
DRIFT = 4.0  # or pixels by which it has wandered

OnProgress = Callable[[str, int, int | None], object]  # stage, number done, total


class TooFewError(ValueError):
    """There are not enough frames for a background."""


@dataclass(frozen=True)
class Background:
    """The background of a video: b and the noise of every pixel. `learn` makes one.

    Examples
    --------
    >>> from lowsparse.datasets import moving_blocks
    >>> clip = moving_blocks(60, 40, 48, random_state=2)
    >>> found = learn([Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames)], observe=0.5)
    >>> found.rank, found.still.luma.shape, found.coefficients.shape
    (1, (40, 48), (60, 1))
    """

    luma: Single  # (r, H, W)
    chroma: Single | None  # (r, 2, h, w), around grey
    noise: Single  # (H, W), in grey levels
    chroma_noise: Single | None  # (2, h, w)
    flicker: Single  # (⌈H/2⌉, ⌈W/2⌉): the largest distance that each block of pixels has gone as a part of a small spot
    usual: Float  # median of v over the frames
    brightness: Float  # r numbers, of which the product with v is the brightness of a frame
    coefficients: Float  # T x r: v of the frames from which it was learnt
    noise_level: tuple[float, float]  # median noise of luma and of chroma
    n_samples: int  # of each pixel
    entries: int  # sampled pixels in all
    result: Result  # of the solve from which v was learnt
    registration: Registration | None = None  # against the frame it was learnt from first, if the camera shakes
    lost: float = 0.0  # share of some frames, evenly spaced, whose edges are not those of the background
    drift: float = 0.0  # pixels by which the camera has wandered, its shaking apart
    uneven: bool = False  # whether some of these frames are explained much less than others

    @property
    def rank(self) -> int:
        """Number of coefficients of a frame."""
        return len(self.luma)

    @cached_property
    def still(self) -> Picture:
        """The background with the usual coefficients."""
        return self.picture(self.usual)

    def picture(self, v: Float) -> Picture:
        """The background with these coefficients.

        Parameters
        ----------
        v
            r numbers, a row of those of `coefficients_of`.

        Returns
        -------
        Picture
            Luma, and chroma if the video is in colour.
        """
        return Picture(_rounded(v, self.luma), None if self.chroma is None else _rounded(v, self.chroma, NEUTRAL))

    def align(self, frame: Frame) -> Aligned:
        """A frame and its picture as the camera would have taken it had it not moved.

        Parameters
        ----------
        frame
            A frame of the scene.

        Returns
        -------
        Aligned
            The frame, its picture, and how far the camera had moved.
        """
        return Aligned.of(frame, self.registration)

    def coefficients_of(self, pictures: list[Picture]) -> tuple[Float, Float]:
        """How the background looks in these pictures, from a sample of their pixels.

        Parameters
        ----------
        pictures
            As `align` gives them.

        Returns
        -------
        v, explained
            The coefficients of each picture (n x r), and the share of the probed pixels that agree with them.
        """
        pixels, regression, to_v, usual = self._probe
        X = np.stack([picture.luma.ravel()[pixels] for picture in pictures], axis=1).astype(np.float32)
        M, backend = ObservedMatrix.from_dense(X), host_backend(self.result.backend)
        found, near = regression.coefficients(M, backend), regression.coefficients_near(usual, M, backend)
        explained, near_explained = (
            (np.abs(regression.B @ C.T - X) <= regression.c).mean(axis=0) for C in (found, near)
        )
        covered = (explained < COVERED) & (near_explained > explained / 3)
        takes_near = covered | (near_explained > explained)
        v = np.where(takes_near[:, None], near, found) @ to_v.T
        explained = np.where(takes_near, near_explained, explained)
        v[explained < EXPLAINED] = self.usual
        return v, explained

    @cached_property
    def _probe(self) -> tuple[NDArray[np.intp], SubspaceRegression, Float, Float]:
        """Pixels with little noise, an orthonormal basis of their b, the map from it to v, and the usual v on it."""
        quiet = np.flatnonzero(self.noise.ravel() <= np.median(self.noise))
        rng = np.random.default_rng(0x70726F6265)
        pixels = np.sort(rng.permutation(quiet)[: PROBES * self.rank])
        b = self.luma.reshape(self.rank, -1)[:, pixels].T.astype(np.float64)
        Q, R = np.linalg.qr(b)
        unit = float(np.median(np.abs(b @ self.usual))) or 1.0
        usual = R @ self.usual
        regression = SubspaceRegression(
            Q, EFFICIENT * self.noise_level[0], unit, WILD * float(np.linalg.norm(usual)) or math.inf
        )
        return pixels, regression, np.linalg.pinv(R), usual

    def spread(self) -> tuple[Single, Single | None]:
        """The unit of a difference from the background, for each pixel.

        Returns
        -------
        luma, chroma
            √(s_i²/4 + 4 s² + f_i²) of each; None for chroma without colour.
        """

        def spread(noise: Single, level: float, invisible: Single | np.float32) -> Single:
            return np.sqrt(noise**2 / 4 + np.float32(4 * level**2) + invisible**2)

        luma, chroma = (np.float32(difference) for difference in INVISIBLE)
        dim = np.clip(luma * self.still.luma / np.float32(BRIGHT), np.float32(DARKEST), luma)
        return spread(self.noise, self.noise_level[0], dim), (
            None if self.chroma_noise is None else spread(self.chroma_noise, self.noise_level[1], chroma)
        )

    def distance(
        self,
        picture: Picture,
        background: Picture,
        unit: tuple[Single, Single | None] | None = None,
        *,
        of_blocks: bool = False,
    ) -> Single:
        """The distance of each pixel from the background in units of `spread`: the larger one of luma and chroma.

        Parameters
        ----------
        picture, background
            What is compared.
        unit
            What `spread` gives, if it is at hand.
        of_blocks
            Only the largest in each block of 2 x 2 pixels.

        Returns
        -------
        array of float32
            One for each pixel, or for each block.
        """
        luma, chroma = self.spread() if unit is None else unit
        far = _far(picture.luma, background.luma, luma)
        if of_blocks:
            far = max_of_block(far)
        if chroma is None or picture.chroma is None or background.chroma is None:
            return far
        for k in range(2):
            coloured = _far(picture.chroma[k], background.chroma[k], chroma[k])
            if of_blocks != picture.halved:
                coloured = max_of_block(coloured) if of_blocks else picture.upsample(coloured)
            np.maximum(far, coloured, out=far)
        return far

    def separate(
        self, frames: Iterable[Frame], *, threshold: float = THRESHOLD, clean: int = 1, stabilise: bool = False
    ) -> Iterator[Separated]:
        """Separate frames.

        Parameters
        ----------
        frames
            In any order.
        threshold
            A pixel is in front beyond this distance,
        clean
            if most within this radius are as well.
        stabilise
            If the camera shakes, background and mask are where the frame has them; with `stabilise` they stay, and the
            frame is moved.

        Yields
        ------
        Separated
            One for each frame.
        """
        separator = self.separator(threshold, clean, stabilise)
        remaining = iter(frames)
        with ThreadPoolExecutor(num_threads()) as threads:
            while batch := [*threads.map(self.align, islice(remaining, BATCH))]:
                yield from threads.map(separator, batch, *self.coefficients_of([one.picture for one in batch]))

    def separator(
        self, threshold: float = THRESHOLD, clean: int = 1, stabilise: bool = False
    ) -> Callable[[Aligned, Float, float], Separated]:
        """A function that separates a frame.

        Parameters
        ----------
        threshold, clean, stabilise
            As for `separate`.

        Returns
        -------
        function
            Of an aligned frame, its coefficients, and the share of its pixels that are explained.
        """
        check_separation(threshold, clean)
        unit = self.spread()
        low, high = self._bounds(threshold, unit=unit), self._bounds(threshold, self.flicker, unit=unit)
        del unit  # as large as the background

        def separate(one: Aligned, v: Float, explained: float) -> Separated:
            background, mask = self.compare(one.picture, v, low, high, clean)
            if stabilise:
                return Separated(replace(one.frame, picture=one.picture), v, background, mask, float(explained))
            return Separated(one.frame, v, shifted(background, one.shift), move(mask, one.shift), float(explained))

        return separate

    def compare(
        self, picture: Picture, v: Float, low: Bounds, high: Bounds, radius: int = 1
    ) -> tuple[Picture, NDArray[np.bool_]]:
        """The background with these coefficients, and what is in front of it.

        Parameters
        ----------
        picture
            As `align` gives it.
        v
            Its coefficients.
        low, high, radius
            As for `foreground_mask`.

        Returns
        -------
        background, mask
            A picture, and True where something is in front.
        """
        if not radius or not compiled.is_available():
            background = self.picture(v)
            return background, foreground_mask(picture, background, low, high, radius)
        return compiled_mask(picture, self.luma, self.chroma, v, low, high, radius)

    def _bounds(
        self, threshold: float, flicker: Single | None = None, unit: tuple[Single, Single | None] | None = None
    ) -> Bounds:
        """The differences, in grey levels, of pixels at this distance from the background; more where they flicker."""
        luma, chroma = self.spread() if unit is None else unit
        far = np.full(self.flicker.shape, threshold, np.float32)
        if flicker is not None:
            far = np.maximum(np.float32(BEYOND) * ndimage.maximum_filter(flicker, REACH), far)
        of_pixels = doubled(far, self.noise.shape)
        bounds = levels(np.floor(of_pixels * luma))
        if chroma is None:
            return Bounds(bounds)
        return Bounds(bounds, levels(np.floor((far if chroma.shape[1:] == far.shape else of_pixels) * chroma)))

    def without_ghosts(self, pictures: list[Picture]) -> Background:
        """This background, without things that have left in enough of these pictures (see `ghosts`).

        Parameters
        ----------
        pictures
            As `align` gives them.

        Returns
        -------
        Background
            Itself, if there are none.
        """
        bounds, v = self._bounds(THRESHOLD), self.coefficients_of(pictures)[0]
        brightness = np.maximum(v @ self.brightness, NO_LIGHT).astype(np.float32)
        sightings = Sightings(self.noise.shape)
        for picture, one in zip(pictures, v, strict=True):
            background, mask = self.compare(picture, one, bounds, bounds)
            sightings.add(outline_ratio(mask, picture.luma, background.luma))
        gone, behind = sightings.gone()
        if not gone.any():
            return self

        def replaced(
            planes: Single, noise: Single, level: float, values: list[Grey], zero: int = 0
        ) -> tuple[Single, Single]:
            """b and noise, with the median over the pictures that show what is behind."""
            where, without = gone, behind
            if gone.shape != noise.shape[-2:]:
                where, without = max_of_block(gone), [max_of_block(one) for one in behind]
            shown = [
                np.where(ok[where], (x[..., where].astype(np.float32) - zero) / light, np.nan)
                for ok, x, light in zip(without, values, brightness, strict=True)
            ]
            planes, noise = planes.copy(), noise.copy()
            planes[..., where] = np.multiply.outer(self.brightness, np.nanmedian(shown, axis=0))
            noise[..., where] = np.maximum(noise[..., where], level)
            return planes, noise

        level = self.noise_level
        luma, noise = replaced(self.luma, self.noise, level[0], [one.luma for one in pictures])
        found = replace(self, luma=luma, noise=noise)
        if self.chroma is None or self.chroma_noise is None:
            return found
        values = [one.chroma for one in pictures if one.chroma is not None]
        chroma, noise = replaced(self.chroma, self.chroma_noise, level[1], values, NEUTRAL)
        return replace(found, chroma=chroma, chroma_noise=noise)

    def is_lit_otherwise(self, picture: Picture, v: Float, threshold: float = THRESHOLD) -> bool:
        """Whether a large part of a picture differs from the background, and has its texture.

        Parameters
        ----------
        picture
            As `align` gives it.
        v
            Its coefficients.
        threshold
            The distance from which a pixel differs.

        Returns
        -------
        bool
            True if the light has changed.
        """
        background = self.picture(v)
        changed = majority(self.distance(picture, background) > threshold, 1)
        if changed.mean() < LIT:
            return False
        one, other = (ndimage.uniform_filter(luma, 3) for luma in (picture.luma, background.luma))  # less noise
        return bool(split_changes(changed, one, other)[0].mean() >= LIT)

    @property
    def moves(self) -> bool:
        """Whether the camera moves, other than by shaking, or there are several scenes: then this says little."""
        return self.lost > MOVES or self.drift >= DRIFT

    def explains_less_of(self, pictures: list[Picture]) -> bool:
        """Whether some of these pictures are explained much less than others, as if lights were switched.

        Parameters
        ----------
        pictures
            As `align` gives them.

        Returns
        -------
        bool
            True if they are many enough.
        """
        explained = self.coefficients_of(pictures)[1]
        return bool(np.mean(explained < SWITCHED * np.quantile(explained, 0.9)) >= OFTEN)

    def with_flicker(self, pictures: list[Picture], *, again: bool = False) -> Background:
        """This background, with the flicker of these pictures.

        Parameters
        ----------
        pictures
            As `align` gives them.
        again
            Only of what is seen twice.

        Returns
        -------
        Background
            A new one.
        """
        largest, second, unit = np.zeros_like(self.flicker), np.zeros_like(self.flicker), self.spread()
        coarse = self.noise.size > FINE
        for picture, v in zip(pictures, self.coefficients_of(pictures)[0], strict=True):
            far = self.distance(picture, self.picture(v), unit, of_blocks=coarse)
            labels, areas = label_regions(far > THRESHOLD, corners=not coarse)
            is_spot = areas < far.size / SPOT
            is_spot[0] = False
            spots = is_spot[labels] * far
            spots = spots if coarse else max_of_block(spots)
            np.maximum(second, np.minimum(largest, spots), out=second)
            np.maximum(largest, spots, out=largest)
        if again:
            np.minimum(largest, ndimage.maximum_filter(second, AGAIN), out=largest)
        return replace(self, flicker=largest)


def check_separation(threshold: float, clean: int) -> None:
    """Raise if these cannot be a threshold and a radius."""
    check_positive("threshold", threshold)
    check_count("clean", clean, 0, 20)


def _far(values: Grey, expected: Grey, unit: Single) -> Single:
    far = values.astype(np.float32)
    far -= expected
    np.abs(far, out=far)
    far /= unit
    return far


def _rounded(v: Float, planes: Single, zero: int = 0) -> Grey:
    """Σ v_k planes_k + zero as integers from 0 to 255, some lines at a time, which stay in the cache."""
    found = np.empty(planes.shape[1:], np.uint8)
    for k in range(0, planes.shape[-2], LINES):
        lines = np.s_[..., k : k + LINES, :]
        some = _combine(v, planes[lines])
        found[lines] = levels(some + np.float32(zero) if zero else some)
    return found


def _combine(v: Float, planes: Single) -> Single:
    """Σ v_k planes_k; `tensordot` is many times slower."""
    total: Single = np.float32(v[0]) * planes[0]
    for number, plane in zip(v[1:], planes[1:], strict=True):
        total += np.float32(number) * plane
    return total


# ---------------------------------------------------------------------- learning


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
        None: 1, or 2 if that explains some of the frames much less than others, and the light is why.
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
    witnesses, camera = EvenlySpaced[Picture](WITNESSES), Steadiness()
    for frame in frames:
        picture = camera.align(frame).picture
        sampler.add(picture)
        witnesses.add(picture)
        if on_progress is not None:
            on_progress("reading", sampler.frames, length)
    found = fit_background(sampler, rank or 1, backend, on_progress)
    if rank is None and found.n_samples >= 4 and found.explains_less_of(witnesses.kept):
        lit = fit_background(sampler, 2, backend, on_progress)
        found = found if lit.explains_less_of(witnesses.kept) else lit  # something large in front is no light
    del sampler  # the samples are the larger part of the memory
    found = found.without_ghosts(witnesses.kept)
    found = found.with_flicker(witnesses.kept, again=True)
    lost = share_lost(found.still, witnesses.kept)
    uneven = found.explains_less_of(witnesses.kept)
    del witnesses
    release_memory()
    registration = camera.registration if camera.shakes else None
    return replace(found, registration=registration, lost=lost, drift=camera.drift, uneven=uneven)


def fit_background(sampler: PixelSampler, rank: int, backend: str, on_progress: OnProgress | None = None) -> Background:
    """The background of the frames that were sampled."""
    need = max(MIN_SAMPLES, 2 * rank)
    if not sampler.frames:
        raise TooFewError("there is no frame: a background needs several")
    if sampler.frames < need:
        few = f"{sampler.frames} frame{'s are' if sampler.frames > 1 else ' is'} too few"
        raise TooFewError(f"{few}: a background of rank {rank} needs {need} or more")
    samples = sampler.samples(at_end=True)
    if len(samples) < need:
        least = math.ceil(1000 * need / sampler.frames) / 1000
        raise ValueError(
            f"observing {sampler.share:g} of the pixels of {sampler.frames} frames does not show each often enough: "
            f"observe {least:g} or more"
        )
    found = _fit_rank(sampler, samples, rank, backend, on_progress)
    if rank == 1:
        return found
    plain = _fit_rank(sampler, samples, 1, backend)
    brightness = np.linalg.lstsq(found.coefficients, plain.coefficients[:, 0], rcond=None)[0].astype(np.float64)
    return without_things(replace(found, brightness=brightness), plain, _fit_between(sampler, plain))


def _fit_rank(
    sampler: PixelSampler, samples: PixelSamples, rank: int, backend: str, on_progress: OnProgress | None = None
) -> Background:
    """The background of this rank, whatever it follows."""
    rng = np.random.default_rng([sampler.frames, samples.layout.blocks])
    enough = max(4000, math.ceil(PER_FRAME * rank / sampler.share))
    some = np.sort(rng.permutation(samples.layout.blocks)[:enough])
    result, v = _learn_coefficients(samples, some, rank, sampler.frames, backend)
    x, vs = samples.values(some), _at_samples(v, samples.frames(some))
    c = np.full((len(x), 1), 10.0, np.float32)
    noise = estimate_noise(x, vs, regress(x, vs, initial_estimate(x, vs, c), c, 2))
    return fit_pixels(samples, v, noise_level(noise[:4], noise[4:]), result, sampler.entries, on_progress)


def _fit_between(sampler: PixelSampler, plain: Background) -> Background:
    """A background of rank 1, with a surface that is seen in two lights between them, given the one that chooses."""
    v = plain.coefficients.astype(np.float32)
    return fit_pixels(sampler.samples(at_end=True), v, plain.noise_level, plain.result, plain.entries, widths=BETWEEN)


def without_things(found: Background, plain: Background, between: Background) -> Background:
    """A background of rank above 1, and in its place one of rank 1 where more than light changes in it.

    Who stands still for a while is of low rank as well: a component of v says when, and its b who. The picture of the
    background is compared with that of rank 1 and `between` lights at the extremes of v. Where they differ by another
    texture, b is that of rank 1 times `brightness`; if they differ by light nowhere, the background of rank 1 is all
    that is left.
    """
    light, things = np.zeros(found.noise.shape, bool), np.zeros(found.noise.shape, bool)
    bounds = found._bounds(THRESHOLD)
    for v in extremes(found.coefficients, found.brightness):
        one, other = found.picture(v), between.picture(np.atleast_1d(v @ found.brightness))
        changes = split_changes(bounds.exceeded(one, other), one.luma, other.luma)
        light, things = light | changes[0], things | changes[1]
    if not things.any():
        return found
    if not (light & ~things).any():
        return plain
    things = ndimage.binary_dilation(things, np.ones((3, 3), bool), 2)
    scale = found.brightness.astype(np.float32)[:, None, None]
    luma, noise = np.where(things, scale * plain.luma, found.luma), np.where(things, plain.noise, found.noise)
    joined = replace(found, luma=luma, noise=noise)
    if found.chroma is None or plain.chroma is None or found.chroma_noise is None or plain.chroma_noise is None:
        return joined
    if found.chroma.shape[2:] != things.shape:
        things = max_of_block(things)
    chroma = np.where(things, scale[..., None] * plain.chroma, found.chroma)
    return replace(joined, chroma=chroma, chroma_noise=np.where(things, plain.chroma_noise, found.chroma_noise))


def fit_pixels(
    samples: PixelSamples,
    v: Single,
    level: tuple[float, float],
    result: Result,
    entries: int,
    on_progress: OnProgress | None = None,
    widths: tuple[float, float] = WIDTHS,
) -> Background:
    """The background from all samples, given v of all frames, the noise level and the widths of the loss.

    It is computed where the matrix was solved, on the processor or on a GPU.
    """
    layout, rank = samples.layout, v.shape[1]
    is_compiled = result.backend == "native" and rank == 1
    send, size, workers = np.asarray, COMPILED_TILE if is_compiled else TILE, num_threads()
    if result.backend == "cuda":
        send, size, workers = need_cupy().asarray, GPU_TILE, GPU_WORKERS
    levels = send(np.repeat(np.array(level, np.float32), (4, layout.values - 4))[:, None])
    tiles = [slice(k, min(k + size, layout.blocks)) for k in range(0, layout.blocks, size)]
    b = np.empty((rank, layout.values, layout.blocks), np.float32)
    noise = np.empty((layout.values, layout.blocks), np.float32)

    def fit(tile: slice) -> None:
        if is_compiled:
            fit_samples_compiled(samples, v[:, 0], level, tile, b[0], noise, widths)
            return
        x, vs = send(samples.values(tile)), send(_at_samples(v, samples.frames(tile)))
        b[..., tile], noise[..., tile] = (host(one) for one in fit_samples(x, vs, levels, widths))

    with ThreadPoolExecutor(workers) as threads:
        for k, _ in enumerate(threads.map(fit, tiles)):
            if on_progress is not None:
                on_progress("solving", k + 1, len(tiles))
    luma, chroma = layout.planes(b)
    luma_noise, chroma_noise = layout.planes(noise)
    return Background(
        luma=luma,
        chroma=chroma,
        noise=luma_noise,
        chroma_noise=chroma_noise,
        flicker=np.zeros([-(-side // 2) for side in luma_noise.shape], np.float32),
        usual=np.median(v[np.abs(v).sum(axis=1) > 0], axis=0).astype(np.float64),
        brightness=np.ones(1),
        coefficients=v.astype(np.float64),
        noise_level=level,
        n_samples=len(samples),
        entries=entries,
        result=result,
    )


def _at_samples(v: Single, frames: NDArray[np.int64]) -> Single:
    """v (r x blocks x samples) in the frames in which the blocks were sampled."""
    return np.moveaxis(v[frames], -1, 0).copy()


def _learn_coefficients(
    samples: PixelSamples, blocks: NDArray[np.intp], rank: int, n_frames: int, backend: str
) -> tuple[Result, Single]:
    """v (frames x r), from one pixel of each of these blocks."""
    frames, x = samples.frames(blocks), samples.values(blocks)[0]
    new = np.ones(frames.shape, bool)
    new[:, 1:] = frames[:, 1:] > frames[:, :-1]  # a repeated sample does not count
    seen, rows = np.unique(frames[new], return_inverse=True)
    indptr = offsets(new.sum(axis=1))
    M = ObservedMatrix(indptr, rows.astype(np.int32), x[new], (seen.size, blocks.size))
    result = solve(M, rank, backend=backend)
    V = result.L.U * np.where(result.L.U.sum(axis=0) < 0, -1, 1)
    bright = V[V[:, 0] > 0.1 * V[:, 0].max(), 0]
    V /= np.median(bright) if rank == 1 and bright.size else np.sqrt(np.mean(V**2)) or 1.0
    v = np.zeros((n_frames, rank), np.float32)
    v[seen] = V
    return result, v


def noise_level(luma: Single, chroma: Single | None) -> tuple[float, float]:
    """The median noise of luma and of chroma."""
    parts = luma, np.empty(0, np.float32) if chroma is None else chroma
    one, other = (max(float(np.median(part)), MIN_NOISE) if part.size else MIN_NOISE for part in parts)
    return one, other
