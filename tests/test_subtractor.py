"""The subtractor that is used like those of OpenCV: against known masks, at once, and with frames that do not fit."""

import numpy as np
import pytest

import lowsparse as ls
from lowsparse.entries.frames import Frame
from lowsparse.entries.pictures import Picture
from lowsparse.video import BackgroundSubtractor, follow, metrics
from lowsparse.video.tracking import FIRST, NEW_SCENE

CLIP = ls.datasets.moving_blocks(130, 40, 48, random_state=22)


def coloured(grey):
    """Frames in BGR, with a tint that tells the orders apart."""
    return np.stack([grey // 2, grey, grey - grey // 4], axis=-1)


@pytest.mark.slow
def test_masks_come_at_once_and_are_those_of_the_stream():
    subtractor = BackgroundSubtractor()
    masks = np.stack([subtractor.apply(frame) for frame in CLIP.frames])
    assert masks.dtype == np.uint8
    assert set(np.unique(masks)) == {0, 255}
    assert not masks[:2].any()
    assert metrics.f1(masks[10:FIRST] > 0, CLIP.moving[10:FIRST]) > 0.8
    assert metrics.f1(masks[FIRST:] > 0, CLIP.moving[FIRST:]) > 0.85
    frames = (Frame(Picture(one), t, t, t / 25) for t, one in enumerate(CLIP.frames))
    for one in follow(frames):
        if one.frame.number >= FIRST:
            assert np.array_equal(one.mask, masks[one.frame.number] > 0)


@pytest.mark.parametrize("order", ["bgr", pytest.param("rgb", marks=pytest.mark.slow)])
def test_colours_in_either_order(order):
    frames = coloured(CLIP.frames)
    subtractor = BackgroundSubtractor(order=order)
    masks = np.stack([subtractor.apply(frame if order == "bgr" else frame[..., ::-1]) for frame in frames])
    assert metrics.f1(masks[20:] > 0, CLIP.moving[20:]) > 0.85
    found = subtractor.getBackgroundImage()
    truth = coloured(CLIP.background[-1])
    assert found.shape == truth.shape
    assert np.abs(found.astype(int) - (truth if order == "bgr" else truth[..., ::-1])).mean() < 6


@pytest.mark.slow
def test_a_new_scene_is_learnt_while_its_frames_come():
    frames = np.concatenate([CLIP.frames[:70], 255 - CLIP.frames[70:] // 2])
    subtractor = BackgroundSubtractor()
    masks = np.stack([subtractor.apply(frame) for frame in frames]) > 0
    assert masks[70 : 70 + NEW_SCENE - 1].mean() > 0.5  # all of it is new
    assert metrics.f1(masks[90:], CLIP.moving[90:]) > 0.7


def test_a_background_that_stays_as_it_is():
    subtractor = BackgroundSubtractor()
    for frame in CLIP.frames[:80]:
        subtractor.apply(frame)
    known = subtractor.getBackgroundImage().copy()
    bright = np.clip(known.astype(int) + 60, 0, 255).astype(np.uint8)
    for _ in range(60):
        mask = subtractor.apply(np.where(np.arange(48) < 12, bright, known).astype(np.uint8), learningRate=0)
    assert (mask[:, :11] == 255).all()
    assert not mask[:, 14:].any()
    out = np.zeros_like(mask)
    assert subtractor.apply(CLIP.frames[81], out, -1) is out
    assert out.any()


def test_the_frame_may_be_used_again_by_the_caller():
    buffer, subtractor = np.empty_like(CLIP.frames[0]), BackgroundSubtractor()
    again = BackgroundSubtractor()
    for frame in CLIP.frames[:20]:
        np.copyto(buffer, frame)
        assert np.array_equal(subtractor.apply(buffer), again.apply(frame))
        buffer[:] = 7


def test_what_does_not_fit_is_refused():
    subtractor = BackgroundSubtractor()
    with pytest.raises(RuntimeError, match="no frame has been seen"):
        subtractor.getBackgroundImage()
    for bad in (
        CLIP.frames[0] / 255,
        CLIP.frames[0][..., None],
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4), np.uint8),
    ):
        with pytest.raises(ValueError, match=r"a frame is \(H, W\) or \(H, W, 3\) of uint8"):
            subtractor.apply(bad)
    subtractor.apply(CLIP.frames[0])
    assert np.array_equal(subtractor.getBackgroundImage(), CLIP.frames[0])
    with pytest.raises(ValueError, match="make a new subtractor"):
        subtractor.apply(CLIP.frames[0][:20])
    for rate in (0.01, 1, np.nan):
        with pytest.raises(ValueError, match="learningRate must be -1"):
            subtractor.apply(CLIP.frames[0], learningRate=rate)
    for options in ({"order": "gbr"}, {"rank": 0}, {"threshold": 0}, {"observe": 2.0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            BackgroundSubtractor(**options)


def test_messages_for_what_users_of_opencv_pass_by_mistake():
    subtractor = BackgroundSubtractor()
    for bad, words in (
        (None, "the camera or the file has ended"),
        (CLIP.frames[0] / 255, "numbers from 0 to 1"),
        (np.zeros((4, 4, 4), np.uint8), "fourth channel"),
    ):
        with pytest.raises(ValueError, match=words):
            subtractor.apply(bad)
    for out in (np.zeros((3, 3), np.uint8), np.zeros(CLIP.frames[0].shape), "mask"):
        with pytest.raises(ValueError, match="fgmask must be an array"):
            subtractor.apply(CLIP.frames[0], out)
    with pytest.raises(ValueError, match="learningRate must be -1"):
        subtractor.apply(CLIP.frames[0], None, None)
    assert subtractor._frames == 0  # nothing was learnt from them


def test_frames_of_any_layout_and_a_background_that_may_be_drawn_on():
    plain, other = BackgroundSubtractor(), BackgroundSubtractor()
    for k, frame in enumerate(CLIP.frames[:22]):
        wide = np.zeros((40, 96), np.uint8)
        wide[:, ::2] = frame
        strided = wide[:, ::2] if k % 2 else np.asfortranarray(frame)
        strided.flags.writeable = False
        assert np.array_equal(plain.apply(frame), other.apply(strided))
        other.getBackgroundImage()[:] = 0
    assert np.array_equal(plain.getBackgroundImage(), other.getBackgroundImage())


@pytest.mark.slow
def test_a_shaking_camera_is_undone_when_nothing_is_learnt_too():
    rng = np.random.default_rng(23)
    scene = rng.integers(20, 230, (18, 24)).repeat(4, axis=0).repeat(4, axis=1)  # 72 x 96
    subtractor = BackgroundSubtractor()
    for t in range(FIRST + 10):
        y, x = rng.integers(0, 5, 2) if t else (2, 2)
        frame = np.clip(scene[y : y + 64, x : x + 88] + rng.normal(0, 2, (64, 88)), 0, 255).astype(np.uint8)
        mask = subtractor.apply(frame, learningRate=0 if t > FIRST else -1)
        if t > FIRST:
            assert (mask[6:-6, 6:-6] > 0).mean() < 0.02
