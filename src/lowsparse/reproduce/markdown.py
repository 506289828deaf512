"""The tables and verdicts once more, as Markdown: for a repository, without pictures of the videos."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from . import settings
from .claims import Claim
from .results import Results, SceneResults, doubts, label, ratio

__all__ = ["markdown"]

WIDTH = 120


def markdown(results: Results, claims: Sequence[Claim], remark: str, picture: str = "") -> str:
    """The text; `remark` stands below the claims, `picture` is the file with the panels of the cases, beside it."""
    parts = [*_head(results), *_synthetic(results, picture), *_videos(results), *_claims(claims, remark)]
    return "\n\n".join(parts) + "\n"


def _prose(*sentences: str, indent: str = "") -> str:
    """
    >>> _prose("Some words.", "And more.")
    'Some words. And more.'
    """
    text = " ".join(filter(None, sentences))
    return textwrap.fill(
        text, WIDTH, initial_indent="", subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    >>> print(_table(["case", "AManPGC"], [["1", "25"]]))
    | case | AManPGC |
    |---|---|
    | 1 | 25 |
    """
    lines = [f"| {' | '.join(row)} |" for row in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _head(results: Results) -> list[str]:
    machine = results.machine
    return [
        "# The paper's experiments, run anew",
        _prose(
            "M. Huang, S. Ma, L. Lai: Robust Low-rank Matrix Completion via an Alternating Manifold Proximal Gradient "
            "Continuation Method, Section VI. This file is written by"
        ),
        f"```sh\n{results.command}\n```",
        _prose(
            f"here with lowsparse {machine['lowsparse']}, the {machine['backend']} backend and {machine['threads']} "
            f"threads on {machine['processor']}. The command also writes a page, with the parameters of every run and "
            "the backgrounds as pictures, and all numbers as CSV. On another machine the seconds are others.",
            "This is a quick run: cases and videos are scaled down." if results.quick else "",
            "It is not complete: give the same command again to go on." if not results.complete else "",
            *results.left_out,
        ),
        _prose(
            "Every t_U that the paper prints is halved, as its retraction takes half the step.",
            *_literal(results),
        ),
    ]


def _literal(results: Results) -> list[str]:
    return [
        f"With the printed 2/|Ω| taken as it stands AManPGC ends at a relative difference of "
        f"{case.literal['error'][-1]:.1e} (case {case.number})."
        for case in results.cases
        if case.literal
    ]


def _synthetic(results: Results, picture: str) -> list[str]:
    cases = [case for case in results.cases if case.runs]
    if not cases:
        return []
    methods = [method for method in results.methods if any(method in case.runs for case in cases)]
    rows = []
    for case in cases:
        row = [str(case.number)]
        reference = case.reached("amanpgc")
        for method in methods:
            there = case.reached(method)
            times = ratio(there and there[1], reference and reference[1])
            row.append(f"{there[0]}, {_number(times, '.2f')}" if there else "–")
        rows.append(row)
    panels = "The relative difference against seconds and against iterations, case by case"
    return [
        "## Synthetic data",
        *([f"{panels}:", f"![{panels}]({picture})"] if picture else []),
        _prose(
            f"To a relative difference of {settings.JUDGED:.0e}: iterations, and seconds over those of AManPGC. Of the "
            "default the whole call counts, its own start included; the start the others share is not counted in. Of "
            "several sets of parameters that were tried the fastest counts."
        ),
        _table(["case", *map(label, methods)], rows),
    ]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _videos(results: Results) -> list[str]:
    scenes = [scene for scene in results.scenes if scene.runs]
    if not scenes:
        return []
    clips = {scene.clip.name: scene.clip for scene in scenes}.values()
    sizes = [f"{clip.title}, {_frames(clip.frames.shape)}" for clip in clips]
    paper = [
        f"{known.paper_name}, {_frames(known.paper_shape)}" for clip in clips if (known := clip.known) and known.printed
    ]
    said = [
        "## Video",
        _prose(
            f"Rank {settings.RANK}, until UV changes by at most {settings.DELTA:.0%}; the default has a stopping rule "
            "of its own. Iterations here and (in the paper); seconds over those of AManPGC here and (in the paper), "
            "starts not counted in; PSNR against the trusted background, mean over the frames; F1 of the foreground "
            "where it is known. The trusted background is the median of each pixel over the frames, a still picture; "
            "of Moving blocks, which is made up, it is the true one.",
            f"Here: {'; '.join(sizes)}.",
            f"In the paper: {'; '.join(paper)}." if paper else "",
            f"(\\*) {' '.join(remarks)}" if (remarks := doubts(scenes)) else "",
        ),
        _prose(f"Of several sets of parameters that were tried one counts: {settings.RULE}."),
    ]
    for share in settings.SHARES:
        mine = [scene for scene in scenes if scene.share == share]
        if mine:
            methods = [method for method in results.methods if any(method in scene.runs for scene in mine)]
            rows = [row for scene in mine for row in _scene(scene, methods)]
            said += [f"{share:.0%} of the pixels:", _table(["", *map(label, methods)], rows)]
    return said


def _frames(shape: tuple[int, ...]) -> str:
    return "{} frames of {} × {}".format(*shape)


def _scene(scene: SceneResults, methods: Sequence[str]) -> list[list[str]]:
    counting, printed = scene.counting, scene.printed
    reference = scene.seconds("amanpgc")
    paper_reference = printed.of("amanpgc") if printed else None
    rows = [
        [scene.clip.title + ("" if scene.same else "\\*") + ": iterations"],
        ["seconds / AManPGC"],
        ["PSNR, dB"],
        ["F1 of the foreground"],
    ]
    for method in methods:
        record = counting.get(method)
        if record is None:
            for row in rows:
                row.append("–")
            continue
        paper = printed.of(method) if printed else None
        times = ratio(paper and paper[0], paper_reference and paper_reference[0])
        rows[0].append(f"{record['iterations']}" + (f" ({paper[1]})" if paper else ""))
        rows[1].append(_number(ratio(record["seconds"], reference), ".2f") + (f" ({times:.2f})" if times else ""))
        rows[2].append(f"{record['measures']['psnr']:.1f}")
        rows[3].append(_number(record["measures"].get("f1"), ".2f"))
    return rows if scene.clip.masks else rows[:3]


def _claims(claims: Sequence[Claim], remark: str) -> list[str]:
    items = [
        _prose(f"- **{claim.text}** {claim.verdict.capitalize()}. {claim.reason}", indent="  ") for claim in claims
    ]
    intro = _prose(
        "Verdicts and reasons are computed from the results: what is said of all holds in part if it is so in at least "
        f"half. Times within {settings.LEVEL:.0%} of each other are taken for equal."
    )
    return ["## What holds", intro, "\n".join(items), *([_prose(remark)] if remark else [])]
