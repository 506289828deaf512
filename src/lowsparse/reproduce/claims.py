"""Verdicts on the claims of the paper, and their reasons, computed from the results."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..support.format import join_ranges, join_words, pluralize
from . import settings
from .experiment import Experiment
from .results import Results
from .settings import Effort, label
from .synthetic import Case
from .video import Scene, effort, psnr

HOLDS, PARTLY, FAILS, UNTESTED = "holds", "holds in part", "does not hold", "not tested"
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
NOT_RUN = "This part was not run."
JUDGED = f"{settings.JUDGED:.0e}"
BOTH = frozenset(settings.PROPOSED)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the verdict on it, and the reason."""

    text: str
    verdict: str
    reason: str


Judgement = tuple[str, str]  # the verdict and the reason


@dataclass(frozen=True)
class Cost:
    """A quantity to compare: time or iterations."""

    key: str  # in `Effort`
    less: str
    equal: str  # with its verb, as are the next two
    falls: str
    rises: str
    level: float = 0.0  # relative difference of equal ones

    def compare(self, own: Effort | None, theirs: Effort | None) -> str:
        """Whether `own` is ahead (less), level or behind; None did not reach the goal, "" if both did not."""
        if own is None or theirs is None:
            return AHEAD if own is not None else BEHIND if theirs is not None else ""
        one, other = getattr(own, self.key), getattr(theirs, self.key)
        if one < (1 - self.level) * other:
            return AHEAD
        return BEHIND if one > (1 + self.level) * other else LEVEL

    @property
    def caveat(self) -> str:
        """A note on what counts as equal."""
        return f"Times within {self.level:.0%} of each other count as equal." if self.level else ""


TIME = Cost("seconds", "less time", "is about as fast as", "time falls", "It rises", settings.LEVEL)
ITERATIONS = Cost("iterations", "fewer iterations", "needs as many iterations as", "iterations fall", "They rise")


def judge(results: Results) -> list[Claim]:
    """Verdicts on all claims of the numerical section."""
    cases = results.cases
    half, tenth = ([scene for scene in results.scenes if scene.share == share] for share in (0.5, 0.1))
    both, background = "AManPGC and ManPGC", "the background that every method finds is"
    than_others = "than every other method, in all cases."
    fewer = "Video: with 10% instead of 50% of the pixels every method needs"
    judged = {
        f"Synthetic data: {both} need less time {than_others}": _ahead(cases, TIME),
        f"Synthetic data: {both} need fewer iterations {than_others}": _ahead(cases, ITERATIONS),
        "Synthetic data: in most cases AManPGC performs better than ManPGC.": _alternating_is_better(cases),
        f"Video, 50% of the pixels: {background} of very high quality.": _quality(half, settings.VERY_GOOD),
        f"Video, 50% of the pixels: {both} need the fewest iterations.": _ahead(half, ITERATIONS),
        f"Video, 50% of the pixels: {both} run the fastest of all.": _ahead(half, TIME),
        f"Video, 10% of the pixels: {background} good.": _quality(tenth, settings.GOOD),
        f"{fewer} less time.": _fewer_pixels(half, tenth, TIME),
        f"{fewer} fewer iterations.": _fewer_pixels(half, tenth, ITERATIONS),
        f"Video, 10% of the pixels: {both} run the fastest of all.": _ahead(tenth, TIME),
        "Video: from partial observations the hall's background is found in less than a second.": _hall(tenth),
    }
    return [Claim(text, *judgement) for text, judgement in judged.items()]


def _verdict(count: int, total: int) -> str:
    """The verdict on a claim about all: it holds in part if it holds in at least half."""
    return HOLDS if count == total else PARTLY if 2 * count >= total else FAILS


def _run_on(experiment: Experiment, methods: Iterable[str]) -> list[str]:
    return [method for method in methods if method in experiment.runs]


def _span(numbers: Sequence[float], form: str = ".1e") -> str:
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


# ---------------------------------------------------------------------- the proposed methods and the others


def _ahead(tested: Sequence[Experiment], cost: Cost) -> Judgement:
    """Whether both proposed methods are ahead of all others everywhere."""
    others = {one: _run_on(one, settings.BASELINES) for one in tested if one.runs.keys() >= BOTH}
    experiments = [one for one, methods in others.items() if methods]
    if not experiments:
        needs = "It needs both methods and at least one of those they are compared with."
        return UNTESTED, needs if tested else NOT_RUN
    found: dict[tuple[str, str, str], list[Experiment]] = defaultdict(list)  # by other method, proposed one, outcome
    poor: dict[str, list[str]] = defaultdict(list)  # by other method, the videos where its picture is not good
    ahead = 0
    for experiment in experiments:
        all_ahead = True
        for other in others[experiment]:
            outcomes = [cost.compare(experiment.reached(own), experiment.reached(other)) for own in settings.PROPOSED]
            if outcomes == [AHEAD] * len(outcomes) or not (quality := experiment.poor_quality(other)):
                for own, outcome in zip(settings.PROPOSED, outcomes, strict=True):
                    found[other, own, outcome].append(experiment)
                    all_ahead &= outcome == AHEAD
            else:
                poor[other].append(quality)
        ahead += all_ahead
    names = join_words(label(method) for method in settings.BASELINES if any(method in one.runs for one in experiments))
    where = f"on {ahead} of {pluralize(len(experiments), 'video')}"
    if isinstance(experiments[0], Case):
        where = f"in {ahead} of {pluralize(len(experiments), 'case')}, compared at a relative difference of {JUDGED}"
    reason = [f"Both are ahead of {names} {where}.", cost.caveat]
    reason += _not_ahead(found, cost, len(experiments))
    reason += _not_reached(experiments)
    reason += [
        f"{label(other)} ends no later on {join_words(videos)}, but its picture is not good, so this does not count."
        for other, videos in poor.items()
    ]
    notes = [(other, one.selected[other].get("note")) for one in experiments for other in others[one]]
    reason += [f"{label(method)} ran with {note}." for method, note in dict.fromkeys(notes) if note]
    return _verdict(ahead, len(experiments)), " ".join(filter(None, reason))


def _not_ahead(found: dict[tuple[str, str, str], list[Experiment]], cost: Cost, total: int) -> list[str]:
    """Sentences about the other methods that are ahead of the proposed ones, or level with them."""
    sentences = []
    for other in settings.BASELINES:
        for outcome, verb, joint in ((BEHIND, f"needs {cost.less} than", "than"), (LEVEL, cost.equal, "as")):
            parts = [
                f"{label(own)} {_where(experiments, total)}"
                for own in settings.PROPOSED
                if (experiments := found.get((other, own, outcome)))
            ]
            if parts:
                sentences.append(f"{label(other)} {verb} {f' and {joint} '.join(parts)}.")
    return sentences


def _where(experiments: Sequence[Experiment], total: int) -> str:
    """Some of the cases, or of the videos, in a sentence."""
    cases = [experiment.number for experiment in experiments if isinstance(experiment, Case)]
    videos = [experiment.clip.title for experiment in experiments if isinstance(experiment, Scene)]
    if total == 1:
        return "in the only case" if cases else "on the only one"
    if len(experiments) == total:
        return "in all of them" if cases else "on all of them"
    return f"in case{'s' if len(cases) > 1 else ''} {join_ranges(cases)}" if cases else f"on {join_words(videos)}"


def _not_reached(experiments: Sequence[Experiment]) -> list[str]:
    reason = []
    for method in settings.COMPARED:
        short = [one for one in experiments if method in one.runs and one.reached(method) is None]
        if short:
            ends, where = _span([min(one.selected[method]["error"]) for one in short]), _where(short, len(experiments))
            reason.append(f"{label(method)} does not reach {JUDGED} {where}, and ends at {ends} there.")
    return reason


def _alternating_is_better(tested: Sequence[Case]) -> Judgement:
    cases = [case for case in tested if case.runs.keys() >= BOTH]
    if not cases:
        return UNTESTED, "It needs both methods." if tested else NOT_RUN
    time, iterations = (
        sum(cost.compare(*map(case.reached, settings.PROPOSED)) == AHEAD for case in cases)
        for cost in (TIME, ITERATIONS)
    )
    most = sum(2 * count > len(cases) for count in (time, iterations))
    reason = (
        f"To a relative difference of {JUDGED} it needs less time in {time} and fewer iterations in "
        f"{iterations} of {pluralize(len(cases), 'case')}. {TIME.caveat}"
    )
    if halved := sum(case.selected["manpgc"]["shortened"] for case in cases):
        reason += (
            f" The step was too long for ManPGC at times: our safeguard halved it {pluralize(halved, 'time')} in all."
        )
    return _verdict(most, 2), reason


# ---------------------------------------------------------------------- videos


def _quality(scenes: Sequence[Scene], bound: float) -> Judgement:
    """Whether the PSNR of every method is at least the bound."""
    found = {one: {m: psnr(one.selected[m]) for m in _run_on(one, settings.COMPARED)} for one in scenes}
    total = sum(map(len, found.values()))
    if not total:
        return UNTESTED, "No video was run."
    good = 0
    details = ""
    for scene, values in found.items():
        low = {method: value for method, value in values.items() if value < bound}
        good += len(values) - len(low)
        if low:
            who = "all methods" if len(low) == len(values) else join_words(map(label, low))
            details += (
                f" {scene.clip.title}: {who} below it, with {_span(list(low.values()), '.1f')} dB; "
                f"the frames have {scene.clip.untouched['psnr']:.1f}."
            )
    reason = (
        f"We read this as a PSNR of at least {bound:g} dB against the trusted background, mean over the frames: "
        f"reached in {good} of {pluralize(total, 'run')}.{details}"
    )
    return _verdict(good, total), reason


def _fewer_pixels(half: Sequence[Scene], tenth: Sequence[Scene], cost: Cost) -> Judgement:
    """Whether the cost falls with the share of the pixels."""
    printed = [
        [getattr(table[share][method], cost.key) for share in (0.1, 0.5)]
        for table in settings.PRINTED_TABLES.values()
        for method in settings.COMPARED
    ]
    count = sum(few < many for few, many in printed)
    paper = f"In the paper's own tables {cost.falls} in {count} of {len(printed)} pairs."
    pairs: dict[str, list[str]] = defaultdict(list)  # by method, how runs with fewer pixels compare
    for few, many in ((few, many) for few in tenth for many in half if few.clip.name == many.clip.name):
        for method in settings.COMPARED:
            pairs[method] += [
                cost.compare(effort(one), effort(other))
                for one in few.runs.get(method, [])
                for other in many.runs.get(method, [])
                if one["description"] == other["description"]
            ]
    every = [comparison for comparisons in pairs.values() for comparison in comparisons]
    if not every:
        return UNTESTED, f"It needs runs with both. {paper}"
    good, same = every.count(AHEAD), every.count(LEVEL)
    pairs_text = pluralize(len(every), "pair")
    reason = [f"It does in {good} of {pairs_text} of runs with the same parameters, equal in {same}."]
    rising = [f"{label(m)} ({found.count(BEHIND)} of {len(found)})" for m, found in pairs.items() if BEHIND in found]
    if rising:
        reason.append(f"{cost.rises} for {join_words(rising)}.")
    return _verdict(good, len(every)), " ".join(filter(None, [*reason, cost.caveat, paper]))


def _hall(scenes: Sequence[Scene]) -> Judgement:
    """Whether the proposed methods take less than a second on the video of the hall."""
    scene = next((scene for scene in scenes if scene.clip.name == "hall"), None)
    methods = scene and _run_on(scene, settings.PROPOSED)
    if not scene or not methods:
        return UNTESTED, "The video of the hall was not run."
    seconds = {method: scene.selected[method]["seconds"] for method in methods}
    own = join_words(f"{value:.2g} s by {label(method)}" for method, value in seconds.items())
    theirs = join_words(f"{paper.seconds:g} s" for method in methods if (paper := scene.printed(method)))
    T, H, W = scene.clip.frames.shape
    reason = (
        f"{own} here, with {T} frames of {H} × {W} where the paper has 300 of 144 × 176; {theirs} in its table, from a "
        "tenth of the pixels. Another machine and another program: the seconds do not compare."
    )
    return _verdict(sum(value < 1 for value in seconds.values()), len(seconds)), reason


# ---------------------------------------------------------------------- our default, which the paper does not have


def compare_default(results: Results) -> str:
    """How our default compares with AManPGC, in sentences; "" if they were not both run."""
    needed = {settings.OURS, "amanpgc"}
    cases = [case for case in results.cases if case.runs.keys() >= needed]
    scenes = [scene for scene in results.scenes if scene.runs.keys() >= needed]
    sentences = []
    if cases:
        pairs = [_with_start(case) for case in cases]
        ratios = [own.seconds / other.seconds for own, other in pairs if own and other]
        sentences.append(
            f"On the cases {label(settings.OURS)}, which the paper does not have, is ahead of AManPGC in "
            f"{sum(TIME.compare(*pair) == AHEAD for pair in pairs)} of {len(cases)}, including the start of both"
            + (f": it takes {_span(ratios, '.2g')} times as long." if ratios else ".")
        )
    return " ".join([*sentences, *(_default_on_videos(scenes) if scenes else ())])


def _with_start(experiment: Experiment) -> list[Effort | None]:
    """What our default and AManPGC took, including the start."""
    took = [(experiment.reached(method), experiment.selected[method]) for method in (settings.OURS, "amanpgc")]
    return [there and there._replace(seconds=there.seconds + run["start_seconds"]) for there, run in took]


def _default_on_videos(scenes: Sequence[Scene]) -> list[str]:
    pairs = [(scene, scene.selected[settings.OURS], scene.selected["amanpgc"]) for scene in scenes]
    ratios = [own.seconds / other.seconds for own, other in map(_with_start, scenes) if own and other]
    reason = [
        f"On the videos {label(settings.OURS)}, which has its own stopping criterion, takes {_span(ratios, '.2g')} "
        "times as long as AManPGC, including the start of both."
    ]
    gains = [psnr(own) - psnr(other) for scene, own, other in pairs if not scene.clip.truth_is_known]
    if gains:
        better, worse = (sum(sign * gain > settings.AS_GOOD for gain in gains) for sign in (1, -1))
        reason.append(
            f"Against the median of the frames its background is better by more than {settings.AS_GOOD:g} dB in "
            f"{better} and worse by more than that in {worse} of {pluralize(len(gains), 'run')}; the median is a still "
            "picture, and what moves in a background counts as an error there."
        )
    known = [
        f"{scene.title} {psnr(own):.1f} against {psnr(other):.1f} dB"
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
    return reason
