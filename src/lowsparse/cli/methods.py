"""`lowsparse methods`: which methods there are, what each needs, and when to choose it."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from .. import solvers
from ..solvers import Solver
from ..solvers.parameters import parameters_of
from .failure import require
from .output import Json, Output
from .text import columns, paragraph, table, width

__all__ = ["Card", "methods"]

AUTHORS = r"(?:(?:[A-Z]\.[- ]?)+(?:[A-ZÀ-Þ]\w+ ?)+(?:,\s)?)+: "
YEAR = r"(?:(?!\n\n).)+?(?:\b(?:19|20)\d\d|arXiv \d{4}\.\d{4,5})(?=[.,;:)]|\s|$)"
SENTENCE = r"(?:(?!\n\n).)+?(?=\.\s)"
CITATION = re.compile(f"{AUTHORS}(?:{YEAR}|{SENTENCE})", re.DOTALL)


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one, with its parameters.", autocompletion=lambda: ["auto", *solvers.names()]),
    ] = None,
    json: Json = False,
) -> None:
    """List the methods: what each needs, when to choose it.

    With a name: its parameters, their defaults and meaning, and the paper it is from.
    """
    output = Output(json=json)
    if name is None:
        cards = [Card.of(solver) for solver in map(solver_class, solvers.names())]
        facts = {"default": solver_class("auto").name, "methods": [card.facts() for card in cards]}
        output.result(facts, text=_overview(cards))
        return
    known = ["auto", *solvers.names()]
    require(name in known, f"there is no method {name}: choose one of {', '.join(known)}")
    solver = solver_class(name)
    card = Card.of(solver)
    parameters = [
        {"name": key, "default": p.default, "what": p.text, "has_default": not p.required, "allowed": p.allowed}
        for key, p in parameters_of(solver).items()
    ]
    output.result({**card.facts(), "parameters": parameters}, text=_details(solver, card))


@dataclass(frozen=True)
class Card:
    """What a user has to know of a method to choose it, read from its class."""

    name: str
    class_name: str
    what: str
    every_entry: bool  # must be observed
    robust: bool  # otherwise a least-squares method
    finds_rank: bool
    rank_of: str
    needs: tuple[str, ...]  # parameters without a default
    takes_start: bool
    is_default: bool
    papers: tuple[str, ...]

    @classmethod
    def of(cls, solver: type[Solver]) -> Card:
        """Read it off the class.

        >>> card = Card.of(solvers.AManPGC)
        >>> card.robust, card.every_entry, card.papers[0].partition(":")[0]
        (True, False, 'M. Huang, S. Ma, L. Lai')
        """
        return cls(
            name=solver.name,
            class_name=solver.__name__,
            what=inspect.getdoc(solver).partition("\n")[0],  # type: ignore[union-attr]  # all have one
            every_entry=solver.full,
            robust=solver.robust,
            finds_rank=solver.finds_rank,
            rank_of=solver.rank_of,
            needs=solver.needs,
            takes_start=solver.takes_start,
            is_default=solver is solver_class("auto"),
            papers=_papers(solver),
        )

    @property
    def needed(self) -> str:
        """What it needs, in words."""
        rank = "the rank" if self.rank_of == "L" else f"the rank of {self.rank_of}"
        things = ["every entry"] if self.every_entry else []
        things += ["no gross errors"] if not self.robust else []
        things += [rank] if not self.finds_rank else []
        return ", ".join([*things, *self.needs]) or "nothing"

    @property
    def choose(self) -> str:
        """When to choose it."""
        return REASONS[self.reason][1].format(rank_of=self.rank_of)

    @property
    def reason(self) -> int:
        """The index of the first of REASONS that applies."""
        return next(k for k, (applies, _) in enumerate(REASONS) if applies(self))

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**dataclasses.asdict(self), "needed": self.needed, "choose": self.choose}


# When to choose a method: the first reason that applies to it
REASONS: tuple[tuple[Callable[[Card], bool], str], ...] = (
    (lambda card: card.is_default, "unless there is a reason for another"),
    (lambda card: card.rank_of != "L", "for data whose own rank is not low, but that of {rank_of} is"),
    (lambda card: not card.robust, "if there are no gross errors: least squares, to which they are noise"),
    (lambda card: bool(card.needs), "if you know the number or the share of the outliers"),
    (lambda card: card.every_entry and card.finds_rank, "if every entry is observed, and the rank is not known"),
    (lambda card: card.every_entry, "if every entry is observed"),
    (lambda card: card.finds_rank, "if the rank is not known, and the problem is to be convex"),
    (lambda card: True, "to compare with the default: robust, takes missing entries, at a given rank"),
)


def solver_class(name: str) -> type[Solver]:
    """The class of a method's name.

    >>> solver_class("auto").__name__
    'Ladder'
    """
    return type(solvers.from_name(name))


def _papers(solver: type[Solver]) -> tuple[str, ...]:
    """The papers that the method's module cites, or that of the method it is built on."""
    for cls in solver.__mro__:
        if found := CITATION.findall(sys.modules[cls.__module__].__doc__ or ""):
            return tuple(" ".join(citation.split()) for citation in found)
    return ()


def _overview(cards: list[Card]) -> str:
    """The methods by the reason to choose them, the default first, the special ones last."""
    fit = width()
    longest = max(len(card.name) for card in cards)
    parts = []
    for k in sorted({card.reason for card in cards}, key=lambda k: (k > 0, -k)):
        group = [card for card in cards if card.reason == k]
        needed = {card.needed for card in group}
        heading = group[0].choose
        heading = f"{heading[0].upper()}{heading[1:]}." + (f" Needs: {group[0].needed}." if len(needed) == 1 else "")
        rows = [
            [f"  {card.name:<{longest}}", card.what + (f" Needs: {card.needed}." if len(needed) > 1 else "")]
            for card in group
        ]
        parts.append(paragraph(heading, fit) + "\n" + columns(rows, left=(0, 1), fit=fit))
    closing = (
        'Where the rank is needed, rank="auto" has one chosen. The parameters of a method, their defaults and its '
        "paper: lowsparse methods NAME"
    )
    return "\n\n".join(["The methods, by the reason to choose one:", *parts, paragraph(closing, fit)])


def _details(solver: type[Solver], card: Card) -> str:
    fit = width()
    facts = [
        ["name", f"{card.name} (lowsparse.solvers.{card.class_name})"],
        ["needs", card.needed],
        ["takes", ", ".join(_taken(card))],
        ["choose it", card.choose],
        *(["paper", paper] for paper in card.papers),
    ]
    parts = [paragraph(card.what, fit), columns(facts, left=(0, 1), fit=fit)]
    parts += [_wrapped(text, fit) for text in _prose(solver)]
    rows = [
        [name, "(give it)" if p.required else repr(p.default), p.text + ("" if p.kind is bool else f"; {p.allowed}")]
        for name, p in parameters_of(solver).items()
    ]
    if rows:
        parts.append(table(["parameter", "default", "what it is"], rows, left=(0, 1, 2), fit=fit))
    given = ", ".join(f"{name}=..." for name in card.needs)
    parts.append(f"ls.solve(M, rank={'None' if card.finds_rank else 5}, method=ls.solvers.{card.class_name}({given}))")
    parts.append(_wrapped(f"Its mathematics: python -m pydoc {solver.__module__}", fit))
    return "\n\n".join(parts)


def _taken(card: Card) -> list[str]:
    things = ["missing entries"] if not card.every_entry else []
    things += ["gross errors"] if card.robust else []
    return [*things, "a start"] if card.takes_start else things


def _prose(solver: type[Solver]) -> list[str]:
    """The paragraphs of the docstring between its first line and the example."""
    paragraphs = (inspect.getdoc(solver) or "").split("\n\n")[1:]
    return [text for text in paragraphs if not text.lstrip().startswith(">>>")]


def _wrapped(text: str, fit: int) -> str:
    """Prose to the width; formulas, which are indented, as they are."""
    return text if text.startswith(" ") else paragraph(text, fit)
