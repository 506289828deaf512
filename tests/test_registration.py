"""Shifts of the camera: found exactly, none where there is none, undone, and told from a camera that moves on."""

import numpy as np
import pytest
from scipy import ndimage

from lowsparse.entries.frames import Frame
from lowsparse.entries.pictures import Picture
from lowsparse.video.learning import learn
from lowsparse.video.registration import Registration, Steadiness, move, move_mask, share_lost, shifted
from lowsparse.video.tracking import Follower


def place(height, width, seed):
    """A picture with edges: boxes of all sizes."""
    rng = np.random.default_rng([31, seed])
    picture = np.full((height, width), 120.0)
    for _ in range(120):
        y, x = rng.integers(height), rng.integers(width)
        picture[y : y + rng.integers(4, 30), x : x + rng.integers(4, 30)] = rng.uniform(30, 220)
    return ndimage.gaussian_filter(picture, 0.7)


def film(views, noise=2.0, seed=1):
    rng = np.random.default_rng([32, seed])
    levels = np.clip(np.stack(views) + noise * rng.standard_normal((len(views), *views[0].shape)), 0, 255)
    return [Frame(Picture(np.rint(one).astype(np.uint8)), t, t, t / 25) for t, one in enumerate(levels)]


def window(picture, y, x, height=96, width=128):
    return picture[y : y + height, x : x + width]


def shaking(T=120, seed=2):
    """A camera that shakes by up to 4 pixels, and a box that passes; with the mask of the box and the shifts."""
    rng = np.random.default_rng([33, seed])
    picture = place(120, 160, seed)
    shifts = rng.integers(-4, 5, (T, 2))
    shifts[0] = 0
    views, masks = [], np.zeros((T, 96, 128), bool)
    for t, (dy, dx) in enumerate(shifts):
        view = window(picture, 12 - dy, 16 - dx).copy()
        left = 2 * t % 110
        masks[t, 30:60, left : left + 16] = True
        view[masks[t]] = 250
        views.append(view)
    return film(views), masks, [tuple(map(int, shift)) for shift in shifts]


@pytest.mark.parametrize("size", [(96, 128), (400, 600)])
@pytest.mark.parametrize("brightness", [0.5, 1.0, 1.3])
def test_shifts_are_found_exactly_whatever_the_light_and_what_is_in_front(size, brightness):
    height, width = size
    rng = np.random.default_rng(34)
    picture = place(height + 40, width + 40, 3)
    registration = Registration.of(film([window(picture, 20, 20, *size)])[0].picture)
    for dy, dx in rng.integers(-8, 9, (8, 2)):
        view = brightness * window(picture, 20 - dy, 20 - dx, *size)
        view[: height // 3, : width // 2] = rng.uniform(0, 255, (height // 3, width // 2))
        (one,) = film([view])
        assert registration.find(one.picture) == ((dy, dx), True)


@pytest.mark.parametrize("shift", [(0, 9), (-3, 10), (12, -16), (9, 0), (-15, 14)])
def test_shifts_beyond_those_that_are_tried_first_are_found(shift):
    picture = place(140, 180, 3)
    first, moved = film([window(picture, 20, 20), window(picture, 20 - shift[0], 20 - shift[1])])
    assert Registration.of(first.picture).find(moved.picture) == (shift, True)


def test_a_still_camera_has_no_shift_and_a_picture_without_edges_none_either():
    frames = film([window(place(120, 160, 4), 12, 16)] * 150)
    camera = Steadiness()
    assert all(camera.align(frame).shift == (0, 0) for frame in frames)
    assert not camera.shakes
    flat = film([np.full((96, 128), 90.0)] * 2)
    assert Registration.of(flat[0].picture).find(frames[0].picture) == ((0, 0), True)


@pytest.mark.slow
def test_the_shaking_of_a_camera_is_undone():
    frames, masks, shifts = shaking()
    background = learn(frames, length=len(frames))
    assert background.registration is not None
    assert background.lost == 0
    separated = list(background.separate(frames))
    found = np.stack([one.mask for one in separated])
    assert 2 * (found & masks).sum() / (found.sum() + masks.sum()) > 0.95
    for one, view in zip(separated[::17], frames[::17], strict=True):  # where the frame has it
        inner = (slice(6, -6), slice(6, -6))
        beside = ~ndimage.binary_dilation(masks[view.number], iterations=3)[inner]
        differs = np.abs(one.background.luma[inner].astype(int) - view.picture.luma[inner])
        assert np.mean(differs[beside]) < 4
    steady = background.separate(frames, stabilise=True)
    backs = np.stack([one.background.luma for one in steady]).astype(int)
    assert np.abs(np.diff(backs, axis=0)).max() <= 6  # it follows the light, no shift
    assert [background.align(frame).shift for frame in frames] == shifts


@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_slow_pan_is_followed_and_said(stream):
    picture, T = place(120, 200, 6), 150
    views, masks = [], np.zeros((T, 96, 128), bool)
    for t in range(T):
        view = window(picture, 10, 10 + t // 4).copy()
        left = (20 + 2 * t) % 90
        masks[t, 30:60, left : left + 16] = True
        view[masks[t]] = 250
        views.append(view)
    frames = film(views)
    if stream:
        follower = Follower()
        found, background = np.stack([one.mask for one in follower.follow(frames)]), follower.background
    else:
        background = learn(frames, length=T)
        found = np.stack([one.mask for one in background.separate(frames)])
    assert 2 * (found & masks).sum() / (found.sum() + masks.sum()) > 0.9
    assert background.moves
    assert background.drift > 20


def test_a_mask_goes_on_beyond_its_border_for_a_few_pixels_only():
    mask = np.zeros((8, 20), bool)
    mask[3, -1] = mask[-1, 4] = True
    assert np.flatnonzero(move_mask(mask, (0, -9))[3]).tolist() == list(range(10, 15))
    assert np.flatnonzero(move_mask(mask, (-6, 0))[:, 4]).tolist() == [1, 2, 3, 4, 5]
    assert np.array_equal(move_mask(mask, (0, 0)), mask)


@pytest.mark.slow
def test_the_shaking_of_a_camera_is_undone_in_a_stream():
    frames, masks, _ = shaking(T=180)
    found = np.stack([one.mask for one in Follower().follow(frames)])
    assert 2 * (found & masks).sum() / (found.sum() + masks.sum()) > 0.9


@pytest.mark.parametrize(
    "kind", ["pan", "still", *(pytest.param(k, marks=pytest.mark.slow) for k in ("slow pan", "zoom", "cut", "shaking"))]
)
def test_a_camera_that_moves_on_is_noticed(kind):
    picture = place(120, 400, 5)
    views = {
        "pan": lambda t: window(picture, 10, 2 * t),
        "slow pan": lambda t: window(picture, 10, t // 20),
        "zoom": lambda t: ndimage.zoom(picture[:, :160], 1 + t / 200, order=1)[:96, :128],
        "cut": lambda t: window(picture, 10, 250 if t >= 60 else 0),
        "still": lambda t: window(picture, 10, 30),
        "shaking": lambda t: window(picture, 10 + t % 3, 30 - t % 2),
    }[kind]
    frames = film([views(t) for t in range(120)])
    background, moves = learn(frames, length=120), kind not in ("still", "shaking")
    assert (background.lost > 0.25) == (kind in ("pan", "zoom", "cut"))
    assert background.moves == moves
    follower = Follower()
    assert len(list(follower.follow(frames))) == 120
    assert (follower.background.moves or len(follower.scenes) > 1) == moves


def test_colours_are_shifted_along():
    rng = np.random.default_rng(35)
    for shape in ((2, 9, 11), (2, 5, 6)):
        picture = Picture(*(rng.integers(0, 256, size).astype(np.uint8) for size in ((9, 11), shape)))
        there = shifted(picture, (2, -4))
        assert np.array_equal(there.luma[2:, :-4], picture.luma[:-2, 4:])
        half = (2, 4) if shape[1] == 9 else (1, 2)
        assert np.array_equal(there.chroma[:, half[0] :, : -half[1]], picture.chroma[:, : -half[0], half[1] :])
    assert np.array_equal(move(np.eye(3), (0, 0)), np.eye(3))


def test_movers_on_a_wall_without_edges_are_no_moving_camera():
    rng = np.random.default_rng(36)
    views = np.full((90, 96, 128), 120.0)
    texture = 120 + 60 * rng.standard_normal((40, 30))
    for t in range(90):
        views[t, 20:60, t : t + 30] = texture
    frames = film(list(views))
    background = learn(frames, length=90)
    assert background.registration is None
    assert background.lost <= 0.25


def test_a_plain_wall_has_no_edges_though_its_film_was_compressed():
    rng = np.random.default_rng(7)
    wall = lambda: 100 + rng.integers(0, 2, (12, 16)).repeat(10, 0).repeat(10, 1)  # noqa: E731  steps of blocks
    pictures = [Picture(wall().astype(np.uint8)) for _ in range(8)]
    assert share_lost(Picture(wall().astype(np.uint8)), pictures) == 0


def test_pictures_are_moved_with_their_border_repeated_however_far():
    rng = np.random.default_rng(36)
    plane = rng.integers(256, size=(7, 11)).astype(np.uint8)
    for shift in [(0, 0), (2, -3), (-6, 10), (-30, 40), (7, 0)]:
        rows, columns = (
            np.clip(np.arange(side) - by, 0, side - 1) for side, by in zip(plane.shape, shift, strict=True)
        )
        np.testing.assert_array_equal(move(plane, shift), plane[rows[:, None], columns])


def test_beyond_the_border_of_a_picture_that_is_moved_another_one_is_seen():
    rng = np.random.default_rng(37)
    picture, other = (
        Picture(*(rng.integers(256, size=s).astype(np.uint8) for s in ((8, 12), (2, 4, 6)))) for _ in "ab"
    )
    moved = shifted(picture, (-2, 4), other)
    assert np.array_equal(moved.luma[:-2, 4:], picture.luma[2:, :-4])
    assert np.array_equal(moved.luma[-2:], other.luma[-2:])
    assert np.array_equal(moved.luma[:, :4], other.luma[:, :4])
    assert np.array_equal(moved.chroma[:, :-1, 2:], picture.chroma[:, 1:, :-2])
    assert np.array_equal(moved.chroma[:, :, :2], other.chroma[:, :, :2])
