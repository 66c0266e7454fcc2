"""Whether the work of a reader grows with the text that it reads, or faster; with texts that are made to be slow."""

import gc
import time
import tracemalloc
from collections.abc import Callable

# What a text of four times the length may take, in times and bytes: 2.5 for each doubling. Of one doubling alone, noise
# is as large as what is looked for.
LONGER = 4
MOST = 2.5**2
# Smaller times and sizes say nothing; a text grows until it takes half the time.
_ENOUGH_S = 0.03
_ENOUGH_BYTES = 1 << 20
# A reader that tries a bounded number of times grows faster until it reaches its bound: below this time it is read on.
_BOUNDED_S = 1.0
_SMALLEST = 1_000
_LARGEST = 400_000
# The more tries, the surer one of them is free of what other programs do to memory and processor.
_MOST_TRIES = 24

Text = Callable[[int], str]


def repeated(piece: str, before: str = "", after: str = "") -> Text:
    """Return what makes a text of about that many characters from one piece."""
    return lambda length: before + piece * (length // len(piece)) + after


def nested(opening: str, closing: str, inside: str = "x") -> Text:
    """Return what makes a text of pairs in one another."""

    def make(length: int) -> str:
        pairs = length // (len(opening) + len(closing))
        return opening * pairs + inside + closing * pairs

    return make


# Texts that take the readers of others long; each reader adds marks and openings of its own.
SHAPES: dict[str, Text] = {
    **{f"only {name}": repeated(piece) for name, piece in {
        "a letter": "a",
        "a digit": "7",
        "blanks": " ",
        "tabs": "\t",
        "lines": "\n",
        "lines of Windows": "\r\n",
        "blank lines": " \n",
        "zeros": "\x00",
        "hard blanks": "\u00a0",
        "ideographs": "\u6f22",
        "emoji": "\U0001f642",
        "joined emoji": "\U0001f469\u200d",
        "ligatures of 18 letters": "\ufdfa",
        "Hangul": "\uac01",
        "right to left": "\u05d0",
        "directions": "\u202e",
        "quotes": '"',
        "apostrophes": "'",
        "backslashes": "\\",
        "escaped quotes": '\\"',
        "stars": "*",
        "underscores": "_",
        "backticks": "`",
        "tildes": "~",
        "prices": "$5 ",
        "dollars": "$",
        "pipes": "|",
        "rows": "|a|b|\n",
        "hashes": "#",
        "dashes": "-",
        "dots": ".",
        "colons": ":",
        "commas": ",",
        "slashes": "/",
        "ampersands": "&",
        "entities": "&amp;",
        "percents": "%41",
        "base64": "iVBORw0KGgo",
        "links": "[a](b)",
        "addresses": "https://a.b/",
        "words and blanks": "a ",
        "letters and lines": "a\n",
    }.items()},
    "combining marks": repeated("\u0301\u0316", "a"),
    "one kind of mark": repeated("\u0301", "a"),
    "marks in blanks": repeated(" \u0301"),
    "a letter, then a sign": repeated("a", after="!"),
    "blanks, then a letter": repeated(" ", after="x"),
    "base64 without end": repeated("A", "data:image/png;base64,"),
    "openings of tags": repeated("<a "),
    "tags without end": repeated("<a>"),
    "comments without end": repeated("<!-- "),
    "thoughts without end": repeated("<think>"),
    "ends of thoughts": repeated("</think>"),
    "thoughts and answers": repeated("<think>a</think>b"),
    "calls without end": repeated("<tool_call>"),
    "channels without end": repeated("<|channel|>"),
    "messages without end": repeated("<|message|>"),
    "fences without end": repeated("```\n"),
    "formulas without end": repeated("\\("),
    "brackets without end": repeated("["),
    "braces without end": repeated("{"),
    "keys without end": repeated('{"a":'),
    "lists in lists": nested("[", "]"),
    "objects in objects": nested('{"a":', "}", "1"),
    "brackets in brackets": nested("(", ")"),
    "tags in tags": nested("<b>", "</b>"),
    "thoughts in thoughts": nested("<think>", "</think>"),
    "quotations in quotations": repeated("> ", after="x"),
    "lists of text": repeated('"a",', "[", '"a"]'),
}  # fmt: skip


def assert_grows_no_faster(read: Callable[[str], object], text: Text, longest: int = _LARGEST) -> None:
    """Fail where a text of four times the length takes much more than four times the time or memory.

    The text grows from 1,000 characters until it takes long enough to be compared, so that a reader that is slow fails
    before it stops the test.

    Args:
        read: Reads the text; its time is that of this thread.
        text: Makes the text from its length.
        longest: Length of the longest text, in characters.
    """
    # What other tests of this process have loaded stays out of the collections of garbage before each measure.
    gc.freeze()
    try:
        _compare(read, text, longest)
    finally:
        gc.unfreeze()


def _compare(read: Callable[[str], object], text: Text, longest: int) -> None:
    length = _SMALLEST
    while length * 2 * LONGER <= longest and _seconds(read, text(length)) < _ENOUGH_S / 2:
        length *= 2
    fastest = _fastest(read, text, length)
    while _is_faster(fastest) and length * 2 * LONGER <= longest and fastest[1] < _BOUNDED_S:
        length *= 2
        fastest = _fastest(read, text, length)
    if _is_faster(fastest):
        raise AssertionError(f"{length} characters took {fastest[0]:.3f} s, {LONGER} times as many {fastest[1]:.3f} s")
    # Sizes have no noise, and take four times the time: texts of half the length say as much.
    length //= 2
    taken = [_bytes(read, text(length)), _bytes(read, text(length * LONGER))]
    if taken[1] >= max(_ENOUGH_BYTES, MOST * taken[0]):
        raise AssertionError(f"{length} characters took {taken[0]:,} bytes, {LONGER} times as many {taken[1]:,} bytes")


def _fastest(read: Callable[[str], object], text: Text, length: int) -> list[float]:
    """Return the least seconds of several tries with a text, and with one of four times its length.

    The short text is tried twice at first: its time alone, if it is too long, hides growth.
    """
    short = text(length)
    long = text(length * LONGER)
    fastest = [min(_seconds(read, short), _seconds(read, short)), _seconds(read, long)]
    for _ in range(_MOST_TRIES):
        if not _is_faster(fastest):
            break
        fastest = [min(fastest[0], _seconds(read, short)), min(fastest[1], _seconds(read, long))]
    return fastest


def _is_faster(seconds: list[float]) -> bool:
    return seconds[1] >= max(_ENOUGH_S, MOST * seconds[0])


def _seconds(read: Callable[[str], object], text: str) -> float:
    """Return the time of this thread alone, so that other programs do not count."""
    gc.collect()
    gc.disable()
    try:
        begun = time.thread_time()
        read(text)
        return time.thread_time() - begun
    finally:
        gc.enable()


def _bytes(read: Callable[[str], object], text: str) -> int:
    """Return the most memory that Python had at once for it."""
    tracemalloc.start()
    try:
        read(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
