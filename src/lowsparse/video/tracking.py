"""The background of an endless video: it adapts to the scene, in bounded memory, and every frame is read once.

The first 100 frames are held back until a background can be learnt from them, and learnt again from what is not in
front: in a short time somebody may cover a pixel for a large part of it. Where much of the scene moves by itself, up to
300 are: leaves and whoever walks before them are told from each other by how often they are seen, and by how calm they
are (see `spells`). From then on frames are separated as they come, and sampled; from 30 to 80 samples of each pixel,
spread over the latest 300 frames, it is learnt again every 50 frames, and more often when the scene is new, while the
next five pass. What has been in front for a second is not sampled: the background, with its noise, takes its place,
until it has been there for `absorb` seconds; from then on half of the samples make it background. Leaves and waves,
which are in front now and then, are sampled; how far they flicker is said by 24 witnesses, the latest, and behind
something large by earlier ones. When a ghost is found (see `ghosts`), its samples are corrected, so that it does not
come back.

Frames that the background does not explain anywhere are held back too, and those of which a large part has its texture
in another light. Ten of them in a row are a new scene: all samples are dropped, and a background is learnt from the
first of them on. Otherwise they are separated as they are, with much in front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from scipy import ndimage

from ..entries.frames import Frame
from ..entries.pictures import Picture
from ..support.checks import check_count
from ..support.memory import release_memory
from ..sweeps import Float
from .background import PARTLY, THRESHOLD, Background, check_separation
from .fitting import fit_background
from .flicker import Spots
from .foreground import Mask, Separated, max_of_block
from .ghosts import blocks_of_things
from .hindsight import Hindsight
from .learning import most_witnesses
from .light import MOSTLY, TILES, same_tiles, split_changes
from .local_light import with_local_light
from .registration import Aligned, Steadiness, move_mask, share_lost
from .relearning import FEW, complete, fitter, judged, learn_behind
from .sampling import MIN_SAMPLES, Layout, PixelSampler, PixelSamples, Single, check_fraction
from .shelf import Shelf
from .signs import Signs, restless
from .spells import things_before_leaves

ABSORB = 30.0  # seconds in front after which something is sampled,
SURE = 1.0  # and seconds after which it is not
SHARE = 0.1  # of the pixels of each frame that is sampled
LATEST, MOST = 30, 80  # samples of each pixel that are kept, and of small pictures:
LATEST_BYTES = 60_000_000  # as many as need so much
FIRST = 100  # frames from which a new scene is learnt,
LONGEST, HELD_BYTES = 300, 310_000_000  # and from which a restless one is, or as many as need so much
MUCH, LOUD = 0.08, 8.0  # share of the pixels that are never calm, or noise of most of them, if it is
PART, REFRESH = 5, 50  # the background is learnt again after a fifth of the scene so far, or so many frames
LAG = 5  # frames that pass while it is learnt
WITNESS_EVERY = 7  # one of so many frames, an odd number, shows how far pixels flicker
UNEXPLAINED = 0.5  # times the usual share of pixels that are explained: a frame with less is not explained
NEW_SCENE = 10  # frames in a row that are not explained make a new scene, unless the background
SEEN = 0.25  # is seen in this share of their tiles,
SEEN_TEXTURE = 0.08  # or in this one, with its texture
VISIBLE, OTHER = 20, 0.2  # grey levels that differ, and share of the pixels in which things do, between two scenes
EARLIER, SMALL = 5, 100_000  # scenes that are remembered, and pixels of their pictures, at most
LOOK_EVERY = 5  # one of so many frames shows what has an outline
FORGETTING = 0.02  # factor of the exponential mean of the share that is explained

Fitted = tuple[Aligned, Float, float]  # a frame, its v, and the share of its pixels that are explained


class Follower:
    """Takes frames one by one, and returns them separated, in order, some of them later.

    Parameters
    ----------
    rank
        Of the background; without, 1, or 2 for a scene in which light changes in a part of the picture.
    threshold, clean, backend, stabilise
        As for a background that is learnt once: see `learn` and `Background.separate`.
    observe
        Share of the pixels of each frame to sample; the background depends on the latest 30 / observe frames, of which
        small ones are sampled up to twice as often.
    absorb
        Seconds after which something that stays in front begins to become background; infinity: never.
    random_state
        Seed of the sample.

    Examples
    --------
    >>> from lowsparse.datasets import moving_blocks
    >>> from lowsparse.entries.pictures import Picture
    >>> follower, done = Follower(), []
    >>> for t, one in enumerate(moving_blocks(60, 40, 48, random_state=2).frames):
    ...     done += follower.take(Frame(Picture(one), t, t, t / 25))
    >>> done += follower.finish()
    >>> [one.frame.number for one in done] == list(range(60)), follower.waiting
    (True, 0)
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        observe: float = SHARE,
        absorb: float = ABSORB,
        threshold: float = THRESHOLD,
        clean: int = 1,
        random_state: int = 0,
        backend: str = "auto",
        stabilise: bool = False,
    ) -> None:
        check_fraction("observe", observe)
        check_absorb(absorb)
        if rank is not None:
            check_count("rank", rank)
        check_separation(threshold, clean)
        self.rank, self.follows_light = rank or 1, rank is None
        self.observe, self.absorb, self.backend = observe, absorb, backend
        self.threshold, self.clean, self.stabilise = threshold, clean, stabilise
        self.rng = np.random.default_rng(random_state)
        self._noise = np.random.default_rng(0x6E6F697365)  # another one, so that what is sampled does not depend on it
        self.scenes: list[int] = []  # numbers of their first frames
        self._background: Background | None = None
        self._separator: Callable[[Aligned, Float, float], Separated] | None = None  # by that
        self._known, self._lost = 0, 0.0  # frames that were judged in all scenes, and how many show no background
        self._drift = 0.0  # pixels by which the camera has wandered in a scene
        self._signs = Signs()  # in all scenes, that a background was wrong
        self._seen: Float = np.empty(0)  # shares of some frames of all scenes that were explained
        self._ended = Signs()  # the same, in scenes that have ended
        self._undecided = 0.0  # share of the pixels of a scene of which two things are seen for long
        self._looked_back = np.zeros(2)  # what was in front in some frames of all scenes, missed and known
        self._stills = deque[Picture](maxlen=EARLIER)  # of the latest scenes, small
        self._returned = False  # whether one came back
        self._threads = ThreadPoolExecutor(1)
        self._begin_scene([])

    @property
    def background(self) -> Background:
        """The background of the latest frame that was separated.

        Raises
        ------
        RuntimeError
            If none has been.
        """
        if self._background is None:
            raise RuntimeError("no background is known yet: take more frames, or finish")
        return self._background

    def _begin_scene(self, frames: list[Frame]) -> None:
        if frames:
            self._look_back()
        self.camera = Steadiness()
        self._sampler = PixelSampler(1.0)  # until there is a frame
        self._first = Shelf()  # frames of the scene, until its background is known
        self._unexplained: list[Aligned] = []
        self._v: list[Float] = []  # of the frames from `_oldest` on; empty until the background is known
        self._oldest = 0
        self._in_front: Single = np.zeros((1, 1), np.float32)  # seconds without a break, of blocks of 2 x 2 pixels
        self._time = 0.0  # of the latest frame
        self._things: Mask = np.zeros((1, 1), bool)  # blocks of what has an outline
        self._witnesses = Shelf()  # some of the frames since the background was learnt again
        self._judged = 0  # frames of the scene of which it is known whether they show the background
        self._usual = 1.0  # share of the pixels that are explained
        self._next: Future[tuple[Background, list[Spots]]] | None = None
        self._enough = FIRST  # frames from which the scene is learnt
        self._due = 0  # frames of the scene after which it is learnt again
        self._ready = 0  # and after which what is being learnt is used
        self._spots: list[Spots] = []  # of the latest witnesses
        self._hindsight = Hindsight()
        for frame in frames:
            self._hold_back(self.camera.align(frame))

    def take(self, frame: Frame) -> Iterator[Separated]:
        """Take the next frame.

        Parameters
        ----------
        frame
            The one after that of the last call.

        Yields
        ------
        Separated
            The frames that can be separated now.
        """
        if not self._v:
            yield from self._await_scene(frame)
            return
        self._refresh()
        aligned = self.camera.align(frame)
        fitted = self._fit([aligned])[0]
        if self._is_new(*fitted):
            self._unexplained.append(aligned)
            if len(self._unexplained) == NEW_SCENE:
                self._begin_scene([one.frame for one in self._unexplained])
            return
        yield from self._separate([*self._fit(self._unexplained), fitted])
        self._unexplained = []

    def _await_scene(self, frame: Frame) -> Iterator[Separated]:
        """Hold a frame back until there are enough; from half of them on it is noticed if a new scene begins before."""
        aligned = self.camera.align(frame)
        if len(self._first) == FIRST // 2 and not self._unexplained:
            self._know_early(fit_background(self._sampler, self.rank, self.backend))
        if len(self._first) >= FIRST // 2 and self._is_new(*self._fit([aligned])[0]):
            self._unexplained.append(aligned)
            if len(self._unexplained) == NEW_SCENE:
                begins = [one.frame for one in self._unexplained]
                yield from self._learn_scene()
                self._begin_scene(begins)
            return
        for one in (*self._unexplained, aligned):
            self._hold_back(one)
        self._unexplained = []
        if len(self._first) < self._enough:
            return
        self._background = fit_background(self._sampler, self.rank, self.backend)
        longer = most_held_back(aligned.picture)
        if self._enough < longer and is_restless(self._background):
            self._enough = longer
            self._know_early(self._background)
            return
        yield from self._learn_scene(fitted=True)

    def _know_early(self, background: Background) -> None:
        """Use a background to notice new scenes, while frames are held back."""
        self._background = background
        some = (self._fit([self._first[k]])[0] for k in range(0, len(self._first), 5))
        self._usual = float(np.median([explained for *_, explained in some]))

    def _is_new(self, one: Aligned, v: Float, explained: float) -> bool:
        """Whether a frame is of a new scene, or a large part of this one has another light."""
        if explained < UNEXPLAINED * self._usual and self._is_changed_everywhere(one.picture, v):
            return True
        if explained >= PARTLY * self._usual:
            return False
        return self.background.is_lit_otherwise(one.picture, v, self.threshold)

    def _is_changed_everywhere(self, picture: Picture, v: Float) -> bool:
        """Whether the background is seen in few tiles, with v and with the usual one: a large object leaves others.

        Tiles with a texture do not look alike by chance: fewer of them suffice.
        """
        background = self.background
        for one in (v, background.usual):
            still = background.picture(one)
            near = background.distance(picture, still) <= self.threshold
            tiles = [
                part.mean() for rows in np.array_split(near, TILES) for part in np.array_split(rows, TILES, axis=1)
            ]
            if np.mean(np.array(tiles) > MOSTLY) >= SEEN:
                return False
            lumas = (ndimage.uniform_filter(luma, 3) for luma in (picture.luma, still.luma))  # less noise
            if np.mean(same_tiles(near, *lumas)) >= SEEN_TEXTURE:
                return False
        return True

    def finish(self) -> Iterator[Separated]:
        """Separate the frames that are still held back.

        Yields
        ------
        Separated
            One after the other.
        """
        if not self._v and (self._background is None or len(self._first) >= max(MIN_SAMPLES, 2 * self.rank)):
            yield from self._learn_scene()  # raises if they are too few
        for one in (*self._first, *self._unexplained):
            yield from self._separate(self._fit([one]))
        if len(self._witnesses):
            self._use(judged(self.background, self.background, self._witnesses.pictures()))
        self._look_back()
        self._threads.shutdown()

    def _look_back(self) -> None:
        """Judge the masks of a scene by its last background."""
        last, before, now = self.background, self._ended, self._signs
        many, place = now.pictures - before.pictures, self._hindsight.place_in(last)
        self._looked_back += self._hindsight.missed_and_known(last)
        self._undecided = max(self._undecided, self._hindsight.share_undecided(last))
        missed, known = self._looked_back
        self._signs = self._ended = replace(  # a place that is never calm is known in the end, or was until it was left
            now,
            place=max(now.place, before.place + many * place.place),
            in_place=max(now.in_place, before.in_place + many * place.in_place),
        )
        self._background = replace(
            last,
            stays=self._hindsight.share_staying(last),
            undecided=self._undecided,
            missed=float(missed / (missed + known)) if missed else 0.0,
            signs=self._signs,
        )

    @property
    def waiting(self) -> int:
        """Number of frames that are held back."""
        return len(self._first) + len(self._unexplained)

    def frames_waiting(self) -> Iterator[Frame]:
        """The frames that are held back.

        Yields
        ------
        Frame
            In order.
        """
        return (one.frame for part in (self._first, self._unexplained) for one in part)

    def follow(self, frames: Iterable[Frame]) -> Iterator[Separated]:
        """Take all of these frames, and finish.

        Parameters
        ----------
        frames
            In order.

        Yields
        ------
        Separated
            One for each frame.
        """
        for frame in frames:
            yield from self.take(frame)
        yield from self.finish()

    def _hold_back(self, one: Aligned) -> None:
        if not self._sampler.frames:
            latest = most_samples(one.picture)
            share = min(self.observe * latest / LATEST, 1.0)
            self._sampler = PixelSampler(1.0, latest=latest, final_share=share, random_state=self.rng)
        self._sampler.add(one.picture)
        self._first.add(one)

    def _learn_scene(self, *, fitted: bool = False) -> Iterator[Separated]:
        """Learn the background from the first frames of a scene, unless it was fitted to them, and separate them.

        It has many pictures in it: each is dropped before the next one is learnt.
        """
        first, self._first = self._first, Shelf()
        if not len(first):
            self._fit_first(fitted)  # raises: there is no frame
        self._due = len(first) + min(len(first) // PART, REFRESH)
        stride = -(-len(first) // most_witnesses(first[0].picture))
        some, at = first.pictures(every=stride), range(0, len(first), stride)
        found, spots = learn_behind(self._fit_scene(fitted, some), some, at, self._sampler.samples(at_end=True))
        self._recognise(found.still)
        self._use(judged(found, found, some))
        del found, some  # the frames below are dropped one by one
        self._spots = spots
        self.scenes.append(first[0].frame.number)
        lights = [(v, explained) for one in first for _, v, explained in self._fit([one])]
        self._v = [v[: self.background.rank] for v, _ in lights]
        self._usual = float(np.median([explained for _, explained in lights]))
        release_memory()
        for v, explained in lights:
            yield self._separate_one(first.take(), v, explained)

    def _fit_scene(self, fitted: bool, pictures: Sequence[Picture]) -> Background:
        """The background fitted to the first frames, and to light that changes in a part of these pictures of them."""
        plain = self._fit_first(fitted)
        if not self.follows_light:
            return plain
        return with_local_light(plain, pictures, lambda: fit_background(self._sampler, 2, self.backend, plain=plain))

    def _fit_first(self, fitted: bool) -> Background:
        """The background fitted to the first frames of a scene, unless it was; it is not known any more here."""
        known, self._background, self._separator = self._background, None, None
        found = known if fitted and known else fit_background(self._sampler, self.rank, self.backend)
        del known
        release_memory()
        samples = self._sampler.samples(at_end=True)
        if is_restless(found) and samples.uncover(things_before_leaves(found, samples)) >= FEW:
            return fitter(found)(samples, found.coefficients)
        return found

    def _recognise(self, still: Picture) -> None:
        """Notice if a scene is not the one before, but one before that: what was between may have been in front."""
        small = Picture(still.luma)
        while small.luma.size > SMALL:
            small = small.shrunken(2)
        known = [not is_another(one, small) for one in self._stills]
        self._returned |= any(known) and not known[-1]
        self._stills.append(small)

    def _use(self, background: Background) -> None:
        if self._v and background.rank < len(self._v[0]):  # only the brightness is followed from now on
            self._v = [np.array([v @ self.background.brightness]) for v in self._v]
        self._drift = max(self._drift, self.camera.drift)
        frames, self._judged = self._sampler.frames - self._judged, self._sampler.frames
        self._known, self._lost = self._known + frames, self._lost + background.lost * frames
        registration = self.camera.registration if self.camera.shakes else None
        lost, self._signs = self._lost / self._known, self._signs + background.signs
        self._seen = np.concatenate([self._seen, background.seen])
        self._background = background = replace(
            background,
            registration=registration,
            lost=lost,
            drift=self._drift,
            signs=self._signs,
            seen=self._seen,
            returned=self._returned,
        )
        self._separator = None  # it keeps the background before
        self._separator = background.separator(self.threshold, self.clean, self.stabilise)

    def _separate_one(self, one: Aligned, v: Float, explained: float) -> Separated:
        assert self._separator is not None
        separated = self._separator(one, v, explained)
        self._hindsight.add(one, self._aligned_mask(one, separated.mask))
        return separated

    def _aligned_mask(self, one: Aligned, mask: Mask) -> Mask:
        """A mask as it is in the aligned picture."""
        return mask if self.stabilise else move_mask(mask, (-one.shift[0], -one.shift[1]))

    def _fit(self, frames: list[Aligned]) -> list[Fitted]:
        if not frames:
            return []
        fitted = self.background.coefficients_of([one.picture for one in frames])
        return [(one, v, float(explained)) for one, v, explained in zip(frames, *fitted, strict=True)]

    def _separate(self, fitted: list[Fitted]) -> Iterator[Separated]:
        """Separate frames, and sample them if they belong to a scene that is known."""
        for one, v, explained in fitted:
            separated = self._separate_one(one, v, explained)
            if self._v:
                self._sampler.add(self.background.even(self._without_standers(one, v, separated.mask), v))
                if len(self._v) % WITNESS_EVERY == 0:
                    self._witnesses.add(one)
                self._v.append(v[: self.background.rank])
                self._usual += FORGETTING * (explained - self._usual)
            yield separated

    def _without_standers(self, one: Aligned, v: Float, mask: Mask) -> Picture:
        """The picture of a frame, with the background in place of what has been in front for a while, but not too long.

        It gets the noise of its pixels: without it they would seem to be calmer than they are.
        Only where it has an outline: something else may be a ghost, which is to be forgotten (see `ghosts`).
        """
        mask = self._aligned_mask(one, mask)
        seconds, self._time = max(one.frame.time - self._time, 0.0), one.frame.time
        self._in_front = np.where(max_of_block(mask), self._in_front + np.float32(seconds), np.float32(0))
        stays = (self._in_front > SURE) & (self._in_front <= self.absorb)
        if not stays.any():
            return one.picture
        background = self.background.picture(v)
        if len(self._v) % LOOK_EVERY == 0 or self._things.shape != stays.shape:
            self._things = blocks_of_things(mask, one.picture.luma, background.luma)
        hidden = stays & self._things
        return one.picture.replaced(self.background.with_noise(background, hidden, self._noise), hidden)

    def _refresh(self) -> None:
        """When it is time, use the background that was learnt meanwhile, and start learning the next one."""
        if self._next is not None and self._sampler.frames >= self._ready:
            (learnt, self._spots), self._next = self._next.result(), None
            self._use(learnt)
            del learnt
            release_memory()
        if self._sampler.frames < self._due:
            return
        self._ready = self._due + LAG
        self._due += min(self._due // PART, REFRESH)
        current, samples = self.background, self._sampler.samples()
        oldest = samples.oldest
        del self._v[: oldest - self._oldest]
        self._oldest = oldest
        recent = PixelSamples(samples.layout, [replace(one, first=one.first - oldest) for one in samples.intervals])
        v, entries = np.asarray(self._v), self._sampler.entries
        witnesses, self._witnesses = self._witnesses.pictures(), Shelf()
        earlier = self._spots

        def learn_again() -> tuple[Background, list[Spots]]:
            fitted = fitter(replace(current, entries=entries))(recent, v)
            release_memory()
            whole, spots = complete(fitted, witnesses, recent, earlier)
            del fitted
            release_memory()
            return judged(whole, current, witnesses), spots

        release_memory()
        self._next = self._threads.submit(learn_again)


def is_another(one: Picture, other: Picture) -> bool:
    """Whether two backgrounds are of two scenes: they have other edges, or much differs that is no light.

    >>> wall = np.add.outer(np.arange(60) % 5 * 20, np.arange(80) % 7 * 12).astype(np.uint8)
    >>> covered, dark = wall.copy(), wall // 2
    >>> covered[:, 20:70] = 160
    >>> is_another(Picture(wall), Picture(covered)), is_another(Picture(wall), Picture(dark))
    (True, False)
    """
    if share_lost(one, [other]) or share_lost(other, [one]):
        return True
    differs = np.abs(one.luma.astype(np.int16) - other.luma) > VISIBLE
    return bool(split_changes(differs, one.luma, other.luma)[1].mean() > OTHER)


def most_samples(picture: Picture) -> int:
    """How many samples of each pixel are kept of pictures as large as this."""
    return int(np.clip(LATEST_BYTES // Layout(picture).bytes, LATEST, MOST))


def most_held_back(picture: Picture) -> int:
    """How many frames as large as this are held back at the beginning of a restless scene."""
    return int(np.clip(HELD_BYTES // picture.nbytes, FIRST, LONGEST))


def is_restless(background: Background) -> bool:
    """Whether so much of a scene moves by itself, as leaves and water do, that its looks are learnt slowly."""
    level = background.noise_level[0]
    return bool(level > LOUD or restless(background.noise, level).mean() > MUCH)


def check_absorb(absorb: float) -> None:
    """Raise if this cannot be a time in seconds."""
    if not absorb >= 0:
        raise ValueError(f"absorb must be a number of seconds, 0 or more, not {absorb!r}")


def follow(
    frames: Iterable[Frame],
    *,
    rank: int | None = None,
    observe: float = SHARE,
    absorb: float = ABSORB,
    threshold: float = THRESHOLD,
    clean: int = 1,
    random_state: int = 0,
) -> Iterator[Separated]:
    """Separate the frames of a video that need not end.

    Parameters
    ----------
    frames
        The frames in order, for example `lowsparse.video.Frames`.
    rank, observe, absorb, threshold, clean, random_state
        As of a `Follower`.

    Returns
    -------
    iterator of Separated
        One for each frame, in order, with its mask and background; the first come after a few frames have been seen.

    Examples
    --------
    >>> from lowsparse.datasets import moving_blocks
    >>> from lowsparse.entries.pictures import Picture
    >>> clip = moving_blocks(120, 40, 48, random_state=2)
    >>> frames = (Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames))
    >>> right = [float(np.mean(one.mask == clip.moving[one.frame.number])) for one in follow(frames)]
    >>> len(right), float(np.mean(right)) > 0.97
    (120, True)
    """
    follower = Follower(
        rank=rank, observe=observe, absorb=absorb, threshold=threshold, clean=clean, random_state=random_state
    )
    return follower.follow(frames)
