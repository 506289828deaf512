"""The page: everything in one HTML file that needs no other."""

from __future__ import annotations

import base64
import platform
from collections.abc import Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from . import settings
from .claims import FAILS, HOLDS, PARTLY, Claim
from .jobs import Record
from .results import (
    Results,
    SceneResults,
    doubts,
    label,
    listed,
    ratio,
    spans,
)
from .synthetic import reached

__all__ = ["html"]

TAGS = {HOLDS: "yes", PARTLY: "partly", FAILS: "no"}
STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: #1d1d1f; background: #fff;
  max-width: 1120px; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .9rem; border-top: 1px solid #dcdcdc; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p { max-width: 76ch; margin: .5rem 0; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .65rem; text-align: right; vertical-align: top; border-bottom: 1px solid #ececec; }
th { font-weight: 600; border-bottom: 1.5px solid #a8a8a8; vertical-align: bottom; }
th.l, td.l { text-align: left; }
tr.first td { border-top: 1.5px solid #c8c8c8; }
th, td { white-space: nowrap; }
.claims td, td.long { white-space: normal; }
tr > th[colspan] { padding-top: .9rem; border-bottom: 1px solid #c8c8c8; }
.wide { overflow-x: auto; }
.claims td { line-height: 1.45; padding: .5rem .65rem; }
.tag { white-space: nowrap; padding: .08rem .5rem; border-radius: .7rem; font-size: .82rem; background: #e6e6e6; }
.yes { background: #cfe8d5; } .partly { background: #fbe7b2; } .no { background: #f6cfcb; }
.note { background: #f5f5f7; border-left: 4px solid #a8a8a8; padding: .5rem .9rem; margin: 1rem 0; max-width: 76ch; }
img { max-width: 100%; height: auto; margin: .5rem 0; }
code { font-size: .9em; background: #f2f2f4; padding: .05rem .3rem; border-radius: .2rem; }
small, .small { font-size: .82rem; color: #555; }
"""


def html(results: Results, claims: Sequence[Claim], remark: str, pictures: dict[str, Path]) -> str:
    """The page as text; `remark` stands below the claims, `pictures` are PNG files, "synthetic" and by video."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>The numerical section, reproduced</title><style>{STYLE}</style></head><body>",
        *_head(results),
        *_claims(claims),
        *([f"<p>{escape(remark)}</p>"] if remark else []),
        *_beside(results),
        *_synthetic(results, pictures),
        *_videos(results, pictures),
        *_how(results),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(results: Results) -> list[str]:
    machine = results.machine
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    said = [
        "<h1>The numerical section, reproduced</h1>",
        "<p>M. Huang, S. Ma, L. Lai: <em>Robust Low-rank Matrix Completion via an Alternating Manifold Proximal "
        "Gradient Continuation Method</em>, Section VI: eight synthetic cases and background estimation in video, run "
        "anew with lowsparse.</p>",
        f"<p class=small>Made by <code>{escape(results.command)}</code> on {date.today().isoformat()} with lowsparse "
        f"{machine['lowsparse']} ({machine['backend']} backend, {threads}), Python {platform.python_version()}, NumPy "
        f"{np.__version__}, SciPy {scipy.__version__}, on {escape(machine['processor'])}, "
        f"{machine['cores']} cores.</p>",
    ]
    if results.quick:
        said.append(
            "<p class=note><strong>Quick run.</strong> Cases and videos are scaled down: this shows that everything "
            "works. The verdicts are about these small problems; about the paper's own a full run decides.</p>"
        )
    if not results.complete:
        said.append("<p class=note><strong>Not complete.</strong> Give the same command again to go on.</p>")
    said += [f"<p class=note>{escape(sentence)}</p>" for sentence in results.left_out]
    return said


def _claims(claims: Sequence[Claim]) -> list[str]:
    rows = [
        f"<tr><td class=l>{escape(claim.text)}</td>"
        f'<td class=l><span class="tag {TAGS.get(claim.verdict, "")}">{claim.verdict}</span></td>'
        f"<td class=l>{escape(claim.reason)}</td></tr>"
        for claim in claims
    ]
    return [
        "<h2>Which claims hold</h2>",
        "<p>The verdicts and the reasons are computed from the results below: what is said of all holds in part if it "
        f"is so in at least half. Times within {settings.LEVEL:.0%} of each other are taken for equal. They are those "
        "of this library's programs, which are not the authors'.</p>",
        "<table class=claims><tr><th class=l>The paper says</th><th class=l>Here it</th><th class=l>Because</th></tr>",
        *rows,
        "</table>",
    ]


# ---------------------------------------------------------------------- tables


def _number(value: Any, form: str = ".3g") -> str:
    return "–" if value is None else format(value, form)


def _ended(record: Record, limit: int) -> str:
    """How a run ended, in words."""
    words = {
        "stopped_by_callback": f"at {settings.GOAL:.0e}",
        "converged": "its own test",
        "max_iter": f"after {limit}",
    }
    return words.get(record["status"], str(record["status"]))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, long: Sequence[int] = ()) -> str:
    """A table whose first columns are flush left, and whose columns `long` may be broken into lines.

    A line is drawn above a row whose first cell is not empty; a row of a single cell is a heading.
    """

    def cells(tag: str, row: Sequence[str]) -> str:
        made = []
        for k, cell in enumerate(row):
            kinds = [kind for kind, there in (("l", k < left), ("long", k in long)) if there]
            made.append(f"<{tag}{' class=' + repr(' '.join(kinds)) if kinds else ''}>{cell}</{tag}>")
        return "".join(made)

    body = []
    headings = any(len(row) == 1 for row in rows)
    for k, row in enumerate(rows):
        if len(row) == 1:
            body.append(f"<tr><th class=l colspan={len(header)}>{row[0]}</th></tr>")
        else:
            above = row[0] and k and not headings
            body.append(f"<tr{' class=first' if above else ''}>{cells('td', row)}</tr>")
    return f"<div class=wide><table><tr>{cells('th', header)}</tr>{''.join(body)}</table></div>"


def _beside(results: Results) -> list[str]:
    """The paper's figures beside ours."""
    scenes = [scene for scene in results.scenes if scene.printed and scene.runs]
    said = ["<h2>The paper's tables beside ours</h2>"]
    if not scenes:
        return [*said, "<p>None of the paper's videos was run.</p>"]
    said.append(
        "<p>Iterations compare, as far as the videos do. Seconds are told as multiples of those of AManPGC, as "
        "machines and programs differ. The start, the same for all but our default, is not counted in.</p>"
    )
    rows = []
    for scene in scenes:
        printed = scene.printed
        assert printed is not None
        reference = scene.seconds("amanpgc")
        paper_reference = printed.of("amanpgc")
        for k, (method, record) in enumerate(scene.counting.items()):
            paper = printed.of(method)
            rows.append(
                [
                    escape(scene.clip.title) + ("" if scene.same else "*") if not k else "",
                    f"{scene.share:.0%}" if not k else "",
                    label(method),
                    _number(paper and paper[1], "d"),
                    f"<strong>{record['iterations']}</strong>",
                    _number(paper and paper[0], ".2f"),
                    _number(record["seconds"]),
                    _number(ratio(paper and paper[0], paper_reference and paper_reference[0]), ".2f"),
                    f"<strong>{_number(ratio(record['seconds'], reference), '.2f')}</strong>",
                ]
            )
    header = ["video", "observed", "method", "iterations<br>paper", "<br>here", "seconds<br>paper", "<br>here"]
    header += ["/ AManPGC<br>paper", "<br>here"]
    said.append(_table(header, rows, left=3))
    if remarks := doubts(scenes):
        said.append(f"<p class=small>* {escape(' '.join(remarks))}</p>")
    return said


def _synthetic(results: Results, pictures: dict[str, Path]) -> list[str]:
    cases = [case for case in results.cases if case.runs]
    if not cases:
        return []
    said = [
        "<h2>Synthetic data</h2>",
        "<p>The relative difference ‖UV − X*‖ / ‖X*‖, measured from the factors after every iteration; the time that "
        "takes is not counted. All start from the same U⁰, the leading left singular vectors of the observed matrix, "
        "but for our default. It has a start of its own, which is counted, and learns on a part of the data first: its "
        "curve shows what that part makes of all, and only its end, the time of the whole call, counts. A run ends "
        f"at {settings.GOAL:.0e}, by its own test, or after {settings.MAX_ITER} iterations. In each pair of rows the "
        "upper one is against seconds.</p>",
        _image(pictures.get("synthetic"), "Relative difference against seconds and iterations, case by case"),
    ]
    rows = []
    for case in cases:
        reference = case.reached("amanpgc")
        rows.append([escape(case.title[0].upper() + case.title[1:])])
        for method in case.runs:
            record = case.best(method)
            if record is None:
                continue
            row = [label(method)]
            for target in settings.TARGETS:
                there = case.reached(method, target)
                row += [_number(there and there[0], "d"), _number(there and there[1])]
            own = case.reached(method)
            row.append(_number(ratio(own and own[1], reference and reference[1]), ".2f"))
            row += [_number(record["cpu"][-1]), _number(record["start_seconds"])]
            row += [_number(min(record["error"]), ".1e"), _ended(record, settings.MAX_ITER)]
            rows.append(row)
    header = [""]
    for target in settings.TARGETS:
        header += [f"to {target:.0e}<br>iterations", "<br>s"]
    header += [
        f"s to {settings.JUDGED:.0e}<br>/ AManPGC",
        "CPU s<br>in all",
        "start<br>s",
        "smallest<br>difference",
        "ended",
    ]
    said.append(_table(header, rows))
    said += _tuned(results)
    said += _literal(results)
    return said


def _tuned(results: Results) -> list[str]:
    """What each method was run with: every set of parameters, the cases it was tried on, and those where it counts."""
    rows = []
    for method in results.methods:
        tried: dict[str, tuple[list[int], list[int], list[float], int]] = {}
        for case in results.cases:
            best = case.best(method)
            for record in case.runs.get(method, []):
                where, counts, seconds, shortened = tried.get(record["words"], ([], [], [], 0))
                where.append(case.number)
                counts += [case.number] if record is best else []
                there = reached(record, settings.JUDGED)
                seconds += [there[1]] if there else []
                tried[record["words"]] = (where, counts, seconds, shortened + record["shortened"])
        for k, (words, (where, counts, seconds, shortened)) in enumerate(tried.items()):
            row = [label(method) if not k else "", escape(words), spans(where), spans(counts) or "–"]
            total = (
                f"{sum(seconds):.3g}" if len(seconds) == len(where) else f"not reached in {len(where) - len(seconds)}"
            )
            rows.append([*row, total, str(shortened or "")])
    if not rows:
        return []
    header = ["method", "parameters", "tried on<br>cases", "counts in<br>cases", f"s to {settings.JUDGED:.0e},<br>sum"]
    return [
        "<h3>Tuned values</h3>",
        "<p>The paper's own where it prints them. It calls its retraction with U + ΔU where the definition has ΔU, "
        "which halves the step: a printed t_U is twice ours. It says of the other methods that they were tuned, and "
        "not how; where several sets of parameters are tried here, the fastest counts. Steps that would have "
        "raised the objective were halved.</p>",
        _table([*header, "steps<br>halved"], rows, left=4, long=(1,)),
    ]


def _literal(results: Results) -> list[str]:
    said = []
    for case in results.cases:
        record, own = case.literal, case.best("amanpgc")
        if record is None or own is None:
            continue
        end, best = record["error"][-1], min(own["error"])
        outcome = "does not converge" if end > 1e-3 else "converges as well"
        said.append(
            f"<p>Case {case.number} with the printed t_U = 2/|Ω| taken as it stands, and without our safeguard against "
            f"steps that are too long: AManPGC {outcome}; after {len(record['error'])} iterations the relative "
            f"difference is {end:.1e}, against {best:.1e} with half of it.</p>"
        )
    return ["<h3>The step as printed</h3>", *said] if said else []


def _videos(results: Results, pictures: dict[str, Path]) -> list[str]:
    names = list(dict.fromkeys(scene.clip.name for scene in results.scenes if scene.runs))
    if not names:
        return []
    said = [
        "<h2>Video: the background from a part of the pixels</h2>",
        f"<p>Rank {settings.RANK}, pixels from 0 to 1. A method ends when UV changes by at most {settings.DELTA:.0%}; "
        "AManPGC and ManPGC only once γ is below a tenth of the largest pixel, as before it nothing counts as "
        "foreground, and RMC likewise with its δ; our default by its own test. Seconds are medians of "
        f"{settings.REPEATS} solves, the shared start not counted.</p>",
        "<p>The best value of the objective need not be the best background. Judge by the pictures, and by the "
        "distance to a trusted background, mean over all frames: AGE, the average error in grey levels of 255; "
        "pEPs, the share of pixels that are off by more than 20; "
        "pCEPs, the share of those in clusters; PSNR in decibels. The pictures are of the frame that differs most from "
        "the trusted background.</p>",
    ]
    for name in names:
        scenes = [scene for scene in results.scenes if scene.clip.name == name and scene.runs]
        clip = scenes[0].clip
        said += [
            f"<h3>{escape(clip.title)}</h3>",
            f"<p>{escape(' '.join(clip.describe()))}</p>",
            _image(pictures.get(name), f"Backgrounds of {clip.title}"),
            _quality_table(scenes),
        ]
        said.append(f"<p class=small>{escape(_video_parameters(scenes))}</p>")
    return said


def _video_parameters(scenes: Sequence[SceneResults]) -> str:
    """The parameters of the runs that count, methods and shares that have the same put together."""
    words: dict[str, dict[str, list[str]]] = {}
    for scene in scenes:
        for method, record in scene.counting.items():
            words.setdefault(record["words"], {}).setdefault(label(method), []).append(f"{scene.share:.0%}")
    said = []
    for what, who in words.items():
        names = [name if len(where) == len(scenes) else f"{name} ({listed(where)})" for name, where in who.items()]
        said.append(f"{listed(names)}: {what}")
    tried = {label(method): len(runs) for method, runs in scenes[0].runs.items() if len(runs) > 1}
    best = listed(f"{count} of {name}" for name, count in tried.items()) if tried else ""
    chosen = f" Of several sets of parameters ({best}) one counts: {settings.RULE}." if tried else ""
    return f"Parameters. {'; '.join(said)}.{chosen}"


def _quality_table(scenes: Sequence[SceneResults]) -> str:
    masks = bool(scenes[0].clip.masks)
    header = ["observed", "", "iterations", "seconds", "start<br>s", "AGE", "pEPs", "pCEPs", "PSNR"]
    header += [*(["F1 of the<br>foreground"] if masks else []), "ended"]
    rows = []
    for scene in scenes:
        for k, (method, record) in enumerate(scene.counting.items()):
            found = record["measures"]
            row = [f"{scene.share:.0%}" if not k else "", label(method), str(record["iterations"])]
            row += [_number(record["seconds"]), _number(record["start_seconds"]), *_measures(found)]
            row += [_number(found.get("f1"), ".2f")] if masks else []
            rows.append([*row, _ended(record, settings.VIDEO_MAX_ITER)])
    untouched = ["", "the frames themselves", "", "", "", *_measures(scenes[0].clip.untouched)]
    rows.append([*untouched, *([""] if masks else []), ""])
    return _table(header, rows, left=2)


def _measures(found: dict[str, float]) -> list[str]:
    forms = {"age": ".2f", "peps": ".2%", "pceps": ".2%", "psnr": ".1f"}
    return [_number(found[name], form) for name, form in forms.items()]


def _image(path: Path | None, words: str) -> str:
    if path is None or not path.is_file():
        return ""
    inline = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(words)}" src="data:image/png;base64,{inline}">'


def _how(results: Results) -> list[str]:
    return [
        "<h2>How it was done</h2>",
        "<p>Every method runs on the same data from the same start in the same program, one after the other. Seconds "
        "are by the wall clock, with all threads; CPU seconds add up the threads. The data of the cases are drawn as "
        "the paper describes, with seeds the methods are not given. The numbers behind every table and curve are in "
        "the CSV files beside this page, and in one file for each run in the folder <code>runs</code>.</p>",
    ]
