"""The code of a Markdown page."""

import io
import re
from contextlib import redirect_stdout
from typing import NamedTuple


class Block(NamedTuple):
    """Code between fences."""

    line: int  # of its opening fence
    code: str
    after: str  # the text that follows, until the next block


def code_blocks(page, language="python"):
    """The blocks of a language, in order."""
    text = page.read_text(encoding="utf-8")
    fenced = re.compile(rf"^```{language}\n(.*?)^```$(.*?)(?=^```|\Z)", flags=re.MULTILINE | re.DOTALL)
    return [Block(text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in fenced.finditer(text)]


def printed_by(code, page="page"):
    """What Python code prints."""
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(code, page, "exec"), {"__name__": "page"})
    return output.getvalue()
