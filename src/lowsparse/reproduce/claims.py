"""The paper's claims, judged by what was run: every verdict and every sentence is computed from the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import settings
from .jobs import Record
from .results import (
    CaseResults,
    Results,
    SceneResults,
    label,
    listed,
    spans,
)

__all__ = ["Claim", "about_ours", "judge"]

HOLDS, PARTLY, FAILS, UNTESTED = "holds", "holds in part", "does not hold", "not tested"


@dataclass(frozen=True)
class Claim:
    """What the paper says, whether it is so here, and why."""

    text: str
    verdict: str
    reason: str


def judge(results: Results) -> list[Claim]:
    """Judge every claim of the numerical section.

    >>> judge(Results(quick=True, command="", machine={}, methods=()))[0].verdict
    'not tested'
    """
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
    """What is compared: time or iterations."""

    name: str
    less: str
    equal: str  # as a verb has it
    level: float  # the share by which two may differ and still be taken for equal
    of_case: Callable[[CaseResults, str], float | None]
    of_run: Callable[[Record], float]  # on a video
    of_paper: int  # its place in what `Printed.of` gives

    def of_scene(self, scene: SceneResults, method: str) -> float:
        """Of the run that counts."""
        return self.of_run(scene.counting[method])

    def compare(self, own: float | None, theirs: float | None) -> str:
        """Whether `own` is less, and ahead; None was not reached, and "" is neither, as both were not.

        >>> TIME.compare(0.85, 1.0), TIME.compare(1.05, 1.0), TIME.compare(1.2, 1.0), TIME.compare(1.2, None)
        ('ahead', 'level', 'behind', 'ahead')
        >>> ITERATIONS.compare(99, 100), ITERATIONS.compare(100, 100)
        ('ahead', 'level')
        """
        if own is None or theirs is None:
            return AHEAD if own is not None else BEHIND if theirs is not None else ""
        if own < (1 - self.level) * theirs:
            return AHEAD
        return BEHIND if own > (1 + self.level) * theirs else LEVEL

    @property
    def caveat(self) -> str:
        """What counts as equal, if it is not what is equal."""
        return f"Times within {self.level:.0%} of each other are taken for equal." if self.level else ""


AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"

TIME = Cost(
    "time",
    "less time",
    "is about as fast as",
    settings.LEVEL,
    lambda case, method: (there := case.reached(method)) and there[1],
    lambda record: float(record["seconds"]),
    0,
)
ITERATIONS = Cost(
    "iterations",
    "fewer iterations",
    "needs as many iterations as",
    0.0,
    lambda case, method: (there := case.reached(method)) and there[0],
    lambda record: float(record["iterations"]),
    1,
)


def _verdict(good: int, all_: int) -> str:
    """Of a claim about all of them: it holds in part if it does in at least half."""
    return HOLDS if good == all_ else PARTLY if 2 * good >= all_ else FAILS


# ---------------------------------------------------------------------- synthetic cases


def _ahead_on_cases(results: Results, cost: Cost) -> Claim:
    text = f"Synthetic data: AManPGC and ManPGC need less {cost.name} than every other method, in all cases."
    if cost is ITERATIONS:
        text = text.replace("less", "fewer")
    cases = [case for case in results.cases if _both(case.runs) and _others(case.runs)]
    if not cases:
        return Claim(text, UNTESTED, _missing(results.cases))
    found = _Found()
    for case in cases:
        pairs = [
            (other, own, cost.compare(cost.of_case(case, own), cost.of_case(case, other)))
            for own in settings.PROPOSED
            for other in _others(case.runs)
        ]
        found.add(case.number, pairs)
    said = [
        f"Compared at a relative difference of {settings.JUDGED:.0e}, both are ahead of {_names(cases)} in "
        f"{found.ahead} of {_count(len(cases), 'case')}.",
        cost.caveat,
    ]
    said += found.sentences(cost, lambda where: f"in {_in_cases(where, len(cases))}")
    if cost is TIME:
        said += [_why(cases, other) for other in settings.BASELINES if found.has(other)]
    said += _never_there(cases)
    said += _notes([(other, record) for case in cases for other in _others(case.runs) if (record := case.best(other))])
    return Claim(text, _verdict(found.ahead, len(cases)), " ".join(filter(None, said)))


class _Found:
    """Which of the other methods are level with the proposed ones or better, and where."""

    def __init__(self) -> None:
        self.ahead = 0  # how often both proposed methods are ahead of all
        self.where: dict[tuple[str, str, str], list[Any]] = {}

    def add(self, place: Any, pairs: Sequence[tuple[str, str, str]]) -> None:
        """Of one case or video: the other method, the proposed one, and how that one stands."""
        self.ahead += all(stands == AHEAD for *_, stands in pairs)
        for pair in pairs:
            self.where.setdefault(pair, []).append(place)

    def has(self, other: str) -> bool:
        return any((other, own, stands) in self.where for own in settings.PROPOSED for stands in (LEVEL, BEHIND))

    def sentences(self, cost: Cost, at: Callable[[list[Any]], str]) -> list[str]:
        said = []
        for other in settings.BASELINES:
            for stands, verb, joint in ((BEHIND, f"needs {cost.less} than", "than"), (LEVEL, cost.equal, "as")):
                parts = [
                    f"{label(own)} {at(self.where[other, own, stands])}"
                    for own in settings.PROPOSED
                    if (other, own, stands) in self.where
                ]
                if parts:
                    said.append(f"{label(other)} {verb} {f' and {joint} '.join(parts)}.")
        return said


def _missing(
    several: Sequence[object], what: str = "It needs both methods and at least one of those they are compared with."
) -> str:
    return what if several else "This part was not run."


def _both(runs: Mapping[str, Any]) -> bool:
    return all(method in runs for method in settings.PROPOSED)


def _others(runs: Mapping[str, Any]) -> list[str]:
    return [method for method in settings.BASELINES if method in runs]


def _names(several: Sequence[CaseResults] | Sequence[SceneResults]) -> str:
    return listed(label(method) for method in settings.BASELINES if any(method in one.runs for one in several))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _in_cases(where: Sequence[int], total: int) -> str:
    if len(where) == total:
        return "all of them" if total > 1 else "the only case"
    return f"case{'' if len(where) == 1 else 's'} {spans(where)}"


def _on_videos(where: Sequence[str], total: int) -> str:
    if len(where) == total:
        return "all of them" if total > 1 else "the only one"
    return listed(where)


def _times(factor: float) -> str:
    """
    >>> _times(0.42), _times(1.04)
    ('0.42 times as much', 'about as much')
    """
    return "about as much" if 0.95 < factor < 1.05 else f"{factor:.2g} times as much"


def _why(cases: Sequence[CaseResults], other: str) -> str:
    """Iterations against the price of one."""
    more, price = [], []
    for case in cases:
        own, theirs = case.reached("amanpgc"), case.reached(other)
        if own and theirs:
            more.append(theirs[0] / own[0])
            price.append(theirs[1] / theirs[0] / (own[1] / own[0]))
    if not more:
        return ""
    iterations, one = statistics.median(more), statistics.median(price)
    joined = "but" if (iterations > 1) != (one > 1) else "and"
    return (
        f"{label(other)} takes {iterations:.2g} times the iterations of AManPGC, {joined} one of them costs "
        f"{_times(one)} (medians)."
    )


def _notes(counting: Sequence[tuple[str, Record]]) -> list[str]:
    """What has to be said about the parameters of the runs that count."""
    notes = dict.fromkeys((method, record["note"]) for method, record in counting if record.get("note"))
    return [f"{label(method)} ran with {note}." for method, note in notes]


def _never_there(cases: Sequence[CaseResults]) -> list[str]:
    said = []
    for method in (*settings.PROPOSED, *settings.BASELINES):
        short = [case for case in cases if method in case.runs and case.reached(method) is None]
        if short:
            records = [case.best(method) for case in short]
            ends = [min(record["error"]) for record in records if record is not None]
            where = _in_cases([case.number for case in short], len(cases))
            said.append(
                f"{label(method)} does not reach {settings.JUDGED:.0e} in {where}, and ends at {_span(ends)} there."
            )
    return said


def _span(numbers: Sequence[float], form: str = ".1e") -> str:
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def _alternating_is_better(results: Results) -> Claim:
    text = "Synthetic data: in most cases AManPGC performs better than ManPGC."
    cases = [case for case in results.cases if _both(case.runs)]
    if not cases:
        return Claim(text, UNTESTED, _missing(results.cases, "It needs both methods."))

    def wins(cost: Cost) -> int:
        return sum(cost.compare(cost.of_case(c, "amanpgc"), cost.of_case(c, "manpgc")) == AHEAD for c in cases)

    time, iterations = wins(TIME), wins(ITERATIONS)
    most = sum(2 * count > len(cases) for count in (time, iterations))
    reason = (
        f"To a relative difference of {settings.JUDGED:.0e} it needs less time in {time} and fewer iterations in "
        f"{iterations} of {_count(len(cases), 'case')}. {TIME.caveat}"
    )
    ratios = [
        (own[0] / other[0], own[1] / own[0] / (other[1] / other[0]))
        for case in cases
        if (own := case.reached("amanpgc")) and (other := case.reached("manpgc"))
    ]
    if ratios:
        fewer, price = (statistics.median(column) for column in zip(*ratios, strict=True))
        reason += f" It takes {fewer:.2g} times the iterations, and one costs {_times(price)} (medians)."
    halved = sum(record["shortened"] for case in cases if (record := case.best("manpgc")))
    if halved:
        reason += (
            f" The step was too long for ManPGC at times: our safeguard halved it {_count(halved, 'time')} in all."
        )
    return Claim(text, _verdict(most, 2), reason)


# ---------------------------------------------------------------------- videos


def _scenes(results: Results, share: float) -> list[SceneResults]:
    return [scene for scene in results.scenes if scene.share == share]


def _psnr(record: Record) -> float:
    return float(record["measures"]["psnr"])


def _quality(results: Results, share: float, bound: float, words: str) -> Claim:
    text = f"Video, {share:.0%} of the pixels: the background that every method finds is {words}."
    scenes = [scene for scene in _scenes(results, share) if scene.runs]
    methods = [method for method in (*settings.PROPOSED, *settings.BASELINES) if any(method in s.runs for s in scenes)]
    runs = [(scene, method) for scene in scenes for method in methods if method in scene.runs]
    if not runs:
        return Claim(text, UNTESTED, "No video was run.")
    bad = [(scene, method) for scene, method in runs if _psnr(scene.counting[method]) < bound]
    reason = (
        f"We read this as a PSNR of at least {bound:g} dB against the trusted background, mean over the frames: so in "
        f"{len(runs) - len(bad)} of {_count(len(runs), 'run')} that count{'s' if len(runs) == 1 else ''}."
    )
    for scene in scenes:
        low = [method for one, method in bad if one is scene]
        if not low:
            continue
        values = [_psnr(scene.counting[method]) for method in low]
        who = "all methods" if len(low) == len([m for m in methods if m in scene.runs]) else listed(map(label, low))
        frames = scene.clip.untouched["psnr"]
        reason += f" {scene.clip.title}: {who} below it, with {_span(values, '.1f')} dB; the frames have {frames:.1f}."
    return Claim(text, _verdict(len(runs) - len(bad), len(runs)), reason)


def _ahead_on_videos(results: Results, share: float, cost: Cost) -> Claim:
    what = "run the fastest of all" if cost is TIME else "need the fewest iterations"
    text = f"Video, {share:.0%} of the pixels: AManPGC and ManPGC {what}."
    scenes = [scene for scene in _scenes(results, share) if _both(scene.runs) and _others(scene.runs)]
    if not scenes:
        return Claim(text, UNTESTED, _missing(_scenes(results, share)))
    found = _Found()
    useless: dict[str, list[str]] = {}
    for scene in scenes:
        pairs = []
        for other in _others(scene.runs):
            stands = [cost.compare(cost.of_scene(scene, own), cost.of_scene(scene, other)) for own in settings.PROPOSED]
            psnr = _psnr(scene.counting[other])
            if psnr < scene.enough and stands != [AHEAD] * len(stands):
                useless.setdefault(other, []).append(f"{scene.clip.title} ({psnr:.1f} dB)")
            else:
                pairs += [(other, own, how) for own, how in zip(settings.PROPOSED, stands, strict=True)]
        found.add(scene.clip.title, pairs)
    said = [
        f"Both are ahead of {_names(scenes)} on {found.ahead} of {_count(len(scenes), 'video')}.",
        cost.caveat,
    ]
    said += found.sentences(cost, lambda where: f"on {_on_videos(where, len(scenes))}")
    if cost is TIME:
        said += [_price(scenes, other) for other in settings.BASELINES if found.has(other)]
    said += [
        f"{label(other)} ends no later on {listed(where)}, with a picture that is not good, which does not count."
        for other, where in useless.items()
    ]
    said += _notes([(other, scene.counting[other]) for scene in scenes for other in _others(scene.runs)])
    return Claim(text, _verdict(found.ahead, len(scenes)), " ".join(filter(None, said)))


def _price(scenes: Sequence[SceneResults], other: str) -> str:
    more, price = [], []
    for scene in scenes:
        if other in scene.runs:
            own, theirs = scene.counting["amanpgc"], scene.counting[other]
            more.append(theirs["iterations"] / own["iterations"])
            price.append(theirs["seconds"] / theirs["iterations"] / (own["seconds"] / own["iterations"]))
    return (
        f"{label(other)} takes {statistics.median(more):.2g} times the iterations of AManPGC, and one costs "
        f"{_times(statistics.median(price))} (medians)."
    )


def _fewer_pixels(results: Results, cost: Cost) -> Claim:
    text = f"Video: with 10% instead of 50% of the pixels every method needs less {cost.name}."
    if cost is ITERATIONS:
        text = text.replace("less", "fewer")
    methods = (*settings.PROPOSED, *settings.BASELINES)
    printed = [
        (table[0.1].of(method), table[0.5].of(method))
        for table in settings.PRINTED_TABLES.values()
        for method in methods
    ]
    there = sum(few[cost.of_paper] < many[cost.of_paper] for few, many in printed if few and many)
    paper = (
        f"In the paper's own tables {cost.name} fall{'s' if cost is TIME else ''} in {there} of {len(printed)} pairs."
    )
    half = {scene.clip.name: scene for scene in _scenes(results, 0.5)}
    pairs: dict[str, list[str]] = {}  # by method, how each run with fewer pixels stands
    for tenth in _scenes(results, 0.1):
        for method in methods:
            for few in tenth.runs.get(method, []):
                for many in half[tenth.clip.name].runs.get(method, []) if tenth.clip.name in half else []:
                    if few["words"] == many["words"]:
                        pairs.setdefault(method, []).append(cost.compare(cost.of_run(few), cost.of_run(many)))
    if not pairs:
        return Claim(text, UNTESTED, f"It needs runs with both. {paper}")
    every = [stands for stood in pairs.values() for stands in stood]
    good, same = every.count(AHEAD), every.count(LEVEL)
    said = [f"So in {good} of {_count(len(every), 'pair')} of runs with the same parameters, equal in {same}."]
    rising = [
        f"{label(method)} ({stood.count(BEHIND)} of {len(stood)})" for method, stood in pairs.items() if BEHIND in stood
    ]
    if rising:
        said.append(f"{'It rises' if cost is TIME else 'They rise'} for {listed(rising)}.")
    return Claim(text, _verdict(good, len(every)), " ".join(filter(None, [*said, cost.caveat, paper])))


def _hall_within_a_second(results: Results) -> Claim:
    text = "Video: from partial observations the hall's background is found in less than a second."
    scenes = [scene for scene in _scenes(results, 0.1) if scene.clip.name == "hall"]
    runs = {method: scenes[0].counting[method] for method in settings.PROPOSED if scenes and method in scenes[0].runs}
    if not runs:
        return Claim(text, UNTESTED, "The video of the hall was not run.")
    printed = settings.PRINTED_TABLES["hall"][0.1]
    own = listed(f"{record['seconds']:.2g} s by {label(method)}" for method, record in runs.items())
    theirs = listed(f"{figures[0]:g} s" for method in runs if (figures := printed.of(method)))
    T, H, W = scenes[0].clip.frames.shape
    good = sum(record["seconds"] < 1 for record in runs.values())
    reason = (
        f"{own} here, with {T} frames of {H} × {W} where the paper has 300 of 144 × 176; {theirs} in its table, from a "
        "tenth of the pixels. Another machine and another program: the seconds do not compare."
    )
    return Claim(text, _verdict(good, len(runs)), reason)


# ---------------------------------------------------------------------- our default, of which the paper says nothing


def about_ours(results: Results) -> str:
    """How our default compares with AManPGC, in words; "" if they were not both run."""
    both = (settings.OURS, "amanpgc")
    cases = [case for case in results.cases if all(method in case.runs for method in both)]
    scenes = [scene for scene in results.scenes if all(method in scene.runs for method in both)]
    return " ".join([*_ours_on_cases(cases), *_ours_on_videos(scenes)])


def _ours_on_cases(cases: Sequence[CaseResults]) -> list[str]:
    if not cases:
        return []
    pairs = [(_with_start(case, settings.OURS), _with_start(case, "amanpgc")) for case in cases]
    ratios = [own / other for own, other in pairs if own and other]
    return [
        f"On the cases {label(settings.OURS)}, which the paper does not have, is ahead of AManPGC in "
        f"{sum(TIME.compare(*pair) == AHEAD for pair in pairs)} of {len(cases)}, the start of both counted in"
        + (f": it takes {_span(ratios, '.2g')} times as long." if ratios else ".")
    ]


def _with_start(case: CaseResults, method: str) -> float | None:
    """Seconds to the difference judged by. Our default's own start is in them; to the others' it is added."""
    there, record = case.reached(method), case.best(method)
    return there[1] + float(record["start_seconds"]) if there and record else None


def _ours_on_videos(scenes: Sequence[SceneResults]) -> list[str]:
    if not scenes:
        return []
    pairs = [(scene, scene.counting[settings.OURS], scene.counting["amanpgc"]) for scene in scenes]
    seconds = [[record["seconds"] + record["start_seconds"] for record in pair[1:]] for pair in pairs]
    ratios = [own / other for own, other in seconds]
    said = [
        f"On the videos {label(settings.OURS)}, whose stopping rule is another, takes {_span(ratios, '.2g')} times as "
        "long as AManPGC, the start of both counted in."
    ]
    gains = [_psnr(own) - _psnr(other) for scene, own, other in pairs if not scene.clip.truth_is_known]
    if gains:
        better, worse = (sum(sign * gain > settings.AS_GOOD for gain in gains) for sign in (1, -1))
        said.append(
            f"Against the median of the frames its background is better by more than {settings.AS_GOOD:g} dB in "
            f"{better} and worse by more than that in {worse} of {_count(len(gains), 'run')}; the median is a still "
            "picture, and what moves in a background counts as an error there."
        )
    known = [
        f"{scene.title} {_psnr(own):.1f} against {_psnr(other):.1f} dB"
        for scene, own, other in pairs
        if scene.clip.truth_is_known
    ]
    known += [
        f"{scene.title} F1 of the foreground in {_count(len(scene.clip.masks), 'frame')} "
        f"{own['measures']['f1']:.2f} against {other['measures']['f1']:.2f}"
        for scene, own, other in pairs
        if "f1" in own["measures"] and "f1" in other["measures"]
    ]
    if known:
        said.append(f"Where the truth is known, Ladder against AManPGC: {'; '.join(known)}.")
    unfinished = [
        f"{label(method)} on {scene.title}: {record['status']} after {_count(record['iterations'], 'iteration')}"
        for scene, *records in pairs
        for method, record in zip((settings.OURS, "amanpgc"), records, strict=True)
        if record["status"] != "converged"
    ]
    if unfinished:
        said.append(f"Not converged, {'; '.join(unfinished)}.")
    return said
