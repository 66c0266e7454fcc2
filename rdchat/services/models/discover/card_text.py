"""A model card's text, plain: front matter left out, HTML as the text in it, images as the words beside them.

Cards are strangers' text of up to 200 kB: each pass takes a time that grows with the length alone.
"""

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_COMMENT = ("<!--", "-->")
_IMAGE = re.compile(r"!\[([^\[\]]{0,500})\](?:\([^()\n]{0,2000}\)|\[[^\[\]\n]{0,200}\])")
_EMPTY_LINK = re.compile(r"\[[ \t]{0,20}\]\([^()\s]{0,2000}\)")
_CODE_SPAN = re.compile(r"(`[^`\n]{1,2000}`)")
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]{0,15})((?:\s[^<>]{0,3000})?)/?>")
_OPENABLE = re.compile(
    r"https?://[^\s()<>]+", re.IGNORECASE
)  # as the transcript opens them, and nothing that ends a link
_SPLIT_TAG = re.compile(r"<[A-Za-z][A-Za-z0-9]{0,15}\s[^<>]{0,3000}>")
_ATTRIBUTE = {
    name: re.compile(
        rf"\s{name}\s{{0,9}}=\s{{0,9}}(?:\"([^\"]{{0,2000}})\"|'([^']{{0,2000}})'|([^\s\"'<>]{{1,2000}}))", re.I
    )
    for name in ("alt", "href")
}
_BREAKS = {"br", "p", "div", "center", "table", "tbody", "thead", "tr", "ul", "ol", "details", "summary", "section",
           "figure", "figcaption", "picture", "blockquote", "hr", "video"}  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_CODE = {"code", "kbd", "tt"}
_PLAIN = {"a", "img", "li", "td", "th", "span", "font", "b", "strong", "i", "em", "u", "sub", "sup", "small", "big",
          "source", "abbr", "s", "del", "ins", "mark"}  # fmt: skip
_KNOWN = _BREAKS | _HEADINGS.keys() | _CODE | _PLAIN
_MARKS = dict.fromkeys(_BREAKS, "\n\n") | dict.fromkeys(_CODE, "`")
_MARKS |= {"br": "\n", "tr": "\n", "td": " ", "th": " ", "li": "\n- "}
_HIDDEN = ("script", "style")
_MANY_FEEDS = re.compile(r"\n{3,}")


def plain_card(card: str) -> str:
    """Return a card as markdown without HTML, without images and without its front matter."""
    lines = _without_front_matter(card.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    parts: list[str] = []
    prose: list[str] = []
    links: list[str | None] = []  # addresses of the open links; None for one that is not opened
    closing = ""
    for line in lines:
        fence = _FENCE.match(line)
        if closing:
            parts.append(line)
            if fence and fence[1].startswith(closing) and not line.strip().strip(closing[0]):
                closing = ""
        elif fence:
            parts += [_plain_prose("\n".join(prose), links), line]
            prose, closing = [], fence[1]
        else:
            prose.append(line)
    parts.append(_plain_prose("\n".join(prose), links))
    return _MANY_FEEDS.sub("\n\n", "\n".join(parts)).strip()


def _without_front_matter(card: str) -> str:
    text = card.removeprefix("\ufeff").lstrip("\n")
    if not text.startswith("---\n"):
        return text
    end = text.find("\n---", 3)
    return (
        text[text.find("\n", end + 1) + 1 :]
        if end >= 0 and text.find("\n", end + 1) >= 0
        else ("" if end >= 0 else text)
    )


def _plain_prose(prose: str, links: list[str | None]) -> str:
    if "<" not in prose and "[" not in prose:
        return prose
    prose = _without(prose, *_COMMENT)
    for name in _HIDDEN:
        prose = _without(prose, f"<{name}", f"</{name}>")
    prose = _SPLIT_TAG.sub(lambda tag: tag[0].replace("\n", " "), prose)
    lines = [_plain_line(line, links) for line in prose.split("\n")]
    return _EMPTY_LINK.sub("", "\n".join(lines))


def _plain_line(line: str, links: list[str | None]) -> str:
    if "<" not in line and "![" not in line:
        return line
    parts = _CODE_SPAN.split(line)  # every other one is code
    plain = "".join(
        part if place % 2 else _TAG.sub(lambda tag: _text_of(tag, links), _IMAGE.sub(r"\1", part))
        for place, part in enumerate(parts)
    )
    return (
        plain if plain == line else "\n".join(part.strip() for part in plain.split("\n"))
    )  # four spaces would be code


def _text_of(tag: re.Match[str], links: list[str | None]) -> str:
    closes, name = bool(tag[1]), tag[2].lower()
    if name not in _KNOWN:
        return tag[0]
    if name == "a":
        return _link(closes, _attribute(tag[3], "href"), links)
    if name == "img":
        return _attribute(tag[3], "alt")
    if name in _HEADINGS:
        return "\n\n" if closes else f"\n\n{_HEADINGS[name]} "
    return _MARKS.get(name, "") if name != "li" or not closes else ""


def _link(closes: bool, address: str, links: list[str | None]) -> str:
    if not closes:
        opens = _OPENABLE.fullmatch(address)
        links.append(address if opens else None)
        return "[" if opens else ""
    if not links:
        return ""
    open_address = links.pop()
    return f"]({open_address})" if open_address else ""


def _attribute(attributes: str, name: str) -> str:
    found = _ATTRIBUTE[name].search(attributes)
    return " ".join(next((group for group in found.groups() if group), "").split()) if found else ""


def _without(text: str, start: str, end: str) -> str:
    """Return a text without what lies between two marks; one that is never closed stays."""
    lower, parts, place = text.lower(), [], 0
    while (begins := lower.find(start, place)) >= 0 and (ends := lower.find(end, begins)) >= 0:
        parts.append(text[place:begins])
        place = ends + len(end)
    return "".join([*parts, text[place:]])
