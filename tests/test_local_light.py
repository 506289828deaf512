"""Light that slowly changes in a part of the picture."""

import numpy as np
import pytest

from lowsparse.entries.frames import Frame
from lowsparse.entries.pictures import Picture
from lowsparse.video import BackgroundSubtractor, metrics
from lowsparse.video.learning import learn
from lowsparse.video.tracking import Follower

T, H, W = 160, 60, 80


def room(seed, light):
    """A room with a texture, somebody who walks through it, and light: numbers (T, H, W) by which it is multiplied."""
    rng = np.random.default_rng([71, seed])
    y, x = np.mgrid[0 : 1 : H * 1j, 0 : 1 : W * 1j]
    still = 110 + 20 * ((np.floor(9 * x) + np.floor(7 * y)) % 2) + 10 * np.sin(7 * x)
    frames, moving = still * light(x, y), np.zeros((T, H, W), bool)
    walker = rng.uniform(30, 60) + rng.uniform(-15, 15, (24, 10))
    for t in range(T):
        left = round((W - 10) * abs((2.3 * t / T) % 2 - 1))
        frames[t, 20:44, left : left + 10] = walker
        moving[t, 20:44, left : left + 10] = True
    frames = np.clip(np.rint(frames + 2 * rng.standard_normal(frames.shape)), 0, 255).astype(np.uint8)
    return [Frame(Picture(one), t, t, t / 25) for t, one in enumerate(frames)], moving


def lamp(x, y):
    """Dimmed up and down in the right upper part."""
    dimmed = 0.5 + 0.5 * np.sin(2 * np.pi * 1.7 * np.arange(T) / T)
    return 1 + 0.4 * dimmed[:, None, None] * np.exp(-8 * ((x - 0.7) ** 2 + (y - 0.3) ** 2))


def whole(x, y):
    """Everywhere alike."""
    return np.broadcast_to(1 + 0.2 * np.sin(np.arange(T) / 9)[:, None, None], (T, *x.shape))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lamp_that_is_dimmed_is_followed(seed):
    frames, moving = room(seed, lamp)
    found = learn(frames)
    assert found.rank == 2
    assert np.median(found.noise) < 0.75 * np.median(learn(frames, rank=1).noise)
    assert metrics.f1(np.stack([one.mask for one in found.separate(frames)]), moving) > 0.97


@pytest.mark.parametrize("seed", [1, 2])
def test_a_stream_follows_a_lamp_too(seed):
    frames, moving = room(seed, lamp)
    follower = Follower()
    masks = np.stack([one.mask for one in follower.follow(frames)])
    assert follower.background.rank == 2
    assert metrics.f1(masks, moving) > 0.97
    subtractor = BackgroundSubtractor()
    masks = np.stack([subtractor.apply(one.picture.luma) for one in frames])
    assert metrics.f1(masks[T // 2 :] > 0, moving[T // 2 :]) > 0.97


def test_light_that_is_the_same_everywhere_needs_one_brightness():
    frames, _ = room(3, whole)
    assert learn(frames).rank == 1
    follower = Follower()
    list(follower.follow(frames))
    assert follower.background.rank == 1


def test_a_given_rank_stays():
    frames, _ = room(1, lamp)
    assert learn(frames, rank=1).rank == 1
    follower = Follower(rank=1)
    list(follower.follow(frames))
    assert follower.background.rank == 1
