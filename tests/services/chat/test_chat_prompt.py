"""What a model sees of a path: each message whole, summarised once, or named as left out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings, strategies as st

from rdchat.chat.conversation import Message, MessagePath, MessageStatus
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import ChatMessage, Role, ToolCall
from rdchat.services.chat.chat_prompt import ChatPrompt, history, seen
from rdchat.services.chat.cut_plan import Budget, CutPlan, CutPlanner
from rdchat.services.chat.summary_requests import asked_of_piece, sources_of
from tests.stores import cut_of

LONG = " word" * 400


def count(messages: Sequence[ChatMessage]) -> int:
    return sum(len(each.content.split()) + 1 for each in messages)


@st.composite
def a_path(draw: st.DrawFn) -> list[Message]:
    """Return questions with calls, results and answers; message N has the word `<N>`."""
    path: list[Message] = []

    def add(role: Role, **fields: object) -> None:
        text = f"<{len(path)}>" + " word" * draw(st.integers(0, 30)) + (LONG if draw(st.booleans()) else "")
        number = len(path) + 1
        path.append(Message(number, 1, number - 1 or None, role, text, **fields))  # type: ignore[arg-type]

    for turn in range(draw(st.integers(1, 8))):
        add(Role.USER)
        for call in range(draw(st.integers(0, 2))):
            name = f"{turn}-{call}"
            add(Role.ASSISTANT, tool_calls=(ToolCall("read", "{}", name),))
            add(Role.TOOL, tool_call_id=name, tool_name=draw(st.sampled_from(["read", "web"])))
        add(Role.ASSISTANT)
    return path


def check_seen(path: Sequence[Message]) -> None:
    """Check what a model sees of a path against the path itself."""
    result = [*seen(path)]
    hidden = [each for each in path if each.context_cut and not each.context_cut.shortens]
    end = list(path).index(hidden[-1]) + 1 if hidden else 0
    replaced = [each for each in result if each.context_cut and not each.context_cut.shortens]
    summary = hidden[-1].context_cut.summary if hidden and hidden[-1].context_cut else ""
    assert [summary in each.text for each in replaced] == [True] * bool(summary)
    rest = result[len(replaced) :]
    assert [each.id for each in rest] == [each.id for each in path[end:]]
    marks = [n for n, each in enumerate(path) if each.context_cut and each.context_cut.shortens]
    for number, (whole, shown) in enumerate(zip(path[end:], rest, strict=True), end):
        if shown != whole:
            assert whole.role is Role.TOOL
            assert number <= max(marks)
            begin, mark, end_of_text = shown.text.partition("\n(left out: ")
            assert whole.text.startswith(begin)
            assert mark
            assert whole.text.endswith(end_of_text.partition(" characters)\n")[2])


@settings(max_examples=40)
@given(path=a_path(), data=st.data())
def test_a_path_with_any_cuts(path: list[Message], data: st.DataObject) -> None:
    cuts = st.sampled_from([None, None, None, ContextCut(), ContextCut("A summary."), ContextCut(shortens=True)])
    check_seen([replace(each, context_cut=data.draw(cuts)) for each in path])


@given(path=a_path(), limit=st.integers(800, 6000), summarises=st.booleans(), typed=st.sampled_from(["", "And now?"]))
@settings(max_examples=40)
def test_plans_cut_whole_turns_once_and_in_order_until_the_chat_fits(
    path: list[Message], limit: int, summarises: bool, typed: str
) -> None:
    """A chat grows by its turns; whenever it is nearly full, it is shortened."""
    shown: list[Message] = []
    summarised: list[str] = []
    budget = Budget(limit, limit // 4, spares=True)
    turns = [n for n, each in enumerate(path) if each.role is Role.USER] + [len(path)]
    for begin, end in pairwise(turns):
        shown += path[begin:end]
        prompt = ChatPrompt(MessagePath.as_path(shown), "", typed)
        complete = prompt.with_files(str)
        if count(complete.turns()) <= limit - budget.reserve:
            continue
        planner = CutPlanner(prompt, complete, budget, count, str)
        plan = planner.shortened() or (planner.with_summary() if summarises else planner.without_oldest())
        if plan is None:
            continue
        at = next(n for n, each in enumerate(shown) if each.id == plan.message_id)
        before = cut_of(shown)
        check_plan(plan, shown[: at + 1], before)
        # A later piece has the summary of those before it, which may have 768 tokens.
        requests = [count(asked_of_piece(piece, "")) for piece in plan.pieces]
        assert all(size + min(768, limit // 4) + plan.max_tokens <= limit for size in requests)
        cut = replace(plan.cut, summary=f"Summary {len(summarised)}." if plan.pieces else "")
        shown[at] = replace(shown[at], context_cut=cut)
        if plan.pieces:
            summarised.append(cut.summary)
        after = ChatPrompt(MessagePath.as_path(shown), "", typed).with_files(str)
        roles = [each.role for each in after.turns()]
        assert roles[0] is Role.USER
        check_seen(shown)
        is_last = at == len(shown) - 1
        assert cut.shortens or is_last or shown[at + 1].role is Role.USER, "calls and results stay together"
        fits = count(after.turns()) <= limit - (budget.reserve if cut.shortens else 0)
        assert fits or is_last


def check_plan(plan: CutPlan, cut: Sequence[Message], before: Message | None) -> None:
    """Check that what is summarised has each message once, and the summary before it once."""
    if not plan.pieces:
        return
    text = "".join(plan.pieces)
    start = 0 if before is None else list(cut).index(before) + 1
    words = [word for word in text.split() if word.startswith("<") and not word.startswith("<turn>")]
    assert words == [f"<{each.id - 1}>" for each in cut[start:]]
    earlier = before.context_cut.summary if before is not None and before.context_cut else ""
    assert not earlier or text.count(earlier) == 1
    names = {each.tool_name for each in cut[start:] if each.tool_name}
    assert names <= set(plan.cut.sources)
    assert plan.cut.sources == sources_of([*seen(list(cut[:start])), *cut[start:]])


USER = Role.USER
ASSISTANT = Role.ASSISTANT


def path(*turns: tuple[Role, str]) -> list[Message]:
    return [
        Message(i, 1, i - 1 or None, role, text, MessageStatus.COMPLETE, 0.0) for i, (role, text) in enumerate(turns, 1)
    ]


def test_the_system_prompt_comes_first_where_there_is_one() -> None:
    hello = path((USER, "Hello"))
    assert history(hello, "Be brief.") == (ChatMessage(Role.SYSTEM, "Be brief."), ChatMessage(USER, "Hello"))
    assert history(hello, "  \n") == (ChatMessage(USER, "Hello"),)


def test_a_reply_without_a_word_is_left_out_and_its_prompt_kept() -> None:
    told = history(path((USER, "One"), (ASSISTANT, " "), (USER, "Two"), (ASSISTANT, "2"), (USER, "Three")), "")
    assert told == (ChatMessage(USER, "One\n\nTwo"), ChatMessage(ASSISTANT, "2"), ChatMessage(USER, "Three"))


def test_control_tokens_of_joined_replies_are_found_in_the_whole() -> None:
    first, second = (
        Message(i, 1, None, ASSISTANT, f"{i}<t>", MessageStatus.COMPLETE, 0.0, control_offsets=(1,)) for i in (1, 2)
    )
    (told,) = history([first, second], "")
    assert [told.content[offset : offset + 3] for offset in told.own_control] == ["<t>", "<t>"]
