"""Videos: the background, and what is in front of it."""

from ..entries.clips.reader import NoVideoError
from ..entries.frames import Frame, Frames
from .background import Background
from .fitting import TooFewError
from .grey import TooLargeError, Video, read_video, sample_pixels
from .learning import learn
from .separation import Separation, separate_video
from .subtractor import BackgroundSubtractor
from .tracking import Follower, follow

__all__ = [
    "Background",
    "BackgroundSubtractor",
    "Follower",
    "Frame",
    "Frames",
    "NoVideoError",
    "Separation",
    "TooFewError",
    "TooLargeError",
    "Video",
    "follow",
    "learn",
    "read_video",
    "sample_pixels",
    "separate_video",
]
