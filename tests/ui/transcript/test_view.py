from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import MessageStatus, ReadingPosition
from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.decorations import CodeHeader
from rdchat.ui.transcript.message_column import FIRST, MAX, OPENED, STEP, MessageRange
from rdchat.ui.transcript.view import TranscriptView
from tests.grids import share
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.transcript.conftest import (
    Show,
    add_message,
    answered,
    append_text,
    button,
    dialogue,
    person,
    reply,
    scroll_bar,
    wait_until_drawn,
    widget_of,
    widgets,
)

LONG = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(40))


def at_end(view: TranscriptView) -> bool:
    return scroll_bar(view).value() == scroll_bar(view).maximum()


def top_of(view: TranscriptView, message_id: int) -> int:
    """Return where a message stands in the view."""
    return widget_of(view, message_id).y() - scroll_bar(view).value()


def test_short_messages_fill_a_high_window_at_once(qtbot: QtBot, theme: Theme) -> None:
    view = TranscriptView(theme)
    qtbot.addWidget(view)
    view.resize(800, 1400)
    view.show()
    view.set_messages([person(number, "ok") for number in range(1, 200)])
    assert view.verticalScrollBar().maximum() > 0
    assert len(list(view.widgets)) < OPENED


def first_in_view(view: TranscriptView) -> int:
    return next(widget.message.id for widget in widgets(view) if widget.geometry().bottom() > scroll_bar(view).value())


@pytest.mark.slow
def test_the_scroll_bar_stands_for_the_whole_chat(qtbot: QtBot, show: Show) -> None:
    turns = 4000
    view = show(dialogue(turns, "Some answer."))
    bar = scroll_bar(view)
    for place in (0.25, 0.75, 0.5, 0.0, 0.9, 1.0):
        bar.setValue(round(place * bar.maximum()))
        assert view.fills_view
        assert len(widgets(view)) < OPENED
        there = first_in_view(view)
        assert abs(there / (2 * turns) - place) < 0.02
        wait_until_drawn(qtbot, view)
        assert first_in_view(view) == there
        assert abs(bar.value() / bar.maximum() - place) < 0.02
    assert at_end(view)
    assert view.follows


@pytest.mark.slow
def test_scrolling_moves_by_what_was_asked_also_where_messages_have_no_widget_yet(qtbot: QtBot, show: Show) -> None:
    view = show([person(number, f"Text {number}. " + "More of it. " * (number * 37 % 200)) for number in range(1, 400)])
    bar = scroll_bar(view)
    bar.setValue(bar.maximum() // 2)
    for step in [-180] * 30 + [180] * 60:
        message_id = first_in_view(view)
        before = top_of(view, message_id)
        bar.setValue(bar.value() + step)
        assert abs(top_of(view, message_id) - (before - step)) <= 1
        wait_until_drawn(qtbot, view)
        assert abs(top_of(view, message_id) - (before - step)) <= 1
    assert len(widgets(view)) <= MAX


@pytest.mark.slow
def test_messages_above_and_below_count_while_a_reply_grows(qtbot: QtBot, show: Show) -> None:
    view = show([*dialogue(200), reply(401, "", MessageStatus.STREAMING, None)])
    qtbot.waitUntil(lambda: len(widgets(view)) == OPENED)
    wait_until_drawn(qtbot, view)
    first = widgets(view)[0].y()
    append_text(view, 401, LONG)
    wait_until_drawn(qtbot, view)
    assert widgets(view)[0].y() == first > 0  # nothing else is moved
    assert at_end(view)


@pytest.mark.slow
def test_a_reader_above_is_not_moved_and_can_jump_to_the_latest(qtbot: QtBot, show: Show) -> None:
    view = show([*dialogue(10, LONG), person(21, "More?"), reply(22, "", MessageStatus.STREAMING, None)])
    with pytest.raises(AssertionError):
        button(view, "Jump to latest")
    bar = scroll_bar(view)
    bar.setValue(bar.maximum() // 2)
    value = bar.value()
    jump = button(view, "Jump to latest")
    assert jump.accessibleDescription() == ""
    append_text(view, 22, LONG)
    wait_until_drawn(qtbot, view)
    assert bar.value() == value
    assert jump.accessibleDescription() == "There is more below"
    click_on(jump)
    assert at_end(view)
    append_text(view, 22, LONG)
    wait_until_drawn(qtbot, view)
    assert at_end(view)
    bar.setValue(0)
    assert jump.accessibleDescription() == ""


@pytest.mark.slow
def test_home_and_end_reach_the_whole_chat_also_from_within_a_message(qtbot: QtBot, show: Show) -> None:
    view = show(dialogue(200))
    body = widgets(view)[-1].body
    body.setFocus()
    press_key(body, "Home")
    assert widgets(view)[0].message.id == 1
    assert scroll_bar(view).value() == 0
    body = widgets(view)[0].body
    wait_until_drawn(qtbot, view)
    press_key(body, "PgDown")
    assert scroll_bar(view).value() > 0
    press_key(body, "End")
    wait_until_drawn(qtbot, view)
    assert at_end(view)
    assert widgets(view)[-1].message.id == 400


@pytest.mark.slow
@pytest.mark.parametrize(("left_at", "above"), share([(1000, 30), (1, 0), (1990, 30)]))
def test_a_long_chat_opens_where_it_was_left_from_any_place_in_another(
    qtbot: QtBot, show: Show, left_at: int, above: int
) -> None:
    view = show([person(number, "Other") for number in range(5001, 9000)])
    scroll_bar(view).setValue(scroll_bar(view).maximum() // 3)
    view.set_messages(dialogue(1000, LONG), ReadingPosition(left_at, above))
    wait_until_drawn(qtbot, view)
    assert abs(top_of(view, left_at) + above) <= 2
    assert first_in_view(view) == left_at
    assert view.reading_position == ReadingPosition(left_at, -top_of(view, left_at))
    assert view.fills_view
    with qtbot.waitSignal(view.reader_moved) as moved:
        view.scroll_to_end()
    assert moved.args == [1, None]


@pytest.mark.slow
def test_resizing_keeps_the_message_in_view(qtbot: QtBot, show: Show) -> None:
    view = show(dialogue(20, LONG.replace("\n\n", " ")))
    bar = scroll_bar(view)
    bar.setValue(widget_of(view, 20).y() + 5)
    view.resize(420, 500)
    qtbot.waitUntil(lambda: widget_of(view, 20).width() < 420)
    assert abs(top_of(view, 20) + 5) <= 2


@pytest.mark.slow
def test_a_changed_path_keeps_shared_messages_and_the_place(qtbot: QtBot, show: Show) -> None:
    messages = dialogue(20, LONG)
    view = show(messages)
    scroll_bar(view).setValue(widget_of(view, 10).y())
    kept = widget_of(view, 10)
    view.set_messages([*messages[:30], person(99, "Another way")])
    wait_until_drawn(qtbot, view)
    assert widget_of(view, 10) is kept
    assert abs(top_of(view, 10)) <= 1
    assert widgets(view)[-1].message.id == 99


def test_another_conversation_replaces_everything(qtbot: QtBot, show: Show) -> None:
    view = show(dialogue(3))
    view.set_messages([person(100, "Other")])
    wait_until_drawn(qtbot, view)
    assert [widget.message.id for widget in widgets(view)] == [100]
    view.set_messages([])
    qtbot.waitUntil(lambda: not widgets(view))
    for key in ("Home", "End"):
        press_key(view, key)
    assert scroll_bar(view).maximum() == 0


@pytest.mark.slow
def test_text_of_a_message_that_is_not_shown_is_kept(qtbot: QtBot, show: Show) -> None:
    messages = [*dialogue(200), reply(401, "", MessageStatus.STREAMING, None)]
    view = show(messages)
    bar = scroll_bar(view)
    while any(widget.message.id == 401 for widget in widgets(view)):
        bar.setValue(widgets(view)[0].y() - 20)
    append_text(view, 401, "Written far below.")
    view.scroll_to_end()
    wait_until_drawn(qtbot, view)
    assert widget_of(view, 401).body.toPlainText() == "Written far below."


def test_the_theme_is_followed_at_once(qtbot: QtBot, show: Show, theme: Theme) -> None:
    view = show(dialogue(2, "Some **text**.\n\n```python\nimport os\n```"))
    theme.set_scheme(Qt.ColorScheme.Dark)
    theme.set_text_size(18)
    wait_until_drawn(qtbot, view)
    look = widget_of(view, 4).body.document().find("Some").charFormat()
    assert look.foreground().color() == theme.colors.text
    assert look.font().pointSizeF() == theme.body_font().pointSizeF()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["A paragraph with *some* `text`.\n\n" * 30_000, "word " * 200_000, "- item\n" * 140_000, "x" * 1_000_000],
    ids=["paragraphs", "one line", "list", "no spaces"],
)
def test_a_message_of_a_megabyte_shows_its_beginning_and_takes_more(qtbot: QtBot, show: Show, text: str) -> None:
    view = show(answered(text))
    hidden = widget_of(view, 2).body.hidden_characters
    assert hidden > 900_000
    assert button(view, f"Show more ({hidden:,} characters hidden)").isVisible()
    append_text(view, 2, "x")
    wait_until_drawn(qtbot, view)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ask",
    [
        lambda view: add_message(view, person(99, "Next question")),
        lambda view: view.edit_submitted.emit(35, "Another way"),
        lambda view: button(widget_of(view, 36), "Regenerate reply").click(),
    ],
)
def test_what_was_asked_comes_into_view(qtbot: QtBot, show: Show, ask: Callable[[TranscriptView], None]) -> None:
    messages = dialogue(20, LONG)
    view = show(messages)
    for asked in (view.edit_submitted, view.regenerate_requested):
        asked.connect(lambda *_: view.set_messages([*messages[:34], person(99, "Another way")]))
    scroll_bar(view).setValue(widget_of(view, 35).y())
    ask(view)
    wait_until_drawn(qtbot, view)
    assert at_end(view)
    assert widgets(view)[-1].message.id == 99


def test_the_text_keeps_its_width_when_the_scroll_bar_comes(qtbot: QtBot, show: Show) -> None:
    view = show([*dialogue(1), reply(3, "", MessageStatus.STREAMING, None)])
    view.resize(500, 400)
    before = widget_of(view, 1).geometry()
    append_text(view, 3, LONG)
    wait_until_drawn(qtbot, view)
    assert scroll_bar(view).maximum() > 0
    assert widget_of(view, 1).geometry() == before


def test_a_bubble_is_as_wide_as_the_header_of_its_code(show: Show) -> None:
    """The buttons of the header covered the language of short code."""
    view = show([person(1, "Why?\n```typescript\nx\n```")])
    header = widget_of(view, 1).body.findChild(CodeHeader)
    label = header.findChild(QLabel)
    assert label.width() >= label.sizeHint().width()
    assert label.geometry().right() < header.wrap_button.x()


@pytest.mark.parametrize(
    ("total", "visible", "at_end", "expected"),
    [
        (500, range(440, 499), True, (440, 500)),
        # An other path of the same chat may be much longer: few messages get widgets at once.
        (90_000, range(940, 970), True, (90_000 - FIRST, 90_000)),
        (1000, range(940, 970), False, (940, 970 + STEP)),
    ],
)
def test_another_path_keeps_what_is_in_view_or_the_end(
    total: int, visible: range, at_end: bool, expected: tuple[int, int]
) -> None:
    window = MessageRange(0, 60, 1000)
    window.set_count(total, visible, at_end=at_end)
    assert (window.start, window.end, window.total) == (*expected, total)


steps = st.lists(st.sampled_from(["grow", "slide_up", "slide_down", "count_message"]), max_size=400)


@given(total=st.integers(0, 1000), steps=steps)
def test_the_range_is_of_the_chat_and_stays_small(total: int, steps: list[str]) -> None:
    window = MessageRange()
    window.show_latest(total)
    assert (window.start, window.end) == (max(0, total - FIRST), total)
    for step in steps:
        before = replace(window)
        changed = getattr(window, step)()
        assert 0 <= window.start <= window.end <= window.total
        assert window.end - window.start <= MAX
        if step == "count_message":
            assert window.total == before.total + 1
            assert changed == before.at_end == (window.end > before.end)
        else:
            assert changed == ((window.start, window.end) != (before.start, before.end))
    while window.slide_up():
        pass
    assert window.start == 0
