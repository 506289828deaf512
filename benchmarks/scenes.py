"""Clips in which it is known where something is in front: real pictures with walkers pasted on them, and made-up ones.

    scene = make("night", Sources.of(data), seed=0)
    scene.frames, scene.moving, scene.at  # the clip, masks, and the frames to which they belong

Pictures and moving backgrounds come from the research data where they are at hand, and walkers are then people cut out
of vtest.avi as well; without the data, rooms and walkers are made up. What is pasted is known to the pixel. The seed
chooses picture, walkers and their ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from lowsparse.datasets import moving_blocks
from lowsparse.entries.frames import Frame, Frames
from lowsparse.entries.pictures import Picture, levels

Array = NDArray[Any]
Mask = NDArray[np.bool_]

NOISE = 2.0  # grey levels
LANES, MIN_ROAD = 3, 40  # of a road, and its width in pixels from which on cars are seen
LENGTH = 200  # frames
FILM = "vtest.avi"
STILLS = {  # archives of which the median is a picture without people, and the steps by which it is made smaller
    "i2r_hall100": 1,
    "i2r_shoppingmall91": 2,
    "i2r_escalator200": 1,
    "i2r_lobby30_rgb": 1,
}
TREES, NOBODY = "wallflower_wavingtrees287", 240  # frames without anybody
WATER, BESIDE = "i2r_watersurface48", 106  # columns from here on show nothing but water


@dataclass(frozen=True)
class Scene:
    """A clip and the truth."""

    name: str
    frames: NDArray[np.uint8]  # (T, H, W) or (T, H, W, 3)
    moving: Mask  # masks of some frames,
    at: NDArray[np.intp]  # and which they are

    def as_frames(self) -> list[Frame]:
        """The frames as the package takes them."""
        pictures = [Picture(one) if one.ndim == 2 else Picture.of_rgb(one) for one in self.frames]
        return [Frame(picture, t, t, t / 25) for t, picture in enumerate(pictures)]


@dataclass(frozen=True)
class Walker:
    """Something that is pasted: its pixels (h, w, 3) and which of them are its own."""

    pixels: Array
    shape: Mask

    def scaled(self, height: int) -> Walker:
        """As high as this."""
        by = height / len(self.shape)
        shape = ndimage.zoom(self.shape.astype(float), by, order=1) > 0.5
        return Walker(ndimage.zoom(self.pixels, (by, by, 1), order=1)[: shape.shape[0], : shape.shape[1]], shape)


@dataclass(frozen=True)
class Sources:
    """Pictures (H, W, 3), backgrounds that move (T, H, W, 3), scenes with a truth of their own, and people."""

    stills: list[Array]
    clips: dict[str, Array] = field(default_factory=dict)
    known: dict[str, Scene] = field(default_factory=dict)
    people: list[Walker] = field(default_factory=list)

    @classmethod
    def of(cls, data: Path | None) -> Sources:
        """From the research data, or made up where they are not at hand."""
        rooms = [_room(np.random.default_rng(k)) for k in range(3)]
        if data is None or not (data / f"{TREES}.npz").exists():
            return cls(rooms)
        stills = [
            _coloured(np.median(_load(data, name), axis=0))[::by, ::by]
            for name, by in STILLS.items()
            if (data / f"{name}.npz").exists()
        ]
        street, people = _street(data / FILM) if (data / FILM).exists() else (rooms[0], [])
        with np.load(data / f"{TREES}.npz") as arrays:
            grey, at = arrays["frames"], np.flatnonzero(np.isin(arrays["frame_id"], arrays["gt_frame_id"]))
            known = {"waving trees": Scene("waving trees", grey, arrays["gt"] > 127, at)}
        clips = {"trees": _coloured(grey[:NOBODY])}
        if (data / f"{WATER}.npz").exists():
            water = _load(data, WATER)[:, :, BESIDE:]
            clips["water"] = _coloured(np.concatenate([water, water[:, :, ::-1]], axis=2))
        return cls([*stills, street], clips, known, people)


def make(name: str, sources: Sources, seed: int = 0) -> Scene:
    """The scene of that name.

    >>> scene = make("switch", Sources.of(None), seed=3)
    >>> scene.frames.shape, scene.moving.shape, bool(0.01 < scene.moving.mean() < 0.3)
    ((200, 96, 128), (200, 96, 128), True)
    """
    if name in sources.known:
        return sources.known[name]
    rng = np.random.default_rng([seed, list(SCENES).index(name)])
    frames, moving = SCENES[name](sources, rng)
    return Scene(name, levels(frames), moving, np.arange(len(frames)))


def available(sources: Sources) -> list[str]:
    """The names of the scenes that can be made."""
    needs = {"water": "water", "walkers before trees": "trees"}
    return [name for name in SCENES if name not in needs or needs[name] in sources.clips] + list(sources.known)


# ---------------------------------------------------------------------- pictures and people


def _load(data: Path, name: str) -> Array:
    with np.load(data / f"{name}.npz") as arrays:
        return np.asarray(arrays["frames"])


def _coloured(levels: Array) -> Array:
    """With three equal channels at the end, if there are none."""
    return (levels if levels.shape[-1] == 3 else np.repeat(levels[..., None], 3, axis=-1)).astype(np.float32)


def _room(rng: np.random.Generator) -> Array:
    """A room with tiles, shades and a texture."""
    y, x = np.mgrid[0 : 1 : 96 * 1j, 0 : 1 : 128 * 1j]
    tiles = (np.floor(rng.integers(4, 9) * x) + np.floor(rng.integers(3, 7) * y)) % 2
    texture = ndimage.gaussian_filter(rng.standard_normal((96, 128)), 1.5)
    grey = 85 + 60 * (1 - y) + 22 * tiles + 14 * np.sin(9 * x + rng.uniform(2, 6) * y) + 20 * texture / texture.std()
    return np.asarray(grey[..., None] * rng.uniform(0.8, 1.1, 3), np.float32)


def _street(path: Path) -> tuple[Array, list[Walker]]:
    """The street of a film without people, and people cut out of it."""
    frames = [frame.picture.rgb() for frame in Frames(path, every=16, stop=800)]
    street = np.median(frames, axis=0)
    people = []
    for frame in frames[::4]:
        labels, _ = ndimage.label(
            ndimage.binary_opening(np.abs(frame - street).max(axis=2) > 35, np.ones((3, 3), bool))
        )
        for k, part in enumerate(ndimage.find_objects(labels), 1):
            shape = ndimage.binary_fill_holes(labels[part] == k)
            h, w = shape.shape
            if h > 60 and 1.8 < h / w < 3.5 and shape.mean() > 0.5:
                people.append(Walker(frame[part].astype(np.float32), shape))
    return street[2::4, 2::4].astype(np.float32), people


def _made_up_walker(rng: np.random.Generator, contrast: tuple[float, float], mean: float) -> Walker:
    """An upright body with a texture, darker or brighter than the mean by the contrast."""
    h, w = 48, int(48 * rng.uniform(0.35, 0.5))
    y, x = np.mgrid[-1 : 1 : h * 1j, -1 : 1 : w * 1j]
    texture = ndimage.gaussian_filter(rng.standard_normal((h, w)), 2)
    grey = mean + rng.choice([-1, 1]) * rng.uniform(*contrast) + 8 * texture / texture.std()
    colour = rng.uniform(0.85, 1.15, 3)
    return Walker(np.clip(grey[..., None] * colour, 4, 250), np.abs(y) ** 2.5 + np.abs(x) ** 2.5 <= 1)


# ---------------------------------------------------------------------- what happens


@dataclass
class Made:
    """A clip that is being made: its frames so far, and where something is in front."""

    frames: Array  # (T, H, W, 3)
    rng: np.random.Generator
    people: list[Walker] = field(default_factory=list)
    moving: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.moving = np.zeros(self.frames.shape[:3], bool)

    @classmethod
    def on(cls, sources: Sources, rng: np.random.Generator, length: int = LENGTH, *, colour: bool = False) -> Made:
        """On one of the pictures, or of those in colour."""
        stills = [one for one in sources.stills if not colour or np.ptp(one, axis=2).any()]
        still = stills[rng.integers(len(stills))]
        return cls(np.repeat(still[None], length, axis=0), rng, sources.people)

    def paste(self, walker: Walker, t: int, top: int, left: int) -> None:
        """Show a walker in a frame."""
        H, W = self.moving.shape[1:]
        h, w = walker.shape.shape
        rows, columns = slice(max(top, 0), min(top + h, H)), slice(max(left, 0), min(left + w, W))
        own = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
        shape = walker.shape[own]
        self.frames[t, rows, columns][shape] = walker.pixels[own][shape]
        self.moving[t, rows, columns] |= shape

    def walk(
        self, count: int = 3, *, contrast: tuple[float, float] = (30, 90), stay: tuple[float, float] | None = None
    ) -> Made:
        """Let some walk to and fro, each away for a third of the time; with `stay`, the first stands still meanwhile.

        Every second one is a person, where there are any and no low contrast is asked for.
        """
        T, H, W = self.moving.shape
        for k in range(count):
            made_up = k % 2 == 0 or not self.people or contrast[1] < 30
            walker = (
                _made_up_walker(self.rng, contrast, float(self.frames[0].mean()))
                if made_up
                else self.people[self.rng.integers(len(self.people))]
            ).scaled(int(H * self.rng.uniform(0.25, 0.45)))
            h, w = walker.shape.shape
            top, phase, crossings = int(self.rng.integers(H - h + 1)), self.rng.random(), self.rng.uniform(1, 2.5)
            position = np.abs((phase + crossings * np.linspace(0, 1, T)) % 2 - 1)
            there = (np.arange(T) / T * 3 + phase) % 1 >= 0.35
            if k == 0 and stay is not None:
                first, last = (int(moment * T) for moment in stay)
                position[first:last] = position[first]
                there = (np.arange(T) >= first - 20) & (np.arange(T) < last + 20)
            for t in np.flatnonzero(there).tolist():
                self.paste(walker, t, top, round(position[t] * (W - w)))
        return self

    def light(self, factor: Array) -> Made:
        """Multiply by the light, which is given for frames, or for frames and pixels."""
        self.frames *= factor.reshape(*factor.shape, *[1] * (4 - factor.ndim)).astype(np.float32)
        return self

    def finish(self, noise: float = NOISE, *, colour: bool = False) -> tuple[Array, Mask]:
        """Frames with the noise of a camera, and the masks."""
        frames = self.frames if colour else self.frames @ np.array([0.299, 0.587, 0.114], np.float32)
        return frames + noise * self.rng.standard_normal(frames.shape).astype(np.float32), self.moving


def _half_of_the_lights(made: Made) -> Made:
    T, H, W = made.moving.shape
    dim = np.ones((H, W))
    dim[:, W // 2 :] = 0.55
    factor = np.ones((T, H, W), np.float32)
    factor[T // 2 :] = ndimage.gaussian_filter(dim, 6)
    return made.light(factor)


def _steps(made: Made, low: float, first: float, last: float) -> Made:
    """Darker between two moments."""
    t = np.arange(len(made.frames)) / len(made.frames)
    return made.light(np.where((t >= first) & (t < last), low, 1.0))


def _tone(made: Made, exponent: Array, gain: Array) -> Made:
    """A camera that sets its curve of tones anew in each frame: levels to this power, times the gain."""
    for frame, power, factor in zip(made.frames, exponent, gain, strict=True):
        frame[:] = factor * 255 * (frame.clip(0, 255) / 255) ** power
    return made


def _automatic(made: Made) -> Made:
    """An exposure that changes for a third of the time, within a few frames: mid tones more than the darkest and
    brightest."""
    T = len(made.frames)
    begin, power = made.rng.uniform(0, 0.5) * T, made.rng.choice([0.65, 0.8, 1.3, 1.6])
    changed = ndimage.gaussian_filter1d(((np.arange(T) >= begin) & (np.arange(T) < begin + T / 3)).astype(float), 2)
    return _tone(made, power**changed, np.ones(T))


def _breathing(made: Made) -> Made:
    """An exposure that is never at rest."""
    T = len(made.frames)
    wave = np.sin(np.linspace(0, made.rng.uniform(2, 5) * 2 * np.pi, T) + made.rng.uniform(0, 6))
    return _tone(made, 1 + 0.2 * wave, 1 - 0.05 * wave)


def _tint(made: Made, red: Array, blue: Array) -> Made:
    """A camera that sets its white balance anew in each frame: red and blue times these factors."""
    made.frames[..., 0] *= red.reshape(-1, 1, 1)
    made.frames[..., 2] *= blue.reshape(-1, 1, 1)
    return made


def _white_balance(made: Made) -> Made:
    """A white balance that changes for a third of the time, within a few frames: towards red, or towards blue."""
    T = len(made.frames)
    begin, warmer = made.rng.uniform(0, 0.5) * T, made.rng.choice([-1, 1]) * made.rng.uniform(0.1, 0.3)
    changed = ndimage.gaussian_filter1d(((np.arange(T) >= begin) & (np.arange(T) < begin + T / 3)).astype(float), 2)
    return _tint(made, np.exp(warmer * changed), np.exp(-warmer * made.rng.uniform(0.5, 1) * changed))


def _drifting_tint(made: Made) -> Made:
    """A white balance that is never at rest."""
    T = len(made.frames)
    wave = np.sin(np.linspace(0, made.rng.uniform(1, 4) * 2 * np.pi, T) + made.rng.uniform(0, 6))
    return _tint(made, 1 + 0.15 * wave, 1 - 0.15 * wave)


def _snow(made: Made) -> Made:
    T, H, W = made.moving.shape
    for t in range(T):
        for y, x in made.rng.integers((H - 1, W - 1), size=(60, 2)):
            made.frames[t, y : y + 2, x : x + 2] = 235
    return made


def _leaves(made: Made) -> Made:
    """In the upper left a texture waves: every pixel shows now this, now that part of it."""
    T, H, W = made.moving.shape
    rng, y, x = made.rng, *np.mgrid[:H, :W]
    texture = ndimage.gaussian_filter(rng.standard_normal((H + 40, W + 40)), 1.2)
    texture = 90 + 38 * texture / texture.std()
    phase = 75 * ndimage.gaussian_filter(rng.standard_normal((H, W)), 9)
    crown = (y < H // 2) & (x < W // 2)
    for t in range(T):
        wind = 4 * np.sin(2 * np.pi * t / 17) + 2 * np.sin(2 * np.pi * t / 7.3)
        columns = np.rint(20 + x + wind * np.sin(phase)).astype(int).clip(0, W + 39)
        rows = np.rint(20 + y + 1.5 * np.cos(phase + t / 5)).astype(int).clip(0, H + 39)
        made.frames[t][crown] = texture[rows, columns][crown, None]
    return made


def _camera(made: Made, shifts: Array) -> Made:
    """A part of the picture, taken from (rows, columns) of each frame on; the rest is beyond the border."""
    _, H, W = made.moving.shape
    rows, columns = np.asarray(shifts, int).T
    h, w = H - rows.max(), W - columns.max()
    moved = [made.frames[t, y : y + h, x : x + w] for t, (y, x) in enumerate(zip(rows, columns, strict=True))]
    return Made(np.stack(moved), made.rng, made.people)


def _shaking(made: Made) -> Made:
    shifts = ndimage.gaussian_filter1d(made.rng.standard_normal((len(made.frames), 2)), 0.7, axis=0)
    return _camera(made, np.rint(2 * shifts).clip(-3, 3) + 3)


def _panning(made: Made) -> Made:
    T, _, W = made.moving.shape
    return _camera(made, np.stack([np.zeros(T), np.linspace(0, W / 4, T)], axis=1))


def _large_and_dark(made: Made) -> Made:
    T, _, W = made.moving.shape
    part = slice(int(0.65 * T), int(0.8 * T)), slice(None), slice(W // 4, int(0.8 * W))
    made.frames[part] = made.rng.uniform(20, 60, made.frames[part].shape[:3])[..., None]
    made.moving[part] = True
    return made


def _shadows(made: Made) -> Made:
    """Beside what is in front, to the right, it is darker, and softly so; shadows are not in front."""
    reach = 8
    for t, mask in enumerate(made.moving):
        cast = np.zeros(mask.shape)
        cast[:, reach:] = mask[:, :-reach]
        made.frames[t] *= (1 - 0.35 * ndimage.gaussian_filter(cast, 1.5) * ~mask)[..., None].astype(np.float32)
    return made


def _car(rng: np.random.Generator) -> Walker:
    """The back of a car: body and roof, a dark window, wheels, lamps."""
    y, x = np.mgrid[-1 : 1 : 48 * 1j, -1 : 1 : 56 * 1j]
    roof = (np.abs(x) < 0.8 + 0.3 * y) & (y < 0) & (y > -0.95)
    window = (np.abs(x) < 0.68 + 0.3 * y) & (y < -0.2) & (y > -0.8)
    wheels = (np.abs(np.abs(x) - 0.72) < 0.16) & (y > 0.6)
    shape = (np.abs(x / 0.97) ** 6 + np.abs((y - 0.3) / 0.6) ** 6 < 1) | roof | wheels
    colour = rng.uniform(20, 230) * rng.uniform(0.7, 1.2, 3)
    pixels = np.clip(colour * (1.1 - 0.2 * y)[..., None], 12, 245)
    pixels[window], pixels[wheels] = rng.uniform(25, 70), 22
    pixels[(np.abs(np.abs(x) - 0.8) < 0.12) & (np.abs(y - 0.15) < 0.1)] = (150, 30, 30)
    return Walker(pixels, shape)


def _asphalt(rng: np.random.Generator, along: Array, across: Array) -> Array:
    """A road without a texture, its lines, and grass beside it; `along` is 0 at the horizon and 1 below."""
    picture = np.repeat((rng.uniform(110, 150) * (0.95 + 0.1 * along))[..., None], 3, axis=2)
    picture[np.abs(across * LANES - np.rint(across * LANES)) < 0.03] = 205
    grass = ndimage.gaussian_filter(rng.standard_normal(along.shape), 1.3)
    off = (across < 0) | (across > 1)
    picture[off] = (85, 110, 60) * (1 + 0.12 * grass[off] / grass.std())[:, None]
    picture[along == 0] = (190, 200, 215)
    return picture.astype(np.float32)


def _drives(rng: np.random.Generator) -> Array:
    """How far along the road each car (column) is in each frame; NaN while it is not there. Some stop for a while."""
    begins = np.cumsum(rng.exponential(14, 40).astype(int) + 5) - 80
    places = np.full((LENGTH, len(begins)), np.nan)
    for k, begin in enumerate(begins):
        along, speed, held = 0.0, rng.uniform(0.02, 0.04), rng.integers(30, 80) * (rng.random() < 0.15)
        for t in range(begin, LENGTH):
            stands = along > 0.5 and held > 0
            held -= stands
            along += 0.0 if stands else speed * (0.12 + along)
            if t >= 0 and along < 1.6:
                places[t, k] = along
    return places


def _road(rng: np.random.Generator, height: int = 168, width: int = 224) -> Made:
    """A road in the sun, seen from above it, on which cars drive up.

    Their shadows, all of one factor, fall to one side and have soft borders; they are not in front.
    """
    y, x = np.mgrid[:height, :width]
    horizon = 0.1 * height
    along = np.clip((y - horizon) / (height - horizon), 0, 1)
    still = _asphalt(rng, along, (x - 0.5 * width * (1 - along)) / np.maximum(1.05 * width * along, 1))
    made = Made(np.repeat(still[None], LENGTH, axis=0), rng)
    factor, side, reach = rng.uniform(0.5, 0.75), rng.choice([-1, 1]), rng.uniform(0.35, 0.9)
    places, cars = _drives(rng), [_car(rng) for _ in range(12)]
    lane = (rng.integers(LANES, size=(places.shape[1],)) + 0.5) / LANES
    for t, there in enumerate(places):
        light: Array = np.ones(along.shape)
        seen: list[tuple[Walker, int, int]] = []
        for k in np.argsort(there)[: np.count_nonzero(~np.isnan(there))]:  # the farthest first
            road = 1.05 * width * there[k]
            if road < MIN_ROAD:
                continue
            car = cars[k % len(cars)].scaled(round(0.17 * road))
            h, w = car.shape.shape
            top = round(horizon + (height - horizon) * there[k]) - h
            first = round(0.5 * width * (1 - there[k]) + road * lane[k] - w / 2)
            if not (top < height and -w < first < width):
                continue
            seen.append((car, top, first))
            ends = sorted((first + w / 2, first + w / 2 + side * (0.5 + reach) * w))
            cast = np.zeros(along.shape)
            cast[max(top + h // 2, 0) : top + h, max(int(ends[0]), 0) : max(int(ends[1]), 0)] = 1
            light = np.minimum(light, 1 - (1 - factor) * ndimage.gaussian_filter(cast, 0.06 * w))
        made.frames[t] *= light[..., None].astype(np.float32)
        for car, top, first in seen:
            made.paste(car, t, top, first)
    return made


def _moving_background(name: str) -> Callable[[Sources, np.random.Generator], tuple[Array, Mask]]:
    def scene(sources: Sources, rng: np.random.Generator) -> tuple[Array, Mask]:
        clip = sources.clips[name]
        there_and_back = np.concatenate([clip, clip[-2:0:-1]])
        return Made(there_and_back[np.arange(LENGTH) % len(there_and_back)], rng, sources.people).walk().finish(0.0)

    return scene


def _blocks(_: Sources, rng: np.random.Generator) -> tuple[Array, Mask]:
    clip = moving_blocks(LENGTH, 96, 128, random_state=rng)
    return clip.frames, clip.moving


SCENES: dict[str, Callable[[Sources, np.random.Generator], tuple[Array, Mask]]] = {
    "blocks": _blocks,
    "walkers in colour": lambda s, r: Made.on(s, r, colour=True).walk().finish(colour=True),
    "long stay": lambda s, r: Made.on(s, r, 240).walk(stay=(0.3, 0.75)).finish(),
    "long stay in colour": lambda s, r: Made.on(s, r, 240, colour=True).walk(stay=(0.3, 0.75)).finish(colour=True),
    "camouflage": lambda s, r: Made.on(s, r).walk(contrast=(14, 22)).finish(),
    "large and dark": lambda s, r: _large_and_dark(Made.on(s, r).walk()).finish(),
    "shadows": lambda s, r: _shadows(Made.on(s, r).walk()).finish(),
    "ramp": lambda s, r: Made.on(s, r).walk().light(np.linspace(0.6, 1.15, LENGTH)).finish(),
    "switch": lambda s, r: _steps(Made.on(s, r).walk(), 0.6, 0.4, 0.7).finish(),
    "flickering light": lambda s, r: Made.on(s, r).walk().light(r.normal(1, 0.12, LENGTH).clip(0.7, 1.3)).finish(),
    "half of the lights": lambda s, r: _half_of_the_lights(Made.on(s, r).walk()).finish(),
    "night": lambda s, r: Made.on(s, r).walk().light(np.full(LENGTH, 0.25)).finish(1.5),
    "snow": lambda s, r: _snow(Made.on(s, r).walk()).finish(),
    "leaves": lambda s, r: _leaves(Made.on(s, r)).walk().finish(),
    "walkers before trees": _moving_background("trees"),
    "water": _moving_background("water"),
    "shaking": lambda s, r: _shaking(Made.on(s, r)).walk().finish(),
    "panning": lambda s, r: _panning(Made.on(s, r)).walk().finish(),
    "automatic exposure": lambda s, r: _automatic(Made.on(s, r).walk()).finish(),
    "breathing exposure": lambda s, r: _breathing(Made.on(s, r).walk()).finish(),
    "road in the sun": lambda s, r: _road(r).finish(colour=True),
    "white balance": lambda s, r: _white_balance(Made.on(s, r, colour=True).walk()).finish(colour=True),
    "drifting white balance": lambda s, r: _drifting_tint(Made.on(s, r, colour=True).walk()).finish(colour=True),
}
