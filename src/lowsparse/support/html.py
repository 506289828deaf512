"""A small HTML builder that escapes all text."""

import json
from collections.abc import Mapping
from html import escape

from .jsonable import jsonable

VOID = frozenset({"br", "img", "input", "meta"})  # elements without an end tag


class Markup(str):
    """HTML that is already escaped."""

    __slots__ = ()


def joined(*children: object) -> Markup:
    """Concatenate the children; what is not `Markup` is escaped, None is skipped.

    >>> joined("1 < 2", element("b", "&"), None)
    '1 &lt; 2<b>&amp;</b>'
    """
    parts = (child if isinstance(child, Markup) else escape(str(child)) for child in children if child is not None)
    return Markup("".join(parts))


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """An element. In attribute names _ stands for -, and a trailing _ is dropped: ``class_``, ``aria_label``.

    An attribute that is True is written without a value; False and None leave it out.

    >>> element("p", "a < b", class_="lead", aria_label='"', hidden=True, id=None)
    '<p class="lead" aria-label="&quot;" hidden>a &lt; b</p>'
    >>> element("img", alt="")
    '<img alt="">'
    """
    parts = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(name)
        elif value is not None and value is not False:
            parts.append(f'{name}="{escape(str(value))}"')
    content = "" if tag in VOID else f"{joined(*children)}</{tag}>"
    return Markup(f"<{' '.join(parts)}>{content}")


def embedded(data: Mapping[str, object]) -> Markup:
    """A script element with data as JSON; no text in the data can close it.

    >>> embedded({"name": "</script><!--", "x": float("nan")})
    '<script type="application/json" id="data">{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--","x":null}</script>'
    """
    text = json.dumps(jsonable(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", Markup(text), type="application/json", id="data")
