"""The Markdown of this repository as HTML: headings, lists, tables, fences, quotes, links, pictures, code, bold.

Every text is escaped, raw HTML too: what a skill says cannot act on the page that shows it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

Link = Callable[[str], str | None]
"""Where a link's target is on the site; None where it is not there."""
Picture = Callable[[str], str | None]
"""The address of a picture, or None."""
_INLINE = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)"
    r"|!\[(?P<alt>[^\]]*)\]\((?P<picture>[^()\s]*)\)"
    r"|\[(?P<text>[^\]]*)\]\((?P<target>[^()\s]*)\)"
    r"|\*\*(?P<bold>[^*]+)\*\*"
    r"|\b(?P<id>[A-Z]{2,}[0-9]{3})\b"
    r"|(?P<address>https?://[^\s<>`|)]*[^\s<>`|).,;:])"
)
_FENCE = re.compile(r"\s*(```+|~~~+)")
_ITEM = re.compile(r"(\s*)([-*]|\d+\.)\s+(.*)")
_BAR = re.compile(r"(?<!\\)\|")
_HEADING = re.compile(r"(#{1,6})\s+(.*)")


class Markdown:
    """Turns texts into HTML. `code` says where a code span leads, or a rule's id; None is nowhere."""

    def __init__(self, link: Link, picture: Picture, code: Link) -> None:
        self._link, self._picture, self._code = link, picture, code

    def page(self, text: str) -> str:
        """The blocks of a text; front matter and comments are left out."""
        text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
        lines = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S).split("\n")
        return "\n".join(self._blocks(lines))

    def inline(self, text: str) -> str:
        """One line's code, links, pictures and bold."""
        parts, end = [], 0
        for found in _INLINE.finditer(text):
            parts += [html.escape(text[end : found.start()]), self._mark(found)]
            end = found.end()
        return "".join((*parts, html.escape(text[end:])))

    def _mark(self, found: re.Match[str]) -> str:
        part = {name: html.escape(value) for name, value in found.groupdict().items() if value is not None}
        if "code" in part:
            return _linked(self._code(found["code"].strip()), f"<code>{part['code'].strip()}</code>")
        if "alt" in part:
            address = self._picture(found["picture"])
            return f'<img alt="{part["alt"]}" src="{html.escape(address)}">' if address else part["alt"]
        if "text" in part:
            return _linked(self._link(found["target"]), self.inline(found["text"]))
        if "bold" in part:
            return f"<strong>{self.inline(found['bold'])}</strong>"
        if "id" in part:
            return _linked(self._code(found["id"]), part["id"])
        return _linked(found["address"], part["address"])

    def _blocks(self, lines: list[str]) -> Iterator[str]:
        at = 0
        while at < len(lines):
            line = lines[at]
            end = at + 1
            if fence := _FENCE.match(line):
                while end < len(lines) and lines[end].strip() != fence[1]:
                    end += 1
                indent = len(line) - len(line.lstrip())
                inside = [each[min(indent, len(each) - len(each.lstrip())) :] for each in lines[at + 1 : end]]
                yield f"<pre>{html.escape(chr(10).join(inside))}</pre>"
                end += 1
            elif heading := _HEADING.match(line):
                level, text = len(heading[1]), heading[2]
                yield f'<h{level} id="{anchor(text)}">{self.inline(text)}</h{level}>'
            elif line.startswith("|"):
                end = next((n for n in range(at, len(lines)) if not lines[n].startswith("|")), len(lines))
                yield self._table(lines[at:end])
            elif _ITEM.match(line):
                end = _end_of_list(lines, at)
                yield self._list(lines[at:end])
            elif line.strip():
                while end < len(lines) and lines[end].strip() and not _starts_block(lines[end]):
                    end += 1
                yield f"<p>{self.inline(' '.join(each.strip() for each in lines[at:end]))}</p>"
            at = end

    def _table(self, rows: list[str]) -> str:
        head, _, *body = ([cell.strip().replace(r"\|", "|") for cell in _BAR.split(row.strip()[1:-1])] for row in rows)
        names = "".join(f"<th>{self.inline(cell)}</th>" for cell in head)
        lines = ("".join(f"<td>{self.inline(cell)}</td>" for cell in row) for row in body)
        inside = "\n".join(f"<tr>{line}</tr>" for line in lines)
        return f'<div class="wide"><table><thead><tr>{names}</tr></thead>\n<tbody>{inside}</tbody></table></div>'

    def _list(self, lines: list[str]) -> str:
        first = _ITEM.match(lines[0])
        assert first is not None
        items: list[list[str]] = []
        for line in lines:
            found = _ITEM.match(line)
            if found and len(found[1]) <= len(first[1]):
                items.append([found[3]])
                inner = len(line) - len(found[3])
            else:
                items[-1].append(line[min(inner, len(line) - len(line.lstrip())) :])
        name = "ol" if first[2][0].isdigit() else "ul"
        inside = "\n".join(f"<li>{_tight(''.join(self._blocks(item)))}</li>" for item in items)
        return f"<{name}>\n{inside}\n</{name}>"


def anchor(text: str) -> str:
    """A heading's id.

    >>> anchor("See the `groups`")
    'see-the-groups'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _linked(address: str | None, inside: str) -> str:
    return f'<a href="{html.escape(address)}">{inside}</a>' if address else inside


def _tight(inside: str) -> str:
    """An item of one paragraph goes without its tags."""
    return inside[3:-4] if inside.startswith("<p>") and inside.count("<p>") == 1 and inside.endswith("</p>") else inside


def _starts_block(line: str) -> bool:
    return any(pattern.match(line) for pattern in (_FENCE, _HEADING, _ITEM)) or line.startswith("|")


def _end_of_list(lines: list[str], at: int) -> int:
    """The first line after the list: text at the margin behind an empty line, or what starts another block there."""
    end, fence = at + 1, ""
    while end < len(lines):
        line = lines[end]
        if found := _FENCE.match(line):
            fence = "" if fence else found[1]
        outside = bool(line.strip()) and not line.startswith(" ") and not fence
        if outside and not _ITEM.match(line) and (not lines[end - 1].strip() or _starts_block(line)):
            break
        end += 1
    return end
