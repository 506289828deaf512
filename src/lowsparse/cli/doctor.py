"""`lowsparse doctor`: what lowsparse runs on here, how fast that is, and what to do if it is not as it should be."""

from __future__ import annotations

import textwrap

import typer

from .failure import FAILED
from .output import Json, Quiet, Voice
from .probes import PROBES, Finding, look
from .progress import step
from .text import columns, paragraph, width

__all__ = ["doctor"]


def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Check the installation: versions, backend, threads, speed.

    It ends with the exit code 1 if something is broken, and says what to do about it.
    """
    voice = Voice(quiet=quiet, json=json)
    found: dict[str, Finding] = {}
    with step(voice, "checking", total=len(PROBES)) as checking:
        for name in checking.over(PROBES):
            found[name] = look(PROBES[name])
    broken = [name for name, finding in found.items() if finding.level == "error"]
    voice.result(
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
    """What to do, the worst first."""
    lines = []
    for level in ("error", "warning", "note"):
        advice = [
            (name, finding.advice) for name, finding in found.items() if finding.level == level and finding.advice
        ]
        lines += [textwrap.indent(paragraph(f"{name}: {said}", width() - 2), "  ") for name, said in advice]
    levels = {finding.level for finding in found.values()}
    if "error" in levels:
        head = "Something is broken. What to do:"
    elif "warning" in levels:
        head = "It works, but not as well as it could:"
    else:
        head = "All is well." + (" What could be added or changed:" if lines else "")
    return "\n".join([head, *lines])
