"""The content of the reproduced experiments: text, tables and pictures, written as a page and as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..support.format import join_ranges, join_words
from . import settings
from .claims import Claim, compare_default
from .jobs import Record
from .results import Results, summary_rows, video_rows
from .settings import label
from .synthetic import reached
from .video import Clip, Scene

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
Pictures = Mapping[str, Path]

# Columns of the tables of numbers that are shown; integers are written as such, other numbers with three digits, or:
FORMATS = {"paper seconds": ".2f", "paper seconds / amanpgc": ".2f", "seconds / amanpgc": ".2f"}
FORMATS |= {"smallest difference": ".1e", "age": ".2f", "peps": ".2%", "pceps": ".2%", "psnr": ".1f", "f1": ".2f"}
HEADINGS = {"age": "AGE", "peps": "pEPs", "pceps": "pCEPs", "psnr": "PSNR", "f1": "F1 of the foreground"}
TO_TARGETS = [f"{cost} to {target:.0e}" for target in settings.TARGETS for cost in ("iterations", "seconds")]
CASES = [*TO_TARGETS, "seconds / amanpgc", "cpu seconds", "seconds of the start", "smallest difference"]
BESIDE_PAPER = [f"{paper}{cost}" for cost in ("iterations", "seconds", "seconds / amanpgc") for paper in ("paper ", "")]
QUALITIES = ["age", "peps", "pceps", "psnr"]


@dataclass(frozen=True)
class NumberTable:
    """The first `left` columns are left-aligned, the columns `wrapped` have long texts.

    Headings may have line breaks; a row of a single cell is a subheading.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    wrapped: Sequence[int] = ()


@dataclass(frozen=True)
class PictureFile:
    """A PNG file."""

    path: Path
    description: str


Block = str | NumberTable | PictureFile | list[Claim]


@dataclass(frozen=True)
class Section:
    """A heading, and paragraphs, tables and pictures."""

    title: str
    blocks: Sequence[Block]


def sections(results: Results, claims: list[Claim], pictures: Pictures) -> list[Section]:
    """The whole content; `pictures` are PNG files: "synthetic", and by video."""
    remark = compare_default(results)
    return [
        Section("Which claims hold", [VERDICTS, claims, *([remark] if remark else [])]),
        _comparison(results),
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


def _headings(columns: Sequence[str]) -> list[str]:
    return [HEADINGS.get(name, name).replace("amanpgc", "AManPGC").replace(" ", "\n", 1) for name in columns]


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    numbers = [(row[name], FORMATS.get(name, ".3g")) for name in columns]
    return ["–" if x is None else f"{x:d}" if isinstance(x, int) else format(x, form) for x, form in numbers]


def _without_repeats(rows: Sequence[list[str]], leading: int) -> list[list[str]]:
    """The rows, the leading cells empty where they are those of the row above."""
    same = [False, *(one[:leading] == two[:leading] for one, two in pairwise(rows))]
    return [[*[""] * leading, *row[leading:]] if skip else row for row, skip in zip(rows, same, strict=True)]


def _status(status: str, limit: int) -> str:
    texts = {"stopped_by_callback": f"reached {settings.GOAL:.0e}", "max_iter": f"after {limit}"}
    return texts.get(status, status)


def _picture(pictures: Pictures, name: str, description: str) -> list[PictureFile]:
    return [PictureFile(pictures[name], description)] if name in pictures else []


def _comparison(results: Results) -> Section:
    """The numbers of the paper next to ours."""
    title = "The paper's tables and ours"
    known = [scene.clip.known for scene in results.scenes if scene.printed("amanpgc") and scene.runs]
    footnotes = {video.title: video.relation[1] for video in known if video}
    if not footnotes:
        return Section(title, ["None of the paper's videos was run."])
    rows = [
        [
            row["video"] + ("*" if footnotes[row["video"]] else ""),
            f"{row['observed']:.0%}",
            label(row["method"]),
            *_cells(row, BESIDE_PAPER),
        ]
        for row in video_rows(results)
        if row["video"] in footnotes
    ]
    table = NumberTable(["video", "observed", "method", *_headings(BESIDE_PAPER)], _without_repeats(rows, 2), left=3)
    doubts = " ".join(filter(None, footnotes.values()))
    return Section(title, [COMPARISON, table, *([f"* {doubts}"] if doubts else [])])


def _synthetic(results: Results, pictures: Pictures) -> list[Section]:
    found = summary_rows(results)
    if not found:
        return []
    rows: list[list[str]] = []
    for case in results.cases:
        mine = [row for row in found if row["case"] == case.number]
        rows += [[case.title]] if mine else []
        for row in mine:
            status = _status(row["status"], settings.MAX_ITER)
            rows.append([label(row["method"]), *_cells(row, CASES), status])
    picture = _picture(pictures, "synthetic", "Relative difference against seconds and iterations, case by case")
    table = NumberTable(["", *_headings(CASES), "ended"], rows)
    return [Section("Synthetic data", [SYNTHETIC, *picture, table])]


def _tuning(results: Results) -> list[Section]:
    """All sets of parameters of each method, the cases where they were tried, and those where they were selected."""
    rows = []
    for method in results.methods:
        tried: dict[str, list[tuple[int, bool, Record]]] = {}  # the number of the case, whether selected, the run
        for case in results.cases:
            for record in case.runs.get(method, []):
                run = (case.number, record is case.selected[method], record)
                tried.setdefault(record["description"], []).append(run)
        for description, runs in tried.items():
            efforts = [reached(record, settings.JUDGED) for *_, record in runs]
            missed = efforts.count(None)
            rows.append(
                [
                    label(method),
                    description,
                    join_ranges([number for number, *_ in runs]),
                    join_ranges([number for number, selected, _ in runs if selected]) or "–",
                    f"not reached in {missed}"
                    if missed
                    else f"{sum(effort.seconds for effort in efforts if effort):.3g}",
                    str(sum(record["shortened"] for *_, record in runs) or ""),
                ]
            )
    if not rows:
        return []
    header = ["method", "parameters", "tried on\ncases", "selected in\ncases", f"s to {settings.JUDGED:.0e},\nsum"]
    table = NumberTable([*header, "steps\nhalved"], _without_repeats(rows, 1), left=4, wrapped=(1,))
    return [Section("Parameters", [PARAMETERS, table])]


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
    if not results.videos:
        return []
    found = [Section("Video: the background from a part of the pixels", [STOPPING, QUALITY])]
    for name, scenes in results.videos.items():
        clip = scenes[0].clip
        picture = _picture(pictures, name, f"Backgrounds of {clip.title}")
        table, parameters = _quality_table(results, clip), _video_parameters(scenes)
        found.append(Section(clip.title, [" ".join(clip.describe()), *picture, table, parameters]))
    return found


def _quality_table(results: Results, clip: Clip) -> NumberTable:
    columns = ["iterations", "seconds", "seconds of the start", *QUALITIES, *(["f1"] if clip.masks else [])]
    rows = []
    for row in video_rows(results):
        if row["video"] == clip.title:
            status = _status(row["status"], settings.VIDEO_MAX_ITER)
            rows.append([f"{row['observed']:.0%}", label(row["method"]), *_cells(row, columns), status])
    frames = ["", "the frames themselves", "", "", "", *_cells(clip.untouched, QUALITIES)]
    frames += [""] * (len(columns) + 3 - len(frames))
    return NumberTable(["observed", "", *_headings(columns), "ended"], [*_without_repeats(rows, 1), frames], left=2)


def _video_parameters(scenes: Sequence[Scene]) -> str:
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
