"""The compiled kernels on pixels against NumPy: masks and shifts to the bit, the same regression but for rounding."""

import numpy as np
import pytest
from scipy import ndimage

from lowsparse.entries.pictures import Picture
from lowsparse.sweeps.native import core
from lowsparse.video import compiled
from lowsparse.video.fitting import _at_samples
from lowsparse.video.foreground import Bounds, compiled_mask, foreground_mask
from lowsparse.video.pixel_regression import fit_samples, fit_samples_compiled
from lowsparse.video.planes import combined
from lowsparse.video.registration import shift_sums
from lowsparse.video.sampling import PixelSampler


@pytest.fixture(params=["baseline", "v3"])
def isa(request, native, monkeypatch):
    if request.param not in core().instruction_sets():
        pytest.skip(f"this processor has no {request.param}")
    monkeypatch.setenv("LOWSPARSE_ISA", request.param)


def planes(rng, rank, shape, span):
    return (rng.uniform(-0.1, 1.1, (rank, *shape)) * span / rank).astype(np.float32)


@pytest.mark.parametrize("shape", [(40, 51), (41, 50), (470, 501)])  # the last is a large picture, with blocks
@pytest.mark.parametrize("kind", ["grey", "halved", "full"])
@pytest.mark.parametrize("rank", [1, 2])
def test_masks_have_the_same_bits(shape, kind, rank, isa):
    rng = np.random.default_rng([*shape, rank])
    chroma_shape = (2, *(-(-side // 2) for side in shape)) if kind == "halved" else (2, *shape)
    luma, chroma = planes(rng, rank, shape, 255), None if kind == "grey" else planes(rng, rank, chroma_shape, 40)
    for density, radius in ((0.6, 1), (0.95, 1), (0.9, 3)):
        v = rng.uniform(0.8, 1.1, rank)
        background = Picture(combined(v, luma), None if chroma is None else combined(v, chroma, 128))
        smooth = ndimage.gaussian_filter(rng.standard_normal(shape), shape[0] / 40)
        change = np.where(smooth > np.quantile(smooth, density), 40, rng.integers(-12, 13, shape))

        def bounds(most, chroma=chroma, chroma_shape=chroma_shape):
            levels = [rng.integers(5, most, one).astype(np.uint8) for one in (shape, chroma_shape)]
            return Bounds(levels[0], None if chroma is None else levels[1])

        low, high = bounds(20), bounds(60)
        noisy = None
        if background.chroma is not None:
            noisy = (background.chroma + rng.integers(-6, 7, chroma_shape)).clip(0, 255).astype(np.uint8)
        picture = Picture((background.luma + change).clip(0, 255).astype(np.uint8), noisy)
        expected = foreground_mask(picture, background, low, high, radius)
        found, mask = compiled_mask(picture, luma, chroma, v, low, high, radius)
        assert 0 < expected.mean() < 1
        np.testing.assert_array_equal(mask, expected)
        np.testing.assert_array_equal(found.luma, background.luma)
        if background.chroma is not None:
            np.testing.assert_array_equal(found.chroma, background.chroma)


@pytest.mark.parametrize(("frames", "share", "kind"), [(7, 0.9, "grey"), (60, 0.5, "halved"), (120, 1.0, "full")])
def test_blocks_are_regressed_alike(frames, share, kind, isa):
    rng = np.random.default_rng(frames)
    H, W = 21, 37
    scene, v = rng.uniform(0, 200, (H, W)), rng.uniform(0.02, 1.2, frames).astype(np.float32)
    sampler = PixelSampler(share)
    for t in range(frames):
        luma = scene * v[t] + rng.normal(0, 3, (H, W))
        luma[5:15, t % 30 : t % 30 + 10] = 240
        shape = (2, -(-H // 2), -(-W // 2)) if kind == "halved" else (2, H, W)
        chroma = None if kind == "grey" else rng.integers(110, 140, shape).astype(np.uint8)
        sampler.add(Picture(luma.clip(0, 255).astype(np.uint8), chroma))
    samples, level = sampler.samples(at_end=True), (2.5, 3.0)
    values, blocks = samples.layout.values, samples.layout.blocks
    x, vs = samples.values(slice(None)), _at_samples(v[:, None], samples.frames(slice(None)))
    b, noise = fit_samples(x, vs, np.repeat(np.array(level, np.float32), (4, values - 4))[:, None])
    for tile in (slice(0, 100), slice(100, blocks)):  # 100 is no multiple of the blocks that are regressed together
        found, found_noise = fit_samples_compiled(samples, v, level, tile)
        np.testing.assert_allclose(found, b[..., tile], atol=2e-3)
        np.testing.assert_allclose(found_noise, noise[:, tile], atol=2e-3)


def test_arrays_that_do_not_fit_are_refused(isa):
    pixels, bounds = np.zeros((4, 6), np.uint8), np.zeros((4, 5), np.uint8)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.compare(np.zeros((1, 4, 6), np.float32), np.ones(1), 0, pixels, bounds, bounds)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.mask_of_bits(pixels, np.zeros((9, 9), np.uint8), 1, (50, 2000, 500, 25), 10)


@pytest.mark.parametrize("reach", [0, 2, 8])
@pytest.mark.parametrize("n", [0, 1, 300])
def test_sums_over_shifts_have_the_same_bits(reach, n, isa):
    rng = np.random.default_rng([35, reach, n])
    luma = rng.integers(256, size=(40, 57)).astype(np.uint8)
    places = tuple(rng.integers(side, size=n).astype(np.int32) for side in luma.shape)
    expected = rng.integers(-20400, 20401, (n, 2)).astype(np.int32)
    for around in ((0, 0), (5, -3), (-90, 70)):  # the last is beyond the border
        found = compiled.shift_sums(luma, places, expected, 16, 30_000, around, reach)
        np.testing.assert_array_equal(found, shift_sums(luma, places, expected, 16, 30_000, around, reach))
