"""Separate a video into background and foreground: read, learn, separate, write."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.clips.media import import_av
from ..entries.clips.reader import NoVideoError
from ..entries.frames import Frames
from ..entries.pictures import Picture, Region
from ..places.decide import check_can_run
from ..support.files import write
from ..sweeps import Float
from .background import THRESHOLD, Background, check_separation
from .film import CONTAINERS, Film, PictureFolder, Writer, write_picture
from .fitting import OnProgress, TooFewError
from .foreground import Separated
from .learning import learn
from .prefetch import prefetch
from .sound import Sound
from .tracking import ABSORB, SHARE, Follower, check_absorb
from .tracks import Tracker, Tracks
from .truth import Scores, Truth, read_truth
from .views import FILMS, VIEWS, parse_film

STILL = "background.png"
TRACKS = ("tracks.csv", "tracks.json")


@dataclass(frozen=True)
class Separation:
    """What was found in a video, frame by frame, and where it was written; `separate_video` gives it.

    Examples
    --------
    >>> import tempfile
    >>> from lowsparse.datasets import moving_blocks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "clip.npy"), moving_blocks(40, 48, 64, random_state=3).frames)
    ...     done = separate_video(Path(folder, "clip.npy"), Path(folder, "out"))
    >>> done.shape, done.colour, done.shares.shape, bool(done.shares.max() < 0.5)
    ((48, 64), False, (40,), True)
    """

    files: list[Path]
    shape: tuple[int, int]  # height, width
    colour: bool
    rate: Fraction  # frames per second
    pixel_aspect: Fraction  # width of a pixel by its height
    skipped: int  # damaged frames
    observe: float  # share of the pixels that was sampled
    numbers: list[int]  # of the frames in the source, from 0
    times: Float  # seconds
    shares: Float  # of the pixels of each frame that are in front
    coefficients: Float  # T x r: for rank 1 the brightness; 0 where a scene has a lower rank
    explained: Float  # share of the probed pixels of each frame that agree with the background
    scenes: list[int]  # numbers of their first frames
    background: Background  # of a stream the last one
    tracks: Tracks | None  # if asked for
    scores: dict[str, float]  # against the truth
    seconds: dict[str, float]  # of the stages

    def __len__(self) -> int:
        return len(self.numbers)


def separate_video(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    rank: int | None = None,
    observe: float | None = None,
    stream: bool = False,
    absorb: float = ABSORB,
    colour: bool = True,
    region: Region | None = None,
    start: int = 0,
    stop: int | None = None,
    every: int = 1,
    shrink: int = 1,
    fps: float | None = None,
    threshold: float = THRESHOLD,
    clean: int = 1,
    stabilise: bool = False,
    films: Sequence[str] = FILMS,
    tracks: bool = False,
    audio: bool = False,
    truth: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    backend: str = "auto",
    until: threading.Event | None = None,
    on_progress: OnProgress | None = None,
    watch: Callable[[Separated], object] | None = None,
) -> Separation:
    """Separate the background of a video from what is in front of it, and write both to a folder.

    `background.png` and the `films` appear at the end, all of them; after an error or Ctrl-C none does. A film is
    "mask", "cutout" (what is in front, on grey), "overlay" (tinted in the frame) or "background", an MP4; "mask.mkv" is
    without loss (FFV1), as are the pictures in a folder of "mask.png". With `tracks`, the boxes of what is in front and
    the numbers of objects are written to `tracks.csv` and, in the format of COCO, `tracks.json`. With `audio`, films
    have the sound of the video. What is read is described by `Frames`, the background (`rank`, `observe`,
    `random_state`, `backend`) by `learn`, `threshold`, `clean` and `stabilise` by `Background.separate`, `truth` by
    `read_truth`.

    Frames are decoded twice, to learn the background from all of them and to separate them. With `stream` they are read
    once, and the background adapts to the scene, in bounded memory (see `Follower`), until the event `until` is set;
    what stays in front for `absorb` seconds becomes background.
    `on_progress` is called with the stage ("reading", "solving", "writing"), the number done and the total (or None);
    `watch` with each frame that has been separated, in order.

    Parameters
    ----------
    source, colour, region, start, stop, every, shrink, fps
        What is read: see `Frames`.
    folder
        Where the files go; it is made.
    rank, observe, random_state, backend
        Of the background: see `learn`.
    threshold, clean, stabilise
        Of the masks: see `Background.separate`.
    stream, absorb, until
        Read once, with a background that adapts, until the event is set.
    films, tracks, audio
        What is written.
    truth
        Masks to compare with: see `read_truth`.
    on_progress, watch
        Called while it runs.

    Returns
    -------
    Separation
        What was found and the `files` that were written.

    Raises
    ------
    NoVideoError
        If there is no video, or one of too few frames.

    Examples
    --------
    >>> import tempfile
    >>> from lowsparse.datasets import moving_blocks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "clip.npy"), moving_blocks(40, 48, 64, random_state=3).frames)
    ...     done = separate_video(Path(folder, "clip.npy"), Path(folder, "out"))
    ...     len(done), sorted(os.listdir(Path(folder, "out")))
    (40, ['background.png', 'cutout.mp4', 'mask.mp4'])
    """
    files = {file: view for view, file in map(parse_film, films)}
    check_separation(threshold, clean)
    check_absorb(absorb)
    check_can_run(backend)
    import_av()
    if audio:
        _check_sound(source, fps, files)
    scores = Scores(Truth() if truth is None else read_truth(truth, region=region, shrink=shrink), clean)
    clock = _Clock(on_progress)
    frames = Frames(
        source,
        colour=colour,
        region=region,
        start=start,
        stop=stop,
        every=every,
        shrink=shrink,
        fps=fps,
        replay=not stream,
    )
    with frames, _naming(frames), _output_folder(Path(folder)) as out:
        if stream:
            follower = Follower(
                rank=rank,
                observe=SHARE if observe is None else observe,
                absorb=absorb,
                threshold=threshold,
                clean=clean,
                random_state=random_state,
                backend=backend,
                stabilise=stabilise,
            )
            separated = follower.follow(prefetch(frames, 2, until=until or threading.Event()))
            length, sampled = frames.length, follower.observe
            video = _SeparatedVideo(separated, length, sampled, lambda: follower.background, follower.scenes)
        else:
            background = learn(
                prefetch(frames),
                rank=rank,
                observe=observe,
                length=frames.find_length(),
                random_state=random_state,
                backend=backend,
                on_progress=clock.report,
            )
            separated = background.separate(prefetch(frames), threshold=threshold, clean=clean, stabilise=stabilise)
            length = len(background.coefficients)
            sampled = min(1.0, background.entries / (length * background.noise.size))
            video = _SeparatedVideo(separated, length, sampled, lambda: background)
        outputs = _Outputs(out, files, frames, source if audio else None, Tracker() if tracks else None)
        return _write(outputs, video, scores, clock, watch)


@dataclass(frozen=True)
class _SeparatedVideo:
    """The frames of a video, which are separated as they are iterated over."""

    frames: Iterator[Separated]
    length: int | None
    observe: float  # share of the pixels that is sampled
    background: Callable[[], Background]  # the latest one
    scenes: Sequence[int] = ()  # numbers of their first frames, if there may be several


class _Outputs:
    """The films, tracks and the still of a video, written frame by frame; they appear when the context is left."""

    def __init__(
        self,
        folder: Path,
        views: Mapping[str, str],
        frames: Frames,
        sound: str | os.PathLike[str] | None,
        tracker: Tracker | None,
    ) -> None:
        self.folder, self.views, self.frames, self.sound, self.tracker = folder, views, frames, sound, tracker
        self.films: dict[str, Writer] = {}
        self._begin = 0.0  # time of the first frame
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    def write(self, one: Separated) -> None:
        """The next frame."""
        if not self.films:
            self._begin = one.frame.time
            self.films = {file: self._stack.enter_context(self._open(file)) for file in self.views}
        for file, film in self.films.items():
            film.write(VIEWS[self.views[file]](one), one.frame.time - self._begin, one.frame.label)
        if self.tracker is not None:
            self.tracker.add(one.mask, one.frame.number, one.frame.time)

    def _open(self, file: str) -> Writer:
        path = self.folder / file
        if not path.suffix:
            return PictureFolder(path)
        return Film(
            path,
            rate=self.frames.rate,
            static=self.views[file] == "background",
            pixel_aspect=self.frames.pixel_aspect,
            sound=None if self.sound is None else Sound(self.sound, self._begin),
        )

    def finish(self, still: Picture) -> None:
        """Wait for all films, before the first one gets its name, and write the still."""
        for film in self.films.values():
            film.finish()
        write_picture(self.folder / STILL, still)

    def write_tracks(
        self, numbers: Iterable[int], labels: Iterable[int], times: Float, shape: tuple[int, int]
    ) -> Tracks | None:
        """Write the tracks, if asked for; of all frames numbers, labels and times are given."""
        if self.tracker is None:
            return None
        tracks = self.tracker.tracks()
        write(self.folder / TRACKS[0], tracks.to_csv())
        write(self.folder / TRACKS[1], tracks.to_coco(numbers, labels, times, shape))
        return tracks

    @property
    def paths(self) -> list[Path]:
        """What is written."""
        return [self.folder / name for name in (STILL, *self.films, *(() if self.tracker is None else TRACKS))]


def _write(
    outputs: _Outputs,
    video: _SeparatedVideo,
    scores: Scores,
    clock: _Clock,
    watch: Callable[[Separated], object] | None,
) -> Separation:
    """Write everything, and collect the figures of every frame."""
    frames, numbers, labels = outputs.frames, array("q"), array("q")
    rows = array("d")  # of each frame time, share, explained: a stream may be long
    v, ranks = array("d"), array("H")  # of all frames, one after the other, and how many numbers are of each
    with outputs:
        for one in video.frames:
            if not numbers:
                scores.check(one.mask.shape)
            outputs.write(one)
            numbers.append(one.frame.number)
            labels.append(one.frame.label)
            rows.extend((one.frame.time, one.share, one.explained))
            v.extend(one.coefficients)
            ranks.append(len(one.coefficients))
            if one.frame.label in scores.truth.masks:
                scores.add(one, video.background().distance(one.frame.picture, one.background))
            if watch is not None:
                watch(one)
            clock.report("writing", len(numbers), video.length)
        still = video.background().still
        outputs.finish(still)
        times, shares, explained = np.array(rows).reshape(len(numbers), -1).T
        tracks = outputs.write_tracks(numbers, labels, times, still.shape)
    return Separation(
        files=outputs.paths,
        shape=still.shape,
        colour=still.chroma is not None,
        rate=frames.rate,
        pixel_aspect=frames.pixel_aspect,
        skipped=frames.skipped,
        observe=video.observe,
        numbers=numbers.tolist(),
        times=times,
        shares=shares,
        coefficients=_rows_of(np.array(v), np.array(ranks)),
        explained=explained,
        scenes=list(video.scenes) or numbers.tolist()[:1],
        background=video.background(),
        tracks=tracks,
        scores=scores.summary(still),
        seconds=clock.stop(),
    )


def _rows_of(numbers: Float, counts: NDArray[np.uint16]) -> Float:
    """A matrix of which each row has so many of the numbers, and zeros behind: scenes may differ in rank.

    >>> _rows_of(np.array([1.0, 2.0, 3.0]), np.array([1, 2]))
    array([[1., 0.],
           [2., 3.]])
    """
    rows = np.zeros((len(counts), counts.max()))
    rows[np.arange(rows.shape[1]) < counts[:, None]] = numbers
    return rows


def _check_sound(source: str | os.PathLike[str], fps: float | None, files: Iterable[str]) -> None:
    """Raise if the sound of a source cannot be kept in these files."""
    if fps is not None:
        raise ValueError("audio and fps do not go together: sound has the pace of the video; leave one of them out")
    sound = Sound(source)
    try:
        for suffix in {Path(file).suffix for file in files} & set(CONTAINERS):
            with import_av().open(os.devnull, "w", format=CONTAINERS[suffix][0]) as film:
                sound.attach(film)
    finally:
        sound.close()


class _Clock:
    """Passes progress on, and times the stages."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.on_progress, self.stage, self.since = on_progress, "reading", time.perf_counter()
        self.seconds: dict[str, float] = {}

    def report(self, stage: str, done: int, total: int | None) -> None:
        if stage != self.stage:
            self.stop()
            self.stage = stage
        if self.on_progress is not None:
            self.on_progress(stage, done, total)

    def stop(self) -> dict[str, float]:
        now = time.perf_counter()
        self.seconds[self.stage] = now - self.since
        self.since = now
        return self.seconds


@contextmanager
def _naming(frames: Frames) -> Iterator[None]:
    """Name the video of which there are too few frames, and count the damaged ones."""
    try:
        yield
    except TooFewError as error:
        damaged = f", {frames.skipped} damaged ones were skipped" if frames.skipped else ""
        raise NoVideoError(f"{frames.name}: {error}{damaged}") from error


@contextmanager
def _output_folder(path: Path) -> Iterator[Path]:
    """A folder to write to; if it is new and stays empty, it is removed."""
    made = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    except BaseException:
        if made and not any(path.iterdir()):
            path.rmdir()
        raise
