"""Laws: no word of a reply is lost, what a client has never changes, and a stream says what the whole reply says."""

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as some

from rdchat.inference.api import (
    FinishReason,
    PartsReader,
    Piece,
    PrefillProgress,
    ReplyEnd,
    ReplyPart,
    Statistics,
    Thoughts,
    TokenEvent,
    ToolCall,
    grown,
    markers_among,
)
from rdchat.server.interfaces.anthropic_messages import Messages
from rdchat.server.interfaces.chat_completions import ChatCompletions
from rdchat.server.interfaces.reply_request import Choice, Delta, Prompt, ReplyParts, ReplyRequest
from rdchat.server.interfaces.responses import Responses
from tests.split_replies import client_of, told

_MARKS = (
    "<think>", "</think>", "[THINK]", "[/THINK]", "<|channel>thought", "<channel|>", "<|START_THINKING|>",
    "<|END_THINKING|>", "<seed:think>", "</seed:think>", "<answer>", "</answer>", "<response>", "</response>",
    "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>", "<|return|>",
    "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<thinking>", "</thinking>", "<|channel|>", "<|message|>", "<|start|>",
)  # fmt: skip
_PIECES = some.lists(
    some.sampled_from(("@", "@", "@", " ", "\n", "\n\n", "```\n", "`", "\n```\n", "\n```py\n", *_MARKS)), max_size=9
)


@settings(max_examples=50)
@given(pieces=_PIECES, begun=some.booleans(), ended=some.booleans())
@example(pieces=["@", "</think>", "@"], begun=False, ended=True)
@example(pieces=["@", "<think>", "@", "</think>", "@"], begun=False, ended=True)
def test_a_stream_says_each_word_of_a_reply_and_what_the_whole_says(
    pieces: list[str], begun: bool, ended: bool
) -> None:
    numbers = itertools.count()
    text = "".join(f"w{next(numbers)}." if piece == "@" else piece for piece in pieces)
    finish = FinishReason.EOS if ended else FinishReason.LENGTH
    steps = [text[at : at + step] for step in (1, max(len(text), 1)) for at in range(0, len(text), step)]
    one = client_of(steps[: len(text)], PartsReader(begun), finish=finish)
    whole = None
    for client in (one, client_of(steps[len(text) :], PartsReader(begun), finish=finish)):
        # The pieces are the reply, in order; blanks, marks that may go on and calls are held back.
        assert text.startswith("".join(piece.text for piece in client.pieces))
        assert whole in (None, client.at_once)
        whole = client.at_once
        for said in (client.streamed, whole):
            assert all(word in said[0] + said[1] for word in re.findall(r"w\d+\.", text)), said
        # A thought that the model ended without its mark is the answer too, so that no client gets an empty reply.
        if ended and client.streamed != whole:
            assert client.streamed[1] == whole[1]
            assert client.streamed[0].rpartition("\n\n")[2].strip() in whole[1]
        else:
            assert [each.rstrip() for each in client.streamed] == [each.rstrip() for each in whole]


@settings(max_examples=50)
@given(pieces=_PIECES, begun=some.booleans(), cut=some.integers(0, 60))
def test_a_reply_that_is_continued_reads_as_one(pieces: list[str], begun: bool, cut: int) -> None:
    text = "".join(f"w{at}." if piece == "@" else piece for at, piece in enumerate(pieces))
    before = text[:cut]
    more = text[cut:]
    reader = PartsReader(begun, before=before)
    whole = PartsReader(begun)
    given = [piece for letter in more for piece in reader.add_text(letter)]
    whole.add_text(text)
    assert more.startswith("".join(piece.text for piece in given))
    assert reader.finish_reply(ended=False) == whole.finish_reply(ended=False)


@settings(max_examples=50)
@given(pieces=_PIECES, begun=some.booleans())
def test_what_is_stored_while_a_reply_is_written_is_what_was_told(pieces: list[str], begun: bool) -> None:
    text = "".join(f"w{at}." if piece == "@" else piece for at, piece in enumerate(pieces))
    reader = PartsReader(begun)
    shown = ""
    parts: tuple[ReplyPart, ...] = (ReplyPart(0, 0, is_thought=True),) if begun else ()
    for letter in text:
        more = reader.add_text(letter)
        parts = grown(parts, more)
        shown = shown + "".join(piece.text for piece in more)
    stored = Thoughts(shown, parts)
    whole = reader.finish_reply(ended=False)
    assert (whole.thought + "\n").startswith(stored.thought)
    assert whole.answer.startswith(stored.answer)


_START = PrefillProgress(0, 8, 8, 2, False)
_TOKENS = (TokenEvent(0, 0, 1, "Yes", log_prob=-0.5, pieces=(Piece("Yes"),)), TokenEvent(0, 1, 99, "", log_prob=-0.5))
_END = ReplyEnd(0, "Yes", (1, 99), "", FinishReason.EOS, Statistics(), told=told("Yes"))


@pytest.mark.parametrize("first", [2, 3])
def test_final_eos_is_not_listed_as_a_token(first: int) -> None:
    parts = ReplyParts(0, ReplyRequest("", (Prompt(text="Go on"),), {}, 0, top_log_probs=0), 0)
    events = (_START, *_TOKENS, _END)
    made = [*parts.take_events(events[:first]), *parts.take_events(events[first:])]
    deltas = [part if isinstance(part, Delta) else part[1] for part in made if not isinstance(part, PrefillProgress)]
    assert [token.token_id for delta in deltas for token in delta.tokens] == [1]


def shown(text: str, cut: tuple[int, int] | None = None, *, begun: bool = False,
          finish: FinishReason = FinishReason.EOS, call_mark: str = "", **options: Any
) -> tuple[str, str]:  # fmt: skip
    """Return thought and answer of a client after a reply came letter by letter; `cut` is what a call took."""
    reader = PartsReader(begun, call_marks=(call_mark,) if call_mark else (), **options)
    return client_of(list(text), reader, finish=finish, cut=cut).streamed


def test_a_call_is_held_back() -> None:
    assert shown("So: <call>{}</call>", (4, 19), call_mark="<call>") == ("", "So: ")
    assert shown("<call>{}</call>", (0, 15), call_mark="<call>") == ("", "")


def test_text_that_only_began_like_a_call_comes_at_the_end() -> None:
    for text in ("A <cal", "A <call> that is none", "A  "):
        assert shown(text, call_mark="<call>") == ("", text)


@given(thought=some.text("a \n", min_size=1), ends=some.integers(0, 2), answer=some.text("b \n", min_size=1))
def test_an_answer_with_a_shape_keeps_its_blanks_behind_a_thought(thought: str, ends: int, answer: str) -> None:
    """They belonged to the mark, and the answer had the shape no more."""
    behind = "\n" * ends + answer.lstrip("\n")
    text = f"{thought}</think>{behind}"
    assert shown(text, begun=True, shaped=True)[1] == re.sub(r"\A\n{0,2}", "", behind)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "<think>x</think> y"}',
        '{"a": "</think>"}',
        "<think>x</think>",
        '"\n<answer>"',
        "<|channel|>final<|message|>x",
    ],
)
def test_markers_in_an_answer_with_a_shape_are_data(text: str) -> None:
    """The server once cut such an answer in two."""
    assert shown(text, shaped=True) == ("", text)
    assert shown(f"Hm <think> <b>.</think>\n\n{text}", shaped=True, begun=True) == ("Hm <think> <b>.", text)


def test_a_thought_before_a_shape_that_was_cut_off() -> None:
    assert shown("Hm</thi", shaped=True, begun=True, finish=FinishReason.LENGTH) == ("Hm</thi", "")


THINK = frozenset({"<think>", "</think>"})


def shown_with_tokens(tokens: list[str], control: tuple[int, ...], markers: frozenset[str] = THINK, *,
                      begun: bool = False, cut: tuple[int, int] | None = None) -> tuple[str, str]:  # fmt: skip
    """Return thought and answer of a client after a reply came token by token."""
    reader = PartsReader(begun, markers=markers, call_marks=("<call>",))
    return client_of(tokens, reader, control=control, cut=cut).streamed


def test_where_a_model_has_tokens_the_characters_of_markers_are_text() -> None:
    """The server once cut such a reply in two."""
    spelled = ["Close it with ", "</", "think", ">", ", always."]
    whole = "".join(spelled)
    assert shown_with_tokens(spelled, ()) == ("", whole)
    assert shown_with_tokens(["Hm", *spelled], (), frozenset(), begun=True) == ("HmClose it with", ", always.")
    assert shown_with_tokens([*spelled, "</think>", "Yes."], (5,), begun=True) == (whole, "Yes.")
    assert shown_with_tokens(["<think>", *spelled, "</think>", "\n\n", *spelled], (0, 6)) == (whole, whole)
    opened = ["<", "think>", "\nas XML", "</think>"]
    assert shown_with_tokens(opened, ()) == ("", "".join(opened))


def test_markers_around_a_call() -> None:
    tokens = ["<think>", "Hm", "</think>", "So </think>", "<call>{}</call>"]
    assert shown_with_tokens(tokens, (0, 2, 4), cut=(28, 43)) == ("Hm", "So </think>")


def test_a_marker_that_begins_with_a_token() -> None:
    markers = markers_among(["<|channel>", "<channel|>", "<eos>"])
    assert markers == {"<|channel>thought", "<channel|>"}
    tokens = ["<|channel>", "thought", "\nHm <channel|>", "<channel|>", "Yes <channel|>"]
    assert shown_with_tokens(tokens, (0, 3), markers) == ("Hm <channel|>", "Yes <channel|>")


_REASONS = {
    FinishReason.EOS: ("stop", "end_turn", None),
    FinishReason.STOP_STRING: ("stop", "stop_sequence", None),
    FinishReason.LENGTH: ("length", "max_tokens", {"reason": "max_output_tokens"}),
    FinishReason.CONTEXT_FULL: ("length", "model_context_window_exceeded", {"reason": "max_output_tokens"}),
}


@pytest.mark.parametrize("calls", [(), (ToolCall("look", "{}"),)])
@pytest.mark.parametrize("finish", _REASONS)
def test_the_reason_for_an_end_is_that_of_the_end_whatever_the_reply_holds(
    finish: FinishReason, calls: tuple[ToolCall, ...]
) -> None:
    choice = Choice(0, 0, answer="So", calls=calls, end=replace(_END, finish_reason=finish))

    def written(interface: Any) -> Any:
        request = ReplyRequest("", (Prompt(),), {}, 0, repeated={"reasoning": {"summary": None}})
        return interface.format(request, "m", "1").complete([choice])

    openai, anthropic, incomplete = _REASONS[finish]
    if calls and finish is not FinishReason.LENGTH and finish is not FinishReason.CONTEXT_FULL:
        # OpenAI has no word for a text of the client's; a call that ended by itself is the end.
        openai = "tool_calls"
        anthropic = "tool_use" if finish is FinishReason.EOS else anthropic
    assert written(ChatCompletions())["choices"][0]["finish_reason"] == openai
    assert written(Messages())["stop_reason"] == anthropic
    assert written(Responses())["incomplete_details"] == incomplete
