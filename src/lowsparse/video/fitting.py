"""Fitting the background of a video to a random sample of its pixels.

v of all frames (see `background`) is learnt by `lowsparse.solve` from some of the sampled pixels; given v, b follows
for each block of pixels (`pixel_regression`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.compressed import offsets
from ..entries.observed import ObservedMatrix
from ..linalg.arrays import host
from ..places.gpu.launch import need_cupy
from ..result import Result
from ..solve import solve
from ..solvers.ladder import Ladder
from ..sweeps import Float
from ..sweeps.native import num_threads
from .background import THRESHOLD, Background
from .foreground import max_of_block
from .light import extremes, split_changes
from .pixel_regression import (
    estimate_noise,
    fit_samples,
    fit_samples_compiled,
    initial_estimate,
    regress,
)
from .sampling import MIN_SAMPLES, PixelSampler, PixelSamples, Single
from .tint import NO_TINT, fit_tint, least_saturated, retinted, share_saturated, unknown, untinted_luma
from .tone import FAR_LESS, KNOTS, fit_tone, inverse, retoned, tiles_at

FEW_BLOCKS = 4000  # that say how large the noise is
PER_FRAME = 400  # pixels of each frame from which v is learnt, for each rank
TILE, COMPILED_TILE, GPU_TILE = 1024, 8192, 16_384  # blocks regressed together: larger arrays are slower to allocate
GPU_WORKERS = 2  # tiles on a GPU at the same time, half a GB each at most
MIN_NOISE = 0.5  # grey levels
EVENED = 2  # times that tints and curves of tones are sought
LIGHT = 0.01  # least share of the picture in which the light changes if more than its brightness does

OnProgress = Callable[[str, int, int | None], object]  # stage, number done, total
Places = NDArray[np.intp]
Rough = tuple[Single, Single, Single]  # values of some blocks, v at their samples, and b


class TooFewError(ValueError):
    """There are not enough frames for a background."""


def fit_background(
    sampler: PixelSampler,
    rank: int,
    backend: str,
    on_progress: OnProgress | None = None,
    plain: Background | None = None,
) -> Background:
    """The background of the frames that were sampled; the `plain` one of rank 1 is given if it is known."""
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
    plain = plain or _fit_rank(sampler, samples, 1, backend, on_progress if rank == 1 else None)
    if rank == 1:
        return plain
    found = _fit_rank(sampler, samples, rank, backend, on_progress)
    brightness = np.linalg.lstsq(found.coefficients, plain.coefficients[:, 0], rcond=None)[0].astype(np.float64)
    return without_things(replace(found, brightness=brightness), plain)


def _fit_rank(
    sampler: PixelSampler, samples: PixelSamples, rank: int, backend: str, on_progress: OnProgress | None = None
) -> Background:
    """The background of this rank, whatever it follows."""
    some = _some_blocks(samples, sampler.frames, math.ceil(PER_FRAME * rank / sampler.share))
    result, v = _learn_coefficients(samples, some, rank, sampler.frames, backend)
    x, vs, b = _fit_even(samples, some, v) if rank == 1 else _rough_fit(samples, some, v)
    return fit_pixels(samples, v, _noise_level(estimate_noise(x, vs, b)), result, sampler.entries, on_progress)


def _some_blocks(samples: PixelSamples, seed: int, enough: int = FEW_BLOCKS) -> NDArray[np.intp]:
    """The numbers of so many blocks or a few thousand, drawn at random."""
    rng, blocks = np.random.default_rng([seed, samples.layout.blocks]), samples.layout.blocks
    return np.sort(rng.permutation(blocks)[: max(FEW_BLOCKS, enough)])


def find_noise_level(samples: PixelSamples, v: Single) -> tuple[float, float]:
    """The usual noise of luma and of chroma, given v of all frames.

    It is that beside the look that a block has most often. Beside the final b, which on leaves is in the middle of
    their looks, it is larger, and would grow whenever the background is learnt again.
    """
    return _noise_level(estimate_noise(*_rough_fit(samples, _some_blocks(samples, len(v)), v)))


def _rough_fit(samples: PixelSamples, blocks: Places, v: Single) -> Rough:
    """The values of some blocks, v at their samples, and b before the noise is known."""
    x, vs = samples.values(blocks), _at_samples(v, samples.frames(blocks))
    c = np.full((len(x), 1), 10.0, np.float32)
    return x, vs, regress(x, vs, initial_estimate(x, vs, c), c, 2)


def _fit_even(samples: PixelSamples, some: Places, v: Single) -> Rough:
    """The same, after the tints and tones of all frames were undone in the samples, and in v of rank 1.

    What is left of them is sought once more: while they are unknown, b is in the middle of them.
    """
    rows, columns = np.divmod(some, -(-samples.layout.shape[1] // 2))
    tiles = tiles_at(2 * rows, 2 * columns, samples.layout.shape)
    fit = _rough_fit(samples, some, v)
    for undo in (_undo_tints, _undo_tones):
        for _ in range(EVENED):
            if not undo(samples, fit, v, _of_frames(samples.frames(some), len(v)), tiles):
                break
            fit = _rough_fit(samples, some, v)
    return fit


def _of_frames(frames: NDArray[np.int64], n_frames: int) -> list[tuple[Places, Places]]:
    """The blocks and the samples of them that are of each frame; `frames` (blocks x samples) says of which they are."""
    order = np.argsort(frames, axis=None, kind="stable")
    ends = np.cumsum(np.bincount(frames.ravel(), minlength=n_frames))[:-1]
    return [np.divmod(here, frames.shape[1]) for here in np.split(order, ends)]


def _undo_tints(
    samples: PixelSamples, fit: Rough, v: Single, blocks: list[tuple[Places, Places]], tiles: Places
) -> bool:
    """Undo the tint of each frame (see `tint`) in samples and v; whether any has one."""
    if not samples.layout.colour:
        return False
    (x, _, b), tints = fit, np.zeros((len(v), NO_TINT.size))
    colours = [_mean_colours(x[:, block, sample]) for block, sample in blocks]
    for t, ((block, sample), seen) in enumerate(zip(blocks, colours, strict=True)):
        here, there = v[t, 0] * b[0][:, block], x[:, block, sample]
        tints[t] = fit_tint(_mean_colours(here), seen, (_slopes(here), _slopes(there)), tiles[block])
    if not tints.any():
        return False
    tints -= least_saturated(tints, np.stack([share_saturated(seen) for seen in colours]))
    has_tint: NDArray[np.bool_] = np.any(tints != 0, axis=1)
    for one, seen, tint in zip(v, colours, tints, strict=True):
        if tint.any() and seen.size:
            one *= np.median(untinted_luma(seen, tint) / np.maximum(seen[0], 1.0))

    def is_unknown(tile: slice, frames: NDArray[np.int64]) -> NDArray[np.bool_]:
        seen = _mean_colours(np.moveaxis(samples.values(tile), -1, 1).reshape(samples.layout.values, -1))
        return unknown(seen, tints[frames.ravel()].T, frames.shape)

    samples.uncover(is_unknown)
    samples.change_frames(has_tint, lambda values, t: retinted(values, -tints[t].T))
    return True


def _slopes(values: NDArray[Any]) -> Float:
    """Differences of luma to the pixels to the right and below (2 x n) in blocks of 2 x 2 pixels (values x n)."""
    return np.asarray(values[1:3].astype(np.float64) - values[0])


def _mean_colours(values: Single) -> Float:
    """Luma and chroma (3 x n) of blocks of 2 x 2 pixels (values x n)."""
    luma, chroma = values[:4].astype(np.float64), values[4:].astype(np.float64).reshape(2, len(values) // 2 - 2, -1)
    return np.concatenate([luma.mean(axis=0, keepdims=True), chroma.mean(axis=1)])


def _undo_tones(
    samples: PixelSamples, fit: Rough, v: Single, blocks: list[tuple[Places, Places]], tiles: Places
) -> bool:
    """Undo the curve of tones of each frame (see `tone`) in samples and v; whether any has one."""
    (x, _, b), tones = fit, np.zeros((len(v), KNOTS.size))
    usual = np.float32(np.median(v[v > 0])) if (v > 0).any() else np.float32(1)
    for t, (block, sample) in enumerate(blocks):
        level, seen = b[0][:, block].astype(np.float64), x[:, block, sample].astype(np.float64)
        expected = v[t, 0] * level
        slopes = _slopes(expected), _slopes(seen)
        tones[t] = fit_tone(expected[0], usual * level[0], seen[0], slopes, tiles[block], FAR_LESS)
    has_tone: NDArray[np.bool_] = np.any(tones != 0, axis=1)
    if not has_tone.any():
        return False
    v[has_tone] = usual
    tables = np.stack([inverse(one) for one in tones])
    samples.change_frames(has_tone, lambda values, t: retoned(values, tables, t))
    return True


def without_things(found: Background, plain: Background) -> Background:
    """A background of rank above 1, and in its place one of rank 1 where more than light changes in it.

    Who stands still for a while is of low rank as well: a component of v says when, and its b who. The pictures of the
    background at opposite extremes of v, made equally bright, are compared. Where they differ by another texture, b is
    that of rank 1 times `brightness`; if they hardly differ by light, the background of rank 1 is all that is left.
    """
    light, things = np.zeros(found.noise.shape, bool), np.zeros(found.noise.shape, bool)
    bounds = found.bounds(THRESHOLD)
    for some, others in extremes(found.coefficients, found.brightness):
        one, other = found.picture(some), found.picture(others)
        changes = split_changes(bounds.exceeded(one, other), one.luma, other.luma)
        light, things = light | changes[0], things | changes[1]
    if np.mean(light & ~things) < max(float(np.mean(things)), LIGHT):
        return plain
    if not things.any():
        return found
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
) -> Background:
    """The background from all samples, given v of all frames and the noise level.

    It is computed where the matrix was solved, on the processor or on a GPU.
    """
    layout, rank = samples.layout, v.shape[1]
    is_compiled = result.backend == "native" and rank == 1
    send, size, workers = np.asarray, COMPILED_TILE if is_compiled else TILE, num_threads()
    if result.backend == "cuda":
        send, size, workers = need_cupy().asarray, GPU_TILE, GPU_WORKERS
    levels = send(np.repeat(np.array(level, np.float32), (4, layout.values - 4))[:, None])
    tiles = layout.tiles(size)
    b, noise = layout.empty_planes(rank), layout.empty_planes()

    def fit(tile: slice) -> None:
        if is_compiled:
            found = fit_samples_compiled(samples, v[:, 0], level, tile)
        else:
            x, vs = send(samples.values(tile)), send(_at_samples(v, samples.frames(tile)))
            found = fit_samples(x, vs, levels)
        for planes, numbers in zip((b, noise), found, strict=True):
            layout.fill(planes, tile, host(numbers))

    with ThreadPoolExecutor(workers) as threads:
        for k, _ in enumerate(threads.map(fit, tiles)):
            if on_progress is not None:
                on_progress("solving", k + 1, len(tiles))
    return Background(
        luma=b[0],
        chroma=b[1],
        noise=noise[0],
        chroma_noise=noise[1],
        flicker=np.zeros([-(-side // 2) for side in layout.shape], np.float32),
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
    order = np.argsort(frames, axis=1, kind="stable")  # what took the place of others may be of any frame
    frames, x = np.take_along_axis(frames, order, axis=1), np.take_along_axis(x, order, axis=1)
    new = np.ones(frames.shape, bool)
    new[:, 1:] = frames[:, 1:] > frames[:, :-1]  # a repeated sample does not count
    seen, rows = np.unique(frames[new], return_inverse=True)
    indptr = offsets(new.sum(axis=1))
    M = ObservedMatrix(indptr, rows.astype(np.int32), x[new], (seen.size, blocks.size))
    result = solve(M, rank, method=Ladder(searches=1, rank_is_limit=True), backend=backend)
    V = result.L.U * np.where(result.L.U.sum(axis=0) < 0, -1, 1)
    bright = V[V[:, 0] > 0.1 * V[:, 0].max(), 0]
    V /= np.median(bright) if rank == 1 and bright.size else np.sqrt(np.mean(V**2)) or 1.0
    v = np.zeros((n_frames, rank), np.float32)
    v[seen] = V
    return result, v


def _noise_level(noise: Single) -> tuple[float, float]:
    """The median noise (values x blocks) of luma and of chroma."""
    one, other = (max(float(np.median(part)), MIN_NOISE) if part.size else MIN_NOISE for part in (noise[:4], noise[4:]))
    return one, other
