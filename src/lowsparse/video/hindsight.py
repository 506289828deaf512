"""What speaks against the masks of a stream, seen from its end.

A stream separates each frame by what is known then. Frames of a scene, evenly spaced, are remembered with their masks,
and compared with its last background: who stays to the end is in front of it, as for a background that is learnt from
the whole video; and who was taken for background until he left is in front of it as well, but was not in the masks.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from ..entries.pictures import Grey
from ..sweeps import Float
from .background import THRESHOLD, Background
from .foreground import Mask, majority, max_of_block
from .ghosts import blocks_of_things
from .learning import MANY_WITNESSES, most_witnesses
from .registration import Aligned
from .sampling import EvenSpacing
from .shelf import Shelf
from .signs import Signs
from .witnesses import place_in, share_staying, share_undecided

RIM = 2  # blocks around a mask, and width of what is beyond it: it may have been a little smaller than it should be


class Hindsight:
    """Some frames of a scene, with their masks.

    >>> from lowsparse.datasets import moving_blocks
    >>> from lowsparse.entries.frames import Frame
    >>> from lowsparse.entries.pictures import Picture
    >>> from lowsparse.video import learn
    >>> clip = moving_blocks(60, 40, 48, random_state=2)
    >>> frames = [Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames)]
    >>> background, good, bad = learn(frames, observe=0.5), Hindsight(), Hindsight()
    >>> for frame, mask in zip(frames, clip.moving):
    ...     good.add(Aligned(frame, frame.picture), mask)
    ...     bad.add(Aligned(frame, frame.picture), mask & (frame.number > 30))
    >>> missed, known = bad.missed_and_known(background)
    >>> bool(missed > known / 5), bool(good.missed_and_known(background)[0] < missed / 20)
    (True, True)
    """

    def __init__(self) -> None:
        self._spacing = EvenSpacing(MANY_WITNESSES)
        self._frames, self._masks = Shelf(), list[Grey]()  # masks of blocks, eight in a byte

    def add(self, one: Aligned, mask: Mask) -> None:
        """The next frame, and its mask in the aligned picture."""
        self._spacing.most = most_witnesses(one.picture)
        thin, is_chosen = self._spacing.choose()
        if thin:
            self._frames.drop_every_second()
            del self._masks[1::2]
        if is_chosen:
            self._frames.add(one)
            self._masks.append(np.packbits(max_of_block(mask)))

    def share_staying(self, background: Background) -> float:
        """Share of the pixels that are in front, and as they are, to the end: see `witnesses`."""
        return share_staying(background, self._frames.pictures()) if len(self._frames) else 0.0

    def share_undecided(self, background: Background) -> float:
        """Share of the pixels that long show something else, which may be what is behind: see `witnesses`."""
        return share_undecided(background, self._frames.pictures())

    def place_in(self, background: Background) -> Signs:
        """A place that is never calm: the mean over the frames of `witnesses.place_in`."""
        many = max(len(self._frames), 1)
        found = place_in(background, self._frames.pictures())
        return Signs(place=found.place / many, in_place=found.in_place / many)

    def missed_and_known(self, background: Background) -> Float:
        """What is in front of this background, with an outline of its own, but not in the masks; and what is in them.

        Both are sums over the frames of shares of the picture.
        """
        low, high = background.bounds(THRESHOLD), background.bounds(THRESHOLD, background.flicker)
        missed, front = 0, 0
        for picture, bits in zip(self._frames.pictures(), self._masks, strict=True):
            behind, mask = background.compare(picture, background.coefficients_of([picture])[0][0], low, high)
            mask = background.leave_light_out(mask, picture, behind)
            found = max_of_block(mask)
            known = np.unpackbits(bits, count=found.size).reshape(found.shape).view(bool)
            front += int(np.count_nonzero(known))
            new = majority(found & ~ndimage.binary_dilation(known, np.ones((3, 3), bool), RIM), RIM)
            if new.any():
                missed += int(np.count_nonzero(new & blocks_of_things(mask, picture.luma, behind.luma)))
        return np.array([missed, front]) / max(background.flicker.size, 1)
