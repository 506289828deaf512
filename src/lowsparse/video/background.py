"""The background of a video: frames are separated by it.

With x_it the value of pixel i in frame t (of chroma the difference to grey),

    x_it = b_i · v_t + noise,  unless something is in front,

where v_t (r numbers for each frame) is the same for all pixels and colours: for rank 1 the brightness. How b is learnt
is in `fitting`. The coefficients v of a new frame come from the robust regression of some of its pixels; a frame whose
exposure is another has a curve of tones as well (see `tone`), and one whose white balance is another has a tint (see
`tint`). A pixel is in front if it differs from its background by more than `threshold` times √(s_i²/4 + 4 s² + f_i²)
grey levels, and so do most of its neighbours; f_i is what nobody sees, 10 grey levels, of chroma 5, and less where it
is dark. Leaves and water go farther by themselves, in small spots: how far is learnt from some whole frames
(`Background.flicker`), and a small region is in front only if it goes farther somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.frames import Frame
from ..entries.pictures import NEUTRAL, Grey, Picture, doubled, levels
from ..result import Result
from ..support.checks import check_count, check_positive
from ..sweeps import Float
from ..sweeps.native import num_threads
from . import compiled
from .foreground import FINE, Bounds, Separated, compiled_mask, foreground_mask, majority, max_of_block
from .ghosts import Sightings, outline_ratio
from .light import NO_LIGHT, share_lit
from .planes import combined, far_from, whole_levels
from .probes import PROBES, Probe
from .registration import Aligned, Registration, Shift, move_mask, shifted
from .sampling import Single
from .shadows import without_light
from .signs import Signs, edges_waver
from .tint import tinted, too_bright, untinted
from .tone import KNOTS, curve, inverse, toned

THRESHOLD = 1.5
INVISIBLE = 10.0  # differences of luma that nobody sees,
DARKEST = 2.5  # where it is dark,
BRIGHT = 100.0  # and the grey level from which on it is as said
COLOURED = 0.5  # times these are those of chroma
WITNESSES = 24  # whole frames from which the flicker is learnt
REACH = 3  # side of the square of blocks around a spot in which it flickers as well
BEYOND = 1.3  # times the flicker: what is in front goes that far
BATCH = 4  # frames whose v is computed together
PARTLY = 0.85  # of the usual share of pixels that are explained: with less, a part of a frame may have another light,
LIT = 0.2  # if this share of the pixels is in such a part;
SWITCHED, OFTEN = 0.9, 0.1  # lights may be switched if so much less is explained of such a share of the frames,
BADLY = 0.7  # or this share of half of them;
MOVES = 0.25  # share of the frames that do not show the background if the camera moves,
DRIFT = 4.0  # or pixels by which it has wandered


@dataclass(frozen=True)
class Background:
    """The background of a video: b and the noise of every pixel. `learn` makes one.

    Examples
    --------
    >>> from lowsparse.datasets import moving_blocks
    >>> from lowsparse.video import learn
    >>> clip = moving_blocks(60, 40, 48, random_state=2)
    >>> found = learn([Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames)], observe=0.5)
    >>> found.rank, found.still.luma.shape, found.coefficients.shape
    (2, (40, 48), (60, 2))
    """

    luma: Single  # (r, H, W)
    chroma: Single | None  # (r, 2, h, w), around grey
    noise: Single  # (H, W), in grey levels
    chroma_noise: Single | None  # (2, h, w)
    flicker: Single  # (⌈H/2⌉, ⌈W/2⌉): the largest distance that each block of pixels has gone as a part of a small spot
    usual: Float  # median of v over the frames
    brightness: Float  # r numbers, of which the product with v is the brightness of a frame
    coefficients: Float  # T x r: v of the frames from which it was learnt
    noise_level: tuple[float, float]  # median noise of luma and of chroma
    n_samples: int  # of each pixel
    entries: int  # sampled pixels in all
    result: Result  # of the solve from which v was learnt
    registration: Registration | None = None  # against the frame it was learnt from first, if the camera shakes
    lost: float = 0.0  # share of some frames, evenly spaced, whose edges are not those of the background
    drift: float = 0.0  # pixels by which the camera has wandered, its shaking apart
    seen: Float = field(default_factory=lambda: np.empty(0))  # share of each of these frames that is explained
    stays: float = 0.0  # share of the pixels that are in front, and as they are, to the end of the video
    undecided: float = 0.0  # share of them that long shows something else as well, which may be what is behind it
    missed: float = 0.0  # share of what was in front in the stream that was noticed only when it had left
    signs: Signs = field(default_factory=Signs)  # that it is wrong, in these frames
    returned: bool = False  # whether a scene of the stream came back after another one

    @property
    def rank(self) -> int:
        """Number of coefficients of a frame."""
        return len(self.luma)

    @cached_property
    def still(self) -> Picture:
        """The background with the usual coefficients."""
        return self.picture(self.usual)

    def picture(self, v: Float) -> Picture:
        """The background with these coefficients.

        Parameters
        ----------
        v
            r numbers, and, if the frame has a tone or a tint of its own, those of its curve, and of that: a row of
            `coefficients_of`.

        Returns
        -------
        Picture
            Luma, and chroma if the video is in colour.
        """
        light, tone, tint = self._parts(v)
        found = Picture(
            combined(light, self.luma), None if self.chroma is None else combined(light, self.chroma, NEUTRAL)
        )
        found = toned(found, curve(tone)) if tone.any() else found
        return tinted(found, tint) if tint.any() else found

    def even(self, picture: Picture, v: Float) -> Picture:
        """A picture without the tone and the tint of its frame.

        Parameters
        ----------
        picture
            As `align` gives it.
        v
            Its coefficients, a row of `coefficients_of`.

        Returns
        -------
        Picture
            Itself, if it has none.
        """
        _, tone, tint = self._parts(v)
        picture = untinted(picture, tint, self.picture(v[: -tint.size])) if tint.any() else picture
        return toned(picture, inverse(tone)) if tone.any() else picture

    def _parts(self, v: Float) -> tuple[Float, Float, Float]:
        """The coefficients, the curve of tones and the tint of a frame; the last two may be empty."""
        return v[: self.rank], v[self.rank : self.rank + KNOTS.size], v[self.rank + KNOTS.size :]

    def with_noise(self, picture: Picture, blocks: NDArray[np.bool_], rng: np.random.Generator) -> Picture:
        """A picture of the background with the noise that its pixels have, in some blocks of 2 x 2 of them.

        Parameters
        ----------
        picture
            What `picture` gives.
        blocks
            Those that get noise, a mask (⌈H/2⌉, ⌈W/2⌉).
        rng
            What draws it.

        Returns
        -------
        Picture
            Elsewhere as it was.
        """

        def noisy(plane: Grey, noise: Single) -> Grey:
            where = _resized(blocks, plane.shape[-2:])
            plane, spread = plane.copy(), noise[..., where]
            plane[..., where] = levels(plane[..., where] + spread * rng.standard_normal(spread.shape, np.float32))
            return plane

        luma = noisy(picture.luma, self.noise)
        if picture.chroma is None or self.chroma_noise is None:
            return Picture(luma)
        return Picture(luma, noisy(picture.chroma, self.chroma_noise))

    def align(self, frame: Frame, latest: Shift = (0, 0)) -> Aligned:
        """A frame and its picture as the camera would have taken it had it not moved.

        Parameters
        ----------
        frame
            A frame of the scene.
        latest
            The shift of the latest frame that had one, for a camera that pans.

        Returns
        -------
        Aligned
            The frame, its picture, and how far the camera had moved.
        """
        return Aligned.of(frame, self.registration, latest)

    def coefficients_of(self, pictures: Sequence[Picture]) -> tuple[Float, Float]:
        """How the background looks in these pictures, from a sample of their pixels.

        Parameters
        ----------
        pictures
            As `align` gives them.

        Returns
        -------
        v, explained
            The coefficients of each picture (n x r, and the numbers of its curve of tones and of its tint, see `tone`
            and `tint`), and the share of the probed pixels that agree with them.
        """
        return self._probe.coefficients_of(pictures)

    @cached_property
    def _probe(self) -> Probe:
        light, level, backend = (self.usual, self.brightness), self.noise_level[0], self.result.backend
        return Probe.of(self.luma, self.chroma, self.noise, level, *light, backend)

    def spread(self) -> tuple[Single, Single | None]:
        """The unit of a difference from the background, for each pixel.

        Returns
        -------
        luma, chroma
            √(s_i²/4 + 4 s² + f_i²) of each; None for chroma without colour.
        """

        def spread(noise: Single, level: float, squared: Single) -> Single:
            found = noise**2
            found /= 4
            found += np.float32(4 * level**2)
            found += squared
            return np.sqrt(found, out=found)

        dim = np.float32(INVISIBLE / BRIGHT) * self.still.luma
        np.clip(dim, np.float32(DARKEST), np.float32(INVISIBLE), out=dim)
        dim *= dim
        luma = spread(self.noise, self.noise_level[0], dim)
        if self.chroma_noise is None:
            return luma, None
        dim *= np.float32(COLOURED**2)
        coloured = dim if self.chroma_noise.shape[1:] == dim.shape else max_of_block(dim)
        return luma, spread(self.chroma_noise, self.noise_level[1], coloured)

    @property
    def least_visible(self) -> float:
        """The difference of luma, in grey levels, from which on something is in front: the median over the pixels."""
        return THRESHOLD * float(np.median(self.spread()[0]))

    def distance(
        self,
        picture: Picture,
        background: Picture,
        unit: tuple[Single, Single | None] | None = None,
        *,
        of_blocks: bool = False,
    ) -> Single:
        """The distance of each pixel from the background in units of `spread`: the larger one of luma and chroma.

        Parameters
        ----------
        picture, background
            What is compared.
        unit
            What `spread` gives, if it is at hand.
        of_blocks
            Only the largest in each block of 2 x 2 pixels.

        Returns
        -------
        array of float32
            One for each pixel, or for each block.
        """
        luma, chroma = self.spread() if unit is None else unit
        far = far_from(picture.luma, background.luma, luma)
        if of_blocks:
            far = max_of_block(far)
        if chroma is None or picture.chroma is None or background.chroma is None:
            return far
        for k in range(2):
            coloured = far_from(picture.chroma[k], background.chroma[k], chroma[k])
            if of_blocks != picture.halved:
                coloured = max_of_block(coloured) if of_blocks else picture.upsample(coloured)
            np.maximum(far, coloured, out=far)
        return far

    def separate(
        self, frames: Iterable[Frame], *, threshold: float = THRESHOLD, clean: int = 1, stabilise: bool = False
    ) -> Iterator[Separated]:
        """Separate frames.

        Parameters
        ----------
        frames
            In any order.
        threshold
            A pixel is in front beyond this distance,
        clean
            if most within this radius are as well.
        stabilise
            If the camera shakes, background and mask are where the frame has them; with `stabilise` they stay, and the
            frame is moved.

        Yields
        ------
        Separated
            One for each frame.
        """
        separator = self.separator(threshold, clean, stabilise)
        remaining = iter(frames)
        with ThreadPoolExecutor(num_threads()) as threads:
            latest: Shift = (0, 0)  # a camera that pans is followed
            while batch := [*threads.map(self.align, islice(remaining, BATCH), repeat(latest))]:
                latest = next((one.shift for one in reversed(batch) if one.shift != (0, 0)), latest)
                yield from threads.map(separator, batch, *self.coefficients_of([one.picture for one in batch]))

    def separator(
        self, threshold: float = THRESHOLD, clean: int = 1, stabilise: bool = False
    ) -> Callable[[Aligned, Float, float], Separated]:
        """A function that separates a frame.

        Parameters
        ----------
        threshold, clean, stabilise
            As for `separate`.

        Returns
        -------
        function
            Of an aligned frame, its coefficients, and the share of its pixels that are explained.
        """
        check_separation(threshold, clean)
        unit = self.spread()
        low, high = self.bounds(threshold, unit=unit), self.bounds(threshold, self.flicker, unit=unit)
        del unit  # as large as the background

        def separate(one: Aligned, v: Float, explained: float) -> Separated:
            background, mask = self.compare(one.picture, v, low, high, clean)
            mask = self.leave_light_out(mask, one.picture, background) if clean else mask
            if stabilise:
                return Separated(
                    replace(one.frame, picture=one.picture), v[: self.rank], background, mask, float(explained)
                )
            behind, mask = shifted(background, one.shift, one.frame.picture), move_mask(mask, one.shift)
            return Separated(one.frame, v[: self.rank], behind, mask, float(explained))

        return separate

    def leave_light_out(self, mask: NDArray[np.bool_], picture: Picture, behind: Picture) -> NDArray[np.bool_]:
        """A mask without shadows and patches of light, if there are any in the video.

        Parameters
        ----------
        mask, picture, behind
            What is in front, as `compare` gives it, a picture as `align` gives it, and the background there.

        Returns
        -------
        array
            True where something is in front that is no light.
        """
        factor = None if self.moves else self.signs.shadow_factor  # a smeared background is darker by chance
        darker, brighter = self.signs.has_shadows or factor is not None, self.signs.has_patches
        if not (darker or brighter):
            return mask
        return without_light(mask, picture, behind, darker=darker, brighter=brighter, factor=factor)

    def compare(
        self, picture: Picture, v: Float, low: Bounds, high: Bounds, radius: int = 1
    ) -> tuple[Picture, NDArray[np.bool_]]:
        """The background with these coefficients, and what is in front of it.

        Parameters
        ----------
        picture
            As `align` gives it.
        v
            Its coefficients.
        low, high, radius
            As for `foreground_mask`.

        Returns
        -------
        background, mask
            A picture, and True where something is in front.
        """
        if v[self.rank :].any() or not radius or not compiled.is_available():
            background, tint = self.picture(v), self._parts(v)[2]
            if tint.any():
                background = background.replaced(picture, too_bright(picture, background, tint))
            return background, foreground_mask(picture, background, low, high, radius)
        return compiled_mask(picture, self.luma, self.chroma, v[: self.rank], low, high, radius)

    def bounds(
        self, threshold: float, flicker: Single | None = None, unit: tuple[Single, Single | None] | None = None
    ) -> Bounds:
        """The differences, in grey levels, of pixels at some distance from the background; more where they flicker.

        Parameters
        ----------
        threshold
            The distance.
        flicker
            Of each block of pixels, if it is to count.
        unit
            What `spread` gives, if it is at hand.

        Returns
        -------
        Bounds
            Of luma, and of chroma if the video is in colour.
        """
        luma, chroma = self.spread() if unit is None else unit
        far = np.full(self.flicker.shape, threshold, np.float32)
        if flicker is not None:
            far = np.maximum(np.float32(BEYOND) * ndimage.maximum_filter(flicker, REACH), far)
        return Bounds(whole_levels(far, luma), None if chroma is None else whole_levels(far, chroma))

    def without_ghosts(self, pictures: Sequence[Picture]) -> Background:
        """This background, without things that have left in enough of these pictures (see `ghosts`).

        Parameters
        ----------
        pictures
            As `align` gives them.

        Returns
        -------
        Background
            Itself, if there are none.
        """
        bounds, v = self.bounds(THRESHOLD), self.coefficients_of(pictures)[0]
        brightness = np.maximum(v[:, : self.rank] @ self.brightness, NO_LIGHT).astype(np.float32)
        sightings = Sightings(self.noise.shape)
        for picture, one, light in zip(pictures, v, brightness, strict=True):
            background, mask = self.compare(picture, one, bounds, bounds)
            sightings.add(outline_ratio(mask, picture.luma, background.luma), picture.luma, light)
        gone, behind = sightings.gone()
        if not gone.any():
            return self
        even = [self.even(picture, one) for picture, one in zip(pictures, v, strict=True)]

        def replaced(
            planes: Single, noise: Single, level: float, values: Iterable[Grey], zero: int = 0
        ) -> tuple[Single, Single]:
            """b and noise, with the median over the pictures that show what is behind."""
            size = noise.shape[-2:]
            where = _resized(gone, size)
            shown = [
                np.where(_resized(ok, size)[where], (x[..., where].astype(np.float32) - zero) / light, np.nan)
                for ok, x, light in zip(behind, values, brightness, strict=True)
            ]
            planes, noise = planes.copy(), noise.copy()
            planes[..., where] = np.multiply.outer(self.brightness, np.nanmedian(shown, axis=0))
            noise[..., where] = np.maximum(noise[..., where], level)
            return planes, noise

        level = self.noise_level
        luma, noise = replaced(self.luma, self.noise, level[0], (one.luma for one in even))
        found = replace(self, luma=luma, noise=noise)
        if self.chroma is None or self.chroma_noise is None:
            return found
        values = (one.chroma for one in even if one.chroma is not None)
        chroma, noise = replaced(self.chroma, self.chroma_noise, level[1], values, NEUTRAL)
        return replace(found, chroma=chroma, chroma_noise=noise)

    def is_lit_otherwise(self, picture: Picture, v: Float, threshold: float = THRESHOLD) -> bool:
        """Whether a large part of a picture differs from the background, and has its texture.

        Parameters
        ----------
        picture
            As `align` gives it.
        v
            Its coefficients.
        threshold
            The distance from which a pixel differs.

        Returns
        -------
        bool
            True if the light has changed.
        """
        background, coarse = self.picture(v), self.noise.size > FINE
        changed = majority(self.distance(picture, background, of_blocks=coarse) > threshold, 1)
        if changed.mean() < LIT:
            return False
        lumas = (one.luma[::2, ::2] if coarse else one.luma for one in (picture, background))
        return share_lit(changed, *(ndimage.uniform_filter(luma, 3) for luma in lumas)) >= LIT  # less noise

    @property
    def moves(self) -> bool:
        """Whether the camera moves, other than by shaking, or there are several scenes: then this says little."""
        return self.lost > MOVES or self.drift >= DRIFT

    @property
    def uneven(self) -> bool:
        """Whether some frames are explained much less than others."""
        return self.seen.size > 0 and is_uneven(self.seen)

    @cached_property
    def wavers(self) -> bool:
        """Whether its edges move by a pixel or less: the camera vibrates, or the air shimmers."""
        flickers = doubled(self.flicker > THRESHOLD, self.noise.shape)
        return edges_waver(self.noise, self.noise_level[0], flickers, self.still.luma)

    def shares_explained(self, pictures: Sequence[Picture]) -> Float:
        """How much of each picture is as the background is.

        Parameters
        ----------
        pictures
            As `align` gives them.

        Returns
        -------
        array
            For each picture, the share of some of its pixels; of all kinds, unlike those that determine v.
        """
        pixels = some_pixels(self.noise.size)
        bound = THRESHOLD * self.spread()[0].ravel()[pixels]
        return np.array([np.mean(np.abs(far) <= bound) for far in self.leftovers(pictures, pixels)])

    def leftovers(self, pictures: Sequence[Picture], pixels: NDArray[np.int32]) -> Iterator[Single]:
        """What each picture has at these pixels, less what the background has there in its light.

        Parameters
        ----------
        pictures
            As `align` gives them.
        pixels
            Numbers of pixels.

        Yields
        ------
        array
            Grey levels, for one picture after the other.
        """
        b = self.luma.reshape(self.rank, 1, -1)[..., pixels]
        for picture, v in zip(pictures, self.coefficients_of(pictures)[0], strict=True):
            plain = not v[self.rank :].any()
            seen = combined(v[: self.rank], b)[0] if plain else self.picture(v).luma.ravel()[pixels]
            yield picture.luma.ravel()[pixels] - seen.astype(np.float32)


@lru_cache(maxsize=1)
def some_pixels(size: int) -> NDArray[np.int32]:
    """Numbers of some pixels of a picture with so many."""
    every = np.arange(size, dtype=np.int32)
    return np.random.default_rng(0x616C6C).permutation(every)[:PROBES].copy()


def is_uneven(shares: Float) -> bool:
    """Whether some pictures are explained much less than others, or most of them badly, by these shares of them.

    So it is if lights are switched: the brightness fits some of the pictures, or of all of them a part.
    """
    less = np.mean(shares < SWITCHED * np.quantile(shares, 0.9))
    return bool(less >= OFTEN or np.median(shares) < BADLY)


def check_separation(threshold: float, clean: int) -> None:
    """Raise if these cannot be a threshold and a radius."""
    check_positive("threshold", threshold)
    check_count("clean", clean, 0, 20)


def _resized(mask: NDArray[np.bool_], size: tuple[int, ...]) -> NDArray[np.bool_]:
    """A mask of pixels as one of blocks of 2 x 2 pixels, or the other way round, if it has not this size."""
    if mask.shape == size:
        return mask
    return max_of_block(mask) if mask.shape > size else doubled(mask, (size[0], size[1]))
