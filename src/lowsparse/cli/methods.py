"""`lowsparse methods`: which methods there are, what each needs, and when to choose it."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from .. import solvers
from ..solvers import Solver
from ..solvers.parameters import parameters_of
from .failure import require
from .output import Json, Output
from .text import columns, paragraph, table, width

# When to choose a method: the first reason that applies to it
REASONS: dict[str, Callable[[type[Solver]], bool]] = {
    "unless there is a reason for another": lambda solver: _is_default(solver),
    "for data whose own rank is not low, but that of {rank_of} is": lambda solver: solver.rank_of != "L",
    "if there are no gross errors: least squares treats them as noise": lambda solver: not solver.robust,
    "if you know the number or the share of the outliers": lambda solver: bool(solver.needs),
    "if every entry is observed, and the rank is not known": lambda solver: solver.full and solver.finds_rank,
    "if every entry is observed": lambda solver: solver.full,
    "if the rank is not known, and a convex problem is preferred": lambda solver: solver.finds_rank,
    "to compare with the default: robust, takes missing entries, at a given rank": lambda solver: True,
}


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one, with its parameters.", autocompletion=lambda: ["auto", *solvers.names()]),
    ] = None,
    json: Json = False,
) -> None:
    """List the methods: what each needs, when to choose it.

    With a name: its parameters, their defaults and meaning, and the paper it is from.

    \b
      lowsparse methods
      lowsparse methods amanpgc
    """
    output, known = Output(json=json), ["auto", *solvers.names()]
    if name is None:
        found = [describe(_solver(name)) for name in solvers.names()]
        output.result({"default": _solver("auto").name, "methods": found}, text=_overview(found))
        return
    require(name in known, f"there is no method {name}: choose one of {', '.join(known)}")
    solver = _solver(name)
    parameters = [
        {"name": key, "default": p.default, "what": p.text, "has_default": not p.required, "allowed": p.allowed}
        for key, p in parameters_of(solver).items()
    ]
    output.result({**describe(solver), "parameters": parameters}, text=_details(solver))


def describe(solver: type[Solver]) -> dict[str, Any]:
    """What one has to know of a method to choose it.

    >>> facts = describe(solvers.AManPGC)
    >>> facts["robust"], facts["every_entry"], facts["papers"][0].partition(":")[0]
    (True, False, 'M. Huang, S. Ma, L. Lai')
    """
    needed = ["every entry"] if solver.full else []
    needed += ["no gross errors"] if not solver.robust else []
    if not solver.finds_rank:
        needed.append("the rank" if solver.rank_of == "L" else f"the rank of {solver.rank_of}")
    return {
        "name": solver.name,
        "class_name": solver.__name__,
        "what": (inspect.getdoc(solver) or "").partition("\n")[0],
        "every_entry": solver.full,
        "robust": solver.robust,
        "finds_rank": solver.finds_rank,
        "rank_of": solver.rank_of,
        "needs": solver.needs,
        "takes_start": solver.takes_start,
        "is_default": _is_default(solver),
        "papers": solver.papers,
        "needed": ", ".join([*needed, *solver.needs]) or "nothing",
        "choose": next(text for text, applies in REASONS.items() if applies(solver)).format(rank_of=solver.rank_of),
    }


def _solver(name: str) -> type[Solver]:
    return type(solvers.from_name(name))


def _is_default(solver: type[Solver]) -> bool:
    return solver is _solver("auto")


def _overview(found: list[dict[str, Any]]) -> str:
    """The methods by the reason to choose them, the default first, the special ones last."""
    fit, longest = width(), max(len(facts["name"]) for facts in found)
    parts = []
    first, *others = REASONS
    for reason in (first, *reversed(others)):
        group = [facts for facts in found if facts["choose"] == reason.format(rank_of=facts["rank_of"])]
        if not group:
            continue
        needed = [f" Needs: {facts['needed']}." for facts in group]
        heading = group[0]["choose"] + "."
        if same := len(set(needed)) == 1:
            heading += needed[0]
        rows = [
            [f"  {facts['name']:<{longest}}", facts["what"] + ("" if same else needs)]
            for facts, needs in zip(group, needed, strict=True)
        ]
        parts.append(paragraph(heading[0].upper() + heading[1:], fit) + "\n" + columns(rows, left=(0, 1), fit=fit))
    closing = (
        'Where the rank is needed, rank="auto" chooses one. For the parameters of a method, their defaults and its '
        "paper: lowsparse methods NAME"
    )
    return "\n\n".join(["The methods, by the reason to choose one:", *parts, paragraph(closing, fit)])


def _details(solver: type[Solver]) -> str:
    fit, known = width(), describe(solver)
    takes = {"missing entries": not solver.full, "gross errors": solver.robust, "a start": solver.takes_start}
    facts = [
        ["name", f"{solver.name} (lowsparse.solvers.{solver.__name__})"],
        ["needs", known["needed"]],
        ["takes", ", ".join(what for what, taken in takes.items() if taken)],
        ["choose it", known["choose"]],
        *(["paper", paper] for paper in solver.papers),
    ]
    _, *prose = (inspect.getdoc(solver) or "").split("\n\n")
    parts = [paragraph(known["what"], fit), columns(facts, left=(0, 1), fit=fit)]
    for text in prose:
        if not text.lstrip().startswith(">>>"):
            parts.append(text if text.startswith(" ") else paragraph(text, fit))  # formulas are indented
    rows = [
        [name, "(required)" if p.required else repr(p.default), p.text + ("" if p.kind is bool else f"; {p.allowed}")]
        for name, p in parameters_of(solver).items()
    ]
    if rows:
        parts.append(table(["parameter", "default", "what it is"], rows, left=(0, 1, 2), fit=fit))
    given = ", ".join(f"{name}=..." for name in solver.needs)
    rank = "None" if solver.finds_rank else 5
    parts.append(f"ls.solve(M, rank={rank}, method=ls.solvers.{solver.__name__}({given}))")
    parts.append(paragraph(f"For its mathematics: python -m pydoc {solver.__module__}", fit))
    return "\n\n".join(parts)
