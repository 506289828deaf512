"""Verdicts on the claims of the paper, and their reasons, computed from the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..support.format import pluralize
from . import settings
from .jobs import Record
from .results import CaseResults, Results, SceneResults, join_ranges, join_words, label

__all__ = ["Claim", "compare_default", "judge"]

Places = Sequence[CaseResults | SceneResults]
HOLDS, PARTLY, FAILS, UNTESTED = "holds", "holds in part", "does not hold", "not tested"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the verdict on it, and the reason."""

    text: str
    verdict: str
    reason: str


def judge(results: Results) -> list[Claim]:
    """Verdicts on all claims of the numerical section."""
    return [
        _ahead_on_cases(results, TIME),
        _ahead_on_cases(results, ITERATIONS),
        _alternating_is_better(results),
        _quality(results, 0.5, settings.VERY_GOOD, "of very high quality"),
        _ahead_on_videos(results, 0.5, ITERATIONS),
        _ahead_on_videos(results, 0.5, TIME),
        _quality(results, 0.1, settings.GOOD, "good"),
        _fewer_pixels(results, TIME),
        _fewer_pixels(results, ITERATIONS),
        _ahead_on_videos(results, 0.1, TIME),
        _hall_within_a_second(results),
    ]


@dataclass(frozen=True)
class Cost:
    """A quantity to compare: time or iterations."""

    name: str
    less: str
    equal: str  # a verb
    level: float  # relative difference of equal ones
    key: str  # in records of videos
    index: int  # in what `reached` returns

    def of(self, place: CaseResults | SceneResults, method: str) -> float | None:
        """Of the selected run of a method; None if it did not reach the goal."""
        found = place.reached(method)
        return found and found[self.index]

    def compare(self, own: float | None, theirs: float | None) -> str:
        """Whether `own` is ahead (less), level or behind; None was not reached, "" if both were not."""
        if own is None or theirs is None:
            return AHEAD if own is not None else BEHIND if theirs is not None else ""
        if own < (1 - self.level) * theirs:
            return AHEAD
        return BEHIND if own > (1 + self.level) * theirs else LEVEL

    @property
    def caveat(self) -> str:
        """A note on what counts as equal."""
        return f"Times within {self.level:.0%} of each other count as equal." if self.level else ""


AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"

TIME = Cost("time", "less time", "is about as fast as", settings.LEVEL, "seconds", 1)
ITERATIONS = Cost("iterations", "fewer iterations", "needs as many iterations as", 0.0, "iterations", 0)


def _verdict(count: int, total: int) -> str:
    """The verdict on a claim about all: it holds in part if it holds in at least half."""
    return HOLDS if count == total else PARTLY if 2 * count >= total else FAILS


# ---------------------------------------------------------------------- the proposed methods and the others


def _ahead_on_cases(results: Results, cost: Cost) -> Claim:
    text = f"Synthetic data: AManPGC and ManPGC need {cost.less} than every other method, in all cases."
    where = f"of {{}}, compared at a relative difference of {settings.JUDGED:.0e}"
    return _ahead(text, cost, results.cases, ("in", "case"), where, _in_cases)


def _ahead_on_videos(results: Results, share: float, cost: Cost) -> Claim:
    what = "run the fastest of all" if cost is TIME else "need the fewest iterations"
    text = f"Video, {share:.0%} of the pixels: AManPGC and ManPGC {what}."
    return _ahead(text, cost, _scenes(results, share), ("on", "video"), "of {}", _on_videos)


def _ahead(
    text: str, cost: Cost, tested: Places, nouns: tuple[str, str], where: str, at: Callable[[list[Any], int], str]
) -> Claim:
    """Whether both proposed methods are ahead of all others everywhere."""
    places = [place for place in tested if _both(place.runs) and _others(place.runs)]
    if not places:
        return Claim(text, UNTESTED, _missing(tested))
    found = _Comparison()
    useless: dict[str, list[str]] = {}
    for place in places:
        pairs = []
        for other in _others(place.runs):
            results = [cost.compare(cost.of(place, own), cost.of(place, other)) for own in settings.PROPOSED]
            if (poor := place.poor_quality(other)) and results != [AHEAD] * len(results):
                useless.setdefault(other, []).append(poor)
            else:
                pairs += [(other, own, result) for own, result in zip(settings.PROPOSED, results, strict=True)]
        found.add(place.place, pairs)
    total = pluralize(len(places), nouns[1])
    reason = [f"Both are ahead of {_names(places)} {nouns[0]} {found.ahead} {where.format(total)}.", cost.caveat]
    reason += found.sentences(cost, lambda where: at(where, len(places)))
    if cost is TIME:
        reason += [_explain_time(places, other) for other in filter(found.any_level, settings.BASELINES)]
    reason += _not_reached([place for place in places if isinstance(place, CaseResults)])
    reason += [
        f"{label(other)} ends no later on {join_words(where)}, but its picture is not good, so this does not count."
        for other, where in useless.items()
    ]
    notes = [(other, place.selected[other].get("note")) for place in places for other in _others(place.runs)]
    reason += [f"{label(method)} ran with {note}." for method, note in dict.fromkeys(notes) if note]
    return Claim(text, _verdict(found.ahead, len(places)), " ".join(filter(None, reason)))


class _Comparison:
    """Which of the other methods are level with the proposed ones or ahead, and where."""

    def __init__(self) -> None:
        self.ahead = 0  # cases or videos where both proposed methods are ahead of all others
        self.where: dict[tuple[str, str, str], list[Any]] = {}

    def add(self, place: Any, pairs: Sequence[tuple[str, str, str]]) -> None:
        """Add a case or video: tuples of the other method, the proposed one, and how that compares."""
        self.ahead += all(result == AHEAD for *_, result in pairs)
        for pair in pairs:
            self.where.setdefault(pair, []).append(place)

    def any_level(self, other: str) -> bool:
        """Whether another method is level or ahead somewhere."""
        return any((other, own, result) in self.where for own in settings.PROPOSED for result in (LEVEL, BEHIND))

    def sentences(self, cost: Cost, at: Callable[[list[Any]], str]) -> list[str]:
        """One for each other method that is level or ahead."""
        sentences = []
        for other in settings.BASELINES:
            for result, verb, joint in ((BEHIND, f"needs {cost.less} than", "than"), (LEVEL, cost.equal, "as")):
                parts = [
                    f"{label(own)} {at(self.where[other, own, result])}"
                    for own in settings.PROPOSED
                    if (other, own, result) in self.where
                ]
                if parts:
                    sentences.append(f"{label(other)} {verb} {f' and {joint} '.join(parts)}.")
        return sentences


def _missing(
    several: Sequence[object], what: str = "It needs both methods and at least one of those they are compared with."
) -> str:
    return what if several else "This part was not run."


def _both(runs: Mapping[str, Any]) -> bool:
    return all(method in runs for method in settings.PROPOSED)


def _others(runs: Mapping[str, Any]) -> list[str]:
    return [method for method in settings.BASELINES if method in runs]


def _names(several: Places) -> str:
    return join_words(label(method) for method in settings.BASELINES if any(method in one.runs for one in several))


def _in_cases(where: Sequence[int], total: int) -> str:
    if len(where) == total:
        return "in all of them" if total > 1 else "in the only case"
    return f"in case{'' if len(where) == 1 else 's'} {join_ranges(where)}"


def _on_videos(where: Sequence[str], total: int) -> str:
    if len(where) == total:
        return "on all of them" if total > 1 else "on the only one"
    return f"on {join_words(where)}"


def _times(factor: float) -> str:
    return "about as much" if 0.95 < factor < 1.05 else f"{factor:.2g} times as much"


def _ratios(places: Places, method: str, other: str) -> tuple[float, float] | None:
    """Medians of the iterations of a method, and of the time of one, over those of another."""
    both = [(place.reached(method), place.reached(other)) for place in places]
    pairs = [(one, two) for one, two in both if one and two]
    if not pairs:
        return None
    iterations = statistics.median(one[0] / two[0] for one, two in pairs)
    return iterations, statistics.median(one[1] / one[0] / (two[1] / two[0]) for one, two in pairs)


def _explain_time(places: Places, other: str) -> str:
    ratios = _ratios(places, other, "amanpgc")
    if ratios is None:
        return ""
    iterations, price = ratios
    conjunction = "but" if (iterations > 1) != (price > 1) else "and"
    return (
        f"{label(other)} takes {iterations:.2g} times the iterations of AManPGC, {conjunction} one of them costs "
        f"{_times(price)} (medians)."
    )


def _not_reached(cases: Sequence[CaseResults]) -> list[str]:
    reason = []
    for method in settings.COMPARED:
        short = [case for case in cases if method in case.runs and case.reached(method) is None]
        if short:
            records = [case.selected.get(method) for case in short]
            ends = [min(record["error"]) for record in records if record is not None]
            where = _in_cases([case.number for case in short], len(cases))
            reason.append(
                f"{label(method)} does not reach {settings.JUDGED:.0e} {where}, and ends at {_span(ends)} there."
            )
    return reason


def _span(numbers: Sequence[float], form: str = ".1e") -> str:
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def _alternating_is_better(results: Results) -> Claim:
    text = "Synthetic data: in most cases AManPGC performs better than ManPGC."
    cases = [case for case in results.cases if _both(case.runs)]
    if not cases:
        return Claim(text, UNTESTED, _missing(results.cases, "It needs both methods."))

    def wins(cost: Cost) -> int:
        return sum(cost.compare(cost.of(case, "amanpgc"), cost.of(case, "manpgc")) == AHEAD for case in cases)

    time, iterations = wins(TIME), wins(ITERATIONS)
    most = sum(2 * count > len(cases) for count in (time, iterations))
    reason = (
        f"To a relative difference of {settings.JUDGED:.0e} it needs less time in {time} and fewer iterations in "
        f"{iterations} of {pluralize(len(cases), 'case')}. {TIME.caveat}"
    )
    if ratios := _ratios(cases, "amanpgc", "manpgc"):
        reason += f" It takes {ratios[0]:.2g} times the iterations, and one costs {_times(ratios[1])} (medians)."
    halved = sum(record["shortened"] for case in cases if (record := case.selected.get("manpgc")))
    if halved:
        reason += (
            f" The step was too long for ManPGC at times: our safeguard halved it {pluralize(halved, 'time')} in all."
        )
    return Claim(text, _verdict(most, 2), reason)


# ---------------------------------------------------------------------- videos


def _scenes(results: Results, share: float) -> list[SceneResults]:
    return [scene for scene in results.scenes if scene.share == share]


def _psnr(record: Record) -> float:
    return float(record["measures"]["psnr"])


def _quality(results: Results, share: float, bound: float, quality: str) -> Claim:
    text = f"Video, {share:.0%} of the pixels: the background that every method finds is {quality}."
    scenes = [scene for scene in _scenes(results, share) if scene.runs]
    methods = [method for method in settings.COMPARED if any(method in s.runs for s in scenes)]
    runs = [(scene, method) for scene in scenes for method in methods if method in scene.runs]
    if not runs:
        return Claim(text, UNTESTED, "No video was run.")
    bad = [(scene, method) for scene, method in runs if _psnr(scene.selected[method]) < bound]
    reason = (
        f"We read this as a PSNR of at least {bound:g} dB against the trusted background, mean over the frames: "
        f"reached in {len(runs) - len(bad)} of {pluralize(len(runs), 'run')}."
    )
    for scene in scenes:
        low = [method for one, method in bad if one is scene]
        if not low:
            continue
        values = [_psnr(scene.selected[method]) for method in low]
        who = "all methods" if len(low) == len([m for m in methods if m in scene.runs]) else join_words(map(label, low))
        frames = scene.clip.untouched["psnr"]
        reason += f" {scene.clip.title}: {who} below it, with {_span(values, '.1f')} dB; the frames have {frames:.1f}."
    return Claim(text, _verdict(len(runs) - len(bad), len(runs)), reason)


def _fewer_pixels(results: Results, cost: Cost) -> Claim:
    text = f"Video: with 10% instead of 50% of the pixels every method needs {cost.less}."
    tables = settings.PRINTED_TABLES.values()
    printed = [(table[0.1].of(method), table[0.5].of(method)) for table in tables for method in settings.COMPARED]
    count = sum(few[1 - cost.index] < many[1 - cost.index] for few, many in printed if few and many)
    paper = (
        f"In the paper's own tables {cost.name} fall{'s' if cost is TIME else ''} in {count} of {len(printed)} pairs."
    )
    half = {scene.clip.name: scene for scene in _scenes(results, 0.5)}
    pairs: dict[str, list[str]] = {}  # by method, how runs with fewer pixels compare
    for tenth in _scenes(results, 0.1):
        for method in settings.COMPARED:
            for few in tenth.runs.get(method, []):
                for many in half[tenth.clip.name].runs.get(method, []) if tenth.clip.name in half else []:
                    if few["description"] == many["description"]:
                        pairs.setdefault(method, []).append(cost.compare(few[cost.key], many[cost.key]))
    if not pairs:
        return Claim(text, UNTESTED, f"It needs runs with both. {paper}")
    every = [comparison for comparisons in pairs.values() for comparison in comparisons]
    good, same = every.count(AHEAD), every.count(LEVEL)
    reason = [
        f"It does in {good} of {pluralize(len(every), 'pair')} of runs with the same parameters, equal in {same}."
    ]
    rising = [f"{label(m)} ({found.count(BEHIND)} of {len(found)})" for m, found in pairs.items() if BEHIND in found]
    if rising:
        reason.append(f"{'It rises' if cost is TIME else 'They rise'} for {join_words(rising)}.")
    return Claim(text, _verdict(good, len(every)), " ".join(filter(None, [*reason, cost.caveat, paper])))


def _hall_within_a_second(results: Results) -> Claim:
    text = "Video: from partial observations the hall's background is found in less than a second."
    scenes = [scene for scene in _scenes(results, 0.1) if scene.clip.name == "hall"]
    runs = {method: scenes[0].selected[method] for method in settings.PROPOSED if scenes and method in scenes[0].runs}
    if not runs:
        return Claim(text, UNTESTED, "The video of the hall was not run.")
    printed = settings.PRINTED_TABLES["hall"][0.1]
    own = join_words(f"{record['seconds']:.2g} s by {label(method)}" for method, record in runs.items())
    theirs = join_words(f"{figures[0]:g} s" for method in runs if (figures := printed.of(method)))
    T, H, W = scenes[0].clip.frames.shape
    good = sum(record["seconds"] < 1 for record in runs.values())
    reason = (
        f"{own} here, with {T} frames of {H} × {W} where the paper has 300 of 144 × 176; {theirs} in its table, from a "
        "tenth of the pixels. Another machine and another program: the seconds do not compare."
    )
    return Claim(text, _verdict(good, len(runs)), reason)


# ---------------------------------------------------------------------- our default, which the paper does not have


def compare_default(results: Results) -> str:
    """How our default compares with AManPGC, in sentences; "" if they were not both run."""
    both = (settings.OURS, "amanpgc")
    cases = [case for case in results.cases if all(method in case.runs for method in both)]
    scenes = [scene for scene in results.scenes if all(method in scene.runs for method in both)]
    return " ".join([*_default_on_cases(cases), *_default_on_videos(scenes)])


def _default_on_cases(cases: Sequence[CaseResults]) -> list[str]:
    if not cases:
        return []
    pairs = [(_with_start(case, settings.OURS), _with_start(case, "amanpgc")) for case in cases]
    ratios = [own / other for own, other in pairs if own and other]
    return [
        f"On the cases {label(settings.OURS)}, which the paper does not have, is ahead of AManPGC in "
        f"{sum(TIME.compare(*pair) == AHEAD for pair in pairs)} of {len(cases)}, including the start of both"
        + (f": it takes {_span(ratios, '.2g')} times as long." if ratios else ".")
    ]


def _with_start(case: CaseResults, method: str) -> float | None:
    """Seconds to the relative difference judged by, including the start."""
    there, record = case.reached(method), case.selected.get(method)
    return there[1] + float(record["start_seconds"]) if there and record else None


def _default_on_videos(scenes: Sequence[SceneResults]) -> list[str]:
    if not scenes:
        return []
    pairs = [(scene, scene.selected[settings.OURS], scene.selected["amanpgc"]) for scene in scenes]
    seconds = [[record["seconds"] + record["start_seconds"] for record in pair[1:]] for pair in pairs]
    ratios = [own / other for own, other in seconds]
    reason = [
        f"On the videos {label(settings.OURS)}, which has its own stopping criterion, takes {_span(ratios, '.2g')} "
        "times as long as AManPGC, including the start of both."
    ]
    gains = [_psnr(own) - _psnr(other) for scene, own, other in pairs if not scene.clip.truth_is_known]
    if gains:
        better, worse = (sum(sign * gain > settings.AS_GOOD for gain in gains) for sign in (1, -1))
        reason.append(
            f"Against the median of the frames its background is better by more than {settings.AS_GOOD:g} dB in "
            f"{better} and worse by more than that in {worse} of {pluralize(len(gains), 'run')}; the median is a still "
            "picture, and what moves in a background counts as an error there."
        )
    known = [
        f"{scene.title} {_psnr(own):.1f} against {_psnr(other):.1f} dB"
        for scene, own, other in pairs
        if scene.clip.truth_is_known
    ]
    known += [
        f"{scene.title} F1 of the foreground in {pluralize(len(scene.clip.masks), 'frame')} "
        f"{own['measures']['f1']:.2f} against {other['measures']['f1']:.2f}"
        for scene, own, other in pairs
        if "f1" in own["measures"] and "f1" in other["measures"]
    ]
    if known:
        reason.append(f"Where the truth is known, Ladder against AManPGC: {'; '.join(known)}.")
    unfinished = [
        f"{label(method)} on {scene.title}: {record['status']} after {pluralize(record['iterations'], 'iteration')}"
        for scene, *records in pairs
        for method, record in zip((settings.OURS, "amanpgc"), records, strict=True)
        if record["status"] != "converged"
    ]
    if unfinished:
        reason.append(f"Not converged, {'; '.join(unfinished)}.")
    return reason
