"""Video: what is behind, and what is in front of it."""

from .background import Background, TooFewError, learn
from .following import Follower, follow
from .frames import Frame, Frames, NoVideoError
from .separation import Separation, separate_video
from .whole import TooLargeError, Video, read_video, sample_pixels

__all__ = [
    "Background",
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
