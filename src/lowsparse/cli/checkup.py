"""The checks of `lowsparse doctor` as text or JSON; it works without the extra `cli`."""

import textwrap
from collections.abc import Callable, Sequence

from ..support.jsonable import to_json
from .probes import PROBES, Finding, run_probe
from .text import columns, paragraph, width

NEXT = "Next: lowsparse demo shows it at work; lowsparse complete TABLE and lowsparse video FILE take your data."
AGAIN = "Then run lowsparse doctor again."
NO_COMMANDS = (
    "Next: install the commands, python -m pip install {packages}; in Python it is ready: import lowsparse as ls."
)
LEVELS = ("error", "warning", "note", "ok")  # of findings

Findings = dict[str, Finding]


def check(on_progress: Callable[[], object] = lambda: None) -> Findings:
    """The findings of all probes, by name."""
    found: Findings = {}
    for name, probe in PROBES.items():
        found[name] = run_probe(probe)
        on_progress()
    return found


def is_healthy(found: Findings) -> bool:
    """Whether nothing is broken."""
    return all(finding.level != "error" for finding in found.values())


def report(found: Findings, next_step: str = NEXT) -> str:
    """All findings, an overall verdict, all advice, and what to do next."""
    last = paragraph(next_step if is_healthy(found) else AGAIN, width())
    return "\n\n".join([_lines(found, LEVELS), _verdict(found), last])


def problems(found: Findings) -> str:
    """The findings that are errors or warnings."""
    return _lines(found, ("error", "warning"))


def facts(found: Findings) -> dict[str, object]:
    """The findings for machines."""
    return {"healthy": is_healthy(found), "checks": found}


def without_extras(options: Sequence[str], missing: Sequence[str]) -> int:
    """`lowsparse doctor` where the command line cannot run: print the report, and return the exit code."""
    found, next_step = check(), NO_COMMANDS.format(packages=" ".join(missing))
    if "--json" in options:
        print(to_json(facts(found)))
    else:
        print(problems(found) if {"--quiet", "-q"} & set(options) else report(found, next_step))
    return 0 if is_healthy(found) else 1


def _lines(found: Findings, levels: tuple[str, ...]) -> str:
    rows = [[finding.level, name, finding.text] for name, finding in found.items() if finding.level in levels]
    return columns(rows, left=(0, 1, 2), fit=width()) if rows else ""


def _verdict(found: Findings) -> str:
    """An overall verdict and all advice, the most severe first."""
    lines = []
    for level in LEVELS:
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
