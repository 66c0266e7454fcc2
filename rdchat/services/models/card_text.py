"""Turns a model's card from the hub into plain Markdown, for the window, which renders no HTML and fetches no images.

Cards are strangers' text of up to 200 kB: each pattern takes a time that grows with the length alone.
"""

import re

# Begins or ends a block of code.
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
# An image, by its description and its address or reference.
_IMAGE = re.compile(r"!\[([^\[\]]{0,500})\](?:\([^()\n]{0,2000}\)|\[[^\[\]\n]{0,200}\])")
# A link whose image was removed, as badges are.
_EMPTY_LINK = re.compile(r"\[[ \t]{0,20}\]\([^()\s]{0,2000}\)")
_CODE_SPAN = re.compile(r"(`[^`\n]{1,2000}`)")
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]{0,15})(?:\s[^<>]{0,3000})?/?>")
# The start of an element, which may go over several lines.
_LONG_TAG = re.compile(r"<[A-Za-z][A-Za-z0-9]{0,15}\s[^<>]{0,3000}>")
# Elements whose content is not for people.
_HIDDEN = ("script", "style")
_MANY_FEEDS = re.compile(r"\n{3,}")
# Tags that an empty line replaces, and those that go without a trace; `_CLOSING` has some exceptions.
_BREAKS = {"br", "p", "div", "center", "table", "tbody", "thead", "tr", "ul", "ol", "details", "summary", "section",
           "figure", "figcaption", "picture", "blockquote", "hr", "video"}  # fmt: skip
_PLAIN = {"a", "img", "td", "th", "span", "font", "b", "strong", "i", "em", "u", "sub", "sup", "small", "big",
          "source", "abbr", "s", "del", "ins", "mark"}  # fmt: skip
# What replaces a tag at the end of an element, and at its start; other tags stay. `<h2>News</h2>` becomes `## News`
# between empty lines, `<li>One</li>` becomes `- One` on a line of its own.
_HEADINGS = {f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)}
_CLOSING = dict.fromkeys(_PLAIN, "") | dict.fromkeys({*_BREAKS, *_HEADINGS}, "\n\n")
_CLOSING |= {"code": "`", "kbd": "`", "tt": "`", "br": "\n", "tr": "\n", "td": " ", "th": " ", "li": ""}
_OPENING = _CLOSING | _HEADINGS | {"li": "\n- "}


def plain_card(card: str) -> str:
    """Return a model card as plain Markdown, without HTML and front matter; an image becomes its description.

    A block of code stays as it is. It ends with a line of at least as many marks as it began with, and nothing else.
    """
    lines = _without_front_matter(card.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    parts: list[str] = []
    # The lines since the last block of code, and the marks that end the present one.
    prose: list[str] = []
    closing = ""
    for line in lines:
        fence = _FENCE.match(line)
        if closing:
            parts.append(line)
            if fence and fence[1].startswith(closing) and not line.strip().strip(closing[0]):
                closing = ""
        elif fence:
            parts += [_plain_prose("\n".join(prose)), line]
            prose = []
            closing = fence[1]
        else:
            prose.append(line)
    parts.append(_plain_prose("\n".join(prose)))
    return _MANY_FEEDS.sub("\n\n", "\n".join(parts)).strip()


def _without_front_matter(card: str) -> str:
    """Return a card without the YAML at its beginning, between two lines of `---`."""
    text = card.removeprefix("\ufeff").lstrip("\n")
    end = text.find("\n---", 3) if text.startswith("---\n") else -1
    return text if end < 0 else text[end + 4 :].partition("\n")[2]


def _plain_prose(prose: str) -> str:
    """Return the text between two blocks of code as plain Markdown."""
    if "<" not in prose and "[" not in prose:
        return prose
    prose = _without(prose, "<!--", "-->")
    for name in _HIDDEN:
        prose = _without(prose, f"<{name}", f"</{name}>")
    # Tags are replaced line by line, so each must be on one line.
    prose = _LONG_TAG.sub(lambda tag: tag[0].replace("\n", " "), prose)
    lines = [_plain_line(line) for line in prose.split("\n")]
    return _EMPTY_LINK.sub("", "\n".join(lines))


def _plain_line(line: str) -> str:
    """Return a line without tags, and with images as their descriptions; a tag may make it several lines."""
    if "<" not in line and "![" not in line:
        return line
    parts = _CODE_SPAN.split(line)
    # Every other part is code, which stays.
    parts[::2] = [_TAG.sub(_text_of, _IMAGE.sub(r"\1", part)) for part in parts[::2]]
    plain = "".join(parts)
    # Only of a line that has changed: its indentation was HTML's, and four spaces would make it code.
    return plain if plain == line else "\n".join(part.strip() for part in plain.split("\n"))


def _text_of(tag: re.Match[str]) -> str:
    """Return what replaces a tag."""
    return (_CLOSING if tag[1] else _OPENING).get(tag[2].lower(), tag[0])


def _without(text: str, start: str, end: str) -> str:
    """Return a text without what lies between two marks; one that is never closed stays."""
    lower = text.lower()
    parts = []
    index = 0
    while (begins := lower.find(start, index)) >= 0 and (ends := lower.find(end, begins)) >= 0:
        parts.append(text[index:begins])
        index = ends + len(end)
    return "".join([*parts, text[index:]])
