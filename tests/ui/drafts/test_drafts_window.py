"""The window of a reply's tokens, used with keys and the pointer."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.reply_trace import ReplyTrace
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role, TokenEvent
from rdchat.services.chat.reply_recorder import TraceRecorder
from rdchat.ui.drafts.drafts_window import DraftsWindow
from rdchat.ui.style.theme import DARK, LIGHT, Theme
from tests.chat.traces import drafted_events, events_of_round, round_tree
from tests.ui.shown_widgets import click_on, press_key

REPLY = 1
ROUNDS = 40


@pytest.fixture
def traces(qtbot: QtBot, tmp_path: Path) -> Iterator[TraceRecorder]:
    store = ConversationStore(tmp_path / "conversations.db")
    chat = store.create_conversation("chat")
    reply = store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    assert reply.id == REPLY
    recorder = TraceRecorder(store)
    recorder.begin_trace(REPLY, 0)
    yield recorder
    recorder.end_traces()
    store.close()


@pytest.fixture
def window(qtbot: QtBot, theme: Theme, traces: TraceRecorder) -> DraftsWindow:
    window = DraftsWindow(traces, theme)
    qtbot.addWidget(window)
    return window


type Show = Callable[[list[TokenEvent]], None]


@pytest.fixture
def finished(window: DraftsWindow, traces: TraceRecorder, qtbot: QtBot) -> DraftsWindow:
    """The window with a reply of forty rounds; the cursor stands on the first token that was drafted."""
    traces.append_tokens(REPLY, drafted_events(ROUNDS))
    traces.end_trace(REPLY)
    with qtbot.waitExposed(window):
        window.show_reply(REPLY)
    return window


@pytest.fixture
def show(qtbot: QtBot, window: DraftsWindow, traces: TraceRecorder) -> Show:
    """Record tokens of the reply, and show it."""

    def show(events: list[TokenEvent]) -> None:
        traces.append_tokens(REPLY, events)
        with qtbot.waitExposed(window):
            window.show_reply(REPLY)

    return show


def whole(traces: TraceRecorder) -> ReplyTrace:
    found = traces.trace(REPLY)
    assert found is not None
    return found


def press(window: DraftsWindow, *keys: str) -> None:
    for key in keys:
        press_key(window.tokens, key)


def point_at(window: DraftsWindow, token: int) -> QPoint:
    """Move the pointer over a token's first run and return its place in the viewport."""
    view = window.tokens
    across = range(0, view.viewport().width(), 3)
    down = range(0, view.viewport().height(), 6)
    for place in (QPoint(x, y) for y in down for x in across):
        QTest.mouseMove(view.viewport(), place)
        if view.token == token:
            return place
    raise AssertionError(f"token {token} is nowhere to be pointed at")


def test_arrow_keys_go_token_by_token_and_round_by_round(finished: DraftsWindow, traces: TraceRecorder) -> None:
    rounds = whole(traces).rounds
    assert finished.tokens.current == 1
    assert finished.heading.text().startswith(f"Draft 1 of {ROUNDS}")
    press(finished, "Down", "Down")
    assert finished.tokens.current == rounds[2].first
    press(finished, "Right", "Up")
    assert finished.tokens.current == rounds[1].first
    press(finished, "Left")
    assert finished.tokens.current == rounds[1].first - 1
    press(finished, "End")
    assert finished.heading.text().startswith(f"Draft {ROUNDS} of {ROUNDS}")
    press(finished, "Right", "Home", "Left")
    assert finished.tokens.current == 0
    assert finished.heading.text() == ""


def test_the_cursor_is_kept_in_view(finished: DraftsWindow) -> None:
    finished.resize(480, 380)
    bar = finished.tokens.verticalScrollBar()
    press(finished, "End")
    assert bar.value() == bar.maximum() > 0
    press(finished, "Home")
    assert bar.value() == 0


def test_the_tree_steps_through_rounds_with_arrow_keys(finished: DraftsWindow, traces: TraceRecorder) -> None:
    press(finished, "Home")
    assert not finished.previous.isEnabled(), "the cursor stands before the first round"
    for key, number in (("Right", 1), ("Down", 2), ("Left", 1), ("Up", 1)):
        press_key(finished.tree, key)
        assert finished.heading.text().startswith(f"Draft {number} of")
        assert finished.tokens.current == whole(traces).rounds[number - 1].first
        assert finished.tree.accessibleDescription().startswith(f"Draft {number} of")
    assert not finished.previous.isEnabled()
    finished.next.click()
    assert finished.heading.text().startswith("Draft 2 of")


def test_the_arrows_follow_a_change_to_dark(finished: DraftsWindow, theme: Theme) -> None:
    """They stayed in the grey of the light scheme, and looked disabled."""
    theme.set_scheme(Qt.ColorScheme.Light)
    before = [button.grab().toImage() for button in (finished.previous, finished.next)]
    theme.set_scheme(Qt.ColorScheme.Dark)
    after = [button.grab().toImage() for button in (finished.previous, finished.next)]
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_the_pane_tells_of_the_token_under_the_pointer_else_of_the_cursors(
    finished: DraftsWindow, traces: TraceRecorder
) -> None:
    first = whole(traces).rounds[0].first
    assert finished.details.token.text() == "␣one"
    assert finished.details.rows["Drafted by"].value.text() == "Drafter"
    assert finished.details.rows["Position"].value.text() == "1 of the draft"
    told = [row.value.accessibleName() for row in finished.details.alternatives]
    assert told[0] == "✓ ␣one: 61\N{NARROW NO-BREAK SPACE}%"
    assert told[1].startswith("x: ")
    point_at(finished, first + 1)
    assert finished.details.token.text() == "␣c1"
    assert finished.details.rows["Drafted by"].value.text() == "Not drafted"
    assert finished.tokens.current == first
    QApplication.sendEvent(finished.tokens.viewport(), QEvent(QEvent.Type.Leave))
    assert finished.details.token.text() == "␣one"


@pytest.mark.slow
@pytest.mark.parametrize("points", [13, 20, 32])
@pytest.mark.parametrize("size", [(900, 560), (480, 380)])
def test_nothing_of_a_token_is_cut_at_its_side(
    finished: DraftsWindow, qtbot: QtBot, theme: Theme, points: int, size: tuple[int, int]
) -> None:
    """At 20 pt the percentages lost their signs: the pane kept the width of small texts."""
    theme.set_text_size(points)
    finished.resize(*size)
    pane = finished.details
    qtbot.waitUntil(lambda: finished.width() == size[0])
    right = pane.viewport().width()
    assert all(
        label.mapTo(pane.viewport(), label.rect().topRight()).x() <= right
        for label in pane.findChildren(QLabel)
        if label.isVisible()
    )


def test_a_click_moves_the_cursor(finished: DraftsWindow) -> None:
    """Clicks find token 9: with a fractional scale, Qt's test moves the pointer to another place."""
    view = finished.tokens
    view.move_to(0)
    places = (QPoint(across, down) for down in range(0, 120, 12) for across in range(0, view.viewport().width(), 6))
    for place in places:
        click_on(view.viewport(), place)
        if view.current == 9:
            break
    assert view.current == 9
    assert finished.tokens.accessibleDescription().startswith("Token 10 of")


def test_a_reply_that_is_being_written_grows_and_the_newest_round_is_shown(
    qtbot: QtBot, window: DraftsWindow, traces: TraceRecorder, show: Show
) -> None:
    events = drafted_events(ROUNDS)
    show(events[:1])
    for start in range(1, len(events), 7):
        traces.append_tokens(REPLY, events[start : start + 7])
    qtbot.waitUntil(lambda: window.tokens.current == len(events) - 1)
    assert window.heading.text().startswith(f"Draft {ROUNDS} of {ROUNDS}")
    press(window, "Home")
    traces.append_tokens(REPLY, drafted_events(2))
    count = len(events) + len(drafted_events(2))
    qtbot.waitUntil(lambda: window.tokens.accessibleDescription().startswith(f"Token 1 of {count}"))
    assert window.tokens.current == 0  # a reader who looks at something else is left alone


def test_what_a_stop_string_cuts_disappears_at_the_end(window: DraftsWindow, traces: TraceRecorder, show: Show) -> None:
    show(drafted_events(4))
    traces.end_trace(REPLY, 5)
    assert window.tokens.current == 4
    assert window.tokens.accessibleDescription().startswith("Token 5 of 5")


def test_a_reply_without_a_trace_says_so(qtbot: QtBot, window: DraftsWindow) -> None:
    with qtbot.waitExposed(window):
        window.show_reply(99)
    assert window.note.text() == "The tokens of this reply were not recorded."
    assert window.note.isVisible()


@pytest.mark.parametrize(("missing", "note"), [(1234, "1,234 characters were"), (1, "1 character was")])
def test_unrecorded_characters_are_mentioned(
    window: DraftsWindow, traces: TraceRecorder, show: Show, missing: int, note: str
) -> None:
    traces.begin_trace(REPLY, missing)
    show(drafted_events(1))
    assert window.note.text() == f"{note} not recorded"


@pytest.mark.parametrize("dark", [False, True])
def test_drafted_tokens_have_their_drafters_colour(window: DraftsWindow, show: Show, theme: Theme, dark: bool) -> None:
    theme.set_scheme(Qt.ColorScheme.Dark if dark else Qt.ColorScheme.Light)
    colors = DARK if dark else LIGHT
    show([TokenEvent(1, 0, 0, "MMMM", "lookup", 1), TokenEvent(1, 1, 1, "MMMM")])
    seen = _colors(window.tokens.viewport().grab().toImage())
    assert colors.lookup.rgb() in seen
    assert theme.colors.text.rgb() in seen
    assert colors.drafter.rgb() not in seen
    shown = [row.value.accessibleName() for row in window.details.legend.values() if row.isVisible()]
    assert shown == ["The model itself: 1", "┈┈ Prompt lookup, this chat: 1"]


def _colors(image: QImage) -> set[int]:
    return {QColor(image.pixel(x, y)).rgb() for x in range(image.width()) for y in range(min(image.height(), 60))}


def test_a_reader_who_scrolled_away_is_left_alone_when_the_reply_ends(
    window: DraftsWindow, traces: TraceRecorder, show: Show
) -> None:
    window.resize(480, 380)
    show(drafted_events(ROUNDS))
    bar = window.tokens.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    bar.setValue(0)
    traces.end_trace(REPLY, trailing_text=" more")
    assert bar.value() == 0
    press(window, "End")
    assert window.details.token.text().endswith("more")


def test_a_tree_that_is_looked_at_stays_where_it_was_scrolled_while_the_reply_grows(
    qtbot: QtBot, window: DraftsWindow, traces: TraceRecorder, show: Show
) -> None:
    window.resize(480, 380)
    show(drafted_events(4))
    window.tokens.move_to(whole(traces).rounds[2].first)
    bar = window.tree.horizontalScrollBar()
    bar.setValue(bar.maximum())
    assert bar.value() > 0
    traces.append_tokens(REPLY, drafted_events(2))
    qtbot.waitUntil(lambda: window.heading.text().startswith("Draft 3 of 6"))
    assert window.tree.accessibleDescription().startswith("Draft 3 of 6")
    assert bar.value() == bar.maximum()


@pytest.mark.slow
def test_every_token_can_be_pointed_at(window: DraftsWindow, show: Show) -> None:
    """A token that was a carriage return alone once had no place to be looked for."""
    seen = ("a", "\r", "", "\r\n", " b", "\t", "\N{GRINNING FACE}", "\u2029", "\ufdd0\ufdd1", "\u05d0\u05d1", " ", " c")
    texts = (*seen, "\u200b", "\u0301", "\u2028", "\ufffc", "end")
    show([TokenEvent(1, at, at, text, "lookup", 1) for at, text in enumerate(texts)])
    for token in range(len(seen)):
        point_at(window, token)
    press(window, "Home")
    for token in range(len(texts)):
        assert window.tokens.current == token
        press(window, "Right")


@pytest.mark.parametrize("part", ["tokens", "tree", "details"])
def test_the_keyboard_reaches_each_part_and_it_shows(qtbot: QtBot, finished: DraftsWindow, part: str) -> None:
    """Cursor on the first token, which no round is drawn around."""
    finished.activateWindow()
    view = getattr(finished, part)
    assert view.focusPolicy() & Qt.FocusPolicy.TabFocus
    finished.next.setFocus()
    without = view.grab().toImage()
    view.setFocus()
    qtbot.waitUntil(view.hasFocus)
    assert view.grab().toImage() != without


def test_an_alternative_that_is_cut_is_told_whole(window: DraftsWindow, show: Show) -> None:
    long = " incomprehensibilities" * 3
    show(events_of_round(1, 0, round_tree([long], " b", ["x"])))
    press(window, "Home")
    tips = [row.toolTip() for row in window.details.alternatives]
    assert any(long.replace(" ", "␣") in tip for tip in tips)


def test_a_window_that_is_closed_keeps_no_trace(finished: DraftsWindow) -> None:
    finished.close()
    press(finished, "End")
    assert finished.tokens.token == -1
    finished.show_reply(REPLY)
    press(finished, "End")
    assert finished.tokens.token > ROUNDS
