"""Calls of tools in the window, with mouse and keys: approved, refused, stopped, unfolded; hostile texts."""

import json
import time
from dataclasses import replace

import pytest
import shiboken6
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from rdchat.inference.api import Role, ToolCall
from rdchat.services.chat.tool_call_control import Scope
from rdchat.services.servers.tool_servers import MAX_CALLS
from rdchat.tools.definitions import ToolResult
from rdchat.ui.files.chips import ImageTile
from rdchat.ui.files.image_window import ImageWindow
from rdchat.ui.settings.tools_page import ChatToolsPopover
from rdchat.ui.style import ConsentPause, IconButton, Theme, visible_text
from rdchat.ui.transcript.message_kinds import ReplyMessage
from tests.clocks import ManualClock
from tests.services import fakes
from tests.services.fakes import Reply
from tests.services.tool_fakes import calling, read
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.tool_windows import ToolWindow, tool_window, tools

__all__ = ["tool_window", "tools"]

ANSWER = Reply(("It says so.",))


def test_a_call_waits_and_return_runs_it_only_from_its_button(qtbot: QtBot, tool_window: ToolWindow) -> None:
    calls = tool_window.calls
    composer = tool_window.window.conversation.composer
    composer.field.setFocus()
    tool_window.ask(calling(read(), text="Let me look."), ANSWER)
    (card,) = calls.cards.values()
    assert card.isVisible()
    assert card.arguments.toPlainText() == '{\n  "path": "a.txt"\n}'
    assert card.accessibleName() == "Run read? A tool of files"
    assert tool_window.window.focusWidget() is composer.field
    press_key(composer.field, "Return")
    press_key(composer.field, "Esc")
    press_key(card.arguments, "Return")
    assert not any(answer.isDefault() for answer in card.buttons.values()), "two answers had a ring"
    assert not tool_window.servers.made
    assert card is next(iter(calls.cards.values()))
    card.buttons[Scope.ONCE].setFocus()
    press_key(card.buttons[Scope.ONCE], "Return")
    tool_window.wait()
    assert tool_window.servers.made == [("files__read", '{"path": "a.txt"}')]
    assert not calls.cards
    assert tool_window.window.focusWidget() is composer.field
    (result,) = tool_window.results
    assert (result.first_line.text(), result.state.text()) == ("the text", "8 characters")
    assert not result.body.isVisible()
    click_on(result.toggle)
    qtbot.waitUntil(lambda: result.body.toPlainText() == "the text")
    assert result.arguments.isVisible()
    click_on(result.toggle)
    assert not result.body.isVisible()


def test_return_refuses_a_call_from_the_button_that_refuses(tool_window: ToolWindow) -> None:
    """Return did nothing there, though it ran the call from the button beside it."""
    tool_window.ask(calling(read(), text="Let me look."), ANSWER)
    (card,) = tool_window.calls.cards.values()
    card.buttons[None].setFocus()
    press_key(card.buttons[None], "Return")
    tool_window.wait()
    assert not tool_window.servers.made
    assert not tool_window.calls.cards


@pytest.mark.parametrize("scope", [Scope.ONCE, None])
def test_a_double_click_decides_on_one_call_also_when_the_next_reply_calls_at_once(
    qtbot: QtBot, tool_window: ToolWindow, monkeypatch: pytest.MonkeyPatch, scope: Scope | None
) -> None:
    """The second click ran a call of the next reply, which had come under the pointer and which nobody had read."""
    clock = ManualClock()
    monkeypatch.setattr(ConsentPause, "clock", clock)
    tool_window.ask(Reply(("line\n\n" * 60,)))  # the next card stands where this one does
    tool_window.ask(calling(read("harmless", "1")), calling(read("rm -rf", "2")), calling(read("again", "3")), ANSWER)
    clock.now += 1
    tool_window.decide(scope)
    qtbot.waitUntil(lambda: "2" in tool_window.calls.cards)
    for _ in range(3):
        clock.now += 0.16
        tool_window.decide(scope, "2")
    assert list(tool_window.calls.cards) == ["2"]
    assert tool_window.servers.made == [("files__read", '{"path": "harmless"}')] * (scope is Scope.ONCE)
    clock.now += 0.16
    tool_window.decide(scope, "2")
    qtbot.waitUntil(lambda: "3" in tool_window.calls.cards)


def test_always_is_offered_for_tools_that_only_read_here(tool_window: ToolWindow) -> None:
    write = ToolCall("files__write", '{"path": "a"}', "w")
    tool_window.ask(calling(read(call_id="r"), write, ToolCall("web__search", "{}", "s")))
    cards = tool_window.calls.cards
    assert [Scope.ALWAYS in cards[each].buttons for each in ("r", "w", "s")] == [True, False, False]
    assert cards["w"].remark.text() == "The tool may change something."
    assert cards["s"].remark.text().startswith("The arguments leave this ")


def test_a_card_and_its_result_say_that_slips_of_a_call_were_mended(tool_window: ToolWindow) -> None:
    sentence = "The model wrote this call with slips, which were mended: check its arguments."
    tool_window.ask(calling(replace(read(call_id="r"), mended=True), read(call_id="s")), ANSWER)
    cards = tool_window.calls.cards
    assert [cards[each].remark.text() for each in ("r", "s")] == [sentence, ""]
    assert cards["r"].remark.isVisible()
    for each in ("r", "s"):
        click_on(tool_window.calls.cards[each].buttons[Scope.ONCE])
    tool_window.wait()
    assert [each.note.text() for each in tool_window.results] == [sentence, ""]


def test_a_card_without_a_tool_starts_the_server_and_runs_nothing(qtbot: QtBot, tool_window: ToolWindow) -> None:
    calls = tool_window.calls
    servers = tool_window.servers
    tool_window.ask(calling(read(call_id="r"), ToolCall("web__search", "{}", "s")))
    servers.starts = False
    assert Scope.ALWAYS in calls.cards["r"].buttons
    for name in servers.states:
        servers.set(name, "failed")
    unknown = "Its server has failed, so it is not known what the tool does. Settings > Tools says why."
    assert calls.cards["r"].remark.text() == unknown
    leaves, _, rest = calls.cards["s"].remark.text().partition(". ")
    assert (leaves.startswith("The arguments leave this "), rest) == (True, unknown)
    buttons = calls.cards["r"].buttons
    assert [button.text() for button in buttons.values()] == ["Don't Run", "Start the Server"]
    qtbot.waitUntil(buttons[Scope.ONCE].isEnabled)
    click_on(buttons[Scope.ONCE])
    assert servers.started[-2:] == ["files", "web"]
    assert calls.cards["r"].remark.text() == "Its server is starting…"
    assert not calls.cards["r"].buttons[Scope.ONCE].isEnabled()
    servers.set("files", "running")
    assert [*calls.cards["r"].buttons] == [None, Scope.ALWAYS, Scope.CHAT, Scope.ONCE]
    assert not servers.made
    tool_window.chat.open.set_tools(("web",), ())
    assert calls.cards["r"].remark.text() == "The tool is not available in this chat."
    assert [*calls.cards["r"].buttons] == [None]


def test_calls_that_cannot_be_run_are_one_line_of_their_reply(tool_window: ToolWindow) -> None:
    many = calling(*(ToolCall(f"f{number}", "{}") for number in range(40)), text="I try.")
    tool_window.ask(many, calling(ToolCall("files__read", "{}")), ANSWER)
    assert not tool_window.results
    assert not tool_window.calls.cards
    lines = [each._status.text() for each in tool_window.widgets if isinstance(each, ReplyMessage)]
    assert lines == [
        "Not run: f0 and 39 more. The tool f0 is not available.", "Not run: read · files. The argument path is missing."
    ]  # fmt: skip
    assert tool_window.calls.note.text().startswith("None of these calls could be run")
    click_on(tool_window.calls.go_on)
    tool_window.wait()
    assert tool_window.chat.path[-1].text == "It says so."
    assert not tool_window.calls.note.isVisible()


def test_a_name_of_a_call_is_a_stranger_s_text(tool_window: ToolWindow) -> None:
    tool_window.ask(calling(ToolCall("\u202e<b>" + "x" * 100_000, "{}")), ANSWER)
    reply = next(each for each in tool_window.widgets if isinstance(each, ReplyMessage))
    assert reply._status.text().startswith("Not run: ⟨U+202E⟩<b>xxx")
    assert len(reply._status.text()) < 500


def test_cards_stay_while_their_calls_wait(qtbot: QtBot, tool_window: ToolWindow) -> None:
    tool_window.ask(calling(*(read(str(number), str(number)) for number in range(40))), ANSWER)
    before = dict(tool_window.calls.cards)
    assert len(before) == MAX_CALLS
    click_on(before["3"].buttons[None])
    assert tool_window.calls.cards == {key: card for key, card in before.items() if key != "3"}
    tops = [card.y() for card in tool_window.calls.cards.values()]
    assert tops == sorted(tops)
    qtbot.waitUntil(before["0"].buttons[Scope.CHAT].isEnabled)
    click_on(before["0"].buttons[Scope.CHAT])
    tool_window.wait()
    assert not tool_window.calls.cards
    states = [each.state.text() for each in tool_window.results]
    assert (len(states), states.count("Not run"), states.count("8 characters")) == (MAX_CALLS, 1, MAX_CALLS - 1)


def test_a_call_that_runs_is_stopped_and_run_again(qtbot: QtBot, tool_window: ToolWindow) -> None:
    tool_window.servers.result = None
    tool_window.ask(calling(read(call_id="1")), ANSWER)
    tool_window.decide()
    (result,) = tool_window.results
    assert (result.state.text(), result.action.text()) == ("Running…", "Stop")
    button = tool_window.window.conversation.composer.button
    qtbot.waitUntil(tool_window.window.actions_.stop.isEnabled)
    assert button.accessibleName() == "Stop"
    click_on(result.action)
    assert button.accessibleName() == "Send"
    assert (result.state.text(), result.action.text()) == ("Interrupted", "Run Again")
    assert tool_window.calls.go_on.isVisible()
    tool_window.servers.calls.clear()
    tool_window.servers.result = ToolResult("an error", is_error=True)
    click_on(result.action)
    assert result.state.text() == "Interrupted"
    tool_window.run_call()
    assert result.state.text() == "Failed"
    assert tool_window.chat.path[-1].text == "It says so."
    assert not tool_window.calls.go_on.isVisible()


@pytest.mark.parametrize(
    "text",
    [
        "<b>bold</b> <img src='/dev/zero'> [a](https://example.test) **b**",
        "\u202eevil\u2066 a",
        '{\n  "zone": "Europe/Paris",\n  "is_dst": false\n}',
    ],
)
def test_hostile_texts_stay_plain(qtbot: QtBot, tool_window: ToolWindow, text: str) -> None:
    tool_window.servers.result = ToolResult(text)
    tool_window.ask(calling(ToolCall("files__read", json.dumps({"path": text}), "1")), ANSWER)
    card = tool_window.calls.cards["1"]
    assert json.loads(card.arguments.toPlainText()) == {"path": visible_text(text)}
    tool_window.run_call()
    (result,) = tool_window.results
    assert result.first_line.text() == visible_text(" ".join(text.split())), "of JSON more than a bracket"
    click_on(result.toggle)
    qtbot.waitUntil(lambda: result.body.toPlainText() == text)
    assert not result.body.anchorAt(result.body.rect().center())


def test_long_texts_are_whole_and_do_not_block(qtbot: QtBot, tool_window: ToolWindow) -> None:
    long = "x" * 100_000
    tool_window.servers.result = ToolResult(long + "!")
    tool_window.ask(calling(ToolCall("files__read", json.dumps({"path": long}), "1")), ANSWER)
    card = tool_window.calls.cards["1"]
    assert card.arguments.toPlainText().replace("\n", "").count("x") == len(long)
    assert card.height() < 400
    tool_window.run_call()
    (result,) = tool_window.results
    assert result.note.text().startswith("The result was longer")
    began = time.process_time()
    click_on(result.toggle)
    assert time.process_time() - began < 1
    qtbot.waitUntil(lambda: len(result.body.toPlainText()) > 50_000)


def test_what_cannot_be_seen_is_shown() -> None:
    assert (
        visible_text("a\u202e\u200b\u3164\x00\t\nb\ufe0fé") == "a⟨U+202E⟩⟨U+200B⟩⟨U+3164⟩⟨U+0000⟩⟨U+0009⟩\nb⟨U+FE0F⟩é"
    )
    assert visible_text("\ufffc\U0001d159") == "⟨U+FFFC⟩⟨U+1D159⟩"


def test_the_popover_ends_with_its_button(qtbot: QtBot, tool_window: ToolWindow, theme: Theme) -> None:
    controller = tool_window.chat.controller
    button = IconButton("tools", "Tools", theme)
    popover = ChatToolsPopover(controller.chat, controller.servers, controller.model_slot, button, theme)
    with qtbot.waitSignal(popover.destroyed):
        tool_window.servers.changed.emit()
        shiboken6.delete(button)
    with qtbot.captureExceptions() as raised:
        qtbot.wait(1)
    assert not raised


@pytest.mark.parametrize(("trained", "on"), [(False, ("files", "web")), (False, ()), (True, ("files",))])
def test_a_model_that_was_not_trained_to_call_tools_says_so_at_the_field_while_one_is_on(
    tool_window: ToolWindow, monkeypatch: pytest.MonkeyPatch, trained: bool, on: tuple[str, ...]
) -> None:
    """A tool was on, the model answered without it, and only the closed popover knew why."""
    chat = tool_window.chat
    monkeypatch.setattr(fakes, "MODEL", replace(fakes.MODEL, trained_for_tools=trained))
    chat.load(None)
    chat.open.set_tools(on, ())
    line = tool_window.window.conversation.tools.line
    says = f"This model was not trained to call tools. It may answer without {', '.join(on)}."
    expected = says if on and not trained else ""
    chat.qtbot.waitUntil(lambda: line.text() == expected)
    assert line.isVisible() is bool(expected)
    assert tool_window.window.conversation.composer.isAncestorOf(line)
    chat.open.start_new()
    chat.qtbot.waitUntil(lambda: not line.isVisible())


def test_servers_and_tools_are_switched_in_the_popover(qtbot: QtBot, tool_window: ToolWindow) -> None:
    composer = tool_window.window.conversation.composer
    popover = tool_window.window.conversation.tools
    chat = tool_window.chat.open
    qtbot.waitUntil(lambda: composer.tools.accessibleName() == "Tools, on in this chat")
    chat.set_tools((), ())
    qtbot.waitUntil(lambda: composer.tools.accessibleName() == "Tools")
    click_on(composer.tools)
    assert list(popover.items) == ["files", "web"]
    popover.tree.setCurrentItem(popover.items["web"])
    press_key(popover.tree, "Space")
    assert chat.conversation.own.tools == ("web",)
    assert tool_window.servers.started == ["web"]
    qtbot.waitUntil(lambda: popover.items["web"].text(1) == "1 tool")
    assert "web: Data leaves this" in popover.note.text()
    popover.items["web__search"].setCheckState(0, Qt.CheckState.Unchecked)
    assert chat.conversation.own.tools_off == ("web__search",)
    click_on(popover.settings)
    assert not popover.isVisible()
    assert tool_window.window.settings_window.isVisible()


def test_images_are_shown_and_open(qtbot: QtBot, tool_window: ToolWindow) -> None:
    png = b"\x89PNG\r\n\x1a\nand so on"
    tool_window.servers.result = ToolResult("[image 1]", images=(png,))
    tool_window.ask(calling(read(call_id="1")), ANSWER)
    tool_window.run_call()
    (tile,) = tool_window.results[0].findChildren(ImageTile)
    assert tile.isVisible()
    assert tile.accessibleName() == "Image image 1.png, size not known yet"
    click_on(tile)
    (window,) = tool_window.window.findChildren(ImageWindow)
    qtbot.waitUntil(lambda: "damaged" in window.view.accessibleDescription())
    window.close()


def test_of_many_calls_the_first_have_cards(tool_window: ToolWindow) -> None:
    """A reply written here has sixteen at most, one of an import up to 128, one of a restored store any number."""
    store = tool_window.chat.store
    chat = store.create_conversation("Imported")
    asked = store.add_message(chat.id, None, Role.USER, "Go")
    calls = tuple(read(f"{number}", f"{number}") for number in range(128))
    store.add_message(chat.id, asked.id, Role.ASSISTANT, "", tool_calls=calls)
    tool_window.chat.open.open_chat(chat.id)
    cards = tool_window.calls.cards
    assert list(cards) == [f"{number}" for number in range(16)]
    assert tool_window.calls.note.text() == "These are the first 16 calls; 112 more follow once you decide."
    tool_window.decide(None, "0")
    assert list(tool_window.calls.cards)[-1] == "16"
    assert tool_window.calls.note.text() == "These are the first 16 calls; 111 more follow once you decide."
    tool_window.chat.open.start_new()
    assert not tool_window.calls.cards
