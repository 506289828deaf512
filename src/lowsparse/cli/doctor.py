"""`lowsparse doctor`: check the installation, its speed, and say what to do about problems."""

from __future__ import annotations

import textwrap

import typer

from .failure import FAILED
from .output import Json, Output, Quiet
from .probes import PROBES, Finding, run_probe
from .progress import show_progress
from .text import columns, paragraph, width

__all__ = ["doctor"]


def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Check the installation: versions, backend, threads, speed.

    The exit code is 1 if something is broken; the output says what to do about it.
    """
    output = Output(quiet=quiet, json=json)
    found: dict[str, Finding] = {}
    with show_progress(output, "checking", total=len(PROBES)) as meter:
        for name in meter.over(PROBES):
            found[name] = run_probe(PROBES[name])
    broken = [name for name, finding in found.items() if finding.level == "error"]
    output.result(
        {"healthy": not broken, "checks": found},
        text=_report(found, found) + "\n\n" + _verdict(found),
        brief=_report(found, [name for name in found if found[name].level in ("warning", "error")]),
    )
    if broken:
        raise typer.Exit(FAILED)


def _report(found: dict[str, Finding], names: list[str] | dict[str, Finding]) -> str:
    rows = [[found[name].level, name, found[name].text] for name in names]
    return columns(rows, left=(0, 1, 2), fit=width()) if rows else ""


def _verdict(found: dict[str, Finding]) -> str:
    """An overall verdict and all advice, the most severe first."""
    lines = []
    for level in ("error", "warning", "note"):
        advice = [f"{name}: {one.advice}" for name, one in found.items() if one.level == level and one.advice]
        lines += [textwrap.indent(paragraph(text, width() - 2), "  ") for text in advice]
    levels = {finding.level for finding in found.values()}
    if "error" in levels:
        head = "Something is broken. What to do:"
    elif "warning" in levels:
        head = "It works, but could work better:"
    else:
        head = "Everything is fine." + (" Optional improvements:" if lines else "")
    return "\n".join([head, *lines])
