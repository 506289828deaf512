"""The paper's numerical section: a small part of the quick run for real, and the verdicts on results made up here."""

import base64
import csv
import errno
import json
import math
import platform
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from conftest import interruptible, repeated_command
from lowsparse.cli import main
from lowsparse.reproduce import claims, jobs, reproduce, settings
from lowsparse.reproduce.results import Results
from lowsparse.reproduce.synthetic import Case, reached
from lowsparse.reproduce.video import Scene, _mean, open_clip
from lowsparse.support import files
from lowsparse.video import metrics, sample_pixels

SHARED = Path(__file__).parents[2] / "shared"
METHODS = ["amanpgc", "manpgc"]
PART = {"quick": True, "cases": [6], "videos": ["blocks"], "methods": METHODS}


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Watcher:
    """Collects the progress reports."""

    def __init__(self, interrupt_at=None):
        self.steps, self.interrupt_at = [], interrupt_at

    def __call__(self, step):
        if step.number == self.interrupt_at:
            raise KeyboardInterrupt
        self.steps.append(step)

    def ended(self, state):
        return [step.title for step in self.steps if step.state == state]


def again(folder, **more):
    watcher = Watcher()
    reproduce(folder, progress=watcher, **{**PART, **more})
    return watcher


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    watcher = Watcher()
    page = reproduce(folder, progress=watcher, **PART)
    assert page == folder / "index.html"
    return folder, watcher


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished folder, to be damaged."""
    return Path(shutil.copytree(finished[0], tmp_path / "paper"))


# ---------------------------------------------------------------------- a part of it, for real


def test_progress_reports_every_run(finished):
    _, watcher = finished
    titles = watcher.ended("done")
    assert len(titles) == len(set(titles)) == 2 + 2 * 2
    assert {(step.number, step.total) for step in watcher.steps if step.state == "done"} == {
        (k, 6) for k in range(1, 7)
    }
    running = [step for step in watcher.steps if step.title == "case 6, amanpgc" and step.iteration]
    assert [step.iteration for step in running] == list(range(1, len(running) + 1))
    assert running[-1].figure < 1e-8


def test_the_summary_follows_from_the_curves(finished):
    folder, _ = finished
    curves = rows_of(folder / "synthetic-curves.csv")
    for row in rows_of(folder / "synthetic.csv"):
        own = [other for other in curves if other["method"] == row["method"]]
        assert [int(other["iteration"]) for other in own] == list(range(1, int(row["iterations"]) + 1))
        assert np.all(np.diff([float(other["seconds"]) for other in own]) >= 0)
        assert np.all(np.diff([float(other["cpu seconds"]) for other in own]) >= 0)
        errors = [float(other["relative difference"]) for other in own]
        for target in settings.TARGETS:
            k = int(row[f"iterations to {target:.0e}"])
            assert errors[k - 1] <= target < errors[k - 2]
            assert float(row[f"seconds to {target:.0e}"]) == float(own[k - 1]["seconds"])
        assert float(row["smallest difference"]) == min(errors) < 1e-8


def test_the_curve_is_the_distance_to_the_truth(finished):
    """The last point, from a solve of one's own with the parameters that were stored."""
    folder, _ = finished
    case = Case(6, quick=True)
    kept = json.loads((folder / "runs" / "quick-case-6-amanpgc-1.json").read_text(encoding="utf-8"))
    M = case.problem.M
    solver = ls.solvers.AManPGC(t_U=1 / M.nnz, **kept["settings"]["parameters"])
    result = ls.solve(
        M,
        5,
        method=solver,
        start=case.start[0],
        tol=1e-10,
        max_iter=len(kept["error"]),
        random_state=settings.START_SEED,
    )
    assert result.n_iter == len(kept["error"])
    assert result.L.error(case.problem.L, relative=True) == pytest.approx(kept["error"][-1], rel=1e-6)


def test_the_measures_are_those_of_the_pictures(finished):
    folder, _ = finished
    clip = open_clip("blocks", Path(), quick=True)
    rng = np.random.default_rng([settings.PIXELS_SEED, 50])
    M = sample_pixels(clip.frames, 0.5, rng)
    start = Scene(clip, 0.5).start[0]
    (tuning,) = settings.video_tunings("amanpgc", clip.frames.size)
    result = ls.solve(M, 2, method=tuning.solver("amanpgc", M.nnz), start=start, random_state=settings.START_SEED)
    found = np.clip(255 * result.L.to_dense().T.reshape(clip.frames.shape), 0, 255)
    rows = rows_of(folder / "video.csv")
    row = next(row for row in rows if (row["method"], row["observed"]) == ("amanpgc", "0.5"))
    assert int(row["iterations"]) == result.n_iter
    for name, value in metrics.background_metrics(found, clip.trusted).items():
        assert float(row[name]) == pytest.approx(value, rel=1e-4)
    from matplotlib import image

    picture = 255 * image.imread(folder / "runs" / "quick-blocks-50-amanpgc-1.png")[..., 0]
    assert np.abs(picture - found[clip.busiest]).max() <= 0.51
    assert float(row["age"]) < clip.untouched["age"]  # the blocks are gone


def test_the_page_needs_no_other_file_and_reveals_nothing_of_the_machine(finished):
    folder, _ = finished
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r"https?://|<script src|<link|@import|url\(", page)
    sources = re.findall(r'src="([^"]*)"', page)
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    inside = {base64.b64decode(source.partition(",")[2]) for source in sources}
    assert inside == {(folder / name).read_bytes() for name in ("synthetic.png", "blocks.png")}
    assert all(picture.startswith(b"\x89PNG") for picture in inside)
    text = re.sub(r'src="[^"]*"', "", page)
    for word in (str(folder), str(Path.home()) + "/", platform.node()):
        assert len(word) < 4 or word not in text
    words = "lowsparse reproduce --quick --case 6 --video blocks --method amanpgc --method manpgc"
    assert repeated_command(folder / "index.html") == words.split()
    assert ls.__version__ in text
    assert "Quick run." in text
    assert "Not complete" not in text


def test_the_page_shows_every_claim_and_every_number(finished):
    folder, _ = finished
    page = (folder / "index.html").read_text(encoding="utf-8")
    judged = rows_of(folder / "claims.csv")
    assert len(judged) == 11
    assert {row["verdict"] for row in judged} <= {"holds", "holds in part", "does not hold", "not tested"}
    for row in judged:
        assert row["claim"].replace("'", "&#x27;") in page
        assert row["reason"].replace("'", "&#x27;") in page
    for row in rows_of(folder / "video.csv"):
        assert f"<td>{float(row['age']):.2f}</td>" in page
    assert "t_U = 1/|Ω| (printed as 2/|Ω|)" in page


def test_the_markdown_has_the_same_content(finished):
    folder, _ = finished
    text = (folder / "paper.md").read_text(encoding="utf-8")
    assert "lowsparse reproduce --quick --case 6 --video blocks --method amanpgc --method manpgc" in text
    assert "](synthetic.png)" in text
    assert str(folder) not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "!", "lowsparse "))) <= 120
    words = " ".join(text.split())
    for row in rows_of(folder / "claims.csv"):
        assert f"**{row['claim']}** {row['verdict'].capitalize()}. {row['reason']}" in words
    (row,) = (row for row in rows_of(folder / "synthetic.csv") if row["method"] == "manpgc")
    (line,) = re.findall(r"^\| ManPGC \| (.*) \|$", text.partition("## Parameters")[0], re.MULTILINE)
    assert line.split(" | ")[2] == row["iterations to 1e-06"]
    assert line.split(" | ")[6] == f"{float(row['seconds / amanpgc']):.2f}"


def test_a_page_without_a_remark_has_no_empty_paragraph(finished):
    assert "<p></p>" not in (finished[0] / "index.html").read_text(encoding="utf-8")


def test_nothing_else_is_left_behind(finished):
    folder, _ = finished
    assert sorted(path.name for path in folder.iterdir()) == [
        "blocks.png",
        "claims.csv",
        "index.html",
        "paper.md",
        "runs",
        "synthetic-curves.csv",
        "synthetic.csv",
        "synthetic.png",
        "video.csv",
    ]
    assert len(list((folder / "runs").iterdir())) == 6 + 4  # a picture for every video run


# ---------------------------------------------------------------------- going on


def test_a_second_call_runs_nothing_and_changes_nothing(copy):
    before = {path.name: path.read_bytes() for path in copy.glob("*.csv")}
    watcher = again(copy)
    assert len(watcher.ended("kept")) == 6
    assert watcher.ended("done") == []
    assert {path.name: path.read_bytes() for path in copy.glob("*.csv")} == before


def test_what_has_other_settings_is_run_again_and_nothing_else(copy, monkeypatch):
    monkeypatch.setattr(settings, "VIDEO_MAX_ITER", 3)
    watcher = again(copy)
    assert watcher.ended("kept") == ["case 6, amanpgc", "case 6, manpgc"]
    assert len(watcher.ended("done")) == 4
    assert {row["iterations"] for row in rows_of(copy / "video.csv")} == {"3"}


@pytest.mark.slow
def test_other_parameters_of_one_method(copy, monkeypatch):
    steps = {**settings.PRINTED_STEPS, 6: ((2.0, 30.0), (1.6, 30.0))}
    monkeypatch.setattr(settings, "PRINTED_STEPS", steps)
    assert again(copy).ended("done") == ["case 6, manpgc"]


@pytest.mark.slow
def test_times_of_another_machine_do_not_count(copy, monkeypatch):
    from lowsparse import reproduce as package

    other = {**jobs.machine(), "processor": "another"}
    monkeypatch.setattr(package, "machine", lambda: other)
    assert len(again(copy, videos=[]).ended("done")) == 2


def test_a_quick_run_leaves_the_runs_of_a_full_one(finished, copy):
    def names(quick):
        case, scene = Case(6, quick), Scene(open_clip("blocks", Path(), quick=True), 0.5, quick)
        return {job.name for part in (case, scene) for job in part.jobs(METHODS, {})}

    assert not names(True) & names(False)
    assert "case-6-amanpgc-1" in names(False)
    assert {path.stem for path in (copy / "runs").glob("*-50-*.json")} <= names(True)


def test_fresh_runs_everything_anew(copy):
    assert len(again(copy, videos=[], fresh=True).ended("done")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["error", "seconds", "status", "start_seconds"])
def test_a_record_without_something_is_made_anew(name, copy):
    path = copy / "runs" / "quick-case-6-manpgc-1.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept.pop(name)
    path.write_text(json.dumps(kept), encoding="utf-8")
    assert again(copy, videos=[]).ended("done") == ["case 6, manpgc"]


@pytest.mark.slow
def test_a_record_of_uneven_lists_or_without_a_measure_is_made_anew(copy):
    path, other = copy / "runs" / "quick-case-6-manpgc-1.json", copy / "runs" / "quick-blocks-50-manpgc-1.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**kept, "error": kept["error"][:-1]}), encoding="utf-8")
    kept = json.loads(other.read_text(encoding="utf-8"))
    kept["measures"].pop("psnr")
    other.write_text(json.dumps(kept), encoding="utf-8")
    assert again(copy).ended("done") == ["case 6, manpgc", "Moving blocks, 50% of the pixels, manpgc"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lambda png: b"", lambda png: png[:-9], lambda png: png[:60] + b"?" + png[61:]])
def test_a_damaged_picture_is_made_anew(damage, copy):
    path = copy / "runs" / "quick-blocks-10-manpgc-1.png"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert again(copy).ended("done") == ["Moving blocks, 10% of the pixels, manpgc"]
    assert path.read_bytes() == whole


def test_files_of_an_earlier_page_are_removed(copy):
    (copy / "own.png").write_text("the user's")
    (copy / "own-film.png").write_text("the user's as well")
    again(copy, videos=[])
    assert not (copy / "blocks.png").exists()
    assert not (copy / "video.csv").exists()
    assert (copy / "own.png").exists()
    assert (copy / "own-film.png").exists()
    again(copy, cases=[])
    assert (copy / "video.csv").exists()
    assert not list(copy.glob("synthetic*"))
    assert "synthetic.png" not in (copy / "paper.md").read_text(encoding="utf-8")


def test_the_picture_of_a_video_of_ones_own_goes_with_it(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "SHARES", (0.5,))
    np.save(tmp_path / "film.npy", ls.datasets.moving_blocks(20, 32, 40, random_state=9).frames)
    again(copy, cases=[], videos=[tmp_path / "film.npy"], methods=["amanpgc"])
    assert (copy / "own-film.png").exists()
    again(copy)
    assert not (copy / "own-film.png").exists()


def test_a_changed_run_that_is_interrupted_does_not_leave_the_old_page(copy, monkeypatch):
    monkeypatch.setattr(settings, "MAX_ITER", 7)

    def interrupt(step):
        if step.state == "running":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(copy, progress=interrupt, **PART)
    assert "Not complete" in (copy / "index.html").read_text(encoding="utf-8")
    assert "Not complete" in (copy / "paper.md").read_text(encoding="utf-8")
    assert not (copy / "video.csv").exists()
    assert not (copy / "synthetic.csv").exists()


@pytest.mark.slow
def test_damaged_files_are_made_anew(copy):
    (copy / "runs" / "quick-case-6-manpgc-1.json").write_text('{"settings": {"ca')
    (copy / "runs" / "quick-blocks-10-amanpgc-1.png").unlink()
    watcher = again(copy)
    assert watcher.ended("done") == ["case 6, manpgc", "Moving blocks, 10% of the pixels, amanpgc"]


def test_a_first_run_that_is_interrupted_can_be_resumed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path, progress=Watcher(interrupt_at=1), quick=True, cases=[6], videos=[], methods=METHODS)
    assert (tmp_path / "index.html").is_file()
    assert (tmp_path / "runs").is_dir()  # without it the command would take the page for another one


def test_an_interrupted_run_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path, progress=Watcher(interrupt_at=2), quick=True, cases=[6], videos=[], methods=METHODS)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["quick-case-6-amanpgc-1.json"]
    assert {row["method"] for row in rows_of(tmp_path / "synthetic.csv")} == {"amanpgc"}  # written as it goes
    watcher = again(tmp_path, videos=[])
    assert watcher.ended("kept") == ["case 6, amanpgc"]
    assert watcher.ended("done") == ["case 6, manpgc"]


# ---------------------------------------------------------------------- videos


def test_a_video_of_ones_own(tmp_path):
    clip = ls.datasets.moving_blocks(40, 32, 40, random_state=9)
    np.savez(tmp_path / "My film.npz", frames=clip.frames)
    reproduce(tmp_path / "out", quick=True, cases=[], videos=[tmp_path / "My film.npz"], methods=["amanpgc"])
    rows = rows_of(tmp_path / "out" / "video.csv")
    assert {row["video"] for row in rows} == {"My film.npz"}
    assert {row["paper iterations"] for row in rows} == {""}
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "40 frames of 16 × 20 pixels" in page
    assert "the median of each pixel" in page
    assert str(tmp_path) not in page


def test_a_wrong_video_is_an_error_before_anything_runs(tmp_path):
    (tmp_path / "film.avi").write_text("words")
    out = tmp_path / "out"
    pytest.importorskip("av", reason="needs the extra `video`")
    with pytest.raises(ValueError, match=r"film\.avi cannot be read as a video"):
        reproduce(out, quick=True, videos=[tmp_path / "film.avi"])
    with pytest.raises(FileNotFoundError, match="no video"):
        reproduce(out, quick=True, videos=["nothing.avi"])
    np.save(tmp_path / "still.npy", np.zeros((1, 20, 20), np.uint8))
    with pytest.raises(ValueError, match="too small"):
        reproduce(out, quick=True, videos=[tmp_path / "still.npy"])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "same.npy", np.zeros((9, 20, 20), np.uint8))
    with pytest.raises(ValueError, match="the same file name"):
        reproduce(out, quick=True, videos=[tmp_path / "a" / "same.npy", tmp_path / "b" / "same.npy"])
    assert not out.exists()


def test_a_video_that_is_too_large_is_not_called_too_small(tmp_path, monkeypatch):
    np.save(tmp_path / "large.npy", np.zeros((3, 60, 60), np.uint8))
    for limit, words in ((3600, "only one frame was kept"), (100, "a single frame of 60 x 60 pixels needs more")):
        monkeypatch.setattr(settings, "MAX_PIXELS", limit)
        with pytest.raises(ValueError, match=rf"large\.npy.*{words}.*: choose --quick, or a smaller video$"):
            open_clip(tmp_path / "large.npy", tmp_path, quick=False)


def test_one_far_off_frame_counts_in_full():
    """Grey levels are not capped, decibels are."""
    found = _mean([{"age": 200.0, "psnr": math.inf}, {"age": 0.0, "psnr": 1.0}])
    assert found == {"age": 100.0, "psnr": 50.0}


def test_frames_left_out_are_reported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "SHARES", (0.5,))
    monkeypatch.setattr(settings, "QUICK_FRAMES", 10)
    np.save(tmp_path / "film.npy", ls.datasets.moving_blocks(20, 32, 40, random_state=9).frames)
    notices = []
    reproduce(
        tmp_path / "out",
        quick=True,
        cases=[],
        videos=[tmp_path / "film.npy"],
        methods=["amanpgc"],
        notice=notices.append,
    )
    assert notices == ["film.npy: One of 2 frames was used."]


def test_absent_videos_are_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "SHARES", (0.5,))
    notices = []
    page = reproduce(tmp_path / "out", quick=True, cases=[], methods=["amanpgc"], data=tmp_path, notice=notices.append)
    assert len(notices) == 1
    assert "i2r_hall100.npz" in notices[0]
    text = page.read_text(encoding="utf-8")
    assert "Hall of a business building (i2r_hall100.npz); Escalator" in text
    assert {row["video"] for row in rows_of(tmp_path / "out" / "video.csv")} == {"Moving blocks"}


@pytest.mark.skipif(
    not (SHARED / "data" / "i2r_hall100.npz").is_file(), reason="needs i2r_hall100.npz in ../shared/data"
)
def test_the_hall(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "REPEATS", 1)
    reproduce(tmp_path, quick=True, cases=[], videos=["hall"], methods=METHODS, data=SHARED / "data")
    rows = rows_of(tmp_path / "video.csv")
    printed = {(row["observed"], row["method"]): row["paper iterations"] for row in rows}
    assert printed == {
        ("0.5", "amanpgc"): "9",
        ("0.5", "manpgc"): "10",
        ("0.1", "amanpgc"): "11",
        ("0.1", "manpgc"): "12",
    }
    for row in rows:
        assert row["status"] == "converged"
        assert int(row["iterations"]) < 30
        assert float(row["psnr"]) > (30 if row["observed"] == "0.5" else 25)


@pytest.mark.skipif(
    not (SHARED / "data" / "wallflower_wavingtrees287.npz").is_file(), reason="needs the waving trees in ../shared/data"
)
def test_a_known_foreground_is_used():
    clip = open_clip("trees", SHARED / "data", quick=False)
    ((t, mask),) = clip.masks
    assert mask.mean() == pytest.approx(0.31, abs=0.01)
    assert metrics.f1(np.abs(clip.frames[t].astype(float) - clip.trusted[t]) > 20, mask) > 0.5


# ---------------------------------------------------------------------- what is printed


@pytest.mark.skipif(not (SHARED / "paper.tex").is_file(), reason="needs the paper in ../shared")
def test_the_printed_figures_are_those_of_the_paper():
    text = (SHARED / "paper.tex").read_text(encoding="utf-8")
    for name, table in settings.PRINTED_TABLES.items():
        body = text[text.index(rf"\label{{table:{name}}}") :]
        body = body[: body.index(r"\end{tabular}")]
        for share, row in table.items():
            for what, key in (("CPU time", "seconds"), ("Iteration number", "iterations")):
                line = re.search(rf"{what} \({share * 100:.0f}\\%\)(.*?)\\\\", body, flags=re.DOTALL)
                expected = [getattr(effort, key) for effort in row.values()]
                assert [float(cell) for cell in line[1].split("&")[1:]] == expected
    for case, (alternating, plain) in settings.PRINTED_STEPS.items():
        words = re.search(rf"\\textbf\{{Case {case}:\}}(.*?)\n", text)[1]
        found = re.findall(r"t_U = ([\d.]+)/\\lvert \\Omega \\rvert, \\epsilon_0 = (\d+)", words)
        expected = [alternating] if alternating == plain else [alternating, plain]
        assert [(float(t), float(epsilon)) for t, epsilon in found] == expected


def test_the_small_cases_are_recoverable():
    for case in settings.QUICK_SIZES:
        m, n, rank, density, _ = settings.case_size(case, quick=True)
        assert density * min(m, n) >= 10 * rank
        full = settings.case_size(case)
        assert full[2:] == (rank, *settings.case_size(case, quick=True)[3:])
        assert m <= full[0]
        assert n <= full[1]


def test_unknown_names():
    with pytest.raises(ValueError, match="cases 1 to 8, not 9"):
        reproduce("unused", cases=[9])
    with pytest.raises(ValueError, match="unknown method 'magic'"):
        reproduce("unused", methods=["magic"])
    assert not Path("unused").exists()


# ---------------------------------------------------------------------- verdicts


def run_of(method, iterations, seconds, end=1e-9):
    """A synthetic run that gets to `end` in equal steps."""
    errors = np.geomspace(0.1, end, iterations).tolist()
    return {
        "method": method,
        "error": errors,
        "iteration": list(range(1, iterations + 1)),
        "seconds": np.linspace(seconds / iterations, seconds, iterations).tolist(),
        "shortened": 0,
        "start_seconds": 0.0,
    }


def case_of(number, runs):
    """A case with these runs by method."""
    case = Case(number, quick=True)
    case.runs = runs
    return case


def results_of(*cases):
    """Results of cases, each of them iterations and seconds by method."""
    made = Results(quick=False, command="", machine={}, methods=())
    for number, case in enumerate(cases, 1):
        runs = {method: [run_of(method, *figures)] for method, figures in case.items()}
        made.cases.append(case_of(number, runs))
    return made


AHEAD = {"amanpgc": (30, 1.0), "manpgc": (40, 1.2), "subgm": (100, 2.0), "lmafit": (90, 3.0)}


def verdicts(results):
    return [claim.verdict for claim in claims.judge(results)]


def test_claims_hold_where_the_numbers_say_so():
    assert verdicts(results_of(AHEAD, AHEAD))[:3] == ["holds"] * 3


def test_a_faster_method_is_named():
    behind = {**AHEAD, "subgm": (100, 0.8)}
    results = results_of(AHEAD, behind)
    time, iterations, better, *_ = claims.judge(results)
    assert (time.verdict, iterations.verdict, better.verdict) == ("holds in part", "holds", "holds")
    assert "1 of 2 cases" in time.reason
    assert "SubGM needs less time than AManPGC in case 2 and than ManPGC in case 2." in time.reason
    assert "LMaFit needs" not in time.reason
    assert verdicts(results_of(behind))[:2] == ["does not hold", "holds"]


def test_a_method_that_never_gets_there_is_not_ahead():
    slow = {**AHEAD, "subgm": (10, 0.1, 1e-3)}
    time, *_ = claims.judge(results_of(slow))
    assert time.verdict == "holds"
    assert "SubGM does not reach 1e-06 in the only case, and ends at 1.0e-03 there." in time.reason
    failed = {**AHEAD, "amanpgc": (30, 1.0, 1e-2)}
    time, _, better, *_ = claims.judge(results_of(failed))
    assert (time.verdict, better.verdict) == ("does not hold", "does not hold")
    assert "AManPGC does not reach" in time.reason


def test_less_than_half_is_not_in_part():
    behind = {**AHEAD, "subgm": (100, 0.8)}
    assert verdicts(results_of(AHEAD, behind))[0] == "holds in part"
    assert verdicts(results_of(AHEAD, behind, behind))[0] == "does not hold"


def test_most_cases_are_more_than_half():
    other = {**AHEAD, "manpgc": (20, 0.5)}
    assert verdicts(results_of(AHEAD, AHEAD, other))[2] == "holds"
    assert verdicts(results_of(AHEAD, other))[2] == "does not hold"
    assert verdicts(results_of({**AHEAD, "manpgc": (40, 0.5)}))[2] == "holds in part"


def video_results(share, **runs):
    """Results of one video: iterations, seconds and PSNR by method."""
    clip = open_clip("blocks", Path(), quick=True)
    scene = Scene(clip, share)
    scene.runs = {method: [video_run(method, *figures)] for method, figures in runs.items()}
    return scene


def video_run(method, iterations, seconds, psnr, description="", **more):
    found = {"method": method, "iterations": iterations, "seconds": seconds, "measures": {"psnr": psnr}}
    return {**found, "description": description, "start_seconds": 0.0, "status": "converged", **more}


def judge_videos(*scenes):
    return claims.judge(Results(quick=False, command="", machine={}, methods=(), scenes=list(scenes)))


def test_video_claims():
    half = video_results(0.5, amanpgc=(9, 1.0, 33.0), manpgc=(10, 0.9, 33.0), lmafit=(30, 5.0, 31.0))
    tenth = video_results(0.1, amanpgc=(11, 0.4, 27.0), manpgc=(9, 0.4, 27.0), lmafit=(8, 0.3, 26.0))
    judged = judge_videos(half, tenth)
    assert [claim.verdict for claim in judged[3:6]] == ["holds"] * 3
    good, less_time, fewer, fastest, hall = judged[6:]
    assert [claim.verdict for claim in (good, less_time, fewer)] == ["holds", "holds", "holds in part"]
    assert "It does in 2 of 3 pairs of runs with the same parameters, equal in 0." in fewer.reason
    assert "In the paper's own tables iterations fall in 1 of 15 pairs." in fewer.reason
    assert "They rise for AManPGC (1 of 1)." in fewer.reason
    assert fastest.verdict == "does not hold"
    assert "LMaFit needs less time than AManPGC on the only one and than ManPGC on the only one." in fastest.reason
    assert hall.verdict == "not tested"


def test_a_bad_picture_is_no_win():
    bad = video_results(0.5, amanpgc=(9, 1.0, 33.0), manpgc=(10, 0.9, 33.0), subgm=(2, 0.1, 12.0))
    quality, iterations, time, *_ = judge_videos(bad)[3:]
    assert quality.verdict == "holds in part"
    assert "SubGM below it, with 12.0 dB" in quality.reason
    assert (iterations.verdict, time.verdict) == ("holds", "holds")
    assert "SubGM ends no later on Moving blocks (12.0 dB), but its picture is not good" in time.reason


def test_times_that_are_nearly_equal_decide_nothing():
    level = {**AHEAD, "manpgc": (40, 1.0), "subgm": (100, 1.05)}
    time, _, better, *_ = claims.judge(results_of(level))
    assert time.verdict == "does not hold"
    assert "SubGM is about as fast as AManPGC in the only case and as ManPGC in the only case." in time.reason
    assert "needs less time" not in time.reason
    assert "Times within 10% of each other count as equal." in time.reason
    assert better.verdict == "holds in part"
    assert "needs less time in 0 and fewer iterations in 1 of 1 case" in better.reason


def test_runs_with_half_and_a_tenth_of_the_pixels_are_paired_by_their_parameters():
    """With half the pixels the quick tuning counts, with a tenth the slow one; either falls."""
    half, tenth = video_results(0.5, amanpgc=(9, 1.0, 33.0)), video_results(0.1, amanpgc=(9, 0.5, 33.0))
    half.runs["subgm"] = [video_run("subgm", 10, 2.0, 31.0, "fast"), video_run("subgm", 50, 9.0, 31.0, "slow")]
    tenth.runs["subgm"] = [video_run("subgm", 9, 1.0, 12.0, "fast"), video_run("subgm", 40, 4.0, 30.0, "slow")]
    assert (half.selected["subgm"]["description"], tenth.selected["subgm"]["description"]) == ("fast", "slow")
    less_time, fewer = judge_videos(half, tenth)[7:9]
    assert (less_time.verdict, fewer.verdict) == ("holds", "holds in part")
    assert "It does in 3 of 3 pairs" in less_time.reason
    assert "It does in 2 of 3 pairs of runs with the same parameters, equal in 1." in fewer.reason
    assert "rise" not in less_time.reason + fewer.reason


def test_our_default_is_judged_as_well():
    assert claims.compare_default(results_of(AHEAD)) == ""
    said = claims.compare_default(results_of({**AHEAD, "ladder": (10, 0.5)}, {**AHEAD, "ladder": (10, 3.0)}))
    assert "is ahead of AManPGC in 1 of 2, including the start of both" in said
    scenes = [video_results(share, amanpgc=(9, 1.0, 33.0), ladder=(50, 8.0, 29.0)) for share in (0.5, 0.1)]
    said = about_ours_on(*scenes)
    assert "takes 8 times as long" in said
    assert "Moving blocks (50%) 29.0 against 33.0 dB" in said
    assert "median" not in said  # the truth is known


def about_ours_on(*scenes):
    return claims.compare_default(Results(quick=False, command="", machine={}, methods=(), scenes=list(scenes)))


def test_the_start_counts_on_both_sides():
    results = results_of({**AHEAD, "ladder": (10, 2.0)})
    assert "in 0 of 1" in claims.compare_default(results)
    results.cases[0].runs["amanpgc"][0]["start_seconds"] = 9.0
    assert "in 1 of 1" in claims.compare_default(results)
    scene = video_results(0.5, amanpgc=(9, 1.0, 33.0), ladder=(50, 8.0, 29.0))
    scene.runs["amanpgc"][0]["start_seconds"] = 3.0
    assert "takes 2 times as long" in about_ours_on(scene)


def test_the_median_and_the_truth_are_distinguished():
    scene = video_results(0.5, amanpgc=(9, 1.0, 33.0), ladder=(50, 8.0, 29.0))
    scene.clip = replace(scene.clip, truth_is_known=False, masks=((0, scene.clip.frames[0] > 9),))
    for method, f1 in (("ladder", 0.9), ("amanpgc", 0.6)):
        scene.runs[method][0]["measures"]["f1"] = f1
    said = about_ours_on(scene)
    assert "Against the median of the frames its background is better by more than 1 dB in 0 and worse" in said
    assert "F1 of the foreground in 1 frame 0.90 against 0.60" in said
    assert "29.0 against" not in said


def test_of_several_parameters_the_fastest_good_picture_counts():
    scene = video_results(0.5, amanpgc=(9, 1.0, 33.0))
    runs = [video_run("lmafit", 9, *figures) for figures in ((3.0, 38.0), (2.0, 25.1), (1.0, 24.9))]
    scene.runs["lmafit"] = runs
    assert scene.selected["lmafit"] is runs[1]
    scene.runs["amanpgc"] = [video_run("amanpgc", 9, 1.0, 25.5)]  # a picture like AManPGC's is good enough
    assert scene.selected["lmafit"] is runs[2]
    scene.runs["lmafit"] = [video_run("lmafit", 9, *figures) for figures in ((1.0, 12.0), (2.0, 15.0))]
    assert scene.selected["lmafit"]["seconds"] == 2.0  # none is: the best
    case = case_of(1, {"subgm": [run_of("subgm", 9, 3.0), run_of("subgm", 9, 2.0), run_of("subgm", 9, 1.0, 1e-3)]})
    assert case.selected.get("subgm")["seconds"][-1] == 2.0


def test_reached():
    record = run_of("amanpgc", 9, 1.8)
    assert reached(record, 1e-3) == (3, pytest.approx(0.6))
    assert reached(record, 1e-12) is None


# ---------------------------------------------------------------------- the command


def command(*arguments, cwd, module="lowsparse", **more):
    words = [sys.executable, "-m", *module.split(), *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300, **more)


SMALL = ("--quick", "--only", "video", "--video", "blocks", "--method", "amanpgc")


@pytest.mark.slow
def test_the_command(tmp_path):
    done = command("reproduce", *SMALL, cwd=tmp_path)
    assert (done.returncode, re.sub("^running: .*\n", "", done.stderr)) == (0, "")  # a slow machine shows its progress
    assert done.stdout.splitlines() == [
        "1 of 2  Moving blocks, 50% of the pixels, amanpgc",
        "2 of 2  Moving blocks, 10% of the pixels, amanpgc",
        f"page: {Path('lowsparse-paper-quick', 'index.html')}",
    ]
    words = "lowsparse reproduce --quick --only video --video blocks --method amanpgc"
    assert repeated_command(tmp_path / "lowsparse-paper-quick" / "index.html") == words.split()
    once_more = command("reproduce", *SMALL, cwd=tmp_path)
    assert once_more.stdout.count("reused from an earlier run") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--case", "9"), 1, ("cases 1 to 8",)),
        (("--case", "x"), 2, ("--case",)),
        (("--method", "magic"), 1, ("magic", "amanpgc")),
        (("--video", "nothing.avi"), 1, ("nothing.avi",)),
        (("--only", "sound"), 2, ("--only", "sound")),
        (("--only", "video", "--case", "1"), 2, ("--only", "--case")),
        (("--out", "file"), 1, ("not a folder",)),
        (("--out", "mine"), 1, ("index.html", "--out")),
        (("--out", "other"), 1, ("runs", "is not a folder", "--out")),
    ],
)
def test_bad_usage_is_one_line(arguments, code, words, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "runs").write_text("")
    (tmp_path / "mine" / "index.html").write_text("a page of one's own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["lowsparse", "reproduce", "--quick", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert (left.value.code, said.out) == (code, "")
    assert len(said.err.splitlines()) == 1, said.err
    for word in words:
        assert word in said.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "index.html", "mine", "other", "runs"]


ENDLESS = """
import sys, time
from lowsparse.cli import main
from lowsparse.reproduce.synthetic import Case

run = Case._run
Case._run = lambda case, *rest: run(case, *rest) if case.number == 1 else time.sleep(600)
sys.argv.insert(1, "reproduce")
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a child there")
@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(tmp_path):
    words = [sys.executable, "-u", "-c", ENDLESS, "--quick", "--method", "amanpgc", "--only", "synthetic"]
    child = interruptible(words, tmp_path)
    try:
        assert "1 of 9" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 130, errors
    assert errors.strip() == (
        "lowsparse reproduce: stopped; finished runs are kept in lowsparse-paper-quick: "
        "run the same command again to resume"
    )
    assert (tmp_path / "lowsparse-paper-quick" / "runs" / "quick-case-1-amanpgc-1.json").is_file()


def test_a_full_disk_is_reported_with_the_path(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"index\.html: No space left.*free some space"):
        files.write(tmp_path / "index.html", b"")


def test_the_help_names_the_methods_and_files(command):
    said = " ".join(command("reproduce", "--help")[1].split())
    for word in (*settings.METHODS, "i2r_hall100.npz", "--fresh"):
        assert word in said


def test_the_benchmark_fails_with_the_same_line(tmp_path):
    root = Path(__file__).parents[1]
    done = command("--case", "9", "--out", tmp_path / "out", cwd=root, module="benchmarks.paper")
    assert (done.returncode, done.stderr) == (1, "lowsparse reproduce: the paper has cases 1 to 8, not 9\n")


@pytest.mark.slow
def test_the_benchmark_is_the_same_command(tmp_path):
    root = Path(__file__).parents[1]
    done = command(*SMALL, "--quiet", "--out", tmp_path, cwd=root, module="benchmarks.paper")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(tmp_path / "index.html")
