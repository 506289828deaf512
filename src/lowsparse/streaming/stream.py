"""A stream of samples: the current estimate of its subspace, and a rival that may replace it."""

import copy
import math
from dataclasses import dataclass

import numpy as np

from ..entries.compressed import offsets
from ..entries.observed import ObservedMatrix
from ..linalg.scale import LARGEST
from ..robust.regression import SubspaceRegression
from ..support.checks import check_choice, check_count, check_positive
from ..support.threads import one_blas_thread
from ..sweeps import BACKENDS, Float
from .block import SampleBlock, fit_first, update
from .sums import Estimate, Sums

PER_FEATURE = (15, 8)  # entries of a block for each feature, and for each rank as many again
BETTER = 0.9  # times the noise of all others: a rival must have less
LEAD = 0.05  # score per sample by which a rival must lead, to replace the current estimate early
GROWTH = 1.25  # of the samples, until a preliminary estimate before the first block is computed again


@dataclass(frozen=True)
class Rival:
    """Another estimate, which competes with the current one."""

    estimate: Estimate
    against: float  # what the current estimate has scored meanwhile
    proven: bool  # by a block that it was not fitted to

    @property
    def lead(self) -> float:
        """By how much its score is higher."""
        return self.estimate.sums.score - self.against

    def beats(self, current: Estimate, *, fails: bool) -> bool:
        """Whether it is better on the whole.

        Its score before it was there is not known. If the current estimate fails now but did not before, the data have
        changed, and the rival's past counts as nothing. Else its lead in the present is taken for one in the past.
        """
        sums = self.estimate.sums
        return sums.score > current.sums.score or (self.proven and not fails and self.lead > LEAD * sums.samples)


class Stream:
    """A subspace that follows a stream of samples with holes and gross errors; memory is O(features rank²).

    Parameters
    ----------
    features
        Of every sample.
    rank
        The dimension of the subspace.
    half_life
        In samples: the age at which a sample counts half. None: all count the same, for ever.
    backend
        "auto", "native" (the compiled core) or "numpy".

    The result does not depend, bit for bit, on how samples are batched, nor on when it is read.

    Examples
    --------
    >>> rng = np.random.default_rng(3)
    >>> truth = np.linalg.qr(rng.standard_normal((30, 2)))[0]
    >>> stream = Stream(30, rank=2)
    >>> for _ in range(8):
    ...     X = truth @ rng.standard_normal((2, 25))
    ...     X[rng.random(X.shape) < 0.1] += 10.0  # wrong
    ...     X[rng.random(X.shape) < 0.2] = np.nan  # missing
    ...     stream.push(ObservedMatrix.from_dense(X))
    >>> bool(np.linalg.norm(truth - stream.U @ (stream.U.T @ truth)) < 1e-8)
    True
    """

    def __init__(self, features: int, rank: int, *, half_life: float | None = None, backend: str = "auto") -> None:
        self.features = check_count("features", features)
        self.rank = check_count("rank", rank, maximum=self.features)
        self.half_life = None if half_life is None else check_positive("half_life", half_life, also="None")
        self.backend = check_choice("backend", backend, ("auto", *sorted(BACKENDS)))
        self.samples = 0  # that have come
        self.blocks = 0  # that have been processed,
        self.until = 0  # and the number of samples then
        self.changes = 0  # times that a rival has replaced the current estimate
        self.current: Estimate | None = None
        self.rival: Rival | None = None
        # samples that wait for a block: the time and number of entries of each; and the entries
        self.times, self.counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.rows, self.values = np.zeros(0, np.int32), np.zeros(0, np.float32)
        # computed on demand, not part of the state
        self._estimate: Estimate | None = None
        self._preliminary: tuple[int, int, Estimate | None] = (0, 0, None)

    def push(self, M: ObservedMatrix) -> None:
        """Add samples, the columns of M in their order.

        A sample with at most `rank` entries, or of zeros only, says nothing about the subspace; it only makes the
        others older. An error, or an interruption, leaves the stream as it was.
        """
        if M.shape[0] != self.features:
            raise ValueError(f"the samples have {M.shape[0]} features, those of this stream have {self.features}")
        largest = max(float(M.values.max()), -float(M.values.min()))
        if largest > LARGEST:
            raise ValueError(f"the largest magnitude is {largest:.2g}, its powers are out of range: divide all by it")
        after = copy.copy(self)
        after._append(M)
        after._process_complete_blocks()
        self.__dict__.update(after.__dict__)

    def wait(self, samples: int) -> None:
        """Let time pass, as by this many samples without any entry."""
        self.samples += check_count("samples", samples, minimum=0)
        self._estimate = None

    def _append(self, M: ObservedMatrix) -> None:
        nonzeros = np.bincount(M.columns_of_entries()[M.values != 0.0], minlength=M.shape[1])
        useful = (M.column_counts > self.rank) & (nonzeros > 0)
        entries = np.repeat(useful, M.column_counts)
        self.times = np.concatenate([self.times, self.samples + np.flatnonzero(useful)])
        self.counts = np.concatenate([self.counts, M.column_counts[useful]])
        self.rows = np.concatenate([self.rows, M.rows[entries]])
        self.values = np.concatenate([self.values, M.values[entries]])
        self.samples, self._estimate = self.samples + M.shape[1], None

    def _block_entries(self) -> int:
        """The number of entries that make a block."""
        return self.features * (PER_FEATURE[0] + PER_FEATURE[1] * self.rank)

    def _process_complete_blocks(self) -> None:
        needed = self._block_entries()
        ends = offsets(self.counts)
        first = 0
        while ends[-1] - ends[first] >= needed:
            last = int(np.searchsorted(ends, ends[first] + needed))
            until = int(self.times[last - 1]) + 1
            with one_blas_thread:
                self._process(self._block(first, last, self.current, since=self.until, until=until, complete=True))
            self.blocks, self.until, first = self.blocks + 1, until, last
        self.times, self.counts = self.times[first:].copy(), self.counts[first:].copy()
        self.rows, self.values = self.rows[ends[first] :].copy(), self.values[ends[first] :].copy()

    def _block(
        self, first: int, last: int, known: Estimate | None, *, since: int, until: int, complete: bool
    ) -> SampleBlock:
        """Some of the waiting samples, to update an estimate of the time `since` to the time `until`."""
        ends = offsets(self.counts)[first : last + 1]
        entries = slice(ends[0], ends[-1])
        M = ObservedMatrix(ends - ends[0], self.rows[entries], self.values[entries], (self.features, last - first))
        rate = 0.0 if self.half_life is None else math.log(2) / self.half_life
        return SampleBlock(
            M,
            np.exp(-rate * (until - 1 - self.times[first:last])),
            math.exp(-rate * (until - since)),
            complete=complete,
            unit=1.0 if known is None else known.unit,
            backend=self.backend,
        )

    def _process(self, block: SampleBlock) -> None:
        """Update the current estimate and its rival by a complete block."""
        if self.current is None:
            self.current = fit_first(block, self.rank)
            return
        previous, self.current = self.current, update(self.current, block, self.rank)
        gain = self.current.sums.score - block.fade * previous.sums.score
        fails = all_fail = block.is_poorly_explained(previous, self.current)
        least_noise = self.current.latest
        rival = self.rival
        if rival is not None:
            estimate = update(rival.estimate, block, self.rank)
            all_fail = fails and block.is_poorly_explained(rival.estimate, estimate)
            least_noise = min(least_noise, estimate.latest)
            rival = Rival(estimate, block.fade * rival.against + gain, proven=True)
            rival = rival if rival.lead > 0 else None
        number = self.blocks + 1
        if all_fail or (number >= 4 and number.bit_count() == 1):  # the 4th, 8th, 16th ... block in any case
            fresh = fit_first(block, self.rank)
            if fresh is not None and max(fresh.latest, block.close) < BETTER * least_noise:
                rival = Rival(fresh, gain, proven=False)
        if rival is not None and rival.beats(self.current, fails=fails):
            self.current, rival, self.changes = rival.estimate, None, self.changes + 1
        self.rival = rival

    @property
    def estimate(self) -> Estimate:
        """The current estimate, updated by the samples that wait for a block."""
        if self._estimate is None:
            with one_blas_thread:
                self._estimate = self._with_waiting_samples().completed(self.rank)
        return self._estimate

    def _with_waiting_samples(self) -> Estimate:
        known, first, since, waiting = self.current, 0, self.until, self.counts.size
        if known is None and waiting:
            first = self._preliminary_size()
            since = int(self.times[first - 1]) + 1
            if self._preliminary[:2] != (self.until, first):
                block = self._block(0, first, None, since=self.until, until=since, complete=True)
                self._preliminary = self.until, first, fit_first(block, self.rank)
            known = self._preliminary[2]
        if known is None:
            return Estimate(np.eye(self.features, 1), Sums.zero(self.features, 1), 1.0, (0.0,))
        if first == waiting:
            return known
        rest = self._block(first, waiting, known, since=since, until=self.samples, complete=False)
        return update(known, rest, self.rank)

    def _preliminary_size(self) -> int:
        """How many samples the estimate before the first block is fitted to: most of them, but seldom more than before.

        The number grows by steps of `GROWTH`, so that reading the estimate often costs little.
        """
        ends = np.cumsum(self.counts)
        steps = math.ceil(math.log(self._block_entries() / ends[-1]) / math.log(GROWTH))
        return min(int(np.searchsorted(ends, self._block_entries() / GROWTH**steps)) + 1, ends.size)

    @property
    def U(self) -> Float:  # noqa: N802
        """The subspace (features x rank, orthonormal), the directions of most energy first."""
        return self.estimate.U

    @property
    def singular_values(self) -> Float:
        """Of the samples without noise and outliers, descending; a sample of age a counts 2^(-a / half_life) times."""
        return self.estimate.singular_values

    @property
    def noise(self) -> float:
        """The standard deviation of the inliers in the latest blocks."""
        return self.estimate.noise

    @property
    def regression(self) -> SubspaceRegression:
        """Robust regression on the subspace: ``stream.regression.coefficients(M)`` are the coefficients of samples."""
        return self.estimate.regression
