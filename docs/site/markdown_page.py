"""The Markdown of this repository as HTML, with what the site adds: its own links, and a place for each rule's id.

Every text is escaped, raw HTML too: what a skill says cannot act on the page that shows it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

Link = Callable[[str], str | None]
"""Where a link's target is on the site; None where it is not there."""
Picture = Callable[[str], str | None]
"""The address of a picture, or None."""
_ADDRESS = re.compile(r"\b(?P<id>[A-Z]{2,}[0-9]{3})\b|https?://[^\s<>`|)]*[^\s<>`|).,;:]")


class Markdown:
    """Turns texts into HTML. `code` says where a code span leads, or a rule's id; None is nowhere."""

    def __init__(self, link: Link, picture: Picture, code: Link) -> None:
        self._link, self._picture, self._code = link, picture, code
        self._parser = MarkdownIt("commonmark", {"html": False}).enable("table")
        rules: dict[str, Callable[[Token], str]] = {
            "text": lambda token: token.content if token.meta else html.escape(token.content),
            "code_inline": self._code_span,
            "image": self._image,
            "fence": _block,
            "code_block": _block,
            "table_open": lambda token: '<div class="wide"><table>',
            "table_close": lambda token: "</table></div>\n",
        }
        for name, rule in rules.items():
            self._parser.add_render_rule(name, _of_token(rule))

    def page(self, text: str) -> str:
        """The blocks of a text; front matter and comments are left out."""
        text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
        tokens = self._parser.parse(re.sub(r"<!--.*?-->\n?", "", text, flags=re.S))
        for before, token in pairwise(tokens):
            if before.type == "heading_open":
                before.attrSet("id", anchor(token.content))
        for token in tokens:
            self._place_links(token.children or [])
        return str(self._parser.renderer.render(tokens, self._parser.options, {}))

    def _place_links(self, tokens: Sequence[Token]) -> None:
        """Gives links their places on the site, and makes links of ids and addresses outside them."""
        links: list[bool] = []
        for token in tokens:
            if token.type == "link_open":
                place = self._link(str(token.attrGet("href")))
                token.hidden = place is None
                token.attrSet("href", place or "")
                links.append(token.hidden)
            elif token.type == "link_close":
                token.hidden = links.pop()
            elif token.type == "text" and not links:
                token.content, token.meta = self._with_links(token.content), {"is_html": True}

    def _with_links(self, text: str) -> str:
        parts, end = [], 0
        for found in _ADDRESS.finditer(text):
            place = self._code(found[0]) if found["id"] else found[0]
            parts += [html.escape(text[end : found.start()]), _linked(place, html.escape(found[0]))]
            end = found.end()
        return "".join((*parts, html.escape(text[end:])))

    def _code_span(self, token: Token) -> str:
        text = token.content.strip()
        return _linked(self._code(text), f"<code>{html.escape(text)}</code>")

    def _image(self, token: Token) -> str:
        address, text = self._picture(str(token.attrGet("src"))), html.escape(token.content)
        return f'<img alt="{text}" src="{html.escape(address)}">' if address else text


def anchor(text: str) -> str:
    """A heading's id.

    >>> anchor("See the `groups`")
    'see-the-groups'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _of_token(rule: Callable[[Token], str]) -> Callable[..., str]:
    """A rule as the renderer calls it."""
    return lambda renderer, tokens, index, *_: rule(tokens[index])


def _block(token: Token) -> str:
    return f"<pre>{html.escape(token.content.removesuffix(chr(10)))}</pre>\n"


def _linked(address: str | None, inside: str) -> str:
    return f'<a href="{html.escape(address)}">{inside}</a>' if address else inside
