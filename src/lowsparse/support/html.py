"""HTML in which text is text: what is not made by `element` is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from .jsonable import plain

__all__ = ["Markup", "element", "embedded", "joined"]

VOID = frozenset({"img", "input", "meta"})


class Markup(str):
    """HTML, no longer to be escaped."""

    __slots__ = ()


def joined(*children: object) -> Markup:
    """The children one after the other; what is not `Markup` is escaped, and None is nothing.

    >>> joined("1 < 2", element("b", "&"), None)
    '1 &lt; 2<b>&amp;</b>'
    """
    parts = (child if isinstance(child, Markup) else escape(str(child)) for child in children if child is not None)
    return Markup("".join(parts))


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """An element. In the names of attributes _ stands for -, but at the end for nothing: ``class_``, ``aria_label``.

    True is an attribute without a value; False and None are none at all.

    >>> element("p", "a < b", class_="lead", aria_label='"', hidden=True, id=None)
    '<p class="lead" aria-label="&quot;" hidden>a &lt; b</p>'
    >>> element("img", alt="")
    '<img alt="">'
    """
    written = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(name)
        elif value is not None and value is not False:
            written.append(f'{name}="{escape(str(value))}"')
    closed = "" if tag in VOID else f"{joined(*children)}</{tag}>"
    return Markup(f"<{' '.join(written)}>{closed}")


def embedded(data: Mapping[str, Any]) -> Markup:
    """Data for the script as an element that no text in them can end; numbers that are not finite become null.

    >>> embedded({"name": "</script><!--", "x": float("nan")})
    '<script type="application/json" id="data">{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--","x":null}</script>'
    """
    text = json.dumps(plain(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return element("script", Markup(text), type="application/json", id="data")
