"""Pictures show what they are given, and the cards of notebooks take whatever a solve may give."""

import dataclasses
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import sparse

import lowsparse as ls
from conftest import robust_problem
from lowsparse import plots
from lowsparse.notebook import STATUS_TEXT, result_card
from lowsparse.robust.rows import RowOutliers


@pytest.fixture(autouse=True)
def _figures_are_closed():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(scope="module")
def result():
    return ls.solve(robust_problem(rank=3, noise=0.02).M, rank=3)


# ---------------------------------------------------------------------- plots


def test_a_module_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'plotz'"):
        ls.plotz  # noqa: B018


def panels(figure):
    return [ax.images[0].get_array() for ax in figure.axes if ax.images]


def test_the_matrix_of_single_entries(result):
    M, L, S = panels(plots.matrix(result))
    dense = np.full(result.M.shape, np.nan)
    dense[result.M.rows, result.M.columns_of_entries()] = result.M.values
    np.testing.assert_allclose(np.ma.filled(M, np.nan), dense)
    np.testing.assert_allclose(L, result.L.to_dense(), atol=1e-12)
    seen = np.isfinite(dense)
    np.testing.assert_allclose(np.ma.filled(S, np.nan)[seen], result.S.toarray()[seen])
    assert np.ma.getmaskarray(S)[~seen].all()


def test_the_matrix_as_blocks_is_the_mean_of_its_entries(result):
    M, L, S = panels(plots.matrix(result, rows=7, columns=9))
    m, n = result.M.shape
    rows, columns = np.arange(8) * m // 7, np.arange(10) * n // 9
    dense, wrong = np.full((m, n), np.nan), result.S.toarray()
    dense[result.M.rows, result.M.columns_of_entries()] = result.M.values
    for i, j in ((0, 0), (6, 8), (3, 2)):
        block = np.s_[rows[i] : rows[i + 1], columns[j] : columns[j + 1]]
        assert M[i, j] == pytest.approx(np.nanmean(dense[block]))
        assert L[i, j] == pytest.approx(result.L.to_dense()[block].mean())
        assert S[i, j] == pytest.approx(wrong[block][np.isfinite(dense[block])].mean())


def test_the_matrix_of_a_result_on_disk(result):
    stored = ls.solve(result.M, rank=3, backend="outofcore", memory="1MB")
    for drawn, expected in zip(panels(plots.matrix(stored)), panels(plots.matrix(result)), strict=True):
        np.testing.assert_allclose(np.ma.filled(drawn, np.nan), np.ma.filled(expected, np.nan), atol=1e-6)


def test_a_huge_matrix_is_drawn_without_being_formed(result):
    side = 200_000  # 320 GB
    rng = np.random.default_rng(3)
    at = np.sort(rng.choice(side, 5000, replace=False))
    M = ls.ObservedMatrix.from_coo(at, at[::-1], np.ones(5000), shape=(side, side))
    L = ls.LowRank(np.ones((side, 1)), np.full((1, side), 2.0))
    huge = dataclasses.replace(result, M=M, L=L, S=sparse.csc_array((side, side)), flagged=np.empty(0, np.intp))
    drawn = panels(plots.matrix(huge))
    np.testing.assert_allclose(drawn[1], np.full((160, 160), 2.0))
    assert np.ma.getmaskarray(drawn[0]).any()


def test_the_spectrum_and_what_noise_alone_gives(result):
    ax = plots.spectrum(result)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), result.L.singular_values())
    # the largest singular value of noise alone, by experiment
    m, n = result.M.shape
    noise = np.zeros((m, n))
    noise[result.M.rows, result.M.columns_of_entries()] = np.random.default_rng(5).standard_normal(result.M.nnz)
    largest = result.noise * np.linalg.norm(noise, 2) / result.M.density
    assert ax.lines[1].get_ydata()[0] == pytest.approx(largest, rel=0.1)


def test_the_spectrum_of_nothing_and_of_exact_data():
    assert not plots.spectrum(ls.LowRank(np.zeros((3, 1)), np.ones((1, 4)))).lines[0].get_ydata().size
    exact = ls.solve(robust_problem(rank=2).M, rank=2)
    assert len(plots.spectrum(exact).lines) == 1  # no noise, no line


def test_frames_cut_out_what_is_in_front():
    clip = ls.datasets.moving_blocks(20, 24, 32, random_state=1)
    original, background, front = panels(plots.frames(clip.frames, clip.background, clip.moving, at=[7]))
    np.testing.assert_array_equal(original, clip.frames[7])
    np.testing.assert_array_equal(background, clip.background[7])
    np.testing.assert_array_equal(front[clip.moving[7]][:, 0], clip.frames[7][clip.moving[7]])
    assert (front[~clip.moving[7]] == plots.NOTHING).all()


def test_frames_without_a_mask_show_the_distance():
    clip = ls.datasets.moving_blocks(20, 24, 32, random_state=1)
    figure = plots.frames(clip.frames, clip.background[0])
    shown = panels(figure)
    assert len(shown) == 9
    assert [ax.get_ylabel() for ax in figure.axes[::3]] == ["frame 4", "frame 9", "frame 14"]
    np.testing.assert_array_equal(shown[2], 255 - np.abs(clip.frames[4].astype(int) - clip.background[0]))


def test_series_show_what_was_filled_and_replaced():
    given = np.array([[1.0, 5.0, 7.0], [np.nan, 5.0, 7.0], [3.0, 99.0, 7.0], [4.0, 5.0, 7.0]])
    filled = np.array([[1.0, 5.0, 7.0], [2.0, 5.0, 7.0], [3.0, 5.5, 7.0], [4.0, 5.0, 7.0]])
    figure = plots.series(given, filled, filled - 0.5, filled + 0.5)
    assert [ax.get_ylabel() for ax in figure.axes] == ["0", "1"]  # nothing was done to the third
    read, made = (line.get_ydata() for line in figure.axes[0].lines)
    np.testing.assert_array_equal(read, given[:, 0])
    np.testing.assert_array_equal(made, [1.0, 2.0, 3.0, np.nan])
    read, made, crosses = (line.get_ydata() for line in figure.axes[1].lines)
    np.testing.assert_array_equal(read, [5.0, 5.0, np.nan, 5.0])
    assert crosses.size == 1
    assert 5.5 < crosses[0] < 99  # drawn at the edge, not so far off that nothing else is seen
    with pytest.raises(ValueError, match="both limits"):
        plots.series(given, filled, filled)
    with pytest.raises(ValueError, match="filled must be"):
        plots.series(given, filled[:2])


def test_coloured_frames():
    coloured = np.random.default_rng(1).integers(0, 256, (2, 8, 9, 3), dtype=np.uint8)
    shown = panels(plots.frames(coloured, coloured[0], np.zeros((2, 8, 9)), at=[1]))
    np.testing.assert_array_equal(shown[0], coloured[1])
    assert (shown[2] == plots.NOTHING).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((np.zeros((4, 5)), np.zeros((4, 5))), r"must be \(T, H, W\)"),
        ((np.zeros((2, 4, 5)), np.zeros((4, 6))), r"background must be \(2, 4, 5\) or \(4, 5\), it is \(4, 6\)"),
        ((np.zeros((2, 4, 5)), np.zeros((4, 5)), np.zeros((4, 5))), r"mask must be \(2, 4, 5\)"),
    ],
)
def test_frames_that_do_not_fit(given, said):
    with pytest.raises(ValueError, match=said):
        plots.frames(*given)


def test_a_phase_diagram_that_does_not_fit():
    with pytest.raises(ValueError, match="rates must be 2 x 3"):
        plots.phase(np.zeros((3, 2)), [1, 2, 3], [1, 2])


def test_the_scale_of_a_phase_diagram():
    ax = plots.phase([[0.25, 0.75]], [1, 2], [5])
    assert ax.images[0].get_clim() == (0, 1)
    assert [other.get_ylabel() for other in ax.figure.axes] == ["", "success rate"]
    assert len(plots.phase([[1.0]], [1], [1], bar=False).figure.axes) == 1


# ---------------------------------------------------------------------- notebooks


def parsed(card):
    """Its text; it is well formed."""
    tree = ElementTree.fromstring(card)
    tree.remove(tree.find("style"))
    return "".join(tree.itertext())


def test_the_card_says_how_it_ended(result):
    said = parsed(result._repr_html_())
    for part in ("60 x 50 matrix of rank 3, by ladder", "Converged", result.message, "iteration"):
        assert part in said
    assert f"{result.S.nnz}, " in said


def test_every_ending_has_its_words():
    assert STATUS_TEXT.keys() == {status.value for status in ls.Status}


@pytest.mark.parametrize("status", list(ls.Status))
def test_cards_of_odd_results(result, status):
    nothing = dataclasses.replace(
        result,
        status=status,
        message="",
        n_iter=0,
        noise=float("nan"),
        seconds=float("nan"),
        objective=float("inf"),
        held_out=float("inf"),
        trace=ls.Trace(),
    )
    assert STATUS_TEXT[status.value] in parsed(nothing._repr_html_())


@pytest.mark.parametrize("change", [[], [np.nan], [0.0], [np.inf, np.nan], [1e-300, 1e300], [1.0]])
def test_cards_of_odd_traces(result, change):
    trace = ls.Trace({"iteration": np.arange(len(change)), "change": change})
    assert "Converged" in parsed(dataclasses.replace(result, trace=trace)._repr_html_())
    parsed(dataclasses.replace(result, trace=ls.Trace({"objective": [1.0]}))._repr_html_())


def test_text_in_a_card_is_text(result):
    said = "<script>alert(1)</script> & <b>"
    card = dataclasses.replace(result, message=said, notes=(said,), method=said, backend=said)._repr_html_()
    assert parsed(card).count(said) == 4
    assert not re.search("<(script|b)>alert", card)


def test_the_card_of_a_diagnosis(result):
    said = parsed(result.diagnostics._repr_html_())
    assert "Nothing speaks against this result." in said
    poor = dataclasses.replace(result, status=ls.Status.STALLED, message="a < b")
    assert "did not converge: a < b." in parsed(poor.diagnostics._repr_html_())


def test_a_card_of_the_smallest_result():
    assert "1 x 1 matrix of rank 1" in parsed(result_card(ls.solve([[0.0]], rank=1)))


def test_the_outlier_map_shows_every_sample_once_and_names_the_worst():
    rows = RowOutliers(
        score_distance=np.array([1.0, 9.0, 1.0, 2.0]),
        orthogonal_distance=np.array([1.0, 1.0, 5.0, 0.0]),
        cell_share=np.zeros(4),
        score_cutoff=3.0,
        orthogonal_cutoff=np.array([1.25, 1.25, 2.0, np.inf]),
        cell_cutoff=np.ones(4),
        joint_distance=np.zeros(4),
    )
    ax = plots.outlier_map(rows, labels=["a", "b", "c", "d"])
    usual, far, off = (points.get_offsets().tolist() for points in ax.collections)
    assert far == [[3.0, 0.8]]
    assert off == [[1 / 3, 2.5]]
    assert len(usual) == 2
    assert [text.get_text() for text in ax.texts] == ["b", "c"]
    with pytest.raises(ValueError, match="labels has 2 names, but there are 4 samples"):
        plots.outlier_map(rows, labels=["a", "b"])


def test_the_cell_map_is_made_of_blocks_where_there_is_no_room():
    residuals = np.zeros((300, 50))
    residuals[:100, :25] = 6.0
    residuals[200:, 25:] = np.nan
    ax = plots.cell_map(residuals, rows=3, columns=2)
    assert ax.images[0].get_array().filled(-1).tolist() == [[6.0, 0.0], [0.0, 0.0], [0.0, -1.0]]
    red, blue, pale, white = (ax.images[0].cmap(x) for x in (1.0, 0.0, 0.5, np.nan))
    assert red[0] > 0.6 > red[2]
    assert blue[2] > 0.6 > blue[0]
    assert min(pale[:3]) > 0.7
    assert white[:3] == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="must be a table"):
        plots.cell_map(np.zeros(3))
    with pytest.raises(ValueError, match="2 labels for 300 rows"):
        plots.cell_map(residuals, row_labels=["a", "b"])
