"""The numbers printed in the paper, and all settings of the runs: methods, parameters, videos, sizes.

M. Huang, S. Ma, L. Lai: Robust Low-rank Matrix Completion via an Alternating Manifold Proximal Gradient Continuation
Method, Section VI.

The paper's retraction takes U + ΔU where it is defined for ΔU, so that a printed step t_U is twice the step that is
taken; every printed t_U is halved here. With the printed t_U = 2/|Ω| taken literally AManPGC does not converge, which
is run, too (`literal`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..datasets import PAPER_CASES
from ..plots import STYLES
from ..solvers import Solver, from_name

PROPOSED = ("amanpgc", "manpgc")  # of the paper
BASELINES = ("rmc", "lmafit", "subgm")  # that it compares with
COMPARED = (*PROPOSED, *BASELINES)
OURS = "ladder"
METHODS = (*COMPARED, OURS)


def label(method: str) -> str:
    """The name of a method as it is written."""
    return STYLES[method][0] + (" (our default)" if method == OURS else "")


class Effort(NamedTuple):
    """What a run took."""

    iterations: int
    seconds: float


@dataclass(frozen=True)
class Tuning:
    """Parameters of a method, with a description."""

    parameters: dict[str, Any]
    description: str
    step: float | None = None  # t_U |Ω|
    note: str = ""  # to be added to the verdicts if these parameters are selected

    def solver(self, method: str, entries: int) -> Solver:
        """The configured method for data with so many entries."""
        own = {} if self.step is None else {"t_U": self.step / entries}
        return from_name(method).set_params(**self.parameters, **own)


def _continuation(step: float, epsilon0: float, text: str, **more: float) -> Tuning:
    parameters = {"epsilon0": epsilon0, "gamma0": 10.0, "mu1": 0.1, "mu2": 0.1, "lam": 1e-8, **more}
    return Tuning(parameters, f"{text}, ε₀ = {epsilon0:.3g}, γ₀ = 10, μ₁ = μ₂ = 0.1, λ = 1e-8", step)


def _penalties(growth: float, largest: float, **more: float) -> Tuning:
    parameters = {"beta0": 1.0, "beta_growth": growth, "beta_max": largest, **more}
    return Tuning(parameters, f"β from 1 to {largest:g} over the size of an entry, growing by {growth:g}; rank given")


def _subgradient(rho: float, **more: float) -> Tuning:
    return Tuning({"rho": rho, **more}, f"μ₀ = √(mn), ρ = {rho:g}")


CLOSED = "a step in closed form, which its authors' program does not have"

# ---------------------------------------------------------------------- synthetic data

# t_U |Ω| and ε₀ by case: of AManPGC, and of ManPGC (Section VI-A)
PRINTED_STEPS = dict.fromkeys(PAPER_CASES, ((2.0, 30.0), (2.0, 30.0))) | {
    4: ((2.0, 30.0), (1.6, 20.0)),
    8: ((2.0, 100.0), (2.0, 100.0)),
}
TARGETS = (1e-3, 1e-6, 1e-8)  # relative differences in the tables
JUDGED = 1e-6  # the one by which methods are compared
GOAL = 1e-9  # where a run ends
OUR_TOL = 1e-8  # of our default
MAX_ITER = 500
DATA_SEED = 2024  # with the number of the case
START_SEED = 31
STAGES = 10  # γ = 10, 1, ..., 1e-8; the paper does not print where it ends
LITERAL_CASE = 4  # the smallest
LITERAL_ITER = 150

# Small versions of cases 1 to 8 that are still recoverable: at least ten times the rank in every line, on average.
QUICK_SIDES = ((800, 800), (600, 1800), (1000, 1000), (500, 500), (1000, 1000), (500, 500), (900, 900), (700, 700))
QUICK_SIZES = dict(zip(PAPER_CASES, QUICK_SIDES, strict=True))

RMC_SETTINGS = {"delta0": 1.0, "theta": 0.05, "stages": 7, "stage_iter": 40, "lam": 0.0}
RMC_TEXT = "its authors' settings: δ₀ = 1, θ = 0.05, 7 stages of at most 40 iterations, λ = 0"
SYNTHETIC_TUNINGS = {  # the fastest counts; a quick run takes only the first
    "rmc": [
        Tuning({**RMC_SETTINGS, "line_search": "armijo"}, f"{RMC_TEXT}, their line search"),
        Tuning({**RMC_SETTINGS, "line_search": "closed"}, f"{RMC_TEXT}, a step in closed form", note=CLOSED),
    ],
    "lmafit": [_penalties(*given) for given in ((1.03, 1e3), (1.08, 1e8), (1.2, 1e4))],
    "subgm": [_subgradient(rho) for rho in (0.95, 0.9, 0.85, 0.8)],
    OURS: [Tuning({}, "nothing to tune; a start of its own")],
}


def case_size(case: int, quick: bool = False) -> tuple[int, int, int, float, float]:
    """Rows, columns, rank, share of the entries observed, share of those corrupted."""
    if case not in PAPER_CASES:
        raise ValueError(f"the paper has cases 1 to 8, not {case!r}")
    m, n, rank, density, outliers = PAPER_CASES[case]
    return *(QUICK_SIZES[case] if quick else (m, n)), rank, density, outliers


def synthetic_tunings(method: str, case: int, quick: bool = False) -> list[Tuning]:
    """One or several sets of parameters of a method on a case.

    >>> synthetic_tunings("manpgc", 4)[0].description
    't_U = 0.8/|Ω| (printed as 1.6/|Ω|), ε₀ = 20, γ₀ = 10, μ₁ = μ₂ = 0.1, λ = 1e-8'
    """
    if method not in PROPOSED:
        return SYNTHETIC_TUNINGS[method][: 1 if quick else None]
    printed, epsilon0 = PRINTED_STEPS[case][PROPOSED.index(method)]
    if quick:  # the test is about ‖ΔS‖, which grows with the root of the number of entries
        epsilon0 *= math.sqrt(math.prod(QUICK_SIZES[case]) / math.prod(PAPER_CASES[case][:2]))
    return [
        _continuation(printed / 2, epsilon0, f"t_U = {printed / 2:g}/|Ω| (printed as {printed:g}/|Ω|)", stages=STAGES)
    ]


def literal(own: Tuning) -> Tuning:
    """AManPGC with the printed step taken literally, without our safeguard."""
    return Tuning({**own.parameters, "backtracking": False}, "t_U = 2/|Ω| as printed, no backtracking", step=2.0)


# ---------------------------------------------------------------------- video

RANK = 2
SHARES = (0.5, 0.1)
DELTA = 0.01  # relative change of UV at which a method ends
VIDEO_MAX_ITER = 300
REPEATS = 3  # solves, of which the median of the times counts
PIXELS_SEED = 77
MAX_PIXELS = 64 << 20  # of a video that the user names: beyond that frames are left out
QUICK_SHRINK, QUICK_FRAMES = 2, 100
DATA_FOLDER = "data"
BLOCKS = {"frames": 300, "height": 144, "width": 176}
QUICK_BLOCKS = {"frames": 80, "height": 48, "width": 64}

# Our reading of the paper's "good" and "very high quality":
GOOD, VERY_GOOD = 25.0, 30.0  # decibels of PSNR against the trusted background, mean over the frames
AS_GOOD = 1.0  # decibels: pictures that differ by less count as equally good
RULE = (  # which of several runs with different parameters is selected
    f"the fastest whose picture is good ({GOOD:g} dB) or at most {AS_GOOD:g} dB worse than AManPGC's, or if there is "
    "none, the one with the best picture"
)
LEVEL = 0.1  # times that differ by less than this share count as equal


def _printed(seconds: Sequence[float], iterations: Sequence[int]) -> dict[str, Effort]:
    """A row of a table of the paper, in the order of `COMPARED`."""
    return dict(zip(COMPARED, map(Effort, iterations, seconds), strict=True))


# by data set, share of observed pixels and method; the seconds are CPU seconds
PRINTED_TABLES = {
    "hall": {
        0.5: _printed((1.53, 1.67, 3.55, 15.90, 5.78), (9, 10, 14, 31, 50)),
        0.1: _printed((1.02, 0.91, 1.56, 13.44, 1.07), (11, 12, 30, 27, 60)),
    },
    "campus": {
        0.5: _printed((1.76, 1.56, 3.21, 13.42, 3.78), (7, 7, 17, 26, 50)),
        0.1: _printed((0.82, 0.67, 2.31, 10.93, 1.76), (9, 11, 26, 28, 50)),
    },
    "airport": {
        0.5: _printed((1.61, 1.37, 2.70, 9.97, 3.65), (8, 8, 26, 25, 60)),
        0.1: _printed((0.74, 0.95, 1.72, 9.12, 1.08), (15, 15, 28, 26, 60)),
    },
}

RELATIONS = {  # to a video of the paper: in the description of a video, and in a footnote
    "yes": ("The paper's “{name}” has {size}.", ""),
    "probably": ("It is probably the paper's “{name}” ({size}).", "{title} is probably the paper's “{name}”."),
    "no": (
        "It stands in for “{name}” ({size}), which is not available: the paper's numbers are about another video.",
        "{title} stands in for the paper's “{name}”.",
    ),
}


@dataclass(frozen=True)
class KnownVideo:
    """A video that the paper has, or that stands in for one."""

    title: str
    file: str = ""  # in the folder with the data; "" for the one that is made
    printed: str = ""  # its table in `PRINTED_TABLES`
    paper_name: str = ""
    paper_shape: tuple[int, int, int] = (0, 0, 0)  # frames, height, width there
    same: str = "yes"  # whether it is the paper's: "yes", "probably" or "no"

    @property
    def relation(self) -> tuple[str, str]:
        """How it is related to the paper's video, and a footnote if it may be another one."""
        size = "{} frames of {} × {}".format(*self.paper_shape)
        texts = RELATIONS[self.same] if self.printed else ("", "")
        long, short = (text.format(title=self.title, name=self.paper_name, size=size) for text in texts)
        return long, short


HALL = "Hall of a business building"
VIDEOS = {
    "hall": KnownVideo(HALL, "i2r_hall100.npz", "hall", HALL, (300, 144, 176)),
    "escalator": KnownVideo(
        "Escalator", "i2r_escalator200.npz", "airport", "Airport Elevator", (997, 130, 160), "probably"
    ),
    "trees": KnownVideo(
        "Waving trees", "wallflower_wavingtrees287.npz", "campus", "Campus Trees", (994, 128, 160), "no"
    ),
    "blocks": KnownVideo("Moving blocks"),
}

VIDEO_TUNINGS = {  # one is selected by `RULE`; a quick run takes only the first
    "rmc": [
        Tuning(
            {"theta": 0.1, "line_search": "closed", "delta": DELTA},
            "δ₀ a twentieth of the median pixel, θ = 0.1, a step in closed form",
            note=CLOSED,
        ),
        Tuning(
            {"delta0": 0.5, "theta": 0.1, "line_search": "armijo", "delta": DELTA},
            "its authors' settings for real data: δ₀ = 0.5, θ = 0.1, their line search",
        ),
    ],
    "lmafit": [_penalties(*given, delta=DELTA) for given in ((1.03, 1e3), (1.1, 1e3), (1.2, 1e4))],
    "subgm": [_subgradient(rho, delta=DELTA) for rho in (0.9, 0.95)],
    OURS: [Tuning({}, "nothing to tune; a start and a stopping rule of its own")],
}


def video_tunings(method: str, pixels: int, quick: bool = False) -> list[Tuning]:
    """One or several sets of parameters of a method on a video of so many pixels, observed or not.

    The paper prints γ₀, μ₁, μ₂ and λ for all its experiments, and that t_U was tuned between 1/|Ω| and 3/|Ω|; it does
    not print ε₀ for the videos. Here it is 100, its largest elsewhere, for 100 frames of the hall, and grows with the
    root of the size.
    """
    if method not in PROPOSED:
        return VIDEO_TUNINGS[method][: 1 if quick else None]
    epsilon0 = 100 * math.sqrt(pixels / 2_534_400)
    return [_continuation(1.5, epsilon0, "t_U = 1.5/|Ω| (the upper end of the printed range, 3/|Ω|)", delta=DELTA)]
