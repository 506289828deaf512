"""The command that does the same again, as reports tell it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence

__all__ = ["command_again", "without_passwords"]

PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")  # of an address


def command_again(typed: Sequence[str] | None = None) -> str:
    """What was typed after `lowsparse`, with --force, because what it writes is there now.

    >>> command_again(["video", "rtsp://me:secret@cam-2/live", "--out", "a b"])
    "lowsparse video rtsp://cam-2/live --out 'a b' --force"
    """
    words = list(sys.argv[1:] if typed is None else typed)
    if "--force" not in words:
        words.insert(words.index("--") if "--" in words else len(words), "--force")
    return without_passwords(shlex.join(["lowsparse", *words]))


def without_passwords(text: str) -> str:
    """The text as it may be passed on.

    >>> without_passwords("rtsp://me:secret@cam-2/live")
    'rtsp://cam-2/live'
    """
    return PASSWORD.sub("", text)
