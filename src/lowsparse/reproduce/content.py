"""The content of the reproduced experiments: text, tables and pictures, written as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import settings
from .results import Results, SceneResults, join_ranges, join_words, label, summary_rows, video_doubts, video_rows
from .synthetic import reached

__all__ = ["INTRODUCTION", "Picture", "Section", "Table", "sections", "warnings"]

INTRODUCTION = (
    "M. Huang, S. Ma, L. Lai: Robust Low-rank Matrix Completion via an Alternating Manifold Proximal Gradient "
    "Continuation Method, Section VI: eight synthetic cases and background estimation in video."
)
VERDICTS = (
    "Verdicts and reasons are computed from the results: a claim about all holds in part if it holds in at least half. "
    f"Times within {settings.LEVEL:.0%} of each other count as equal. All methods are the implementations of this "
    "library, not the authors'."
)
SYNTHETIC = (
    "The relative difference ‖UV − X*‖ / ‖X*‖ after every iteration; the time to compute it is not included. All "
    "methods but our default start from the same U⁰, the leading left singular vectors of the observed matrix. Our "
    "default has a start of its own, which is included, and first learns from a part of the data: only the end of its "
    f"curve, at the time of the whole call, counts. A run ends at {settings.GOAL:.0e}, when it converges, or after "
    f"{settings.MAX_ITER} iterations. In each pair of rows of the figure the upper one is against seconds."
)
PARAMETERS = (
    "Those of the paper, where it prints them. It calls its retraction with U + ΔU where the definition has ΔU, which "
    "halves the step: a printed t_U is twice ours. The other methods were tuned in the paper, which does not say how; "
    "where several sets of parameters are tried here, the fastest is selected. Steps that would have increased the "
    "objective were halved."
)
COMPARISON = (
    "Iterations are comparable as far as the videos are. Seconds are also given relative to those of AManPGC, as "
    "machines and programs differ. The start, the same for all but our default, is not included."
)
STOPPING = (
    f"Rank {settings.RANK}, pixels from 0 to 1. A method ends when UV changes by at most {settings.DELTA:.0%}; AManPGC "
    "and ManPGC only once γ is below a tenth of the largest pixel, as until then nothing counts as foreground, and RMC "
    "likewise with its δ; our default by its own criterion. Seconds are medians of "
    f"{settings.REPEATS} solves, without the shared start."
)
QUALITY = (
    "The best value of the objective need not be the best background. Judge by the pictures, and by the distance to a "
    "trusted background, averaged over all frames: AGE, the average error in grey levels of 255; pEPs, the share of "
    "pixels that are off by more than 20; pCEPs, the share of those in clusters; PSNR in decibels. The pictures are of "
    "the frame that differs most from the trusted background."
)
CONDITIONS = (
    "Every method runs on the same data from the same start in the same program, one after the other. Seconds are "
    "wall-clock time with all threads; CPU seconds are the sum over the threads. The data of the cases are drawn as "
    "the paper describes, with seeds that the methods do not know. The numbers of all tables and curves are in the CSV "
    "files of the output folder, and in one file per run in its folder runs."
)
MEASURES = {"age": ".2f", "peps": ".2%", "pceps": ".2%", "psnr": ".1f"}
Pictures = Mapping[str, Path]


@dataclass(frozen=True)
class Table:
    """The first `left` columns are left-aligned, the columns `wrapped` have long texts.

    Headings may have line breaks; a row of a single cell is a subheading.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    wrapped: Sequence[int] = ()


@dataclass(frozen=True)
class Picture:
    """A PNG file."""

    path: Path
    description: str


@dataclass(frozen=True)
class Section:
    """A heading, and paragraphs, tables and pictures."""

    title: str
    blocks: Sequence[str | Table | Picture]


def sections(results: Results, pictures: Pictures) -> list[Section]:
    """All sections but the claims; `pictures` are PNG files: "synthetic", and by video."""
    return [
        *_comparison(results),
        *_synthetic(results, pictures),
        *_tuning(results),
        *_literal_step(results),
        *_videos(results, pictures),
        Section("Conditions", [CONDITIONS]),
    ]


def warnings(results: Results) -> list[str]:
    """What the reader should know first."""
    found = []
    if results.quick:
        found.append(
            "Quick run. Cases and videos are scaled down to show that everything works. The verdicts are about these "
            "small problems; those of the paper need a full run."
        )
    if not results.complete:
        found.append("Not complete. Run the same command again to resume.")
    return [*found, *results.left_out]


def _number(value: Any, form: str = ".3g") -> str:
    return "–" if value is None else format(value, form)


def _status(status: str, limit: int) -> str:
    texts = {"stopped_by_callback": f"reached {settings.GOAL:.0e}", "max_iter": f"after {limit}"}
    return texts.get(status, status)


def _picture(pictures: Pictures, name: str, description: str) -> list[Picture]:
    return [Picture(pictures[name], description)] if name in pictures else []


def _comparison(results: Results) -> list[Section]:
    """The numbers of the paper next to ours."""
    title = "The paper's tables and ours"
    scenes = [scene for scene in results.scenes if scene.printed and scene.runs]
    if not scenes:
        return [Section(title, ["None of the paper's videos was run."])]
    titles = {scene.clip.title: scene.clip.title + ("" if scene.same else "*") for scene in scenes}
    rows: list[list[str]] = []
    previous = None
    for row in video_rows(results):
        if row["video"] not in titles:
            continue
        scene = (titles[row["video"]], f"{row['observed']:.0%}")
        rows.append(
            [
                *(scene if scene != previous else ("", "")),
                label(row["method"]),
                _number(row["paper iterations"], "d"),
                str(row["iterations"]),
                _number(row["paper seconds"], ".2f"),
                _number(row["seconds"]),
                _number(row["paper seconds / amanpgc"], ".2f"),
                _number(row["seconds / amanpgc"], ".2f"),
            ]
        )
        previous = scene
    header = ["video", "observed", "method", "iterations\npaper", "\nhere", "seconds\npaper", "\nhere"]
    doubts = video_doubts(scenes)
    table = Table([*header, "/ AManPGC\npaper", "\nhere"], rows, left=3)
    return [Section(title, [COMPARISON, table, *([f"* {' '.join(doubts)}"] if doubts else [])])]


def _synthetic(results: Results, pictures: Pictures) -> list[Section]:
    rows: list[list[str]] = []
    found = summary_rows(results)
    for case in results.cases:
        if case.runs:
            rows.append([case.title[0].upper() + case.title[1:]])
        for row in found:
            if row["case"] == case.number:
                targets = [f"{target:.0e}" for target in settings.TARGETS]
                reached = ((row[f"iterations to {t}"], row[f"seconds to {t}"]) for t in targets)
                cells = [text for count, time in reached for text in (_number(count, "d"), _number(time))]
                cells += [_number(row["seconds / amanpgc"], ".2f"), _number(row["cpu seconds"])]
                cells += [_number(row["seconds of the start"]), _number(row["smallest difference"], ".1e")]
                rows.append([label(row["method"]), *cells, _status(row["status"], settings.MAX_ITER)])
    if not rows:
        return []
    header = [""]
    for target in settings.TARGETS:
        header += [f"to {target:.0e}\niterations", "\ns"]
    header += [f"s to {settings.JUDGED:.0e}\n/ AManPGC", "CPU s\ntotal", "start\ns", "smallest\ndifference", "ended"]
    picture = _picture(pictures, "synthetic", "Relative difference against seconds and iterations, case by case")
    return [Section("Synthetic data", [SYNTHETIC, *picture, Table(header, rows)])]


def _tuning(results: Results) -> list[Section]:
    """All sets of parameters of each method, the cases where they were tried, and those where they were selected."""
    rows: list[list[str]] = []
    for method in results.methods:
        tried: dict[str, list[tuple[int, bool, float | None, int]]] = {}  # case, selected, seconds, shortened steps
        for case in results.cases:
            best = case.selected.get(method)
            for record in case.runs.get(method, []):
                there = reached(record, settings.JUDGED)
                run = (case.number, record is best, there[1] if there else None, record["shortened"])
                tried.setdefault(record["description"], []).append(run)
        for k, (description, runs) in enumerate(tried.items()):
            selected = [number for number, is_best, *_ in runs if is_best]
            seconds = [time for *_, time, _ in runs if time is not None]
            missed = len(runs) - len(seconds)
            rows.append(
                [
                    "" if k else label(method),
                    description,
                    join_ranges([number for number, *_ in runs]),
                    join_ranges(selected) or "–",
                    f"not reached in {missed}" if missed else f"{sum(seconds):.3g}",
                    str(sum(shortened for *_, shortened in runs) or ""),
                ]
            )
    if not rows:
        return []
    header = ["method", "parameters", "tried on\ncases", "selected in\ncases", f"s to {settings.JUDGED:.0e},\nsum"]
    return [Section("Parameters", [PARAMETERS, Table([*header, "steps\nhalved"], rows, left=4, wrapped=(1,))])]


def _literal_step(results: Results) -> list[Section]:
    paragraphs = []
    for case in results.cases:
        record, own = case.literal, case.selected.get("amanpgc")
        if record is None or own is None:
            continue
        end, best = record["error"][-1], min(own["error"])
        outcome = "does not converge" if end > 1e-3 else "converges as well"
        paragraphs.append(
            f"Case {case.number} with the printed t_U = 2/|Ω| taken literally, and without our safeguard against steps "
            f"that are too long: AManPGC {outcome}; after {len(record['error'])} iterations the relative difference is "
            f"{end:.1e}, compared to {best:.1e} with half the step."
        )
    return [Section("The step as printed", paragraphs)] if paragraphs else []


def _videos(results: Results, pictures: Pictures) -> list[Section]:
    names = list(dict.fromkeys(scene.clip.name for scene in results.scenes if scene.runs))
    if not names:
        return []
    found = [Section("Video: the background from a part of the pixels", [STOPPING, QUALITY])]
    for name in names:
        scenes = [scene for scene in results.scenes if scene.clip.name == name and scene.runs]
        clip = scenes[0].clip
        picture = _picture(pictures, name, f"Backgrounds of {clip.title}")
        table, parameters = _quality_table(results, scenes), _video_parameters(scenes)
        found.append(Section(clip.title, [" ".join(clip.describe()), *picture, table, parameters]))
    return found


def _quality_table(results: Results, scenes: Sequence[SceneResults]) -> Table:
    clip = scenes[0].clip
    f1 = bool(clip.masks)
    header = ["observed", "", "iterations", "seconds", "start\ns", "AGE", "pEPs", "pCEPs", "PSNR"]
    header += [*(["F1 of the\nforeground"] if f1 else []), "ended"]
    rows: list[list[str]] = []
    previous = None
    for row in video_rows(results):
        if row["video"] != clip.title:
            continue
        cells = [_number(row["seconds"]), _number(row["seconds of the start"])]
        cells += [_number(row[name], form) for name, form in MEASURES.items()]
        cells += [_number(row["f1"], ".2f")] if f1 else []
        share = "" if row["observed"] == previous else f"{row['observed']:.0%}"
        status = _status(row["status"], settings.VIDEO_MAX_ITER)
        rows.append([share, label(row["method"]), str(row["iterations"]), *cells, status])
        previous = row["observed"]
    frames = [_number(clip.untouched[name], form) for name, form in MEASURES.items()]
    rows.append(["", "the frames themselves", "", "", "", *frames, *([""] if f1 else []), ""])
    return Table(header, rows, left=2)


def _video_parameters(scenes: Sequence[SceneResults]) -> str:
    """The parameters of the selected runs; methods and shares with the same ones are grouped."""
    groups: dict[str, dict[str, list[str]]] = {}
    for scene in scenes:
        for method, record in scene.selected.items():
            groups.setdefault(record["description"], {}).setdefault(label(method), []).append(f"{scene.share:.0%}")
    parts = []
    for description, methods in groups.items():
        names = [m if len(shares) == len(scenes) else f"{m} ({join_words(shares)})" for m, shares in methods.items()]
        parts.append(f"{join_words(names)}: {description}")
    tried = [f"{len(runs)} of {label(method)}" for method, runs in scenes[0].runs.items() if len(runs) > 1]
    chosen = f" Of several sets of parameters ({join_words(tried)}) one is selected: {settings.RULE}." if tried else ""
    return f"Parameters. {'; '.join(parts)}.{chosen}"
