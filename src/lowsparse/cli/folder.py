"""The output folder of a command: checked before the work, written to a temporary folder, moved at the end."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..support.files import FULL, TemporaryFolder, remove_leftovers
from .failure import advise, fail
from .signals import defer_signals

NOTHING = "nothing was written"


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
def output_folder(
    out: Path,
    names: Sequence[str],
    *,
    pictures: Sequence[str] = (),
    stale: Sequence[str] = (),
    force: bool,
    stopped: str = NOTHING,
) -> Iterator[Path]:
    """A temporary folder whose files are moved to `out` if the block succeeds, and removed if it fails.

    Without `force`, none of the files to be written, `names`, may exist before the block or after it, nor folders of
    `pictures`, which are replaced as a whole. What is `stale` is removed when the new files are moved; others in `out`
    are left alone. `stopped` is said after Ctrl-C.
    """
    if reason := reason_not_writable(out):
        fail(reason)
    for name in names:
        _check_replaceable(out / name, force)
    for name in pictures:
        _check_absent(out / name, force)
    target = out.resolve()
    remove_leftovers(target.parent)
    temporary = None
    with _parents(target), advise(stopped=stopped):
        try:
            with _explain_refusal(target), defer_signals():  # a signal must not come between the folder and its name
                temporary = TemporaryFolder(f".{target.name}.part-", target if target.is_dir() else target.parent)
            files = temporary.path / "files"
            files.mkdir()
            yield files
            _move(files, target, out, force, pictures, stale)
        finally:
            if temporary is not None:
                with defer_signals():
                    temporary.remove()


def _move(files: Path, target: Path, out: Path, force: bool, pictures: Sequence[str], stale: Sequence[str]) -> None:
    """Move everything to the target, or nothing if something is in the way."""
    for name in pictures:
        _check_absent(out / name, force)
    found = sorted(files.rglob("*"))
    for path in found:
        destination = out / path.relative_to(files)
        if not path.is_dir():
            _check_replaceable(destination, force)
        elif os.path.lexists(destination) and not destination.is_dir():
            fail(f"{destination} is not a folder: choose another --out")
    with defer_signals():
        if not target.exists():
            os.replace(files, target)
            return
        for name in (*pictures, *stale):
            if (target / name).exists():
                os.replace(target / name, files.with_name(name))
        for path in found:
            destination = target / path.relative_to(files)
            if path.is_dir():
                destination.mkdir(exist_ok=True)
            else:
                os.replace(path, destination)


@contextmanager
def _parents(target: Path) -> Iterator[None]:
    """Make the parent folders; remove those that are new if the block fails."""
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        with _explain_refusal(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with defer_signals(), suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise


@contextmanager
def _explain_refusal(folder: Path) -> Iterator[None]:
    """Fail with advice if the system lets no folder be made."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:  # has a message of its own
            raise
        fail(f"cannot write to {_nearest_existing(folder)} ({error.strerror or error}): choose another --out")


def _check_replaceable(destination: Path, force: bool) -> None:
    """Fail if something exists there that must not be replaced by a file."""
    if destination.exists() and not destination.is_file():
        fail(f"{destination} is {'a folder' if destination.is_dir() else 'not a regular file'}: choose another --out")
    _check_absent(destination, force)


def _check_absent(destination: Path, force: bool) -> None:
    if os.path.lexists(destination) and not force:
        fail(f"{destination} exists: use --force to overwrite it, or choose another --out")
