"""A reply is split into thought and answer by the markers of every family, complete or while it grows."""

from collections.abc import Iterator

import pytest

from rdchat.inference.api import PAIRS, PartsReader, Thoughts, end_of_begun, grown, split_thoughts


def growing(text: str, begun: bool = False) -> Iterator[Thoughts]:
    """Yield what is told apart of a reply after each of its letters."""
    reader = PartsReader(begun)
    shown = ""
    parts = ()
    for letter in text:
        pieces = reader.add_text(letter)
        shown += "".join(piece.text for piece in pieces)
        parts = grown(parts, pieces)
        yield Thoughts(shown, parts)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("Hello.", "", "Hello."),
        ("<think>\nhm\n</think>\n\nHello.", "hm", "Hello."),
        ("<think>hm</think>Hello.", "hm", "Hello."),
        ("\n  <think>hm</think>Hello.", "hm", "Hello."),
        ("a lone tag\n</think>\nHello.", "", "a lone tag\n</think>\nHello."),
        ("So. <think>Hm.</think> Yes.", "", "So. <think>Hm.</think> Yes."),
        ("<think></think>Hello.", "", "Hello."),
        ("<think>a</think>\nOne.\n<think>b</think>\nTwo.", "a\n\nb", "One.\nTwo."),
        ("Use the `<think>` tag, closed by `</think>`.", "", "Use the `<think>` tag, closed by `</think>`."),
        ("```\n<think>\nx\n</think>\n```", "", "```\n<think>\nx\n</think>\n```"),
        ("<think>never closed", "never closed", ""),
    ],
)
def test_thoughts_are_parted_from_the_answer(text: str, thought: str, answer: str) -> None:
    parts = split_thoughts(text)
    assert (parts.thought, parts.answer) == (thought, answer)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_reply_that_changes_without_end_has_a_bounded_number_of_parts(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.inference.api.thoughts.MOST_PARTS", 20)
    text = "<think>a</think>b\n" * 30
    reader = PartsReader()
    streamed = grown((), (piece for at in range(0, len(text), size) for piece in reader.add_text(text[at : at + size])))
    whole = reader.finish_reply(ended=False)
    assert whole.parts == split_thoughts(text).parts
    for parts in (streamed, whole.parts):
        # The blanks beside a marker may be of either part, or wait.
        *told, last = [text[each.start : each.end].strip() for each in parts]
        assert told == ["a", "b"] * 10 + ["a"]
        assert last == "b\n" + ("<think>a</think>b\n" * 19).strip()


def test_a_marker_in_pieces_begins_one_part() -> None:
    reader = PartsReader()
    parts = grown((), (piece for _ in range(100) for piece in reader.add_text("<think>")))
    assert len(parts) == 1


def test_a_lone_closing_tag_of_an_earlier_rdchat_ends_a_thought() -> None:
    parts = split_thoughts("the template began it\n</think>\nHello.", old=True)
    assert (parts.thought, parts.answer) == ("the template began it", "Hello.")


def test_a_lone_bracket_at_the_end_of_a_finished_reply_stays() -> None:
    assert split_thoughts("1 <").answer == "1 <"
    *_, shown = growing("1 <")
    assert shown.answer == "1"


GPT_OSS = (
    "<|channel|>analysis<|message|>They greet.\nI greet back.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Hello, 1 < 2."
)
WHOLE = [
    *(f"{opening}\nI wonder.\n{closing}\n\nHello." for opening, closing in PAIRS),
    GPT_OSS,
    "to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Hello.",
    "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hello.<|END_RESPONSE|>",
    "<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>Hello.<|close|>response<|sep|>",
    "<|think|>hm<|end|><|begin|>assistant<|content|>Hello.",
    "<think>\nhm\n</think>\n<answer>\nHello.\n</answer>",
]


@pytest.mark.parametrize("whole", WHOLE)
def test_every_familys_markers_part_a_reply_and_none_shows_while_it_grows(whole: str) -> None:
    parts = split_thoughts(whole)
    assert parts.answer.strip() in {"Hello.", "Hello, 1 < 2."}
    assert parts.thought in {"I wonder.", "hm", "They greet.\nI greet back."}
    assert not parts.open
    assert "".join(whole[start:end] for start, end in parts.spans).strip() == parts.answer.strip()
    for shown in growing(whole[:-1]):
        assert parts.thought.startswith(shown.thought)
        assert parts.answer.startswith(shown.answer)


def test_what_gpt_oss_says_before_a_call_is_part_of_its_answer() -> None:
    text = "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant" + GPT_OSS
    assert split_thoughts(text).answer == "I look it up.Hello, 1 < 2."


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_a_thought_that_the_template_began_is_one_from_the_first_character(opening: str, closing: str) -> None:
    assert end_of_begun(f"user: hi\nassistant: {opening}\n") == closing
    assert not end_of_begun(f"{opening}\n\n{closing}\n\n")
    *_, shown = growing("I wond", begun=True)
    assert (shown.thought, shown.answer, shown.open) == ("I wond", "", True)
    parts = split_thoughts(f"I wonder.\n{closing}\nHello.", begun=True)
    assert (parts.thought, parts.answer, parts.open) == ("I wonder.", "Hello.", False)


def test_the_opening_that_the_template_wrote_already_is_no_thought() -> None:
    assert split_thoughts("<think>\nhm\n</think>\nHello.", begun=True).thought == "hm"


@pytest.mark.parametrize(("text", "begun"), [("<think>\nHello.", False), ("Hello.", True)])
def test_an_unclosed_thought_is_the_answer_where_the_model_ended_with_it(text: str, begun: bool) -> None:
    ended = split_thoughts(text, begun=begun, ended=True)
    assert (ended.thought, ended.answer, ended.open) == ("", "Hello.", False)
    cut_off = split_thoughts(text, begun=begun)
    assert (cut_off.thought, cut_off.answer, cut_off.open) == ("Hello.", "", True)


@pytest.mark.parametrize(
    "text",
    [
        "<note>\n<thought>xml</thought>\n</note>",
        "gpt-oss writes `<|channel|>analysis<|message|>` first.",
        "```\n<|channel|>analysis<|message|>hm<|end|>\n```",
        "Phi ends with <|end|> and more",
        "<answer>42</answer>",
        "An empty </response> stays.",
        "Send it to=self please",
    ],
)
def test_markup_of_the_answer_stays_in_it(text: str) -> None:
    parts = split_thoughts(text)
    assert (parts.thought, parts.answer) == ("", text)


GROWING = [
    f"<think>\n{'I wonder about <this>. ' * 60}\n</think>\n\n{'Yes, `x` and <that>. ' * 60}",
    f"{'I wonder. ' * 90}</think>\n<answer>\n{'Yes. ' * 200}\n</answer>",
    f"```\n<think>\n{'code ' * 150}\n</think>\n```\n{'Yes. ' * 150}<think>{'more ' * 150}</think>\nDone.",
    GPT_OSS.replace("They greet.", "They greet. " * 80).replace("Hello,", "Hello, " * 120),
    f"<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>{' ' * 700}Hello.{'x' * 700}<|END_RESPONSE|>",
]


@pytest.mark.parametrize("whole", GROWING)
@pytest.mark.parametrize("begun", [False, True])
def test_a_reply_that_grows_is_told_apart_as_if_it_were_read_whole(whole: str, begun: bool) -> None:
    *_, shown = growing(whole, begun)
    parts = split_thoughts(whole, begun=begun)
    assert parts.thought.startswith(shown.thought)
    assert parts.answer.startswith(shown.answer)
    assert len(shown.thought + shown.answer) > len(parts.thought + parts.answer.rstrip()) - 40
