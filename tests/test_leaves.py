"""Leaves in a stream, and whoever stays before them for long."""

import numpy as np
import pytest
from scipy import ndimage

from lowsparse.entries.frames import Frame
from lowsparse.entries.pictures import Picture
from lowsparse.video import learning, metrics
from lowsparse.video.background import THRESHOLD
from lowsparse.video.flicker import HIDDEN
from lowsparse.video.foreground import FINE
from lowsparse.video.relearning import fitter
from lowsparse.video.sampling import PixelSampler
from lowsparse.video.spells import things_before_leaves
from lowsparse.video.tracking import Follower
from lowsparse.video.witnesses import spots_in


def clip(length, covered, *, shape=(48, 80), grey=30, seed=4):
    """Leaves on the left, a floor on the right, and somebody who slowly sways before them in some of the frames."""
    rng = np.random.default_rng(seed)
    H, W = shape
    texture = ndimage.gaussian_filter(rng.standard_normal((H + 20, W + 40)), 1.2)
    texture = 100 + 36 * texture / texture.std()
    phase = 30 * ndimage.gaussian_filter(rng.standard_normal(shape), 5)
    y, x = np.mgrid[:H, :W]
    frames, moving = np.full((length, *shape), 120.0), np.zeros((length, *shape), bool)
    for t in range(length):
        wind = 4 * np.sin(2 * np.pi * t / 17) + 2 * np.sin(2 * np.pi * t / 7.3)
        columns = np.rint(20 + x + wind * np.sin(phase)).astype(int).clip(0, W + 39)
        rows = np.rint(10 + y + 1.5 * np.cos(phase + t / 5)).astype(int).clip(0, H + 19)
        frames[t, :, :36] = texture[rows, columns][:, :36]
        if covered(t):
            moving[t, 12:36, 9 + t // 40 % 4 : 23 + t // 40 % 4] = True
    frames[moving] = grey
    return np.clip(np.rint(frames + 2 * rng.standard_normal(frames.shape)), 0, 255).astype(np.uint8), moving


def as_frames(levels):
    return [Frame(Picture(one), t, t, t / 25) for t, one in enumerate(levels)]


def test_who_stays_before_leaves_for_most_of_the_first_frames_of_a_stream_is_in_front_and_leaves_are_known_afterwards():
    levels, moving = clip(440, lambda t: 110 <= t < 400, shape=(72, 112))
    masks = np.stack([one.mask for one in Follower().follow(as_frames(levels))])
    assert masks[moving].mean() > 0.8
    assert metrics.f1(masks, moving) > 0.7
    assert masks[405:, moving.any(axis=0)].mean() < 0.3


def test_samples_of_what_is_calm_are_left_out_only_if_it_comes_before_what_is_never_calm():
    """Not those of a wall before which somebody is restless, nor of a post before which leaves are blown."""
    levels, moving = clip(300, lambda t: 70 <= t < 240)
    rng = np.random.default_rng(5)
    wall = np.where(moving, levels[::-1], 120)
    blown = np.repeat(rng.random(25) < 0.35, 12)
    post = clip(300, lambda t: not blown[t])[0]
    shares = []
    for one in (levels, wall + rng.normal(0, 2, wall.shape), post):
        sampler = PixelSampler(80 / 300)
        for frame in as_frames(np.clip(np.rint(one), 0, 255).astype(np.uint8)):
            sampler.add(frame.picture)
        samples = sampler.samples(at_end=True)
        shares.append(samples.uncover(things_before_leaves(learning.fit_background(sampler, 1, "auto"), samples)))
    assert shares[0] > 0.7 * moving.mean()
    assert shares[1:] == [0, 0]


def test_who_is_calm_before_leaves_is_found_in_a_large_picture():
    levels, moving = clip(100, lambda t: 25 <= t < 75)
    large = levels.repeat(19, axis=1).repeat(12, axis=2)
    sampler = PixelSampler(0.3)
    for frame in as_frames(large):
        sampler.add(frame.picture)
    samples = sampler.samples(at_end=True)
    share = samples.uncover(things_before_leaves(learning.fit_background(sampler, 1, "auto"), samples))
    assert large[0].size > 4 * FINE
    assert share > 0.6 * moving.mean()


def test_the_noise_of_leaves_does_not_grow_when_they_are_learnt_again():
    levels = clip(120, lambda _: False)[0]
    levels[:, :, 44:] = levels[::-1, :, :36]  # leaves almost everywhere
    sampler = PixelSampler(0.5)
    for frame in as_frames(levels):
        sampler.add(frame.picture)
    found = learning.fit_background(sampler, 1, "auto")
    again = fitter(found)(sampler.samples(at_end=True), found.coefficients)
    assert again.noise_level == pytest.approx(found.noise_level, rel=0.05)
    assert np.median(again.noise) > 1.2 * found.noise_level[0]  # which would have been the next level


def test_the_background_in_place_of_a_thing_has_its_noise():
    levels = clip(60, lambda _: False)[0]
    found = learning.learn(as_frames(levels), observe=1.0)
    blocks = np.zeros((24, 40), bool)
    blocks[:18, :20] = True
    rng = np.random.default_rng(3)
    drawn = np.stack([found.with_noise(found.still, blocks, rng).luma for _ in range(80)]).astype(float)
    spread = drawn.std(axis=0)
    assert not spread[36:].any()
    assert not spread[:, 40:].any()
    assert np.median(spread[:36, :40] / np.hypot(found.noise[:36, :40], 12**-0.5)) == pytest.approx(1, abs=0.05)


def test_spots_behind_something_large_are_not_seen():
    levels, moving = clip(120, lambda t: t == 119)
    found = learning.learn(as_frames(levels[:119]), observe=0.5)
    seen = spots_in(found, [Picture(levels[119])])[0]
    far = np.abs(levels[119] - found.still.luma.astype(float)) > 3 * THRESHOLD * found.spread()[0]
    assert (seen == HIDDEN)[(moving[119] & far)[::2, ::2]].all()
    assert (seen == HIDDEN).mean() < 0.5
