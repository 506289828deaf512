"""Tints: a camera that sets its white balance anew, in batch, stream and subtractor."""

import numpy as np
import pytest
from scipy import ndimage

from lowsparse.entries.frames import Frame
from lowsparse.entries.pictures import Picture
from lowsparse.video import BackgroundSubtractor, metrics
from lowsparse.video.learning import learn
from lowsparse.video.tint import TintProbe, retinted, tinted, unknown, untinted
from lowsparse.video.tracking import Follower


def wall_of(rng, height=60, width=80, top=200.0):
    """A wall of many colours."""
    planes = ndimage.gaussian_filter(rng.standard_normal((height, width, 3)), (2, 2, 0))
    return 40 + (top - 40) * (planes - planes.min()) / np.ptp(planes)


def balanced(factor, *, top=200.0, T=90):
    """A wall, a grey block that passes, and red and blue times (factor, 1 / factor) for a third of the time."""
    rng = np.random.default_rng(31)
    frames, moving = np.repeat(wall_of(rng, top=top)[None], T, axis=0), np.zeros((T, 60, 80), bool)
    body = rng.uniform(10, 30, (24, 10, 1))
    for t in range(T):
        left = 3 * t % 70
        moving[t, 20:44, left : left + 10] = True
        frames[t, 20:44, left : left + 10] = body
    frames[T // 3 : 2 * T // 3, ..., ::2] *= np.array([factor, 1 / factor])
    return np.clip(np.rint(frames + 2 * rng.standard_normal(frames.shape)), 0, 255).astype(np.uint8), moving


def as_frames(levels, *, halved=False):
    return [Frame(Picture.of_rgb(one, halved=halved), t, t, t / 25) for t, one in enumerate(levels)]


def batch(levels, *, halved=False):
    frames = as_frames(levels, halved=halved)
    return np.stack([one.mask for one in learn(frames, length=len(frames)).separate(frames)])


def stream(levels):
    return np.stack([one.mask for one in Follower().follow(as_frames(levels))])


def subtractor(levels):
    found = BackgroundSubtractor()
    return np.stack([found.apply(one[..., ::-1]) > 0 for one in levels])


def halved(levels):
    return batch(levels, halved=True)


@pytest.mark.parametrize("separate", [batch, halved, stream, pytest.param(subtractor, marks=pytest.mark.slow)])
@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_white_balance_that_changes_is_followed(separate, factor):
    levels, moving = balanced(factor)
    assert metrics.f1(separate(levels)[20:], moving[20:]) > 0.93


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_what_is_saturated_is_not_in_front(factor):
    levels, moving = balanced(factor, top=320)
    assert np.mean((levels > 250).any(axis=3)) > 0.05
    assert metrics.f1(batch(levels)[20:], moving[20:]) > 0.9


def test_the_background_has_the_tint_of_its_frame():
    levels, moving = balanced(1.25)
    frames = as_frames(levels)
    for one in learn(frames, length=len(frames)).separate(frames[::9]):
        behind = ~moving[one.frame.number]
        assert np.abs(one.background.rgb().astype(float) - levels[one.frame.number])[behind].mean() < 4


def probe_of(wall):
    """A probe of a third of the pixels of this background."""
    picture = Picture.of_rgb(wall.astype(np.uint8))
    planes = picture.luma[None].astype(np.float32), picture.chroma[None].astype(np.float32) - 128
    return TintProbe.at(np.arange(0, wall.shape[0] * wall.shape[1], 3, dtype=np.int32), *planes)


def tint_of(wall, frame):
    return probe_of(wall).fit(Picture.of_rgb(np.clip(np.rint(frame), 0, 255).astype(np.uint8)), np.ones(1))


def test_a_tint_is_found_whatever_is_in_front_of_a_third_of_the_picture():
    rng = np.random.default_rng(32)
    wall = wall_of(rng)
    frame = wall * np.exp([0.15, 0, -0.1]) + 2 * rng.standard_normal(wall.shape)
    frame[:, :27] = (180, 60, 40)
    np.testing.assert_allclose(tint_of(wall, frame), [0.15, -0.1], atol=0.02)


def test_no_tint_is_found_where_there_is_none():
    rng = np.random.default_rng(33)
    wall = wall_of(rng)
    noisy = wall + 2 * rng.standard_normal(wall.shape)
    assert not tint_of(wall, noisy).any()
    lamp, bus = noisy.copy(), noisy.copy()
    lamp[:, :40] *= (1.2, 1, 0.8)  # the light of one half
    assert not tint_of(wall, lamp).any()
    bus[:, :60] = wall.mean() * np.array([1.2, 1, 0.8]) + rng.standard_normal((60, 60, 3))
    assert not tint_of(wall, bus).any()


@pytest.mark.parametrize("halved", [False, True])
def test_a_tint_is_undone(halved):
    levels = wall_of(np.random.default_rng(34), top=180).astype(np.uint8)
    picture, a = Picture.of_rgb(levels, halved=halved), np.array([0.2, -0.3])
    back = untinted(tinted(picture, a), a, picture)
    assert np.abs(back.luma.astype(int) - picture.luma).max() <= 3
    assert np.abs(back.chroma.astype(int) - picture.chroma).mean() < 1.5


def test_values_of_blocks_get_the_tint_that_pictures_get():
    levels, a = np.full((2, 2, 3), (120, 100, 80), np.uint8), np.array([0.2, -0.3])
    picture, other = (Picture.of_rgb(levels, halved=True), tinted(Picture.of_rgb(levels, halved=True), a))
    values = np.concatenate([picture.luma.ravel(), picture.chroma.ravel()])[:, None]
    expected = np.concatenate([other.luma.ravel(), other.chroma.ravel()])
    assert np.abs(retinted(values, a[:, None])[:, 0].astype(int) - expected).max() <= 1


def test_samples_that_are_darker_than_what_is_saturated_show_something_in_front():
    white, grey, dark = (np.array([level, 0.0, 0.0]) for level in (255, 215, 30))
    seen = np.stack([white, white, white, white, grey, dark], axis=1)  # two samples of three pixels
    tints = np.array([[0.2, 0.2, 0.2, 0.2, 0.0, 0.0], 6 * [0.0]])
    assert unknown(seen, tints, (2, 3)).tolist() == [[False, True, False], [False, False, False]]


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (15, 17)])
def test_a_small_picture_has_no_tint(shape):
    levels = np.random.default_rng(35).integers(0, 256, (12, *shape, 3)).astype(np.uint8)
    assert batch(levels).shape == levels.shape[:-1]
