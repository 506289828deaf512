"""The output folder of a command: checked before the work, written to a temporary folder, moved at the end."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..support.files import FULL
from .failure import fail
from .signals import defer_signals

__all__ = ["output_folder", "reason_not_writable"]


def reason_not_writable(out: Path) -> str | None:
    """Why nothing can be written to this folder, which need not exist yet; None if it can."""
    existing = _nearest_existing(out.absolute())
    if not existing.is_dir():
        return f"{existing} is not a folder: choose another --out"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"cannot write to {existing}: choose another --out"
    return None


def _nearest_existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if os.path.lexists(parent))


@contextmanager
def output_folder(out: Path, names: Sequence[str], *, force: bool) -> Iterator[Path]:
    """A temporary folder whose files are moved to `out` if the block succeeds, and removed if it fails.

    The files to be written, `names`, must not exist without `force`, which is checked before the block and after it.
    Other files in `out` are left alone.
    """
    if reason := reason_not_writable(out):
        fail(reason)
    for name in names:
        _check_replaceable(out / name, force)
    target = out.resolve()
    # on the same disk as the target, where a rename is atomic
    home = target if target.is_dir() else target.parent
    temporary = home / f".{target.stem}.part-{secrets.token_hex(4)}{target.suffix}"
    with _parents(target), _note_on_interrupt():
        try:
            _make_folder(temporary)
            yield temporary
            _move(temporary, target, out, force)
        finally:
            with defer_signals():
                shutil.rmtree(temporary, ignore_errors=True)


def _move(temporary: Path, target: Path, out: Path, force: bool) -> None:
    """Move everything to the target, or nothing if something is in the way."""
    found = sorted(temporary.rglob("*"))
    for path in found:
        place = out / path.relative_to(temporary)
        if not path.is_dir():
            _check_replaceable(place, force)
        elif os.path.lexists(place) and not place.is_dir():
            fail(f"{place} is not a folder: choose another --out")
    with defer_signals():
        if not target.exists():
            os.replace(temporary, target)
            return
        for path in found:
            place = target / path.relative_to(temporary)
            if path.is_dir():
                place.mkdir(exist_ok=True)
            else:
                os.replace(path, place)


@contextmanager
def _parents(target: Path) -> Iterator[None]:
    """Make the parent folders; remove those that are new if the block fails."""
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        _make_folder(target.parent)
        yield
    except BaseException:
        with defer_signals(), suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in FULL:  # has a message of its own
            raise
        fail(f"cannot write to {_nearest_existing(folder)} ({error.strerror or error}): choose another --out")


@contextmanager
def _note_on_interrupt() -> Iterator[None]:
    """Add to Ctrl-C that nothing was written, unless it has a note."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not getattr(error, "__notes__", []):
            error.add_note("nothing was written")
        raise


def _check_replaceable(place: Path, force: bool) -> None:
    """Fail if something exists there that must not be replaced by a file."""
    if place.exists() and not place.is_file():
        fail(f"{place} is {'a folder' if place.is_dir() else 'not a regular file'}: choose another --out")
    if os.path.lexists(place) and not force:
        fail(f"{place} exists: use --force to overwrite it, or choose another --out")
