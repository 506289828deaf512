"""The encoding of a text: what is not Unicode is read as Windows-1252 or Latin-1, its bytes come back as they were."""

import codecs

MARKS = {  # byte order marks; that of UTF-16 begins like that of UTF-32
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SAMPLE = 1 << 12  # bytes
PIECE = 1 << 24


def to_utf8(content: bytes) -> tuple[bytes, str]:
    """A text in UTF-8, without a byte order mark, and the encoding it was in.

    >>> to_utf8("größe".encode("latin-1"))[0].decode(), to_utf8("größe".encode("latin-1"))[1]
    ('größe', 'cp1252')
    """
    encoding = next((name for mark, name in MARKS.items() if content.startswith(mark)), None)
    if encoding == "utf-8-sig" and _is_utf8(content):
        return content[len(codecs.BOM_UTF8) :], encoding
    encoding = encoding or _wide_characters(content)
    if encoding is None and _is_utf8(content):
        return content, "utf-8"
    for name in [encoding] if encoding else ["cp1252", "latin-1"]:
        try:
            return content.decode(name).encode(), name
        except UnicodeDecodeError as error:
            problem = error
    raise ValueError(f"it is not in {encoding}, as its first bytes say ({problem.reason} at byte {problem.start})")


def _wide_characters(content: bytes) -> str | None:
    """UTF-16 without a byte order mark: every other byte of plain English is zero."""
    start = content[: SAMPLE // 2 * 2]
    for name, zeros, others in (("utf-16-le", start[1::2], start[::2]), ("utf-16-be", start[::2], start[1::2])):
        if len(zeros) > 2 and 2 * zeros.count(0) > len(zeros) and not others.count(0):
            return name
    return None


def _is_utf8(content: bytes) -> bool:
    pieces = (content[first : first + PIECE] for first in range(0, len(content), PIECE))
    try:
        return all(isinstance(text, str) for text in codecs.iterdecode(pieces, "utf-8"))
    except UnicodeDecodeError:
        return False
