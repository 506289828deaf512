"""Addresses (URLs) as they are shown: without what may be secret."""

import re

SCHEME = r"\b([a-z][a-z0-9+.-]+:/+)"  # of two letters or more: C:/ is a drive; a `Path` keeps one slash of two
# `user:password@`; a password that holds a slash should be quoted, but is a password all the same
CREDENTIALS = re.compile(SCHEME + r"(?:[^\s/@:]*:\S*|[^\s/]*)@", re.IGNORECASE)
QUERY = re.compile(SCHEME + r"([^\s?#]*[?#])\S*[^\s:;,.)'\"]", re.IGNORECASE)


def hide_passwords(text: str) -> str:
    """The text with stars for user names, passwords and queries (tokens) of the addresses in it.

    >>> hide_passwords("rtsp://me:secret@cam-2:554/live?token=x: refused")
    'rtsp://***@cam-2:554/live?***: refused'
    """
    return QUERY.sub(r"\1\2***", CREDENTIALS.sub(r"\1***@", text))


def shown_address(source: str) -> str:
    """A file or address for messages: a whole address, in which spaces belong to it, without passwords.

    >>> shown_address("rtsp://me:my secret@cam-2/live"), shown_address("my films/a@b.avi")
    ('rtsp://***@cam-2/live', 'my films/a@b.avi')
    """
    return hide_passwords(re.sub(r"\s", "%20", source)) if "://" in source else source
