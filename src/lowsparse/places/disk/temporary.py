"""Folders of matrices on disk that nobody asked to keep."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

__all__ = ["TemporaryFolder"]


class TemporaryFolder:
    """A new folder, which is removed with the last matrix that holds it; one within another holds that.

    >>> folder = TemporaryFolder("lowsparse-")
    >>> path = folder.path
    >>> inner = TemporaryFolder(".values-", path, within=folder)
    >>> del folder
    >>> path.exists()
    True
    >>> del inner
    >>> path.exists()
    False
    """

    def __init__(self, prefix: str, beside: Path | None = None, *, within: TemporaryFolder | None = None) -> None:
        self.path, self.within = Path(tempfile.mkdtemp(prefix=prefix, dir=beside)), within
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
