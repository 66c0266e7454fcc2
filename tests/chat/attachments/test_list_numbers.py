"""Items of Word's lists have the labels that Word shows, or the note says that numbers may differ.

`Oracle` counts in another way than the reader: it looks back from each item for the one where its count began.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.docx_text import docx_text
from tests.chat.attachments.documents import docx

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
UNSURE = "Some numbers of its lists may not be as Word shows them."
DEPTHS = range(9)
WRITTEN = {
    form: ["", *text.split()]
    for form, text in {
        "decimal": "1 2 3 4 5 6 7 8",
        "decimalZero": "01 02 03 04 05 06 07 08",
        "upperRoman": "I II III IV V VI VII VIII",
        "lowerRoman": "i ii iii iv v vi vii viii",
        "upperLetter": "A B C D E F G H",
        "lowerLetter": "a b c d e f g h",
    }.items()
}
"""By form, the numbers from 0, which most forms do not have."""
HIGH = {
    "lowerLetter": {26: "z", 27: "aa", 28: "bb", 53: "aaa"},
    "upperRoman": {39: "XXXIX", 40: "XL", 49: "XLIX", 90: "XC", 400: "CD", 1994: "MCMXCIV", 3999: "MMMCMXCIX"},
    "decimal": {100: "100", 1234567: "1234567"},
    "decimalZero": {9: "09", 10: "10", 100: "100"},
}
OTHER_FORMS = [
    "cardinalText", "ordinal", "ordinalText", "hex", "chicago", "ideographDigital", "japaneseCounting", "aiueo",
    "iroha", "decimalFullWidth", "decimalHalfWidth", "japaneseLegal", "japaneseDigitalTenThousand",
    "decimalEnclosedCircle", "decimalFullWidth2", "aiueoFullWidth", "irohaFullWidth", "ganada", "chosung",
    "decimalEnclosedFullstop", "decimalEnclosedParen", "decimalEnclosedCircleChinese", "ideographEnclosedCircle",
    "ideographTraditional", "ideographZodiac", "ideographZodiacTraditional", "taiwaneseCounting",
    "ideographLegalTraditional", "taiwaneseCountingThousand", "taiwaneseDigital", "chineseCounting",
    "chineseLegalSimplified", "chineseCountingThousand", "koreanDigital", "koreanCounting", "koreanLegal",
    "koreanDigital2", "vietnameseCounting", "russianLower", "russianUpper", "numberInDash", "hebrew1", "hebrew2",
    "arabicAlpha", "arabicAbjad", "hindiVowels", "hindiConsonants", "hindiNumbers", "hindiCounting", "thaiLetters",
    "thaiNumbers", "thaiCounting", "bahtText", "dollarText", "custom", "later",
]  # fmt: skip
"""Forms of 17.18.59 that need a language, or that rdchat does not write, and what is no form."""


@dataclass
class Level:
    """A level; its XML in the order of the specification."""

    form: str | None = "decimal"
    pattern: str | None = "%1."
    start: int | None = 1
    restart: int | None = None
    style: bool = False
    legal: str | None = None
    suffix: str = "tab"
    picture: bool = False

    def xml(self, depth: int, style: str = "") -> str:
        parts = {
            "start": self.start, "numFmt": self.form, "lvlRestart": self.restart,
            "pStyle": (style or f"S{depth}") if self.style else None,
            "isLgl": self.legal, "suff": self.suffix, "lvlText": self.pattern,
            "lvlPicBulletId": 0 if self.picture else None, "lvlJc": "left",
        }  # fmt: skip
        inner = "".join(f'<w:{name} w:val="{value}"/>' for name, value in parts.items() if value is not None)
        return f'<w:lvl w:ilvl="{depth}">{inner}</w:lvl>'


@dataclass
class List:
    """A list, `w:num`: what it overrides, by depth."""

    starts: dict[int, int] = field(default_factory=dict)
    levels: dict[int, Level] = field(default_factory=dict)

    def xml(self, number: int, abstract: int) -> str:
        overrides = "".join(
            f'<w:lvlOverride w:ilvl="{depth}"><w:startOverride w:val="{start}"/></w:lvlOverride>'
            for depth, start in self.starts.items()
        ) + "".join(
            f'<w:lvlOverride w:ilvl="{depth}">{level.xml(depth)}</w:lvlOverride>'
            for depth, level in self.levels.items()
        )
        return f'<w:num w:numId="{number}"><w:abstractNumId w:val="{abstract}"/>{overrides}</w:num>'


type Item = tuple[int, int, bool]
"""The number of its list, its depth, and whether a style gives them."""


def document(levels: Sequence[Level], lists: Sequence[List], items: Sequence[Item], *, by_style: bool = False) -> bytes:
    """Return a DOCX. The lists are numbered from 1; `by_style`, their abstract list is that of a style."""
    definition = "".join(level.xml(depth) for depth, level in enumerate(levels))
    link = '<w:styleLink w:val="Outline"/>' if by_style else ""
    numbering = (
        f'<w:abstractNum w:abstractNumId="4"><w:nsid w:val="1"/><w:multiLevelType w:val="multilevel"/>{link}'
        f'{definition}</w:abstractNum><w:abstractNum w:abstractNumId="5"><w:numStyleLink w:val="Outline"/>'
        '</w:abstractNum><w:num w:numId="77"><w:abstractNumId w:val="4"/></w:num>'
    )
    numbering += "".join(each.xml(number, 5 if by_style else 4) for number, each in enumerate(lists, start=1))
    outline = '<w:style w:type="numbering" w:styleId="Outline"><w:pPr><w:numPr><w:numId w:val="77"/></w:numPr></w:pPr>'
    styles = outline + "</w:style>"
    for depth, level in enumerate(levels):
        # A linked style has the depth of its level, whatever is beside its list.
        place = 8 - depth if level.style else depth
        for number in range(1, len(lists) + 1):
            own = f"S{depth}" if level.style else f"T{depth}"
            styles += (
                f'<w:style w:type="paragraph" w:styleId="{own}L{number}"><w:basedOn w:val="{own}"/><w:pPr><w:numPr>'
                f'<w:numId w:val="{number}"/></w:numPr></w:pPr></w:style>'
            )
        styles += (
            f'<w:style w:type="paragraph" w:styleId="{own}"><w:pPr><w:numPr><w:ilvl w:val="{place}"/>'
            "</w:numPr></w:pPr></w:style>"
        )
    body = ""
    for index, (number, depth, styled) in enumerate(items):
        about = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>'
        if styled:
            about = f'<w:pStyle w:val="{"S" if levels[depth].style else "T"}{depth}L{number}"/>'
        body += f"<w:p><w:pPr>{about}</w:pPr><w:r><w:t>word{index}</w:t></w:r></w:p>"
    parts = {"numbering": numbering, "styles": styles}
    more = {f"word/{name}.xml": f"<w:{name} {W}>{inner}</w:{name}>".encode() for name, inner in parts.items()}
    return docx(body, more=more)


def read(*args: object, **more: bool) -> tuple[list[str], str]:
    """Return the label of each item, without dashes of bullets, and the note."""
    text, note = docx_text(document(*args, **more), "a.docx")  # type: ignore[arg-type]
    lines = [line.strip().removeprefix("- ") for line in text.split("\n") if line]
    assert [line.rpartition("word")[2] for line in lines] == [str(index) for index in range(len(lines))]
    return [line.rpartition("word")[0].rstrip() for line in lines], note


@dataclass
class Oracle:
    """Finds each label by itself."""

    levels: Sequence[Level]
    lists: Sequence[List]
    items: Sequence[Item]

    def labels(self) -> list[str]:
        return [self.label(index, *item[:2]) for index, item in enumerate(self.items)]

    def level(self, number: int, depth: int) -> Level:
        return self.lists[number - 1].levels.get(depth, self.levels[depth])

    def label(self, index: int, number: int, depth: int) -> str:
        level = self.level(number, depth)
        if level.form == "bullet" or level.picture:
            return ""
        label = level.pattern or ""
        for place in range(depth + 1):
            form = self.level(number, place).form or "decimal"
            if level.legal in ("1", "true") and form not in ("decimalZero", "bullet"):
                form = "decimal"
            if f"%{place + 1}" in label:
                written = "" if form == "bullet" else WRITTEN[form][self.count(index, place)]
                label = label.replace(f"%{place + 1}", written)
        return label.strip()

    def count(self, index: int, depth: int) -> int:
        """Return the number at a depth after the item of an index: a start, and one for each item since then."""
        items = self.items[: index + 1]
        begun = max((at + 1 for at, item in enumerate(items) if self.restarts(*item[:2], depth)), default=0)
        for at in range(begun, index + 1):
            is_first = items[at][:2] not in [item[:2] for item in items[:at]]
            if items[at][1] == depth and is_first and depth in self.lists[items[at][0] - 1].starts:
                begun = at
        counted = [item for item in items[begun:] if item[1] >= depth]
        # An item below stands for one at this depth if it is the first.
        number = counted[0][0]
        start = self.lists[number - 1].starts.get(depth, self.level(number, depth).start or 0)
        return start + sum(item[1] == depth for item in counted[1:])

    def restarts(self, number: int, place: int, depth: int) -> bool:
        restart = self.level(number, depth).restart
        return place < (depth if restart is None else min(restart, depth))


@st.composite
def levels_of_a_list(draw: st.DrawFn) -> list[Level]:
    levels = []
    for depth in DEPTHS:
        shown = draw(st.lists(st.sampled_from(range(depth + 1)), max_size=3, unique=True))
        pattern = ".".join(f"%{place + 1}" for place in sorted({depth, *shown}))
        around = draw(st.sampled_from(["{}", "{}.", "({})", "Section {}", "§ {} -"]))
        form = draw(st.sampled_from([*WRITTEN, None, "bullet"]))
        legal = draw(st.sampled_from([None, None, "1", "true", "0"]))
        start = draw(st.sampled_from([1, 1, 2]))
        restart = draw(st.none() | st.integers(0, 9))
        suffix = draw(st.sampled_from(["tab", "nothing"]))
        levels.append(Level(form, around.format(pattern), start, restart, draw(st.booleans()), legal, suffix))
    return levels


ITEMS = st.lists(st.tuples(st.just(1), st.sampled_from([0, 0, 1, 1, 2, 2, *DEPTHS]), st.booleans()), max_size=14)


def within(items: list[Item]) -> list[Item]:
    """Return items without those that would be the fourth of their depth, so that numbers stay low."""
    return [item for index, item in enumerate(items) if sum(each[1] == item[1] for each in items[:index]) < 3]


@given(levels_of_a_list(), ITEMS.map(within), st.booleans())
@settings(max_examples=40)
def test_labels_are_those_of_word(levels: list[Level], items: list[Item], by_style: bool) -> None:
    items = items or [(1, 0, False)]
    labels, note = read(levels, [List()], items, by_style=by_style)
    assert labels == Oracle(levels, [List()], items).labels()
    assert note == ""


OVERRIDES = st.builds(
    List,
    st.dictionaries(st.sampled_from([0, 1, 2]), st.integers(1, 2), max_size=3),
    st.dictionaries(st.sampled_from([0, 1, 2]), st.builds(Level, st.just("lowerRoman"), st.just("{%1}")), max_size=1),
)


@given(levels_of_a_list(), st.tuples(OVERRIDES, OVERRIDES), ITEMS, st.lists(st.integers(1, 2), min_size=14))
@settings(max_examples=40)
def test_lists_of_one_abstract_list_count_on_or_the_note_says_so(
    levels: list[Level], lists: tuple[List, List], items: list[Item], numbers: list[int]
) -> None:
    items = [(number, depth, styled) for number, (_, depth, styled) in zip(numbers, within(items), strict=False)]
    items = items or [(1, 0, False)]
    for each in lists:
        # A level that is replaced has its start in the new level, which keeps the link to the style.
        for depth, level in each.levels.items():
            level.style = levels[depth].style
        each.starts = {depth: start for depth, start in each.starts.items() if depth not in each.levels}
    labels, note = read(levels, lists, items)
    assert labels == Oracle(levels, lists, items).labels() or note == UNSURE


@pytest.mark.parametrize(
    ("form", "number", "label"), [(f, n, text) for f, all_ in HIGH.items() for n, text in all_.items()]
)
def test_high_numbers_have_their_form(form: str, number: int, label: str) -> None:
    assert read([Level(form, "%1)", number)], [List()], [(1, 0, False)]) == ([f"{label})"], "")


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_a_form_that_is_not_written_is_in_the_note(form: str) -> None:
    """The number is right, and the note says that Word may write it otherwise."""
    assert read([Level(form, "%1.", 4)], [List()], [(1, 0, False)]) == (["4."], UNSURE)


@pytest.mark.parametrize(
    ("form", "number"), [("lowerLetter", 0), ("upperRoman", 0), ("upperRoman", 4000), ("upperLetter", 781)]
)
def test_a_number_that_a_form_does_not_have_is_in_the_note(form: str, number: int) -> None:
    assert read([Level(form, "%1", number)], [List()], [(1, 0, False)]) == ([str(number)], UNSURE)


NONE = Level("none", "%1")
FLAT = [(1, 0, False), (1, 0, False)]


@pytest.mark.parametrize(
    ("levels", "items", "labels", "note"),
    [
        # A level without numbers, as LibreOffice writes those of its outline.
        ([NONE], FLAT, ["", ""], ""),
        ([Level("none", "Note:")], FLAT, ["Note:", "Note:"], ""),
        ([Level("none", "")], FLAT, ["", ""], ""),
        ([Level("decimal", None)], FLAT, ["", ""], ""),
        ([Level("none", "%1.")], FLAT, [".", "."], UNSURE),
        ([NONE, Level("decimal", "%1.%2")], [(1, 0, False), (1, 1, False)], ["", ".1"], UNSURE),
        # Word writes nothing for a bullet within a number.
        ([Level("bullet", "•"), Level("decimal", "%1%2.")], [(1, 0, False), (1, 1, False)], ["", "1."], ""),
        # A bullet begins the numbers below it anew.
        ([Level("bullet", "•"), Level("decimal", "%2.")], [(1, each, False) for each in (0, 1, 1, 0, 1)],
         ["", "1.", "2.", "", "1."], ""),
        ([Level("decimal", "%1.", picture=True)], FLAT, ["", ""], ""),
        ([Level("decimal", "%1.", None)], FLAT, ["0.", "1."], ""),
        # A place below the item's own, and one that has no level.
        ([Level("decimal", "%1.%2"), Level("decimal", "%2")], FLAT, ["1.", "2."], UNSURE),
        ([Level("decimal", "%1.%4")], FLAT, ["1.", "2."], UNSURE),
        ([Level("decimal", "%10%%1%")], FLAT, ["10%1%", "20%2%"], ""),
        # The section numbers of Word's own "Article I, Section 1.01".
        ([Level("upperRoman", "Article %1."), Level("decimalZero", "Section %1.%2", legal="1")],
         [(1, 0, False), (1, 1, False)], ["Article I.", "Section 1.01"], ""),
    ],
)  # fmt: skip
def test_levels_with_something_special(levels: list[Level], items: list[Item], labels: list[str], note: str) -> None:
    got, said = read(levels, [List()], items)
    assert [each.replace("%%", "%") for each in got] == [each.replace("%%", "%") for each in labels]
    assert said == note


def test_a_level_may_describe_its_numbers() -> None:
    """Newer versions of Word write this in an element of choices, with another form for older ones."""
    choice = '<w:numFmt w:val="custom" w:format="001, 002, 003, ..."/>'
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    either = f'<mc:AlternateContent {mc}><mc:Choice Requires="w14">{choice}</mc:Choice><mc:Fallback>'
    either += '<w:numFmt w:val="decimal"/></mc:Fallback></mc:AlternateContent>'
    for inner in (choice, either):
        level = f'<w:lvl w:ilvl="0"><w:start w:val="9"/>{inner}<w:lvlText w:val="%1"/></w:lvl>'
        numbering = f'<w:abstractNum w:abstractNumId="0">{level}</w:abstractNum>{List().xml(1, 0)}'
        item = '<w:p><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr><w:r><w:t>word</w:t></w:r></w:p>'
        more = {"word/numbering.xml": f"<w:numbering {W}>{numbering}</w:numbering>".encode()}
        assert docx_text(docx(item * 2, more=more), "a.docx") == ("009 word\n010 word", "")


def test_numbers_in_a_cell_of_a_table_stay() -> None:
    numbering = f'<w:abstractNum w:abstractNumId="0">{Level("upperRoman", "§ %1.").xml(0)}</w:abstractNum>'
    item = '<w:p><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr><w:r><w:t>word</w:t></w:r></w:p>'
    more = {"word/numbering.xml": f"<w:numbering {W}>{numbering}{List().xml(1, 0)}</w:numbering>".encode()}
    text, _ = docx_text(docx(f"<w:tbl><w:tr><w:tc>{item * 2}</w:tc></w:tr></w:tbl>", more=more), "a.docx")
    assert text.splitlines()[0] == "| § I. word § II. word |"


@pytest.mark.parametrize("name", ["del", "moveFrom"])
def test_an_item_whose_end_is_deleted_or_moved_is_not_counted(name: str) -> None:
    """A redlined contract: Word numbers the clauses as if the changes were accepted."""

    def item(run: str, end: str = "") -> str:
        return f'<w:p><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr><w:rPr>{end}</w:rPr></w:pPr>{run}</w:p>'

    def word(text: str) -> str:
        return item(f"<w:r><w:t>{text}</w:t></w:r>")

    kind = "delText" if name == "del" else "t"
    gone = item(f'<w:{name} w:id="7"><w:r><w:{kind}>gone</w:{kind}></w:r></w:{name}>', f'<w:{name} w:id="8"/>')
    struck = "~~gone~~" if name == "del" else ""
    numbering = f'<w:abstractNum w:abstractNumId="0">{Level("decimal", "%1.").xml(0)}</w:abstractNum>'
    more = {"word/numbering.xml": f"<w:numbering {W}>{numbering}{List().xml(1, 0)}</w:numbering>".encode()}
    text, _ = docx_text(docx(word("one") + gone * 2 + word("two") + word("three"), more=more), "a.docx")
    assert text == f"1. one\n2. {struck * 2}two\n3. three"


@pytest.mark.parametrize(("switch", "label"), [("", ""), (' w:val="true"', ""), (' w:val="0"', "1. ")])
def test_a_hidden_label_is_not_shown_and_is_counted(switch: str, label: str) -> None:
    hidden = Level("decimal", "%1.").xml(0).replace("</w:lvl>", f"<w:rPr><w:vanish{switch}/></w:rPr></w:lvl>")
    numbering = f'<w:abstractNum w:abstractNumId="0">{hidden}{Level("decimal", "%1.%2").xml(1)}</w:abstractNum>'
    items = "".join(
        f'<w:p><w:pPr><w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="1"/></w:numPr></w:pPr>'
        f"<w:r><w:t>word</w:t></w:r></w:p>"
        for depth in (0, 1)
    )
    more = {"word/numbering.xml": f"<w:numbering {W}>{numbering}{List().xml(1, 0)}</w:numbering>".encode()}
    text, note = docx_text(docx(items, more=more), "a.docx")
    assert ([line.strip() for line in text.splitlines()], note) == ([f"{label}word", "1.1 word"], "")
