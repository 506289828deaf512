"""The paper's claims, judged by what was run: every verdict and every sentence is computed from the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import settings
from .jobs import Record
from .results import CaseResults, Results, SceneResults, label, listed, spans

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
    of_case: Callable[[CaseResults, str], float | None]
    of_scene: Callable[[SceneResults, str], float]
    of_paper: int  # its place in what `Printed.of` gives


TIME = Cost(
    "time",
    "less time",
    lambda case, method: (there := case.reached(method)) and there[1],
    lambda scene, method: float(scene.runs[method]["seconds"]),
    0,
)
ITERATIONS = Cost(
    "iterations",
    "fewer iterations",
    lambda case, method: (there := case.reached(method)) and there[0],
    lambda scene, method: float(scene.runs[method]["iterations"]),
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
    ahead = 0
    behind: dict[tuple[str, str], list[int]] = {}
    for case in cases:
        lost = []
        for proposed in settings.PROPOSED:
            own = cost.of_case(case, proposed)
            for other in _others(case.runs):
                theirs = cost.of_case(case, other)
                if own is None or (theirs is not None and theirs <= own):
                    lost.append((other, proposed))
        ahead += not lost
        for pair in lost:
            behind.setdefault(pair, []).append(case.number)
    said = [
        f"Compared at a relative difference of {settings.JUDGED:.0e}, both are ahead of {_names(cases)} in {ahead} of "
        f"{_count(len(cases), 'case')}."
    ]
    said += _who_is_ahead(behind, cost, len(cases))
    if cost is TIME:
        said += [_why(cases, other) for other in settings.BASELINES if any(pair[0] == other for pair in behind)]
    said += _never_there(cases)
    said += _notes([(other, record) for case in cases for other in _others(case.runs) if (record := case.best(other))])
    return Claim(text, _verdict(ahead, len(cases)), " ".join(filter(None, said)))


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


def _who_is_ahead(behind: dict[tuple[str, str], list[int]], cost: Cost, total: int) -> list[str]:
    said = []
    for other in settings.BASELINES:
        parts = [
            f"{label(proposed)} in {_in_cases(behind[other, proposed], total)}"
            for proposed in settings.PROPOSED
            if (other, proposed) in behind
        ]
        if parts:
            said.append(f"{label(other)} needs no more {cost.name} than {' and than '.join(parts)}.")
    return said


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
        pairs = ((cost.of_case(case, "amanpgc"), cost.of_case(case, "manpgc")) for case in cases)
        return sum(own is not None and (other is None or own < other) for own, other in pairs)

    time, iterations = wins(TIME), wins(ITERATIONS)
    most = sum(2 * count > len(cases) for count in (time, iterations))
    reason = (
        f"To a relative difference of {settings.JUDGED:.0e} it needs less time in {time} and fewer iterations in "
        f"{iterations} of {_count(len(cases), 'case')}."
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
    bad = [(scene, method) for scene, method in runs if _psnr(scene.runs[method]) < bound]
    reason = (
        f"We read this as a PSNR of at least {bound:g} dB against the trusted background, mean over the frames: so in "
        f"{len(runs) - len(bad)} of {_count(len(runs), 'run')}."
    )
    for scene in scenes:
        low = [method for one, method in bad if one is scene]
        if not low:
            continue
        values = [_psnr(scene.runs[method]) for method in low]
        who = "all methods" if len(low) == len([m for m in methods if m in scene.runs]) else listed(map(label, low))
        frames = scene.clip.untouched["psnr"]
        reason += f" {scene.clip.title}: {who} below it, with {_span(values, '.1f')} dB; the frames have {frames:.1f}."
    return Claim(text, _verdict(len(runs) - len(bad), len(runs)), reason)


def _usable(scene: SceneResults, method: str) -> bool:
    """Whether a result can count as one: good, or at least about as good as AManPGC's."""
    return _psnr(scene.runs[method]) >= min(settings.GOOD, _psnr(scene.runs["amanpgc"]) - settings.AS_GOOD)


def _ahead_on_videos(results: Results, share: float, cost: Cost) -> Claim:
    what = "run the fastest of all" if cost is TIME else "need the fewest iterations"
    text = f"Video, {share:.0%} of the pixels: AManPGC and ManPGC {what}."
    scenes = [scene for scene in _scenes(results, share) if _both(scene.runs) and _others(scene.runs)]
    if not scenes:
        return Claim(text, UNTESTED, _missing(_scenes(results, share)))
    ahead = 0
    behind: dict[tuple[str, str], list[str]] = {}
    useless: dict[str, list[str]] = {}
    for scene in scenes:
        lost = []
        for other in _others(scene.runs):
            pairs = [
                (other, own) for own in settings.PROPOSED if cost.of_scene(scene, other) < cost.of_scene(scene, own)
            ]
            if pairs and not _usable(scene, other):
                useless.setdefault(other, []).append(f"{scene.clip.title} ({_psnr(scene.runs[other]):.1f} dB)")
            else:
                lost += pairs
        ahead += not lost
        for pair in lost:
            behind.setdefault(pair, []).append(scene.clip.title)
    said = [f"Both are ahead of {_names(scenes)} on {ahead} of {_count(len(scenes), 'video')}."]
    for other in settings.BASELINES:
        parts = [
            f"{label(own)} on {_on_videos(behind[other, own], len(scenes))}"
            for own in settings.PROPOSED
            if (other, own) in behind
        ]
        if parts:
            said.append(f"{label(other)} needs {cost.less} than {' and than '.join(parts)}.")
            said += [_price(scenes, other)] if cost is TIME else []
    said += [
        f"{label(other)} ends sooner on {listed(where)}, with a picture that is not good, which does not count."
        for other, where in useless.items()
    ]
    said += _notes([(other, scene.runs[other]) for scene in scenes for other in _others(scene.runs)])
    return Claim(text, _verdict(ahead, len(scenes)), " ".join(filter(None, said)))


def _price(scenes: Sequence[SceneResults], other: str) -> str:
    more, price = [], []
    for scene in scenes:
        if other in scene.runs:
            own, theirs = scene.runs["amanpgc"], scene.runs[other]
            more.append(theirs["iterations"] / own["iterations"])
            price.append(theirs["seconds"] / theirs["iterations"] / (own["seconds"] / own["iterations"]))
    return (
        f"It takes {statistics.median(more):.2g} times the iterations of AManPGC, and one costs "
        f"{_times(statistics.median(price))} (medians)."
    )


def _fewer_pixels(results: Results, cost: Cost) -> Claim:
    text = f"Video: with 10% instead of 50% of the pixels every method needs less {cost.name}."
    if cost is ITERATIONS:
        text = text.replace("less", "fewer")
    printed = [
        (table[0.1].of(method), table[0.5].of(method))
        for table in settings.PRINTED_TABLES.values()
        for method in (*settings.PROPOSED, *settings.BASELINES)
    ]
    there = sum(few[cost.of_paper] < many[cost.of_paper] for few, many in printed if few and many)
    paper = (
        f"In the paper's own tables {cost.name} fall{'s' if cost is TIME else ''} in {there} of {len(printed)} pairs."
    )
    half = {scene.clip.name: scene for scene in _scenes(results, 0.5)}
    pairs = [
        (cost.of_scene(tenth, method), cost.of_scene(half[tenth.clip.name], method), method)
        for tenth in _scenes(results, 0.1)
        if tenth.clip.name in half
        for method in (*settings.PROPOSED, *settings.BASELINES)
        if method in tenth.runs and method in half[tenth.clip.name].runs
    ]
    if not pairs:
        return Claim(text, UNTESTED, f"It needs runs with both. {paper}")
    good = sum(few < many for few, many, _ in pairs)
    reason = f"So in {good} of {len(pairs)} pairs of runs. {paper}"
    rising = {label(method) for few, many, method in pairs if few > many}
    if rising and cost is ITERATIONS:
        reason += f" They rise for {listed(sorted(rising))}: fewer entries determine L less well, and steps gain less."
    elif rising:
        reason += f" It rises for {listed(sorted(rising))}, where more iterations outweigh the fewer entries."
    return Claim(text, _verdict(good, len(pairs)), reason)


def _hall_within_a_second(results: Results) -> Claim:
    text = "Video: from partial observations the hall's background is found in less than a second."
    scenes = [scene for scene in _scenes(results, 0.1) if scene.clip.name == "hall"]
    runs = {method: scenes[0].runs[method] for method in settings.PROPOSED if scenes and method in scenes[0].runs}
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
    name, said = label(settings.OURS), []
    ratios = [
        own[1] / other[1]
        for case in results.cases
        if (own := case.reached(settings.OURS)) and (other := case.reached("amanpgc"))
    ]
    tried = [case for case in results.cases if settings.OURS in case.runs and "amanpgc" in case.runs]
    if tried:
        said.append(
            f"On the cases {name}, which the paper does not have, is ahead of AManPGC in "
            f"{sum(ratio < 1 for ratio in ratios)} of {len(tried)}, its own start included"
            + (f": it takes {_span(ratios, '.2g')} times as long." if ratios else ".")
        )
    scenes = [scene for scene in results.scenes if settings.OURS in scene.runs and "amanpgc" in scene.runs]
    if scenes:
        times = [TIME.of_scene(scene, settings.OURS) / TIME.of_scene(scene, "amanpgc") for scene in scenes]
        gains = [_psnr(scene.runs[settings.OURS]) - _psnr(scene.runs["amanpgc"]) for scene in scenes]
        better, worse = (sum(sign * gain > settings.AS_GOOD for gain in gains) for sign in (1, -1))
        said.append(
            f"On the videos it takes {_span(times, '.2g')} times as long, and its background is better by more than "
            f"{settings.AS_GOOD:g} dB in {better} and worse by more than that in {worse} of "
            f"{_count(len(scenes), 'run')}."
        )
        if worse > better:
            said.append(
                "It fits the rank-2 problem to the end, and stopping early serves a background better: on video "
                "AManPGC is the one to take."
            )
    return " ".join(said)
