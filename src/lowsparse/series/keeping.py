"""Readings kept aside in the pattern of those that are missing: runs as long, moments and days that all series miss.

The mask of what is missing is moved in time and laid over the readings, the runs that begin in some windows of time,
until a share of them is kept aside. Where little is missing, or moved by whole periods the mask meets no reading, runs
of random lengths are: of single series, or of all where what is missing are moments that nobody read. Single readings
are kept aside to see how bad ones matter to those beside them.
"""

from __future__ import annotations

import numpy as np

from .runs import Bool, Runs

SHARE = 0.1  # of the readings
MOST = 20_000  # readings: each is missing beside the others that are kept aside, unlike what is missing beside readings
LEAST = 0.002  # share of the entries that are missing, below which runs are drawn
WINDOWS = 40  # whose runs of the moved mask are used or not
LONGEST = 8  # a run is a period, or the data's length divided by this, at most
MOVES, FEW, TRIED = 8, 10, 32  # of the mask; if nobody read in few stretches of time, the best of more that are tried
LOST = 0.1  # share of the moments of such stretches that a good move may lay on no readings
WHOLE = 0.5  # share of the missing entries at moments that nobody read, from which on all series are drawn together
LENGTHS = (1, 2, 4, 8, 16, 32)  # moments of drawn runs
SINGLES, LEAST_SHARE, MOST_SHARE = 2000, 0.05, 0.2  # readings kept aside one by one, within these shares of all


def keep_aside(read: Bool, period: int, rng: np.random.Generator, before: Bool | None = None) -> Bool:
    """A mask of readings to be kept aside; at least one reading of every series stays.

    The mask of what is missing is moved by whole periods: days stay days. Others are kept aside than those before, but
    at moments that are kept aside as a whole.

    >>> read = np.ones((200, 3), bool)
    >>> read[50:60] = False
    >>> aside = keep_aside(read, 24, np.random.default_rng(1))
    >>> bool(aside.any()), bool((aside & ~read).any())
    (True, False)
    """
    wanted = min(SHARE * np.count_nonzero(read), MOST)
    aside = np.zeros(read.shape, bool)
    free = read if before is None else read & ~before
    if np.count_nonzero(~read) > LEAST * read.size:
        _copy_pattern(read, free, aside, wanted, period, rng)
    _draw_runs(read, free, aside, wanted, rng)
    whole = (2 * aside.sum(axis=1) > read.sum(axis=1)) & ~(free & ~aside).any(axis=1)
    aside[whole] = read[whole]  # a few series that were kept aside before would say what all others are
    return _leave_one(read, aside)


def keep_single_aside(free: Bool, rng: np.random.Generator) -> Bool:
    """A mask of single readings of those that are free; at least one of every series stays.

    >>> aside = keep_single_aside(np.ones((20_000, 3), bool), np.random.default_rng(1))
    >>> bool(0.04 < aside.mean() < 0.06)
    True
    """
    share = np.clip(SINGLES / max(1, int(np.count_nonzero(free))), LEAST_SHARE, MOST_SHARE)
    return _leave_one(free, free & (rng.random(free.shape) < share))


def _leave_one(read: Bool, aside: Bool) -> Bool:
    """The mask without the first reading of every series that has no other."""
    kept = read & ~aside
    for j in np.flatnonzero(~kept.any(axis=0) & read.any(axis=0)):
        aside[np.argmax(read[:, j]), j] = False
    return aside


def _copy_pattern(read: Bool, free: Bool, aside: Bool, wanted: float, period: int, rng: np.random.Generator) -> None:
    T = len(read)
    width, longest = max(1, T // WINDOWS), max(1, T // LONGEST, period)
    for move in _moves(read, free, period, rng):
        moved = np.roll(~read, move, axis=0)
        whole = np.broadcast_to(moved.all(axis=1, keepdims=True), moved.shape)  # wherever the run of a series began
        patterns = [Runs.of(moved), Runs.of(whole)] if whole.any() else [Runs.of(moved)]
        for window in rng.permutation(-(-T // width)):
            if np.count_nonzero(aside) >= wanted:
                return
            first = window * width
            inside = slice(first, first + width + longest)
            shape = len(aside[inside]), read.shape[1]
            for runs in patterns:
                own = runs.take(runs.begin // width == window)
                end = np.minimum(own.end, own.begin + longest)
                aside[inside] |= Runs(own.series, own.begin - first, end - first).mask(shape) & free[inside]


def _moves(read: Bool, free: Bool, period: int, rng: np.random.Generator) -> list[int]:
    """Moves of the mask by whole periods.

    Where nobody read in a few stretches of time, moves that cut one, or lay much of them on no readings, come last.
    """
    unread, filled = np.asarray(~read.any(axis=1)), np.asarray(free.any(axis=1))
    few = 0 < len(Runs.of(unread[:, None])) <= FEW
    moves = [period * int(rng.integers(1, max(2, len(read) // period))) for _ in range(TRIED if few else MOVES)]

    def harms(move: int) -> bool:
        moved = unread[np.arange(len(unread)) - move]
        lost = np.count_nonzero(moved & ~filled) > LOST * np.count_nonzero(moved)
        return bool(lost or (moved[0] and moved[-1]))

    return sorted(moves, key=harms)[:MOVES] if few else moves


def _draw_runs(read: Bool, free: Bool, aside: Bool, wanted: float, rng: np.random.Generator) -> None:
    """Runs of random lengths until a quarter of the wanted number is kept aside."""
    T, n = read.shape
    count = np.count_nonzero(aside)
    unread = n * np.count_nonzero(~read.any(axis=1)) > WHOLE * np.count_nonzero(~read) > 0
    for _ in range(int(wanted)):
        if count >= wanted / 4:
            return
        j, first, length = rng.integers(n), rng.integers(T), rng.choice(LENGTHS)
        own = slice(None) if unread else slice(j, j + 1)
        run = free[first : first + min(length, max(1, T // LONGEST)), own]
        aside[first : first + len(run), own] |= run
        count += np.count_nonzero(run) if unread else len(run)
