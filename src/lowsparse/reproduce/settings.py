"""The numbers printed in the paper, and all settings of the runs: methods, parameters, videos, sizes.

M. Huang, S. Ma, L. Lai: Robust Low-rank Matrix Completion via an Alternating Manifold Proximal Gradient Continuation
Method, Section VI.

The paper's retraction takes U + ΔU where it is defined for ΔU, so that a printed step t_U is twice the step that is
taken; every printed t_U is halved here. With the printed t_U = 2/|Ω| taken literally AManPGC does not converge, which
is run, too (`literal`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..datasets import PAPER_CASES
from ..solvers import Solver, from_name

__all__ = [
    "BASELINES",
    "METHODS",
    "PRINTED_STEPS",
    "PRINTED_TABLES",
    "PROPOSED",
    "VIDEOS",
    "KnownVideo",
    "Printed",
    "Tuning",
    "case_size",
    "literal",
    "synthetic_tunings",
    "video_tunings",
]

PROPOSED = ("amanpgc", "manpgc")  # of the paper
BASELINES = ("rmc", "lmafit", "subgm")  # that it compares with
COMPARED = (*PROPOSED, *BASELINES)
OURS = "ladder"
METHODS = (*COMPARED, OURS)

# ---------------------------------------------------------------------- numbers of the paper

# t_U |Ω| and ε₀ by case: of AManPGC, and of ManPGC (Section VI-A)
PRINTED_STEPS: dict[int, tuple[tuple[float, float], tuple[float, float]]] = {
    1: ((2.0, 30.0), (2.0, 30.0)),
    2: ((2.0, 30.0), (2.0, 30.0)),
    3: ((2.0, 30.0), (2.0, 30.0)),
    4: ((2.0, 30.0), (1.6, 20.0)),
    5: ((2.0, 30.0), (2.0, 30.0)),
    6: ((2.0, 30.0), (2.0, 30.0)),
    7: ((2.0, 30.0), (2.0, 30.0)),
    8: ((2.0, 100.0), (2.0, 100.0)),
}


@dataclass(frozen=True)
class Printed:
    """One row of a table of the paper: CPU seconds and iterations, in the order of `COMPARED`."""

    seconds: tuple[float, float, float, float, float]
    iterations: tuple[int, int, int, int, int]

    def of(self, method: str) -> tuple[float, int] | None:
        """Seconds and iterations of a method; None if the paper does not have it.

        >>> PRINTED_TABLES["hall"][0.5].of("rmc")
        (3.55, 14)
        """
        if method not in COMPARED:
            return None
        k = COMPARED.index(method)
        return self.seconds[k], self.iterations[k]


# by data set and share of observed pixels
PRINTED_TABLES: dict[str, dict[float, Printed]] = {
    "hall": {
        0.5: Printed((1.53, 1.67, 3.55, 15.90, 5.78), (9, 10, 14, 31, 50)),
        0.1: Printed((1.02, 0.91, 1.56, 13.44, 1.07), (11, 12, 30, 27, 60)),
    },
    "campus": {
        0.5: Printed((1.76, 1.56, 3.21, 13.42, 3.78), (7, 7, 17, 26, 50)),
        0.1: Printed((0.82, 0.67, 2.31, 10.93, 1.76), (9, 11, 26, 28, 50)),
    },
    "airport": {
        0.5: Printed((1.61, 1.37, 2.70, 9.97, 3.65), (8, 8, 26, 25, 60)),
        0.1: Printed((0.74, 0.95, 1.72, 9.12, 1.08), (15, 15, 28, 26, 60)),
    },
}

# ---------------------------------------------------------------------- synthetic data

TARGETS = (1e-3, 1e-6, 1e-8)  # relative differences in the tables
JUDGED = 1e-6  # the one by which methods are compared
GOAL = 1e-9  # where a run ends
OUR_TOL = 1e-8  # of our default
MAX_ITER = 500
DATA_SEED = 2024  # with the number of the case
START_SEED = 31
STAGES = 10  # γ = 10, 1, ..., 1e-8; the paper does not print where it ends

# Small versions of the cases that are still recoverable: at least ten times the rank in every line, on average.
QUICK_SIZES = {
    1: (800, 800),
    2: (600, 1800),
    3: (1000, 1000),
    4: (500, 500),
    5: (1000, 1000),
    6: (500, 500),
    7: (900, 900),
    8: (700, 700),
}


@dataclass(frozen=True)
class Tuning:
    """Parameters of a method, with a description."""

    parameters: dict[str, Any]
    description: str
    step: float | None = None  # t_U |Ω|
    note: str = ""  # to be added to the verdicts if these parameters are selected

    def solver(self, method: str, entries: int) -> Solver:
        """The configured method for data with so many entries.

        >>> synthetic_tunings("amanpgc", 1)[0].solver("amanpgc", 1000).get_params()["t_U"]
        0.001
        """
        own = {} if self.step is None else {"t_U": self.step / entries}
        return from_name(method).set_params(**self.parameters, **own)


CLOSED = "a step in closed form, which its authors' program does not have"


def case_size(case: int, quick: bool = False) -> tuple[int, int, int, float, float]:
    """Rows, columns, rank, share of the entries observed, share of those corrupted.

    >>> case_size(4), case_size(4, quick=True)
    ((2000, 2000, 10, 0.2, 0.1), (500, 500, 10, 0.2, 0.1))
    """
    if case not in PAPER_CASES:
        raise ValueError(f"the paper has cases 1 to 8, not {case!r}")
    m, n, rank, density, outliers = PAPER_CASES[case]
    if quick:
        m, n = QUICK_SIZES[case]
    return m, n, rank, density, outliers


def synthetic_tunings(method: str, case: int, quick: bool = False) -> list[Tuning]:
    """One or several sets of parameters of a method on a case; the fastest counts, a quick run takes only the first.

    >>> synthetic_tunings("manpgc", 4)[0].description
    't_U = 0.8/|Ω| (printed as 1.6/|Ω|), ε₀ = 20, γ₀ = 10, μ₁ = μ₂ = 0.1, λ = 1e-8'
    """
    if method in PROPOSED:
        printed, epsilon0 = PRINTED_STEPS[case][PROPOSED.index(method)]
        if quick:  # the test is about ‖ΔS‖, which grows with the root of the number of entries
            (m, n, *_), (full_m, full_n, *_) = case_size(case, quick), case_size(case)
            epsilon0 *= math.sqrt(m * n / (full_m * full_n))
        text = f"t_U = {printed / 2:g}/|Ω| (printed as {printed:g}/|Ω|), ε₀ = {epsilon0:.3g}"
        return [_continuation(printed / 2, epsilon0, text, stages=STAGES)]
    if method == "rmc":
        own = {"delta0": 1.0, "theta": 0.05, "stages": 7, "stage_iter": 40, "lam": 0.0}
        text = "its authors' settings: δ₀ = 1, θ = 0.05, 7 stages of at most 40 iterations, λ = 0"
        tunings = [
            Tuning({**own, "line_search": "armijo"}, f"{text}, their line search"),
            Tuning({**own, "line_search": "closed"}, f"{text}, a step in closed form", note=CLOSED),
        ]
    elif method == "lmafit":
        tunings = [_penalties(growth, largest) for growth, largest in ((1.03, 1e3), (1.08, 1e8), (1.2, 1e4))]
    elif method == "subgm":
        tunings = [_subgradient(rho) for rho in (0.95, 0.9, 0.85, 0.8)]
    else:
        tunings = [Tuning({}, "nothing to tune; a start of its own")]
    return tunings[:1] if quick else tunings


def literal(case: int, quick: bool = False) -> Tuning:
    """AManPGC with the printed step taken literally, without our safeguard.

    >>> literal(4).description
    't_U = 2/|Ω| as printed, no backtracking'
    """
    own = synthetic_tunings("amanpgc", case, quick)[0].parameters
    return Tuning({**own, "backtracking": False}, "t_U = 2/|Ω| as printed, no backtracking", step=2.0)


LITERAL_CASE = 4  # the smallest
LITERAL_ITER = 150


def _continuation(step: float, epsilon0: float, text: str, **more: Any) -> Tuning:
    parameters = {"epsilon0": epsilon0, "gamma0": 10.0, "mu1": 0.1, "mu2": 0.1, "lam": 1e-8, **more}
    return Tuning(parameters, f"{text}, γ₀ = 10, μ₁ = μ₂ = 0.1, λ = 1e-8", step)


def _penalties(growth: float, largest: float, **more: Any) -> Tuning:
    parameters = {"beta0": 1.0, "beta_growth": growth, "beta_max": largest, **more}
    return Tuning(parameters, f"β from 1 to {largest:g} over the size of an entry, growing by {growth:g}; rank given")


def _subgradient(rho: float, **more: Any) -> Tuning:
    return Tuning({"rho": rho, **more}, f"μ₀ = √(mn), ρ = {rho:g}")


# ---------------------------------------------------------------------- video

RANK = 2
SHARES = (0.5, 0.1)
DELTA = 0.01  # relative change of UV at which a method ends
VIDEO_MAX_ITER = 300
REPEATS = 3  # solves, of which the median of the times counts
PIXELS_SEED = 77
MAX_PIXELS = 64 << 20  # of a video that the user names: beyond that frames are left out
QUICK_SHRINK, QUICK_FRAMES = 2, 100

# Our reading of the paper's "good" and "very high quality":
GOOD, VERY_GOOD = 25.0, 30.0  # decibels of PSNR against the trusted background, mean over the frames
AS_GOOD = 1.0  # decibels: pictures that differ by less count as equally good
RULE = (  # which of several runs with different parameters is selected
    f"the fastest whose picture is good ({GOOD:g} dB) or at most {AS_GOOD:g} dB worse than AManPGC's, or if there is "
    "none, the one with the best picture"
)
LEVEL = 0.1  # times that differ by less than this share count as equal


@dataclass(frozen=True)
class KnownVideo:
    """A video that the paper has, or that stands in for one."""

    title: str
    file: str  # in the folder with the data; "" for the one that is made
    printed: str = ""  # its table in `PRINTED_TABLES`
    paper_name: str = ""
    paper_shape: tuple[int, int, int] = (0, 0, 0)  # frames, height, width there
    same: str = "yes"  # whether it is the paper's: "yes", "probably" or "no"


VIDEOS = {
    "hall": KnownVideo(
        "Hall of a business building", "i2r_hall100.npz", "hall", "Hall of a business building", (300, 144, 176)
    ),
    "escalator": KnownVideo(
        "Escalator", "i2r_escalator200.npz", "airport", "Airport Elevator", (997, 130, 160), "probably"
    ),
    "trees": KnownVideo(
        "Waving trees", "wallflower_wavingtrees287.npz", "campus", "Campus Trees", (994, 128, 160), "no"
    ),
    "blocks": KnownVideo("Moving blocks", ""),
}
DATA_FOLDER = "data"
BLOCKS = {"frames": 300, "height": 144, "width": 176}
QUICK_BLOCKS = {"frames": 80, "height": 48, "width": 64}


def video_tunings(method: str, pixels: int, quick: bool = False) -> list[Tuning]:
    """One or several sets of parameters of a method on a video of so many pixels, observed or not.

    One of several is selected by `RULE`; a quick run takes only the first. The paper prints γ₀, μ₁, μ₂ and λ for all
    its experiments, and that t_U was tuned between 1/|Ω| and 3/|Ω|; it does not print ε₀ for the videos. Here it is
    100, its largest elsewhere, for 100 frames of the hall, and grows with the root of the size.

    >>> video_tunings("amanpgc", 2_534_400)[0].description
    't_U = 1.5/|Ω| (the upper end of the printed range, 3/|Ω|), ε₀ = 100, γ₀ = 10, μ₁ = μ₂ = 0.1, λ = 1e-8'
    """
    if method in PROPOSED:
        epsilon0 = 100 * math.sqrt(pixels / 2_534_400)
        text = f"t_U = 1.5/|Ω| (the upper end of the printed range, 3/|Ω|), ε₀ = {epsilon0:.3g}"
        return [_continuation(1.5, epsilon0, text, delta=DELTA)]
    if method == "rmc":
        authors = {"delta0": 0.5, "theta": 0.1, "line_search": "armijo", "delta": DELTA}
        text = "δ₀ a twentieth of the median pixel, θ = 0.1, a step in closed form"
        tunings = [
            Tuning({"theta": 0.1, "line_search": "closed", "delta": DELTA}, text, note=CLOSED),
            Tuning(authors, "its authors' settings for real data: δ₀ = 0.5, θ = 0.1, their line search"),
        ]
    elif method == "lmafit":
        growths = ((1.03, 1e3), (1.1, 1e3), (1.2, 1e4))
        tunings = [_penalties(growth, largest, delta=DELTA) for growth, largest in growths]
    elif method == "subgm":
        tunings = [_subgradient(rho, delta=DELTA) for rho in (0.9, 0.95)]
    else:
        tunings = [Tuning({}, "nothing to tune; a start and a stopping rule of its own")]
    return tunings[:1] if quick else tunings
