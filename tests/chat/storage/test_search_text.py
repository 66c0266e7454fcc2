"""Law: a message is found, and its words are marked, by each of its own words in every normal form."""

import sys
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies as some

from rdchat.chat.storage.search_text import WordMatcher, index_text
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role

# ruff: noqa: RUF001  letters of many scripts

FORMS = "NFC", "NFD", "NFKC", "NFKD"
# Letters, with their marks, of scripts that write words apart, and of scripts that do not.
APART = (
    "abcxyzäéßſøŁİıǆﬁＡｂª", "абвгёйЁЖў", "αβσςΣάΐΏ", "աբգև", "אבגבּשׁלָ", "ابتآأؤمُحَّﷲ", "0123456789", "٣4²½",
)  # fmt: skip
TOGETHER = (
    "去北京的火车使用漢字", "あいうがぎぱゞ", "カタガギヴーｶﾀｶﾞﾊﾟ", "한국어가각희의록", "กขคนทีนำ", "हिन्दीक़ख", "ထမင်း",
)  # fmt: skip
BETWEEN = "", "", "", " ", "\n", "-", "_", "'", "。", "🎂", "❤️", "™", "+", "C++", "**", "<b>", "\u2019", "（"


def signs_of(text: str) -> list[str]:
    """Return each sign of a text with its marks."""
    signs: list[str] = []
    for sign in text:
        is_mark = unicodedata.category(unicodedata.normalize("NFKD", sign)[0])[0] == "M" or "\u1160" <= sign <= "\u11ff"
        if signs and is_mark:
            signs[-1] += sign
        else:
            signs.append(sign)
    return signs


PIECES = some.one_of(
    *(some.lists(some.sampled_from(signs_of(each)), min_size=1, max_size=4).map("".join) for each in APART + TOGETHER),
    some.sampled_from(BETWEEN),
)


def script_of(sign: str) -> str:
    """Return the script of a letter, "0" for a figure, and "" for anything else."""
    kind = unicodedata.category(sign[0])[0]
    if kind == "N":
        return "0"
    name = unicodedata.name(unicodedata.normalize("NFKC", sign)[0], "")
    return name.split("-")[0].split()[0] if kind == "L" else ""


def words_of(text: str) -> Iterator[str]:
    """Yield each run of letters and figures of one script, and each two signs of scripts that write without spaces."""
    signs = [(sign, script_of(sign)) for sign in signs_of(text)]
    for wanted in {script for _, script in signs} - {""}:
        run = ""
        for sign, script in [*signs, ("", "")]:
            if script in {wanted, "0"}:
                run += sign
            elif run:
                yield run
                run = ""
    for (first, script), (second, other) in pairwise(signs):
        if script and script == other and any(first in signs_of(each) for each in TOGETHER):
            yield first + second


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConversationStore]:
    """A store whose only message each example replaces."""
    opened = ConversationStore(tmp_path_factory.mktemp("law") / "chats.db")
    opened.add_message(opened.create_conversation("-").id, None, Role.USER, "")
    yield opened
    opened.close()


@settings(max_examples=50)
@given(pieces=some.lists(PIECES, max_size=6), text_form=some.sampled_from(("", *FORMS)), form=some.sampled_from(FORMS))
@example(["使用", "API", "接口"], "", "NFC")
@example(["회의록"], "", "NFD")
@example(["회의록"], "NFD", "NFC")
@example(["ｶﾞ", "カ", "が"], "", "NFKC")
@example(["كِتاب"], "", "NFC")
@example(["abc3где"], "", "NFC")
@example(["Ελλάδα"], "", "NFD")
def test_a_message_is_found_and_marked_by_each_of_its_words(
    store: ConversationStore, pieces: list[str], text_form: str, form: str
) -> None:
    text = "".join(pieces)
    text = unicodedata.normalize(text_form, text) if text_form else text
    store.execute("UPDATE messages SET text = ?", text)
    for word in words_of(text):
        for search in (unicodedata.normalize(form, word), f"{unicodedata.normalize(form, word)} {word}"):
            assert store.conversations(search), (text, search)
            spans = WordMatcher(search).spans(text)
            assert spans, (text, search)
            assert all(0 <= begin < end <= len(text) for begin, end in spans)


def test_every_letter_and_figure_is_the_same_in_each_normal_form() -> None:
    for sign in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(sign)[0] in "LN":
            others = {unicodedata.normalize(form, sign) for form in FORMS} - {sign}
            assert all(index_text(other) == index_text(sign) for other in others), hex(ord(sign))


@pytest.mark.parametrize(
    ("text", "misses"),
    [
        ("が", "か"),
        ("ぱ", "は"),
        ("각", "가"),
        ("C", "C++"),
        ("C++", "C#"),
        ("हिन्दी", "हन"),
        ("API接口", "PI"),
        ("C++", "++C"),
    ],
)
def test_what_differs_is_not_found(store: ConversationStore, text: str, misses: str) -> None:
    store.execute("UPDATE messages SET text = ?", text)
    assert not store.conversations(misses)
    assert not WordMatcher(misses).spans(text)
