"""Reports: what is in the file, and what a browser makes of it."""

import base64
import hashlib
import json
import os
import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import lowsparse as ls
from conftest import assert_close, python
from lowsparse.notebook import diagnosis_remarks
from lowsparse.report import heat
from lowsparse.report.film import Filmstrip
from lowsparse.report.heat import heat_map
from lowsparse.report.page import Run
from lowsparse.report.player import video_report
from lowsparse.report.rows import BadRow, Cell
from lowsparse.report.series import SeriesView, series_report
from lowsparse.report.table import TableView, _worst, deviations, table_report
from lowsparse.support.charts import area
from lowsparse.support.html import element

pytest.importorskip("PIL", reason="needs the extra `cli`")

HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "<!--<script>",
    "\"' onmouseover='window.hacked=1' x=\"",
    "a & b &amp; \u2028\u2029 \u202e \N{SNOWMAN} ]]>",
    "javascript:window.hacked=1",
]
EVIL = " ".join(HOSTILE)
COMMAND = "lowsparse video clip.avi --rank 1"


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text in those of a kind."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.texts, self.open = [], [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "input"):
            self.open.append((tag, len(self.texts)))
            self.texts.append([tag, ""])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, text):
        for _, place in self.open:
            self.texts[place][1] += text

    def inside(self, tag):
        return [text for kind, text in self.texts if kind == tag]

    def data(self):
        return json.loads(self.inside("script")[0])


def clip(frames=12, height=48, width=64):
    """A bright square wandering over a fixed scene, in grey."""
    scene = np.random.default_rng(3).integers(40, 160, (height // 8, width // 8)).repeat(8, 0).repeat(8, 1)
    film = np.repeat(scene[None].astype(np.uint8), frames, axis=0)
    for t in range(frames):
        film[t, 20:32, 4 * t : 4 * t + 10] = 250
    return film


def video_run(path, run=None, **options):
    """The report of a real run: the square is found, and its share of each frame is the density."""
    frames = clip()
    result = ls.solve(frames.reshape(len(frames), -1).T / 255.0, rank=1, random_state=4)
    background = np.clip(np.rint(255 * result.L.to_dense().T), 0, 255).astype(np.uint8).reshape(frames.shape)
    moving = np.abs(frames.astype(int) - background) > 40
    film = Filmstrip(**options)
    for t, frame in enumerate(frames):
        film.add(t, frame, background[t], np.where(moving[t], frame, 0).astype(np.uint8))
    run = run or Run(
        title="clip.avi",
        lead="A square over a scene.",
        facts=[("12 frames", "were read")],
        command=COMMAND,
        settings={"rank": 1},
        timings={"solving": result.seconds},
        trace=result.trace,
        remarks=diagnosis_remarks(result.diagnostics),
    )
    video_report(path, run, film, density=moving.mean(axis=(1, 2)), fps=10)
    return film


def spoilt_table():
    """Speeds of rank 2 by sensor and hour with holes; row 5 and column 7 have many errors, others a few."""
    rng = np.random.default_rng(11)
    truth = 40 + rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30)) * 5
    X = truth + 0.05 * rng.standard_normal(truth.shape)
    wrong = rng.random(X.shape) < 0.02
    wrong[5, ::3] = wrong[::3, 7] = True
    X[wrong] += rng.choice([-1, 1], int(wrong.sum())) * rng.uniform(20, 60, int(wrong.sum()))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, wrong & ~np.isnan(X)


@pytest.fixture(scope="module")
def solved():
    X, wrong = spoilt_table()
    result = ls.solve(X, rank=3, random_state=4)
    assert result.flagged.size == wrong.sum()  # else the tests below say nothing
    return X, wrong, result


def table_run(path, result, *, run=None, rows=None, columns=None, **options):
    rows = rows or [f"Sensor {k}" for k in range(result.M.shape[0])]
    columns = columns or [f"hour {k}" for k in range(result.M.shape[1])]
    table = TableView(result, row_labels=rows, column_labels=columns, **options)
    run = run or Run(
        title="speeds.csv",
        facts=[("240", "holes were filled")],
        command="lowsparse complete speeds.csv",
        timings={"reading": 0.1, "solving": result.seconds},
        trace=result.trace,
        remarks=diagnosis_remarks(result.diagnostics),
    )
    table_report(path, run, table)
    return table


def series_view(names=None):
    """Three series of 2,000 hours; the second has a gap of 50 hours from 300 on, zeros at 1000 and a spike at 1500."""
    t = np.arange(2000.0)
    value = 100 + 10 * np.sin(2 * np.pi * t / 24)[:, None] + np.array([0.0, 200.0, 50.0])
    given = value.copy()
    given[300:350, 1] = np.nan
    given[1000:1005, 1] = 0.0
    given[1500, 1] = 1e6
    given[:, 2] = np.where(t < 100, np.nan, given[:, 2])
    value[:100, 2] = np.nan  # nothing is known there
    width = np.where(given == value, 0.0, 5.0)
    found = {"series": [1, 1], "begin": [1000, 1500], "end": [1004, 1500], "kind": ["zero or negative", "spike"]}
    found |= {"observed": [0.0, 1e6], "expected": [300.0, 300.0], "sure": [0.99, 0.999]}
    return SeriesView(
        names=names or ["north", "south", "west"],
        start=np.datetime64("2024-01-01", "ns"),
        step=np.timedelta64(1, "h"),
        given=given,
        value=value,
        lower=value - width,
        upper=value + width,
        level=0.9,
        anomalies={name: np.array(column) for name, column in found.items()},
        labels={k: str(np.datetime64("2024-01-01T00") + np.timedelta64(k, "h")) for k in range(2000)},
    )


# ---------------------------------------------------------------------- the file


def hostile_run():
    return Run(
        title=EVIL,
        lead=EVIL,
        facts=[(EVIL, EVIL)],
        command=EVIL,
        settings={EVIL: EVIL},
        timings={EVIL: 1.0},
        notes=[EVIL],
    )


@pytest.fixture(scope="module")
def hostile_pages(tmp_path_factory, solved):
    folder = tmp_path_factory.mktemp("hostile")
    video_run(folder / "video.html", hostile_run())
    names = [[f"{HOSTILE[k % len(HOSTILE)]} {k}" for k in range(count)] for count in solved[2].M.shape]
    table_run(folder / "table.html", solved[2], run=hostile_run(), rows=names[0], columns=names[1])
    series_report(folder / "series.html", hostile_run(), series_view(HOSTILE[:3]))
    return folder


@pytest.mark.parametrize("kind", ["video", "table", "series"])
def test_names_are_data(kind, hostile_pages):
    page = Page(hostile_pages / f"{kind}.html")
    tags = {tag for tag, _ in page.elements}
    assert len(page.inside("script")) == 2
    assert not tags & {"iframe", "object", "embed", "base", "form", "link"}
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc")]
        assert attributes.get("href", "#").startswith("#")
        assert tag != "img" or attributes["src"].startswith("data:image/jpeg;base64,")
    assert page.inside("h1") == [EVIL]
    assert page.inside("title")[0] == f"{EVIL} · lowsparse"
    assert page.inside("code") == [EVIL]
    assert page.inside("dt") == page.inside("dd") == [EVIL]
    assert page.inside("li")[0] == f"{EVIL} {EVIL}"
    assert EVIL in page.inside("th")
    if kind == "table":
        assert page.data()["rowNames"][:6] == [[f"{name} {k}"] * 2 for k, name in enumerate(HOSTILE)]
        assert set(page.data()["outliers"]["row"]) <= {f"{HOSTILE[k % len(HOSTILE)]} {k}" for k in range(40)}


def test_attributes_hold_their_text(tmp_path):
    path = tmp_path / "x.html"
    path.write_text(element("p", title=EVIL, hidden=False), "utf-8")
    assert Page(path).elements == [("p", {"title": EVIL})]


@pytest.mark.parametrize("kind", ["video", "table", "series"])
def test_the_policy_allows_this_script_and_this_style_alone(kind, hostile_pages):
    page = Page(hostile_pages / f"{kind}.html")
    (policy,) = [a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for name, text in (("style-src", page.inside("style")[0]), ("script-src", page.inside("script")[1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"


def test_no_address_of_another_place(tmp_path, solved):
    video_run(tmp_path / "video.html")
    table_run(tmp_path / "table.html", solved[2])
    series_report(tmp_path / "series.html", Run(title="x"), series_view())
    for name in ("video.html", "table.html", "series.html"):
        text = (tmp_path / name).read_text("utf-8")
        assert not re.search(r"(?i)https?:|//cdn|@import|url\(|\bsrc=\"(?!data:)", text)


def test_names_that_utf8_cannot_hold(tmp_path):
    title = os.fsdecode(b"caf\xe9.avi")
    video_run(tmp_path / "video.html", Run(title=title, notes=[title]))
    assert Page(tmp_path / "video.html").inside("h1") == ["caf?.avi"]


def test_same_input_same_bytes(tmp_path, solved):
    for name in ("one.html", "other.html"):
        video_run(tmp_path / name, Run(title="clip"))
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "other.html").read_bytes()
    table_run(tmp_path / "here.html", solved[2], run=Run(title="table"))
    np.savez(tmp_path / "table.npz", X=solved[0])
    code = f"""
import numpy as np, pathlib, lowsparse as ls
from test_report import table_run, Run
folder = pathlib.Path({str(tmp_path)!r})
result = ls.solve(np.load(folder / "table.npz")["X"], rank=3, random_state=4)
table_run(folder / "there.html", result, run=Run(title="table"))
"""
    python(code, PYTHONHASHSEED="5")
    assert (tmp_path / "here.html").read_bytes() == (tmp_path / "there.html").read_bytes()


def test_an_earlier_report_survives_a_failure(tmp_path, monkeypatch, solved):
    path = tmp_path / "report.html"
    path.write_text("earlier")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="free some space"):
        table_run(path, solved[2])
    assert path.read_text() == "earlier"
    assert os.listdir(tmp_path) == ["report.html"]


def test_what_cannot_be_shown_is_refused(tmp_path, solved):
    path, run, film = tmp_path / "x.html", Run(title="x"), Filmstrip()
    with pytest.raises(ValueError, match="film is empty"):
        video_report(path, run, film, density=[0.1])
    film.add(0, *3 * [clip()[0]])
    film.add(3, *3 * [clip()[3]])
    with pytest.raises(ValueError, match="each frame up to 3"):
        video_report(path, run, film, density=[0.1, 0.2])
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        video_report(path, run, film, density=[0.1, 0.2, 0.3, 30.0])
    with pytest.raises(ValueError, match="fps must be positive"):
        video_report(path, run, film, density=np.zeros(4), fps=0)
    with pytest.raises(ValueError, match="added in order"):
        film.add(2, *3 * [clip()[2]])
    with pytest.raises(ValueError, match="of uint8, not"):
        film.add(5, *3 * [np.zeros((4, 4))])
    with pytest.raises(ValueError, match=r"row_labels has 3 .* 40 rows"):
        TableView(solved[2], row_labels="abc")
    assert not path.exists()


# ---------------------------------------------------------------------- pictures


def decoded(picture):
    from io import BytesIO

    from PIL import Image

    return np.asarray(Image.open(BytesIO(picture)))


def test_pictures_show_their_frames():
    y, x = np.mgrid[:90, :120]
    frames = [np.stack([2 * x, 2 * y, 0 * x + 20 * t], axis=2).astype(np.uint8) for t in range(4)]
    film = Filmstrip(width=40)
    for t, frame in enumerate(frames):
        film.add(t, frame, frame[..., 0], frame)
    blocks = frames[2].reshape(30, 3, 40, 3, 3).mean(axis=(1, 3))
    assert np.abs(decoded(film.moments[2][0]) - blocks).mean() < 4
    assert decoded(film.moments[2][1]).shape == (30, 40)


def test_a_film_keeps_to_its_budget_and_is_even():
    rng = np.random.default_rng(5)
    film = Filmstrip(budget=100_000, width=64)
    for t in range(500):
        if film.wants(t):
            film.add(t, *rng.integers(0, 256, (3, 48, 64)).astype(np.uint8))
    assert 40_000 < film.size <= 100_000
    assert film.numbers == list(range(0, 500, film.every))


def test_of_known_length_no_picture_is_made_in_vain():
    film = Filmstrip(expected=500, most=100)
    wanted = [t for t in range(500) if film.wants(t)]
    for t in wanted:
        film.add(t, *3 * [np.full((8, 8), t % 256, np.uint8)])
    assert film.numbers == wanted == list(range(0, 500, 5))


def test_quality_gives_way_before_moments_do():
    rng = np.random.default_rng(6)
    frames = rng.integers(0, 256, (40, 60, 80)).astype(np.uint8)
    rich, poor = Filmstrip(expected=40, budget=10**7), Filmstrip(expected=40, budget=150_000)
    for t, frame in enumerate(frames):
        for film in (rich, poor):
            film.add(t, frame, frames[0], np.zeros_like(frame))
    assert len(rich.numbers) == len(poor.numbers) == 40
    assert rich.quality > poor.quality
    assert poor.size <= 150_000 < rich.size


def test_a_still_is_stored_once(tmp_path):
    film, still = Filmstrip(), np.full((32, 32), 90, np.uint8)
    for t in range(6):
        film.add(t, clip()[t, :32, :32], still + t // 4, still)  # one grey level, which nobody sees
    film.add(6, clip()[6, :32, :32], still + 9, still)
    video_report(tmp_path / "x.html", Run(title="x"), film, density=np.zeros(7))
    data = Page(tmp_path / "x.html").data()
    assert [len(set(pane)) for pane in data["panes"]] == [7, 2, 1]


def test_a_page_is_hardly_larger_than_its_pictures(tmp_path):
    film = video_run(tmp_path / "x.html")
    first = 4 / 3 * sum(len(picture) for picture in film.moments[0])
    assert os.path.getsize(tmp_path / "x.html") - film.size - first < 60_000


def test_a_single_busy_frame_is_drawn():
    shares = np.full(50_000, 0.01)
    shares[31_234] = 0.5
    heights = [100 - float(y) for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", area(shares))]
    assert sorted(set(heights)) == [pytest.approx(1.94), 97]


# ---------------------------------------------------------------------- tables


def test_heat_map_of_blocks_is_the_mean_of_their_entries():
    rng = np.random.default_rng(8)
    m, n = 500, 900
    L = ls.LowRank(rng.standard_normal((m, 2)), rng.standard_normal((2, n)))
    X = L.to_dense() + rng.standard_normal((m, n))
    X[rng.random((m, n)) < 0.6] = np.nan
    X[[3, 10, 250]] = np.nan
    X[:, 640] = np.nan
    M = ls.ObservedMatrix.from_dense(X)
    flagged = np.sort(rng.choice(M.nnz, 3000, replace=False))
    found = heat_map(M, L, flagged)

    wrong = np.zeros((m, n), bool)
    wrong[M.rows[flagged], M.columns_of_entries()[flagged]] = True
    known = np.ones((m, n), bool)
    known[[3, 10, 250]] = known[:, 640] = False
    good = ~np.isnan(X) & ~wrong
    filled = np.isnan(X) & known
    completed = np.where(good, X, np.where(known, L.to_dense(), np.nan))

    def blocks(values, summed):
        rows = [summed(values[a:b], axis=0) for a, b in zip(found.row_edges[:-1], found.row_edges[1:], strict=True)]
        columns = zip(found.column_edges[:-1], found.column_edges[1:], strict=True)
        return np.stack([summed(np.array(rows)[:, a:b], axis=1) for a, b in columns], axis=1)

    def mean(values):
        with np.errstate(invalid="ignore"):
            return blocks(np.nan_to_num(values), np.sum) / blocks((~np.isnan(values)).astype(float), np.sum)

    assert found.given.shape == (160, 280)
    assert_close(np.nan_to_num(found.given), np.nan_to_num(mean(X)), 1e-9)
    assert_close(np.nan_to_num(found.completed), np.nan_to_num(mean(completed)), 1e-9)
    assert np.array_equal(np.isnan(found.completed), np.isnan(mean(completed)))
    for kind, entries in (("wrong", wrong), ("filled", filled), ("empty", np.isnan(X) & ~known)):
        assert_close(getattr(found, kind), mean(entries.astype(float)), 1e-9)
        assert found.share(kind) == pytest.approx(entries.mean())


def test_of_many_entries_the_fit_stands_in(monkeypatch, solved):
    result = solved[2]
    exact = heat_map(result.M, result.L, result.flagged)
    monkeypatch.setattr(heat, "EXACT", 10)
    quick = heat_map(result.M, result.L, result.flagged)
    assert np.abs(quick.completed - exact.completed).max() < 5 * result.noise
    assert_close(quick.completed, result.L.to_dense(), 1e-9)
    assert np.array_equal(quick.wrong, exact.wrong)


def test_values_in_the_page_are_those_of_the_table(tmp_path, solved):
    X, wrong, result = solved
    table_run(tmp_path / "x.html", result)
    heat = Page(tmp_path / "x.html").data()["heat"]
    levels = np.frombuffer(base64.b64decode(heat["given"]), "<u2").reshape(X.shape)
    values = np.array(heat["low"]) + np.array(heat["span"]) * levels / 65534
    there = ~np.isnan(X)
    assert np.array_equal(levels < 65535, there)
    assert np.abs(values - X)[there].max() < np.ptp(X[there]) / 65000
    marked = np.frombuffer(base64.b64decode(heat["wrong"]), np.uint8).reshape(X.shape)
    assert np.array_equal(marked > 0, wrong)


def test_flagged_entries_and_worst_lines(solved):
    X, wrong, result = solved
    table = TableView(result)
    listed = {(int(i), int(j)) for i, j in zip(table.outliers["row"], table.outliers["column"], strict=True)}
    assert listed == set(zip(*map(np.ndarray.tolist, np.nonzero(wrong)), strict=True))
    assert table.worst_rows[0].label == "5"
    assert table.worst_columns[0].label == "7"
    assert (table.worst_rows[0].outliers, table.worst_rows[0].observed) == (wrong[5].sum(), (~np.isnan(X[5])).sum())
    assert table.outliers["deviations"] == sorted(table.outliers["deviations"], reverse=True)


def test_one_wrong_of_one_is_not_the_worst():
    lines = _worst(list("abcd"), np.array([1, 30, 0, 5]), np.array([1, 100, 50, 500]))
    assert [line.label for line in lines] == ["b", "a", "d"]


def test_units_of_the_columns_come_back(solved):
    X, _, _ = solved
    scale = np.geomspace(0.1, 10, X.shape[1])
    shift = np.linspace(-50, 50, X.shape[1])
    plain = ls.solve(X, rank=3, random_state=4)
    given = ls.ObservedMatrix.from_dense(shift + scale * X)
    fit = ls.LowRank(np.column_stack([plain.L.U, np.ones(X.shape[0])]), np.vstack([scale * plain.L.V, shift]))
    table = TableView(plain, given=given, fit=fit, by_column=True)
    i, j = (np.array(table.outliers[name], dtype=int) for name in ("row", "column"))
    assert_close(table.outliers["value"], shift[j] + scale[j] * X[i, j], 1e-12)
    assert_close(table.outliers["expected"], shift[j] + scale[j] * plain.L.at(i, j), 1e-12)
    assert_close(table.heat.completed[i, j], table.outliers["expected"], 1e-12)
    assert table.outliers["deviations"] == TableView(plain).outliers["deviations"]


def test_deviations_are_about_the_standard_error():
    problem = ls.datasets.synthetic(120, 90, rank=2, density=0.5, outliers=0.1, noise=0.1, random_state=3)
    result = ls.solve(problem.M, rank=2, random_state=4)
    rows, columns = result.M.rows[result.flagged], result.M.columns_of_entries()[result.flagged]
    apart = np.abs(result.M.values[result.flagged] - result.L.at(rows, columns))
    exact = apart / np.hypot(result.noise, result.standard_error(rows, columns))
    assert np.median(np.abs(deviations(result) / exact - 1)) < 0.02


def test_series_in_the_page_are_those_given():
    view = series_view()
    packed = view.packed()
    assert (packed["moments"], packed["start"], packed["step"]) == (2000, 1704067200000.0, 3600000.0)
    line = packed["lines"][1]
    decoded = lambda text, kind: np.frombuffer(base64.b64decode(text), kind)  # noqa: E731
    numbers = lambda text: line["low"] + line["span"] * decoded(text, "<u2") / 65534  # noqa: E731
    assert np.abs(numbers(line["values"]) - view.value[:, 1]).max() < 1e-3
    changed = np.r_[300:350, 1000:1005, 1500]
    assert np.abs(numbers(line["lower"]) - view.value[changed, 1] + 5).max() < 1e-3
    assert np.abs(numbers(line["upper"]) - view.value[changed, 1] - 5).max() < 1e-3
    runs = {kind: decoded(text, "<u4").reshape(-1, 2).tolist() for kind, text in line["runs"].items()}
    assert runs == {"1": [[300, 350]], "2": [[1000, 1005], [1500, 1501]], "3": []}
    assert decoded(line["bad"], "<f4").tolist() == [0, 0, 0, 0, 0, 1e6]
    assert decoded(packed["lines"][2]["runs"]["3"], "<u4").tolist() == [0, 100]
    assert view.listed()["kind"] == ["spike", "zero or negative"]  # the surest first


def test_of_very_many_series_those_with_gaps_are_shown(monkeypatch):
    monkeypatch.setattr("lowsparse.report.series.SHOWN", 4000)
    view = series_view()
    assert view.shown().tolist() == [1, 2]
    assert view.listed()["number"] == [0, 0]
    assert [line["name"] for line in view.packed()["lines"]] == ["south", "west"]


def test_a_diagnosis_warns_in_words():
    good = ls.datasets.synthetic(80, 70, rank=2, density=0.6, outliers=0.1, random_state=3)
    thin = ls.datasets.synthetic(80, 70, rank=2, density=0.08, outliers=0.05, random_state=3)
    assert all(remark.good is not False for remark in diagnosis_remarks(ls.solve(good.M, rank=2).diagnostics))
    said = [remark.text for remark in diagnosis_remarks(ls.solve(thin.M, rank=2).diagnostics) if remark.good is False]
    assert any("too few to rely on" in text for text in said)


# ---------------------------------------------------------------------- a browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory, solved):
    folder = tmp_path_factory.mktemp("reports")
    video_run(folder / "video.html")
    table = table_run(folder / "table.html", solved[2])
    row = table.worst_rows[0]
    cells = [Cell("hour 3", 90.0, 61.25, 12.0), Cell("hour 5", 20.0, 60.5, -9.0)]
    bad = BadRow(label=row.label, filled=2, observed=row.observed, outliers=row.outliers, many=True, distance=1.0,
                 usual=1.5, cells=cells)  # fmt: skip
    off = replace(bad, label="Sensor <b>&", filled=0, many=False, outliers=0, distance=2.5)
    table_report(folder / "rows.html", Run(title="speeds.csv"), table, bad_rows=[off, bad])
    run = Run(title="demand.csv", facts=[("50", "values were filled"), ("2", "runs of outliers")], command=COMMAND)
    series_report(folder / "series.html", run, series_view())
    return folder


@pytest.fixture
def look(browser, pages):
    """Open a report; afterwards nothing was complained of and nothing was asked of the network."""

    def opened(name):
        browser.get((pages / name).as_uri())
        return browser

    browser.get_log("browser")
    browser.get_log("performance")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    yield opened
    assert browser.get_log("browser") == []
    assert asked(browser) <= {"file", "data"}


def asked(browser):
    """The kinds of addresses that were asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return {url.partition(":")[0] for url in sent}


def found(browser, selector):
    return browser.find_element("css selector", selector)


def all_found(browser, selector):
    return browser.find_elements("css selector", selector)


def shown(browser):
    return [image.get_attribute("src") for image in all_found(browser, ".pane img")]


def wait(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 20, poll_frequency=0.05).until(lambda _: condition())


def test_rows_that_are_wrong_as_a_whole_have_a_card(look):
    browser = look("rows.html")
    first, second = all_found(browser, ".reasons tr")  # the worst first
    label = found(browser, ".reasons .find").text
    assert " values are outliers.\nhour 3: 90 is too high, 61.2 is expected\nhour 5: 20 is too low" in first.text
    said = "Its values are 2.5 standard deviations off throughout, 1.5 at most is usual."
    assert second.text.startswith(f"Sensor <b>& {said}")
    assert "Missing values there (2)" in found(browser, "[aria-labelledby=rowsthatarewrongasawhole]").text
    found(browser, ".reasons .find").click()
    listed = [row.text for row in all_found(browser, "#entries tr")]
    assert listed
    assert all(row.startswith(label) for row in listed)


@pytest.mark.slow
def test_the_scrubber_is_dragged(look):
    from selenium.webdriver import ActionChains

    browser = look("video.html")
    before = shown(browser)
    scrubber = found(browser, "#scrubber")
    start = -scrubber.size["width"] // 2 + 9
    hold = ActionChains(browser).move_to_element_with_offset(scrubber, start, 0).click_and_hold()
    hold.move_by_offset(scrubber.size["width"] // 2, 0).release().perform()
    number = int(scrubber.get_attribute("value"))
    assert 4 <= number <= 7
    assert found(browser, "#where").text == f"Frame {number + 1} of 12 · 0:00.{number}"
    assert scrubber.get_attribute("aria-valuetext") == f"Frame {number + 1} of 12 · 0:00.{number}"
    now = shown(browser)
    data = browser.execute_script("return data")
    assert now == [data["pictures"][pane[number]] for pane in data["panes"]]
    assert now[0] != before[0]
    assert now[2] != before[2]
    # the square itself has moved in what is on the screen
    drawn = """
        const [image, x, canvas] = [arguments[0], arguments[1], document.createElement("canvas")];
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(image, 0, 0);
        return context.getImageData(x, 26, 1, 1).data[0];
    """
    wait(browser, lambda: browser.execute_script("return arguments[0].complete", found(browser, ".pane img")))
    assert browser.execute_script(drawn, found(browser, ".pane img"), 4 * number + 5) > 220
    assert browser.execute_script(drawn, found(browser, ".pane img"), 2) < 200


def test_keys_move_the_frame(look):
    from selenium.webdriver.common.keys import Keys

    browser = look("video.html")
    number = lambda: int(found(browser, "#scrubber").get_attribute("value"))  # noqa: E731
    body = found(browser, "body")
    body.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert number() == 2
    scrubber = found(browser, "#scrubber")
    for key, expected in (
        (Keys.ARROW_RIGHT, 3),
        (Keys.END, 11),
        (Keys.ARROW_RIGHT, 11),
        (Keys.PAGE_DOWN, 1),
        (Keys.PAGE_UP, 11),
        (Keys.HOME, 0),
        (Keys.ARROW_LEFT, 0),
    ):
        scrubber.send_keys(key)
        assert number() == expected
    found(browser, "#last").click()
    wait(browser, lambda: found(browser, "#announcement").get_attribute("textContent") == "Frame 12 of 12 · 0:01.1")
    assert found(browser, ".pane img").get_attribute("alt") == "Original, frame 12"


def test_play_and_pause(look):
    from selenium.webdriver.common.keys import Keys

    browser = look("video.html")
    play = found(browser, "#play")
    assert play.accessible_name == "Play"
    play.click()
    assert play.accessible_name == "Pause"
    first = shown(browser)[0]
    wait(browser, lambda: shown(browser)[0] != first)
    found(browser, "#scrubber").send_keys(Keys.SPACE)
    assert play.accessible_name == "Play"
    stopped = found(browser, "#where").text
    time.sleep(0.4)  # three frames or so, were it playing
    assert found(browser, "#where").text == stopped
    wait(browser, lambda: found(browser, "#announcement").get_attribute("textContent") == f"Paused. {stopped}")


def test_the_density_is_clicked(look):
    from selenium.webdriver import ActionChains

    browser = look("video.html")
    density = found(browser, "#density")
    place = round((8 / 11 - 0.5) * density.size["width"])
    ActionChains(browser).move_to_element_with_offset(density, place, 0).click().perform()
    assert found(browser, "#scrubber").get_attribute("value") == "8"
    assert float(found(browser, "#playhead").get_attribute("x1").rstrip("%")) == pytest.approx(100 * 8 / 11)
    assert found(browser, "#now").text == f"{100 * browser.execute_script('return data.density[8]'):.1f} %"


def test_a_picture_is_enlarged(look):
    browser = look("video.html")
    before = found(browser, ".pane:nth-child(2) img").size["width"]
    button = found(browser, ".pane:nth-child(2) .enlarge")
    button.click()
    assert found(browser, ".pane:nth-child(2) img").size["width"] > 1.8 * before
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert found(browser, ".pane:nth-child(2) img").size["width"] == before


@pytest.mark.slow
def test_the_command_is_copied(look):
    browser = look("video.html")
    found(browser, "#copy").click()
    wait(browser, lambda: found(browser, "#copy").text in ("Copied", "Selected"))
    assert found(browser, "#command").get_attribute("textContent") == COMMAND
    wait(browser, lambda: found(browser, "#copy").text == "Copy")


def entries(browser):
    rows = "[...document.querySelectorAll('#entries tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    return browser.execute_script(f"return {rows}")


def test_flagged_entries_are_searched_sorted_and_paged(look, solved):
    browser = look("table.html")
    _, wrong, _ = solved
    count = lambda: found(browser, "#count").text  # noqa: E731
    total = int(wrong.sum())
    assert count() == f"{total} of {total} entries"
    assert len(entries(browser)) == 10
    first = entries(browser)
    found(browser, "#following").click()
    assert found(browser, "#pages").text == f"Page 2 of {-(-total // 10)}"
    assert not [row for row in entries(browser) if row in first]

    found(browser, "#search").send_keys("sensor 5")
    assert count() == f"{wrong[5].sum()} of {total} entries"
    assert {row[0] for row in entries(browser)} == {"Sensor 5"}
    found(browser, "#search").clear()
    found(browser, "#search").send_keys("sensor 3")  # also 30 to 39
    assert count() == f"{wrong[[3, *range(30, 40)]].sum()} of {total} entries"
    found(browser, "#search").send_keys("xyz")
    assert count() == f"0 of {total} entries"
    assert entries(browser) == []
    found(browser, "#search").clear()
    found(browser, "#search").send_keys(" ")

    value = found(browser, "button[data-column=value]")
    for order in ("ascending", "descending"):
        value.click()
        assert value.find_element("xpath", "..").get_attribute("aria-sort") == order
        values = [float(row[2]) for row in entries(browser)]
        assert values == sorted(values, reverse=order == "descending")
    found(browser, "button[data-column=row]").click()
    found(browser, "#size option[value='100']").click()
    numbers = [int(row[0].split()[1]) for row in entries(browser)]
    assert len(numbers) == min(total, 100)
    assert numbers == sorted(numbers)  # 9 before 10


def test_a_worst_line_lists_its_entries_alone(look, solved):
    browser = look("table.html")
    wrong = solved[1]
    for button in all_found(browser, ".find")[:12]:
        kind, number = button.text.split()
        browser.execute_script("arguments[0].click()", button)
        lines = wrong[int(number)] if kind == "Sensor" else wrong[:, int(number)]
        assert found(browser, "#count").text == f"{lines.sum()} of {wrong.sum()} entries"


@pytest.mark.slow
def test_cells_are_read_by_pointer_and_keys(look, solved):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = look("table.html")
    X, wrong, result = solved
    canvas = found(browser, "canvas")
    size = np.array([canvas.size["height"], canvas.size["width"]])
    for places, state in ((wrong, " (wrong)"), (~wrong & ~np.isnan(X), "")):
        for i, j in np.argwhere(places)[[0, 5, -5]]:
            down, across = np.rint(((np.array([i, j]) + 0.5) / X.shape - 0.5) * size).astype(int).tolist()
            ActionChains(browser).move_to_element_with_offset(canvas, across, down).perform()
            said = re.fullmatch(
                r"Sensor (\d+) × hour (\d+): given (\S+), completed (\S+?)( .*|)", found(browser, "#cell").text
            )
            assert (int(said[1]), int(said[2]), said[5]) == (i, j, state)
            assert float(said[3]) == pytest.approx(X[i, j], rel=1e-3)
            assert float(said[4]) == pytest.approx(result.L.at(i, j) if state else X[i, j], rel=1e-3)
    ActionChains(browser).move_to_element(found(browser, "h1")).perform()
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert found(browser, "#cell").text.startswith("Sensor 1 × hour 1: ")


def pixel(browser, canvas, i, j):
    code = """
        const [canvas, row, column] = arguments;
        const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const place = (cell, size, cells) => -Math.floor(((cell + 0.5) * size) / cells);
        context.drawImage(
          canvas, place(column, canvas.width, data.heat.columns), place(row, canvas.height, data.heat.rows));
        return [...context.getImageData(0, 0, 1, 1).data];
    """
    return browser.execute_script(code, canvas, int(i), int(j))


def swatch(browser, name):
    colour = browser.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor", f"#legend .{name}"
    )
    return [int(level) for level in re.findall(r"\d+", colour)[:3]]


def test_the_heat_map_shows_what_was_done(look, solved):
    browser = look("table.html")
    X, wrong, _ = solved
    given, done, completed = all_found(browser, "canvas")
    for places, name in ((wrong, "wrong"), (np.isnan(X), "filled"), (~wrong & ~np.isnan(X), "kept")):
        i, j = np.argwhere(places)[3]
        assert pixel(browser, done, i, j)[:3] == swatch(browser, name)
    hole = np.argwhere(np.isnan(X))[0]
    assert pixel(browser, given, *hole)[:3] == swatch(browser, "empty")
    assert pixel(browser, completed, *hole)[:3] != swatch(browser, "empty")


# ---------------------------------------------------------------------- the chart of series


def in_view(browser):
    """The first and the last moment in view, as numbers, once the chart is drawn."""
    code = """
        const done = arguments[0];
        requestAnimationFrame(() => requestAnimationFrame(() => done(document.getElementById("where").textContent)));
    """
    times = [np.datetime64(text.replace(" ", "T")) for text in browser.execute_async_script(code).split(" … ")]
    return [int((time - np.datetime64("2024-01-01T00:00")) / np.timedelta64(1, "h")) for time in times]


def has_colour(browser, name, left=0.0, right=1.0):
    """Whether pixels of the chart, from a share of its width to another, have the colour of the legend."""
    code = """
        const [rgb, left, right] = arguments;
        const chart = document.getElementById("chart");
        const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        context.canvas.width = Math.ceil((right - left) * chart.width);
        context.canvas.height = chart.height;
        context.drawImage(chart, -Math.floor(left * chart.width), 0);
        const { data } = context.getImageData(0, 0, context.canvas.width, chart.height);
        const same = (k) => rgb.every((level, c) => Math.abs(level - data[k + c]) < 3) && data[k + 3] > 250;
        for (let k = 0; k < data.length; k += 4) if (same(k)) return true;
        return false;
    """
    in_view(browser)
    return browser.execute_script(code, swatch(browser, name), left, right)


def test_the_chart_is_moved_and_zoomed_by_keys(look):
    from selenium.webdriver.common.keys import Keys

    browser = look("series.html")
    chart = found(browser, "#chart")
    assert in_view(browser) == [0, 1999]
    chart.send_keys("+")
    assert in_view(browser) == [500, 1499]
    chart.send_keys(Keys.ARROW_RIGHT)
    assert in_view(browser) == [600, 1599]
    chart.send_keys(Keys.END)
    assert in_view(browser) == [1000, 1999]
    chart.send_keys(Keys.HOME, Keys.PAGE_DOWN)
    assert in_view(browser) == [1000, 1999]
    chart.send_keys("-")
    assert in_view(browser) == [0, 1999]
    chart.send_keys(*8 * "+")
    first, last = in_view(browser)
    assert last - first in (7, 8)
    chart.send_keys("0")
    assert in_view(browser) == [0, 1999]
    chart.send_keys(Keys.ARROW_DOWN)
    assert found(browser, "#chooser [aria-pressed=true]").text == "west"


def test_the_chart_is_dragged_and_zoomed_by_wheel(look):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    browser = look("series.html")
    chart = found(browser, "#chart")
    chart.send_keys("+")
    width = chart.size["width"] - 64
    ActionChains(browser).move_to_element(chart).click_and_hold().move_by_offset(-width // 4, 0).release().perform()
    first, last = in_view(browser)
    assert abs(first - 750) < 15
    assert abs(last - first - 1000) < 3
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(chart), 0, -300).perform()
    closer = in_view(browser)
    assert closer[1] - closer[0] < 0.5 * (last - first)
    assert first < closer[0] < closer[1] < last


def test_the_chart_is_pinched(look):
    browser = look("series.html")
    chart = found(browser, "#chart")
    box = browser.execute_script(
        "const b = arguments[0].getBoundingClientRect(); return [b.left, b.top, b.width]", chart
    )
    left, width, y = box[0] + 58, box[2] - 64, box[1] + 100

    def touch(kind, *shares):
        points = [{"x": left + share * width, "y": y, "id": k} for k, share in enumerate(shares)]
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 0.4)
    touch("touchStart", 0.4, 0.6)
    for k in range(1, 5):
        touch("touchMove", 0.4 - 0.05 * k, 0.6 + 0.05 * k)
    touch("touchEnd")
    first, last = in_view(browser)
    assert abs(last - first - 2000 / 3) < 20  # fingers are three times as far apart
    assert abs(first + last - 2000) < 30


def test_an_anomaly_is_clicked_and_shown(look):
    browser = look("series.html")
    assert found(browser, "#chooser [aria-pressed=true]").text == "south 2"  # which has most anomalies
    found(browser, "#chooser button").click()
    assert found(browser, "#chooser [aria-pressed=true]").text == "north"
    rows = entries(browser)
    assert [row[3] for row in rows] == ["spike", "zero or negative"]
    all_found(browser, "#entries button")[1].click()
    first, last = in_view(browser)
    assert first < 1000 < 1004 < last
    assert last - first < 100
    assert found(browser, "#chooser [aria-pressed=true]").text == "south 2"
    assert has_colour(browser, "kind-1")
    assert not has_colour(browser, "kind-0")
    found(browser, "#next").click()
    first, last = in_view(browser)
    assert first < 1500 < last
    assert has_colour(browser, "kind-0")


def test_kinds_are_switched_off_in_chart_and_list(look):
    browser = look("series.html")
    assert has_colour(browser, "kind-0")
    button = found(browser, ".kind")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert not has_colour(browser, "kind-0")
    assert [row[3] for row in entries(browser)] == ["zero or negative"]
    button.click()
    assert len(entries(browser)) == 2


def test_gaps_and_bands_are_drawn_where_they_are(look):
    from selenium.webdriver.common.keys import Keys

    browser = look("series.html")
    chart = found(browser, "#chart")
    assert has_colour(browser, "filled", 0.18, 0.24)  # 300 to 350 of 2,000
    assert not has_colour(browser, "filled", 0.3, 0.5)
    chart.send_keys("+", Keys.HOME, "+", "+", Keys.HOME, Keys.ARROW_RIGHT)
    first, last = in_view(browser)
    assert (first, last) == (25, 274)
    assert not has_colour(browser, "band")
    chart.send_keys(Keys.PAGE_DOWN)
    assert has_colour(browser, "band")
    assert has_colour(browser, "filled")


def test_a_moment_is_read_by_pointer_and_keys(look):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = look("series.html")
    chart = found(browser, "#chart")
    width = chart.size["width"]
    place = round(58 + (width - 64) * 325.5 / 2000 - width / 2)
    ActionChains(browser).move_to_element_with_offset(chart, place, 0).perform()
    said = re.fullmatch(r"2024-01-14 1\d:00: south filled (\S+) \((\S+) … (\S+)\)", found(browser, "#cell").text)
    assert float(said[3]) - float(said[1]) == pytest.approx(5, abs=0.02)
    assert float(said[1]) - float(said[2]) == pytest.approx(5, abs=0.02)
    all_found(browser, "#entries button")[0].click()
    in_view(browser)
    chart.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT)
    for _ in range(60):
        if "spike" in found(browser, "#cell").text:
            break
        chart.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT)
    assert found(browser, "#cell").text.startswith("2024-03-03 12:00: south read 1000000, expected 3")


def test_several_series_share_the_chart(look):
    browser = look("series.html")
    in_view(browser)
    before = found(browser, "#chart").size["height"]
    found(browser, "#several").click()
    for chip in (0, 2):
        all_found(browser, "#chooser button")[chip].click()
    in_view(browser)
    assert len(all_found(browser, "#chooser [aria-pressed=true]")) == 3
    assert found(browser, "#chart").size["height"] > 1.5 * before
    all_found(browser, "#chooser button")[0].click()
    assert len(all_found(browser, "#chooser [aria-pressed=true]")) == 2


def test_the_theme_is_switched_and_kept(look):
    browser = look("table.html")
    paper = lambda: browser.execute_script("return getComputedStyle(document.body).backgroundColor")  # noqa: E731
    button = found(browser, "#theme")
    assert button.accessible_name == "Switch to the dark theme"
    light, hole = paper(), swatch(browser, "empty")
    button.click()
    assert button.accessible_name == "Switch to the light theme"
    dark = paper()
    assert dark != light
    assert swatch(browser, "empty") != hole
    canvas = found(browser, "canvas")
    seen = {tuple(pixel(browser, canvas, i, j)[:3]) for i in range(10) for j in range(10)}
    assert tuple(swatch(browser, "empty")) in seen  # painted anew
    browser.refresh()
    assert paper() == dark
    found(browser, "#theme").click()
    assert paper() == light


def contrast(one, other):
    def luminance(colour):
        c = np.array(colour) / 255
        return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


TEXTS = """
const solid = (node) => {
  for (; node; node = node.parentElement) {
    const found = getComputedStyle(node).backgroundColor.match(/[\\d.]+/g).map(Number);
    if (found.length === 3) return found;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll("body *")]
  .filter((node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim()))
  .filter((node) => node.checkVisibility() && !node.closest(".unseen, .skip, :disabled, script, svg"))
  .map((node) => [node.textContent, getComputedStyle(node).color.match(/[\\d.]+/g).map(Number), solid(node)]);
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["video.html", "table.html", "series.html"])
def test_texts_can_be_read(name, theme, look):
    browser = look(name)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    texts = browser.execute_script(TEXTS)
    assert len(texts) > 20
    assert [text for text, ink, paper in texts if contrast(ink[:3], paper[:3]) < 4.5] == []


@pytest.mark.parametrize("name", ["video.html", "table.html", "series.html"])
def test_everything_has_a_name(name, look):
    browser = look(name)
    for part in all_found(browser, "button, input, select, canvas, [role=img]"):
        assert part.accessible_name.strip(), part.get_attribute("outerHTML")
    for image in all_found(browser, "img"):
        assert image.get_attribute("alt")
    assert len(all_found(browser, "h1")) == len(all_found(browser, "main")) == len(all_found(browser, "header")) == 1
    assert found(browser, "#announcement").get_attribute("aria-live") == "polite"
    for label in all_found(browser, "[aria-labelledby]"):
        assert len(all_found(browser, f"#{label.get_attribute('aria-labelledby')}")) == 1


@pytest.mark.parametrize("name", ["video.html", "table.html", "series.html"])
def test_a_phone_needs_no_sideways_scrolling(name, look):
    browser = look(name)
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    last = found(browser, ".facts li:last-child").rect
    assert last["y"] + last["height"] < 844  # key facts and pictures are on the first screen
    picture = all_found(browser, ".pane img, .pane canvas, #chart")[-1].rect
    assert picture["y"] + picture["height"] < 844


@pytest.mark.parametrize("kind", ["video", "table", "series"])
def test_hostile_names_stay_text(kind, look, hostile_pages):
    browser = look(hostile_pages / f"{kind}.html")
    assert found(browser, "h1").get_attribute("textContent") == EVIL
    assert found(browser, "#command").get_attribute("textContent") == EVIL
    if kind == "table":
        data = browser.execute_script("return data.outliers")
        cells = [cell.get_attribute("textContent") for cell in all_found(browser, "#entries tr:first-child td")]
        assert cells[:2] == [data["row"][0], data["column"][0]]
        for button in all_found(browser, ".find"):
            browser.execute_script("arguments[0].click()", button)
            assert int(found(browser, "#count").text.split()[0]) > 0
    if kind == "series":
        assert [chip.text for chip in all_found(browser, "#chooser button")] == [
            HOSTILE[0],
            f"{HOSTILE[1]} 2",
            HOSTILE[2],
        ]
        found(browser, "#entries button").click()
        assert found(browser, "#entries button").text == HOSTILE[1]
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.scripts.length") == 2


def test_the_policy_holds(browser, pages):
    """What the page does not bring with it does not run, and nothing is fetched."""
    browser.get((pages / "video.html").as_uri())
    browser.execute_script("""
        const script = document.createElement("script");
        script.textContent = "window.hacked = 1";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src='https://example.org/x.png'>");
    """)
    done = "const done = arguments[0]; fetch('https://example.org/').then(() => done('fetched'), () => done('refused'))"
    assert browser.execute_async_script(done) == "refused"
    assert browser.execute_script("return window.hacked") is None
    complaints = [entry["message"] for entry in browser.get_log("browser")]
    assert len([message for message in complaints if "Content Security Policy" in message]) >= 3
