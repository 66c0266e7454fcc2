"""What came in off with a backup: shown with its commands and addresses, and confirmed by one button."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.settings import Consents, Settings, SettingsStore, ToolApproval
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backups import BackupFacts
from rdchat.inference.api import Dtype, Role, ToolCall
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.transfers import Transfers
from rdchat.tools.definitions import ToolServer
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.style import CodeField, PlainLabel, Sheet, Theme
from rdchat.ui.window.import_export import OFF_TEXTS, ImportExport
from rdchat.ui.window.main_window import MainWindow
from tests.chat.transfer.consent_samples import EVERYTHING, on
from tests.chat.transfer.tasks import back_up
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.transcript.conftest import button

WAIT_MS = 60_000


class Desk:
    """A window with what a backup would have put into its settings."""

    def __init__(self, window: MainWindow, chat: Chat, transfers: Transfers, theme: Theme) -> None:
        self.window = window
        self.chat = chat
        self.transfers = transfers
        self.begin = partial(ImportExport, window, chat.controller, transfers, theme)

    @property
    def banner(self) -> Banner | None:
        return self.window.conversation.banners.banner("Permissions of the backup")

    def review(self, settings: Settings) -> Sheet:
        """Start with these settings of a backup, and open the sheet."""
        self.chat.settings.change(settings.from_elsewhere(Settings()))
        self.begin()
        click_on(button(self.banner, "Review…"))
        return self.window.findChildren(Sheet)[-1]


@pytest.fixture
def desk(window: MainWindow, chat: Chat, theme: Theme, tmp_path: Path) -> Iterator[Desk]:
    transfers = Transfers(chat.controller, chat.store, tmp_path / "settings.json")
    yield Desk(window, chat, transfers, theme)
    transfers.end_transfers()
    for sheet in window.findChildren(Sheet):
        sheet.done(0)


def shown(sheet: Sheet) -> str:
    (field,) = sheet.findChildren(CodeField)
    return field.toPlainText()


def test_each_permission_has_a_text() -> None:
    assert OFF_TEXTS.keys() == {each.name for each in fields(Consents)}


def test_all_of_it_is_shown_and_switched_on_by_one_button(desk: Desk) -> None:
    sheet = desk.review(EVERYTHING)
    text = shown(sheet)
    for part in (
        "files: npx\n    files\n    /\n\nWith A=b, KEY", "https://tools.example", "/home/me", "files__read", "https://studio.example",
        "me@mini.local", "10.0.0.3", "mac.example", "Ctrl+C", "Other computers", "new versions",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("\n\n") >= len(EVERYTHING.from_elsewhere(Settings()).unconfirmed.entries) - 1
    servers = desk.chat.controller.servers
    assert not servers.usable
    desk.chat.settings.change_values(system_prompt="Changed while the sheet was open")
    click_on(button(sheet, "Turn All On"))
    assert on(desk.chat.settings.values) == on(EVERYTHING)
    assert desk.chat.settings.values.system_prompt == "Changed while the sheet was open"
    assert {each.name for each in servers.usable} == {"files", "web", "rdchat-folder"}
    assert desk.banner is None
    desk.begin()
    assert desk.banner is None


@pytest.mark.parametrize("leave", [lambda sheet: press_key(sheet, "Esc"), lambda sheet: press_key(sheet, "Return")])
def test_return_and_escape_leave_all_of_it_off(desk: Desk, leave: Callable[[Sheet], object]) -> None:
    leave(desk.review(EVERYTHING))
    assert not on(desk.chat.settings.values)
    assert not desk.chat.settings.values.unconfirmed.entries
    assert len(desk.chat.settings.values.tool_servers) == 3, "they can be switched on in Settings > Tools"
    desk.begin()
    assert desk.banner is None


def test_what_is_too_long_to_be_read_is_not_agreed_to(desk: Desk) -> None:
    tools = tuple(ToolApproval(f"files__{number}", "a" * 64) for number in range(5_000))
    sheet = desk.review(Settings(tool_approvals=tools))
    assert len(shown(sheet)) <= 100_000
    assert not button(sheet, "Turn All On").isEnabled()
    press_key(sheet, "Esc")
    assert not on(desk.chat.settings.values)


def test_the_question_says_how_many_there_are(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    transfers = desk.begin()
    for count, is_said in ((0, False), (7, True)):
        transfers._confirm_restore(BackupFacts(settings=True, unconfirmed=count))
        sheet = desk.window.findChildren(Sheet)[-1]
        texts = " ".join(each.text() for each in sheet.findChildren(PlainLabel))
        assert ("off until you confirm them: 7." in texts) == is_said


MINE = ToolServer("mine", ("mine",), enabled=True, confirmed=True)


def _name(server: ToolServer) -> str:
    return server.name


def _theirs(folder: Path) -> Path:
    """Make a backup that somebody might give to a person: all is on in it, and a call waits in its only chat."""
    folder.mkdir()
    servers = (*EVERYTHING.tool_servers, MINE)
    settings = replace(
        EVERYTHING, tool_servers=servers, model="theirs", dtype=Dtype.FOUR_BIT, system_prompt="Theirs", last_chat=1
    )
    SettingsStore(folder / "settings.json").save_settings(settings)
    store = ConversationStore(folder / "conversations.db")
    chat = store.create_conversation("Theirs")
    store.set_chat_options(replace(chat, own=replace(chat.own, tools=("files", "mine"), sent_to=("https://a.test",))))
    question = store.add_message(chat.id, None, Role.USER, "Go")
    calls = (ToolCall("files__read", "{}", "1"), ToolCall("mine__read", "{}", "2"))
    store.add_message(chat.id, question.id, Role.ASSISTANT, "", tool_calls=calls)
    store.close()
    back_up(folder / "conversations.db", folder / "settings.json", folder / "gift.zip")
    return folder / "gift.zip"


@pytest.mark.slow
def test_a_restored_backup_starts_nothing_and_nothing_older_is_written_over_it(
    desk: Desk, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = ToolServer("web", ("my-own",), enabled=True, confirmed=True)
    servers = chat.controller.servers
    started: list[str] = []
    monkeypatch.setattr(type(servers), "start_server", lambda _servers, name: started.append(name))
    gift = _theirs(tmp_path / "other")
    chat.start()
    for server in (MINE, edited):
        servers.put(server)
    chat.say("Hi")
    chat.controller.calls._in_chats.add((chat.open.id, ToolApproval("mine__read", "")))
    before = chat.settings.values
    transfers = desk.begin()
    outcomes: list[Any] = []
    desk.transfers.prepare_restore(gift, None, lambda _progress: None, outcomes.append)
    chat.qtbot.waitUntil(lambda: bool(outcomes), timeout=WAIT_MS)
    read = SettingsStore(tmp_path / "part-restore" / "settings.json").settings
    prepared = replace(read, tool_servers=tuple(sorted(read.tool_servers, key=_name)))
    transfers._restore("The backup was restored", "", can_undo=True)
    assert desk.banner is not None
    chat.qtbot.waitUntil(lambda: chat.slot.info is not None and chat.slot.chosen == "theirs")
    chat.wait_for(EngineState.IDLE)

    def unchanged() -> Settings:
        """The settings, without what a person does here with the restored store."""
        chat.settings.wait_until_saved()
        read = SettingsStore(tmp_path / "settings.json").settings
        servers = tuple(sorted(read.tool_servers, key=_name))
        return replace(read, last_chat=1, recent_models=(), tool_servers=servers)

    assert unchanged() == prepared
    assert servers.usable == (MINE,), "it was confirmed here"
    assert not started, "a call of a backup waits, and starts no server"
    assert chat.open.conversation.own.sent_to == ()
    assert not chat.controller.calls._in_chats
    assert len(chat.controller.calls.waiting) == 2
    # What services read before must not come back with their next change.
    chat.slot.retry()
    chat.wait_for(EngineState.IDLE)
    servers.put(replace(MINE, name="new"))
    assert [each.name for each in unchanged().tool_servers] == ["files", "mine", "new", "rdchat-folder", "web"]
    servers.remove_server("new")
    assert unchanged() == prepared
    # Undo gives back what was agreed to here.
    banner = desk.window.conversation.banners.banner("transfer")
    click_on(button(banner, "Undo"))
    chat.qtbot.waitUntil(lambda: servers.usable == (MINE, edited), timeout=WAIT_MS)
    chat.settings.wait_until_saved()
    undone = json.loads((tmp_path / "settings.json").read_text())
    for name in ("tool_servers", "tool_approvals", "remote_servers", "model", "unconfirmed"):
        assert undone[name] == json.loads(json.dumps(asdict(before)))[name], name
    assert desk.banner is None
