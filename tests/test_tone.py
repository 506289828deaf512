"""Curves of tones: a camera that sets its exposure anew, in batch, stream and subtractor."""

import numpy as np
import pytest
from scipy import ndimage

from lowsparse.entries.frames import Frame
from lowsparse.entries.pictures import Picture
from lowsparse.video import BackgroundSubtractor, metrics
from lowsparse.video.learning import learn
from lowsparse.video.tone import FAR_LESS, KNOTS, curve, fit_tone, inverse, slopes_at, tiles_at, toned
from lowsparse.video.tracking import Follower


def exposed(T=80, *, colour=False):
    """A textured wall, a block that passes, and an exposure that is never at rest; the frames and the masks."""
    rng = np.random.default_rng(21)
    wall = ndimage.gaussian_filter(rng.standard_normal((48, 64)), 2)
    wall = 20 + 160 * (wall - wall.min()) / np.ptp(wall)
    body = 225 + 8 * rng.standard_normal((20, 8)).clip(-2, 2)
    frames, moving = np.repeat(wall[None], T, axis=0), np.zeros((T, 48, 64), bool)
    for t in range(T):
        left = 3 * t % 56
        moving[t, 10:30, left : left + 8] = True
        frames[t, 10:30, left : left + 8] = body
    power = 1 + 0.4 * np.sin(np.arange(T) / 7)
    if colour:
        frames = frames[..., None] * np.array([1.0, 0.8, 0.6])
    frames = 255 * (frames / 255) ** power.reshape(-1, *[1] * (frames.ndim - 1))
    return np.clip(np.rint(frames + 2 * rng.standard_normal(frames.shape)), 0, 255).astype(np.uint8), moving


def as_frames(levels):
    pictures = [Picture(one) if one.ndim == 2 else Picture.of_rgb(one) for one in levels]
    return [Frame(picture, t, t, t / 25) for t, picture in enumerate(pictures)]


def batch(levels):
    frames = as_frames(levels)
    return np.stack([one.mask for one in learn(frames, length=len(frames)).separate(frames)])


def stream(levels):
    return np.stack([one.mask for one in Follower().follow(as_frames(levels))])


def subtractor(levels):
    found = BackgroundSubtractor()
    return np.stack([found.apply(one) > 0 for one in levels])


@pytest.mark.parametrize(
    ("separate", "colour"),
    [(batch, False), (batch, True), (stream, False), pytest.param(subtractor, False, marks=pytest.mark.slow)],
)
def test_an_exposure_that_changes_levels_differently_is_followed(separate, colour):
    levels, moving = exposed(colour=colour)
    assert metrics.f1(separate(levels)[20:], moving[20:]) > 0.93


def test_the_background_has_the_tone_of_its_frame():
    levels, moving = exposed()
    frames = as_frames(levels)
    for one in learn(frames, length=len(frames)).separate(frames[::7]):
        far = np.abs(one.background.luma.astype(float) - one.frame.picture.luma)[~moving[one.frame.number]]
        assert far.mean() < 3


def pixels_of(frame, background):
    pixels = np.arange(0, background.size, 3, dtype=np.int32)
    slopes = slopes_at(background, pixels), slopes_at(frame, pixels)
    tiles = tiles_at(*np.divmod(pixels, background.shape[1]), background.shape)
    expected = background.ravel()[pixels].astype(float)
    return expected, expected, frame.ravel()[pixels].astype(float), slopes, tiles


def test_a_curve_that_bends_in_the_dark_is_found():
    rng = np.random.default_rng(23)
    background = np.minimum(rng.gamma(1.5, 40, (60, 80)), 250)
    frame = 255 * (background / 255) ** 0.6 + 2 * rng.standard_normal(background.shape)
    found = curve(fit_tone(*pixels_of(frame, background))).astype(float)
    at = np.arange(4, 200)
    assert np.abs(found[at] - 255 * (at / 255) ** 0.6).max() < 4


def test_a_curve_is_found_and_a_large_dark_thing_is_none():
    rng = np.random.default_rng(22)
    wall = ndimage.gaussian_filter(rng.standard_normal((60, 80)), 2)
    wall = (20 + 200 * (wall - wall.min()) / np.ptp(wall)).astype(np.uint8)
    true = np.interp(KNOTS, np.linspace(0, 255, 6), [5.0, 25, 30, 20, 8, -4])
    a = fit_tone(*pixels_of(curve(true)[wall], wall), FAR_LESS)
    at = np.arange(60, 190)
    assert np.abs(np.interp(at, KNOTS, a - true)).max() < 3
    covered = wall.copy()
    covered[:, 15:50] = rng.integers(20, 60, (60, 35))
    assert not fit_tone(*pixels_of(covered, wall)).any()
    assert not fit_tone(*pixels_of(wall, wall)).any()


def test_the_inverse_of_a_curve_undoes_it_in_colour_too():
    a = np.interp(KNOTS, np.linspace(0, 255, 6), [0.0, 20, 30, 25, 10, 0])
    picture = Picture.of_rgb(np.random.default_rng(23).integers(20, 230, (12, 14, 3)).astype(np.uint8), halved=True)
    back = toned(toned(picture, curve(a)), inverse(a))
    assert np.abs(back.luma.astype(int) - picture.luma).max() <= 2
    assert np.abs(back.chroma.astype(int) - picture.chroma).max() <= 4


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (15, 17)])
def test_a_small_picture_has_no_curve(shape):
    levels = np.random.default_rng(24).integers(0, 256, (12, *shape)).astype(np.uint8)
    assert batch(levels).shape == levels.shape
