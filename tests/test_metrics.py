"""Background metrics, against values worked out by hand."""

import math

import numpy as np
import pytest

from lowsparse.video import metrics

TRUTH = np.full((6, 7), 100.0)


def with_errors(*places, by=50.0):
    found = TRUTH.copy()
    for place in places:
        found[place] += by
    return found


def test_age_and_psnr_by_hand():
    found = TRUTH.copy()
    found[0, 0], found[1, 1] = 112.0, 70.0  # off by 12 and 30
    assert metrics.age(found, TRUTH) == pytest.approx(42 / 42)
    assert metrics.psnr(found, TRUTH) == pytest.approx(10 * math.log10(255**2 / ((144 + 900) / 42)))
    assert metrics.psnr(TRUTH, TRUTH) == math.inf


@pytest.mark.parametrize(("by", "share"), [(20.0, 0.0), (20.5, 1 / 42), (-20.5, 1 / 42), (19.0, 0.0)])
def test_an_error_pixel_is_off_by_more_than_twenty(by, share):
    assert metrics.peps(with_errors((2, 3), by=by), TRUTH) == pytest.approx(share)


def test_the_threshold_can_be_chosen():
    assert metrics.peps(with_errors((2, 3), by=6.0), TRUTH, threshold=5.0) == pytest.approx(1 / 42)


def test_clusters_by_hand():
    plus = [(2, 3), (1, 3), (3, 3), (2, 2), (2, 4)]
    assert metrics.pceps(with_errors(*plus), TRUTH) == pytest.approx(1 / 42)  # its middle
    assert metrics.pceps(with_errors(*plus[:-1]), TRUTH) == 0.0  # one neighbour is fine
    assert metrics.pceps(with_errors((1, 1), (2, 2), (3, 3)), TRUTH) == 0.0  # corners do not touch
    corner = [(0, 0), (0, 1), (1, 0)]
    assert metrics.pceps(with_errors(*corner), TRUTH) == pytest.approx(1 / 42)  # outside there is no neighbour
    assert metrics.pceps(TRUTH + 90, TRUTH) == 1.0


def test_f1_by_hand():
    found = np.array([[True, True, False, False]])
    truth = np.array([[True, False, True, False]])
    assert metrics.f1(found, truth) == 2 * 1 / (2 * 1 + 1 + 1)
    assert metrics.f1(found, ~found) == 0.0
    assert metrics.f1(np.zeros((2, 2), bool), np.zeros((2, 2), bool)) == 1.0


def test_several_pictures_are_averaged():
    pair, truths = np.stack([with_errors((0, 0)), TRUTH + 3]), np.stack([TRUTH, TRUTH])
    assert metrics.age(pair, truths) == pytest.approx((50 / 42 + 3) / 2)
    single = [metrics.psnr(one, TRUTH) for one in pair]
    assert metrics.psnr(pair, truths) == pytest.approx(np.mean(single))


def test_whole_numbers_do_not_wrap_around():
    dark, bright = np.zeros((4, 4), np.uint8), np.full((4, 4), 200, np.uint8)
    assert metrics.age(dark, bright) == metrics.age(bright, dark) == 200.0


def test_all_at_once():
    found = with_errors((0, 0), (0, 1), (1, 0))
    together = metrics.background_metrics(found, TRUTH)
    assert together == {name: getattr(metrics, name)(found, TRUTH) for name in ("age", "peps", "pceps", "psnr")}


@pytest.mark.parametrize(
    ("found", "truth", "words"),
    [
        (TRUTH, TRUTH[:, 1:], "different shapes"),
        (TRUTH * np.nan, TRUTH, "NaN"),
        ([1.0, 2.0], [1.0, 2.0], r"\(H, W\)"),
        (np.empty((0, 3)), np.empty((0, 3)), r"\(H, W\)"),
    ],
)
def test_what_is_no_picture_is_refused(found, truth, words):
    with pytest.raises(ValueError, match=words):
        metrics.age(found, truth)


def test_masks_are_boolean():
    with pytest.raises(TypeError, match="boolean"):
        metrics.f1([[1, 0]], [[True, False]])
    with pytest.raises(ValueError, match="shapes"):
        metrics.f1([[True]], [[True, False]])
