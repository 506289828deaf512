"""`lowsparse methods`: which methods there are, what each needs, and when to choose it."""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from .. import solvers
from ..solvers import Solver
from ..solvers.parameters import parameters_of
from .failure import require
from .output import Json, Output
from .text import columns, paragraph, table, width

# When to choose a method: the first reason that applies to it
REASONS: tuple[tuple[Callable[[type[Solver]], bool], str], ...] = (
    (lambda solver: _is_default(solver), "unless there is a reason for another"),
    (lambda solver: solver.rank_of != "L", "for data whose own rank is not low, but that of {rank_of} is"),
    (lambda solver: not solver.robust, "if there are no gross errors: least squares treats them as noise"),
    (lambda solver: bool(solver.needs), "if you know the number or the share of the outliers"),
    (lambda solver: solver.full and solver.finds_rank, "if every entry is observed, and the rank is not known"),
    (lambda solver: solver.full, "if every entry is observed"),
    (lambda solver: solver.finds_rank, "if the rank is not known, and a convex problem is preferred"),
    (lambda solver: True, "to compare with the default: robust, takes missing entries, at a given rank"),
)


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
        found = [_solver(name) for name in solvers.names()]
        facts = {"default": _solver("auto").name, "methods": [describe(solver) for solver in found]}
        output.result(facts, text=_overview(found))
        return
    require(name in known, f"there is no method {name}: choose one of {', '.join(known)}")
    solver = _solver(name)
    parameters = [
        {"name": key, "default": p.default, "what": p.text, "has_default": not p.required, "allowed": p.allowed}
        for key, p in parameters_of(solver).items()
    ]
    output.result({**describe(solver), "parameters": parameters}, text=_details(solver))


def describe(solver: type[Solver]) -> dict[str, object]:
    """What one has to know of a method to choose it.

    >>> facts = describe(solvers.AManPGC)
    >>> facts["robust"], facts["every_entry"], facts["papers"][0].partition(":")[0]
    (True, False, 'M. Huang, S. Ma, L. Lai')
    """
    return {
        "name": solver.name,
        "class_name": solver.__name__,
        "what": _summary(solver),
        "every_entry": solver.full,
        "robust": solver.robust,
        "finds_rank": solver.finds_rank,
        "rank_of": solver.rank_of,
        "needs": solver.needs,
        "takes_start": solver.takes_start,
        "is_default": _is_default(solver),
        "papers": solver.papers,
        "needed": _needed(solver),
        "choose": _when_to_choose(solver),
    }


def _solver(name: str) -> type[Solver]:
    return type(solvers.from_name(name))


def _is_default(solver: type[Solver]) -> bool:
    return solver is _solver("auto")


def _summary(solver: type[Solver]) -> str:
    return (inspect.getdoc(solver) or "").partition("\n")[0]


def _needed(solver: type[Solver]) -> str:
    """What a method needs."""
    needed = ["every entry"] if solver.full else []
    needed += ["no gross errors"] if not solver.robust else []
    if not solver.finds_rank:
        needed.append("the rank" if solver.rank_of == "L" else f"the rank of {solver.rank_of}")
    return ", ".join([*needed, *solver.needs]) or "nothing"


def _reason(solver: type[Solver]) -> int:
    """The index of the first of REASONS that applies."""
    return next(k for k, (applies, _) in enumerate(REASONS) if applies(solver))


def _when_to_choose(solver: type[Solver]) -> str:
    return REASONS[_reason(solver)][1].format(rank_of=solver.rank_of)


def _overview(found: list[type[Solver]]) -> str:
    """The methods by the reason to choose them, the default first, the special ones last."""
    fit, longest = width(), max(len(solver.name) for solver in found)
    parts = []
    for k in sorted(set(map(_reason, found)), key=lambda k: (k > 0, -k)):
        group = [solver for solver in found if _reason(solver) == k]
        needed = [f" Needs: {_needed(solver)}." for solver in group]
        heading = _when_to_choose(group[0]) + "."
        if same := len(set(needed)) == 1:
            heading += needed[0]
        rows = [
            [f"  {solver.name:<{longest}}", _summary(solver) + ("" if same else needs)]
            for solver, needs in zip(group, needed, strict=True)
        ]
        parts.append(paragraph(heading[0].upper() + heading[1:], fit) + "\n" + columns(rows, left=(0, 1), fit=fit))
    closing = (
        'Where the rank is needed, rank="auto" chooses one. For the parameters of a method, their defaults and its '
        "paper: lowsparse methods NAME"
    )
    return "\n\n".join(["The methods, by the reason to choose one:", *parts, paragraph(closing, fit)])


def _details(solver: type[Solver]) -> str:
    fit = width()
    takes = {"missing entries": not solver.full, "gross errors": solver.robust, "a start": solver.takes_start}
    facts = [
        ["name", f"{solver.name} (lowsparse.solvers.{solver.__name__})"],
        ["needs", _needed(solver)],
        ["takes", ", ".join(what for what, taken in takes.items() if taken)],
        ["choose it", _when_to_choose(solver)],
        *(["paper", paper] for paper in solver.papers),
    ]
    _, *prose = (inspect.getdoc(solver) or "").split("\n\n")
    parts = [paragraph(_summary(solver), fit), columns(facts, left=(0, 1), fit=fit)]
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
