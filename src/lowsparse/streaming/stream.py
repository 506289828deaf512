"""A stream of samples: what is believed of it, and what else could be."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np

from ..entries.observed import ObservedMatrix
from ..linalg.scale import LARGEST
from ..robust.regression import Placement
from ..solve import one_blas_thread
from ..sweeps import BACKENDS, Float
from .block import Block, begin, follow
from .sums import Learnt, Sums

__all__ = ["Rival", "Stream"]

PER_FEATURE = (15, 8)  # entries of a block for each feature, and for each rank as many again
BETTER = 0.9  # times the noise of all others: a rival must have less
LEAD = 0.05  # by so much for each sample a rival must score more, to be believed before its time
AGAIN = 1.25  # growth of the samples until they are solved anew for those who look before there is a block


@dataclass(frozen=True)
class Rival:
    """Something else that could be believed."""

    learnt: Learnt
    against: float  # what those who are believed have scored meanwhile
    proven: bool  # by a block that it does not come from

    @property
    def lead(self) -> float:
        """By how much the score is higher."""
        return self.learnt.sums.score - self.against

    def beats(self, believed: Learnt, *, fails: bool) -> bool:
        """Whether it is better, all in all.

        What it would have scored before it was there is not known. If what is believed fails now but did not before,
        the data are others: it counts as nothing. Else what is true of the present is taken for true of the past.
        """
        sums = self.learnt.sums
        return sums.score > believed.sums.score or (self.proven and not fails and self.lead > LEAD * sums.samples)


def _due(blocks: int) -> bool:
    """Whether this block is solved anew in any case: the 4th, 8th, 16th ... are."""
    return blocks >= 4 and blocks & (blocks - 1) == 0


class Stream:
    """A subspace that follows a stream of samples with holes and gross errors; memory is O(features rank²).

    Parameters
    ----------
    features
        Of every sample.
    rank
        The dimension of the subspace.
    half_life
        In samples: one that is so old counts half. None: all count the same, for ever.
    backend
        "auto", "native" (the compiled core) or "numpy".

    In what batches the samples come makes no difference, bit for bit, nor does it when the result is looked at.

    Examples
    --------
    >>> rng = np.random.default_rng(3)
    >>> truth = np.linalg.qr(rng.standard_normal((30, 2)))[0]
    >>> stream = Stream(30, rank=2)
    >>> for _ in range(8):
    ...     X = truth @ rng.standard_normal((2, 25))
    ...     X[rng.random(X.shape) < 0.1] += 10.0  # wrong
    ...     X[rng.random(X.shape) < 0.2] = np.nan  # not known
    ...     stream.push(ObservedMatrix.from_dense(X))
    >>> bool(np.linalg.norm(truth - stream.U @ (stream.U.T @ truth)) < 1e-8)
    True
    """

    def __init__(self, features: int, rank: int, *, half_life: float | None = None, backend: str = "auto") -> None:
        for name, count, most in (("features", features, math.inf), ("rank", rank, features)):
            whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
            if not (whole and 1 <= count <= most):
                raise ValueError(f"{name} must be a whole number from 1 to {most}, not {count!r}")
        if half_life is not None and not 0 < half_life < math.inf:
            raise ValueError(f"half_life must be a positive number of samples, or None, not {half_life!r}")
        if backend not in ("auto", *BACKENDS):
            raise ValueError(f"unknown backend {backend!r}: choose 'auto' or one of {sorted(BACKENDS)}")
        self.features, self.rank, self.half_life, self.backend = int(features), int(rank), half_life, backend
        self.samples = 0  # that have come
        self.blocks = 0  # that have been taken in,
        self.until = 0  # with so many samples
        self.changes = 0  # times that a rival was believed
        self.believed: Learnt | None = None
        self.rival: Rival | None = None
        # samples that wait for a block: when each of them came, its number of entries; and the entries
        self.times, self.counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.rows, self.values = np.zeros(0, np.int32), np.zeros(0, np.float32)
        # what has been worked out for those who look, not part of the state
        self._now: Learnt | None = None
        self._draft: tuple[int, int, Learnt | None] = (0, 0, None)

    # ------------------------------------------------------------------ in

    def push(self, M: ObservedMatrix) -> None:
        """Take samples in, the columns of M in their order.

        One with no more than `rank` entries tells nothing of the subspace, nor does one of zeros: only time passes. An
        error, or an interruption, leaves the stream as it was.
        """
        if M.shape[0] != self.features:
            raise ValueError(f"the samples have {M.shape[0]} features, those of this stream have {self.features}")
        largest = max(float(M.values.max()), -float(M.values.min()))
        if largest > LARGEST:
            raise ValueError(f"the largest magnitude is {largest:.2g}, its powers are out of range: divide all by it")
        after = copy.copy(self)
        after._append(M)
        after._drain()
        self.__dict__.update(after.__dict__)

    def wait(self, samples: int) -> None:
        """Let time pass, as by so many samples that have no entries at all."""
        if samples < 0:
            raise ValueError(f"time does not go backwards: samples must be 0 or more, not {samples}")
        self.samples, self._now = self.samples + int(samples), None

    def _append(self, M: ObservedMatrix) -> None:
        some = np.bincount(M.columns_of_entries()[M.values != 0.0], minlength=M.shape[1])
        telling = (M.column_counts > self.rank) & (some > 0)
        entries = np.repeat(telling, M.column_counts)
        self.times = np.concatenate([self.times, self.samples + np.flatnonzero(telling)])
        self.counts = np.concatenate([self.counts, M.column_counts[telling]])
        self.rows = np.concatenate([self.rows, M.rows[entries]])
        self.values = np.concatenate([self.values, M.values[entries]])
        self.samples, self._now = self.samples + M.shape[1], None

    def _needed(self) -> int:
        """Entries of a block."""
        return self.features * (PER_FEATURE[0] + PER_FEATURE[1] * self.rank)

    def _drain(self) -> None:
        """Take in all blocks that are whole."""
        needed = self._needed()
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        first = 0
        while ends[-1] - ends[first] >= needed:
            last = int(np.searchsorted(ends, ends[first] + needed))
            until = int(self.times[last - 1]) + 1
            with one_blas_thread:
                self._take(self._block(first, last, self.believed, since=self.until, now=until, whole=True))
            self.blocks, self.until, first = self.blocks + 1, until, last
        self.times, self.counts = self.times[first:].copy(), self.counts[first:].copy()
        self.rows, self.values = self.rows[ends[first] :].copy(), self.values[ends[first] :].copy()

    def _block(self, first: int, last: int, known: Learnt | None, *, since: int, now: int, whole: bool) -> Block:
        """Some of the samples that wait. What was known at the time `since` is to follow them until `now`."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])[first : last + 1]
        entries = slice(ends[0], ends[-1])
        M = ObservedMatrix(ends - ends[0], self.rows[entries], self.values[entries], (self.features, last - first))
        rate = 0.0 if self.half_life is None else math.log(2) / self.half_life
        return Block(
            M,
            np.exp(-rate * (now - 1 - self.times[first:last])),
            math.exp(-rate * (now - since)),
            whole=whole,
            unit=1.0 if known is None else known.unit,
            backend=self.backend,
        )

    def _take(self, block: Block) -> None:
        """A block that is whole: who is believed after it, and who is not yet."""
        if self.believed is None:
            self.believed = begin(block, self.rank)
            return
        before, self.believed = self.believed, follow(self.believed, block, self.rank)
        gain = self.believed.sums.score - block.fade * before.sums.score
        fails = lost = block.fails(before, self.believed)
        least = self.believed.latest
        rival = self.rival
        if rival is not None:
            now = follow(rival.learnt, block, self.rank)
            lost = fails and block.fails(rival.learnt, now)
            least = min(least, now.latest)
            rival = Rival(now, block.fade * rival.against + gain, proven=True)
            rival = rival if rival.lead > 0 else None
        if lost or _due(self.blocks + 1):
            fresh = begin(block, self.rank)
            if fresh is not None and max(fresh.latest, block.close) < BETTER * least:
                rival = Rival(fresh, gain, proven=False)
        if rival is not None and rival.beats(self.believed, fails=fails):
            self.believed, rival, self.changes = rival.learnt, None, self.changes + 1
        self.rival = rival

    # ------------------------------------------------------------------ out

    @property
    def learnt(self) -> Learnt:
        """All that is known now, of the samples that wait for a block too."""
        if self._now is None:
            with one_blas_thread:
                self._now = self._look_ahead().completed(self.rank)
        return self._now

    def _look_ahead(self) -> Learnt:
        known, first, since, waiting = self.believed, 0, self.until, self.counts.size
        if known is None and waiting:
            first = self._first()
            since = int(self.times[first - 1]) + 1
            if self._draft[:2] != (self.until, first):
                block = self._block(0, first, None, since=self.until, now=since, whole=True)
                self._draft = self.until, first, begin(block, self.rank)
            known = self._draft[2]
        if known is None:
            return Learnt(np.eye(self.features, 1), Sums.none(self.features, 1), 1.0, (0.0,))
        if first == waiting:
            return known
        rest = self._block(first, waiting, known, since=since, now=self.samples, whole=False)
        return follow(known, rest, self.rank)

    def _first(self) -> int:
        """How many of the samples a draft is made of before there is a block: most, but seldom others."""
        ends = np.cumsum(self.counts)
        steps = math.ceil(math.log(self._needed() / ends[-1]) / math.log(AGAIN))
        return min(int(np.searchsorted(ends, self._needed() / AGAIN**steps)) + 1, ends.size)

    @property
    def U(self) -> Float:  # noqa: N802
        """The subspace (features x rank, orthonormal), the directions of most energy first."""
        return self.learnt.U

    @property
    def singular_values(self) -> Float:
        """Of the samples without noise and outliers, descending; a sample of age a counts 2^(-a / half_life) times."""
        return self.learnt.singular_values

    @property
    def noise(self) -> float:
        """The standard deviation of the inliers of late."""
        return self.learnt.noise

    @property
    def placement(self) -> Placement:
        """How samples are placed on the subspace: ``stream.placement.coefficients(M)`` are their coefficients."""
        return self.learnt.placement
