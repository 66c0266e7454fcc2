"""What a backup starts, opens, sends or allows comes in off, unless the same was agreed to here."""

import json
from contextlib import closing
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings as trying, strategies as st

from rdchat.chat.conversation import OwnOptions
from rdchat.chat.settings import Consents, Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role, ToolCall
from tests.chat.transfer.consent_samples import OFF, USUAL, on
from tests.chat.transfer.tasks import back_up, prepare

HARMLESS = {
    "appearance", "text_size", "sampling", "sampling_chosen", "system_prompt", "seed", "model", "dtype",
    "recent_models", "drafts", "downloads_at_once", "models_folder", "last_chat", "larger_model_declined",
    "looked_for_updates", "panel_visible", "panel_unfolded", "sidebar_visible", "titles_by_model", "earlier_replies",
    "earlier_replies_after", "server_port", "server_substitutes_models", "prefix_cache_bytes", "unload_after_minutes",
    "menu_bar_item", "stays_open", "window_geometry", "window_state", "side_windows", "presets", "prompts",
    "palette_recent", "keep_caches", "kept_caches_gb", "image_cap", "notes_tokens", "long_chats", "unconfirmed",
}  # fmt: skip


def agreed() -> st.SearchStrategy[Settings]:
    """Settings in which any of it is on."""
    lists = {
        name: st.lists(st.sampled_from(values), unique_by=str).map(tuple)
        for name, values in OFF.items()
        if isinstance(getattr(USUAL, name), tuple)
    }
    others = {name: st.sampled_from([getattr(USUAL, name), *OFF[name]]) for name in OFF.keys() - lists.keys()}
    return st.builds(Settings, **lists, **others)


def restored(theirs: Settings, here: Settings, folder: Path) -> Settings:
    """The settings of a backup, as they are prepared beside settings of one's own."""
    for place, settings in (("theirs", theirs), ("here", here)):
        SettingsStore(folder / place / "settings.json").save_settings(settings)
        ConversationStore(folder / place / "conversations.db").close()
    back_up(folder / "theirs" / "conversations.db", folder / "theirs" / "settings.json", folder / "gift.zip")
    facts = prepare(folder / "gift.zip", folder / "here")
    read = SettingsStore(folder / "here" / "part-restore" / "settings.json").settings
    assert facts.unconfirmed == len(read.unconfirmed.entries)
    return read


def test_each_setting_is_sorted() -> None:
    """A new one is harmless, or a field of `Consents`."""
    assert {each.name for each in fields(Consents)} == OFF.keys()
    assert {each.name for each in fields(Settings)} == HARMLESS | OFF.keys()


def test_each_option_of_a_chat_is_sorted() -> None:
    """`sent_to` and `starts_servers` are reset in a backup, and an import has what is `portable`."""
    harmless = {"thinking_tokens", "cleared", "keep_cache", "notes", "long_chats"}
    of_backups_only = {"preset", "draft", "tools", "tools_off", "decided_notes"}
    assert {each.name for each in fields(OwnOptions)} == harmless | of_backups_only | {"sent_to", "starts_servers"}


@trying(max_examples=300, deadline=None)
@given(theirs=agreed(), here=agreed())
def test_only_what_was_agreed_to_here_is_on(theirs: Settings, here: Settings) -> None:
    theirs = replace(theirs, system_prompt="Theirs")
    read = theirs.from_elsewhere(here)
    assert on(read) == [each for each in on(theirs) if each in on(here)]
    assert sorted(map(str, [*on(read), *on(read.unconfirmed)])) == sorted(map(str, on(theirs)))  # type: ignore[arg-type]
    assert len(read.unconfirmed.entries) == len(on(read.unconfirmed))  # type: ignore[arg-type]
    assert sorted(each.name for each in read.tool_servers) == sorted(each.name for each in theirs.tool_servers)
    assert read.system_prompt == "Theirs"
    confirmed = read.with_consent()
    assert sorted(map(str, on(confirmed))) == sorted(map(str, on(theirs)))
    assert not confirmed.unconfirmed.entries
    assert read.from_elsewhere(read) == read, "what waits is not on"


@trying(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(theirs=agreed(), here=agreed())
@pytest.mark.slow
def test_a_backup_is_prepared_by_that_rule(
    theirs: Settings, here: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    read = restored(theirs, here, tmp_path_factory.mktemp("restore"))
    assert on(read) == [each for each in on(theirs) if each in on(here)]


@pytest.mark.parametrize("name", OFF)
def test_a_backup_on_a_new_computer_has_each_thing_off(tmp_path: Path, name: str) -> None:
    value = tuple(OFF[name]) if isinstance(getattr(USUAL, name), tuple) else OFF[name][0]
    theirs = replace(USUAL, **{name: value})
    assert on(theirs)
    read = restored(theirs, Settings(), tmp_path)
    assert not on(read)
    assert on(read.with_consent()) == on(theirs)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"command": ("npx", "files", "/etc")},
        {"environment": {"A": "c"}},
        {"environment": {}},
        {"secrets": ()},
        {"secrets": ("KEY", "TOKEN")},
    ],
)
def test_a_server_that_differs_is_not_the_one_that_was_confirmed(change: dict[str, Any]) -> None:
    mine = OFF["tool_servers"][0]
    here = Settings(tool_servers=(mine,))
    assert on(Settings(tool_servers=(mine,)).from_elsewhere(here))
    assert not on(Settings(tool_servers=(replace(mine, **change),)).from_elsewhere(here))
    unseen = Settings(tool_servers=(replace(mine, confirmed=False),))
    assert not on(Settings(tool_servers=(mine,)).from_elsewhere(unseen)), "it was not confirmed here either"


def test_a_server_that_was_edited_or_removed_meanwhile_is_not_switched_on() -> None:
    read = Settings(tool_servers=tuple(OFF["tool_servers"])).from_elsewhere(Settings())
    edited = replace(read.tool_servers[0], command=("mine",))
    meanwhile = replace(read, tool_servers=(edited, read.tool_servers[1]))
    assert on(meanwhile.with_consent()) == [("tool_servers", OFF["tool_servers"][1].origin)]


def test_what_this_version_cannot_read_is_not_kept_for_a_later_one(tmp_path: Path) -> None:
    """A later version would read it, and start it."""
    path = tmp_path / "settings.json"
    odd = asdict(OFF["tool_servers"][0]) | {"environment": {"A": 1}}
    theirs = {"server_of_tomorrow": True, "tool_servers": [odd], "presets": ["odd"], "unconfirmed": {"more": True}}
    path.write_text(json.dumps(theirs))
    SettingsStore(path).drop_consent(Settings())
    written = json.loads(path.read_text())
    assert written["presets"] == ["odd"]
    assert written["tool_servers"] == []
    assert written.keys() == {"presets", "tool_servers", "unconfirmed"}
    assert written["unconfirmed"].keys() == OFF.keys()


def _permitted(path: Path) -> int:
    """Make a store with a chat that may be sent, and has a call that waits; return the chat's id."""
    with closing(ConversationStore(path)) as store:
        chat = store.create_conversation("Calls")
        own = OwnOptions(tools=("files",), sent_to=("https://a.example",))
        store.set_chat_options(replace(chat, own=own))
        question = store.add_message(chat.id, None, Role.USER, "Read it")
        store.add_message(chat.id, question.id, Role.ASSISTANT, "", tool_calls=(ToolCall("files__read", "{}", "1"),))
        deleted = store.create_conversation("Deleted")
        store.set_chat_options(replace(deleted, own=own))
        # Python takes the second one, where SQLite's own functions see the first one alone.
        spelt = '{"sent_to":[],"sent\\u005fto":["https://a.example"]}'
        store.execute("UPDATE conversations SET own_options = ? WHERE id = ?", spelt, deleted.id)
        store.delete_conversation(deleted.id)
        return chat.id


@pytest.mark.parametrize("kind", ["a backup", "a database", "a database with a name of ours"])
def test_chats_from_elsewhere_ask_again_and_start_nothing(tmp_path: Path, kind: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "theirs").mkdir()
    name = "conversations-before-restore-1.db" if "ours" in kind else "conversations.db"
    source = tmp_path / "theirs" / name
    chat_id = _permitted(source)
    if kind == "a backup":
        back_up(source, tmp_path / "none.json", tmp_path / "gift.zip")
        source = tmp_path / "gift.zip"
    prepare(source, tmp_path / "data")
    with closing(ConversationStore(tmp_path / "data" / "part-restore" / "conversations.db")) as store:
        chat = store.conversation(chat_id)
        assert chat.own == OwnOptions(tools=("files",), starts_servers=False)
        assert store.restore_conversation(chat_id + 1).own.sent_to == ()
        assert all(not each.own.starts_servers for each in store.conversations())


def test_what_a_restore_here_put_aside_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "conversations-before-restore-1.db"
    chat_id = _permitted(kept)
    mine = Settings(tool_servers=tuple(OFF["tool_servers"]), server_at_start=True)
    SettingsStore(tmp_path / "kept.json").save_settings(mine)
    assert prepare(kept, tmp_path, tmp_path / "kept.json").unconfirmed == 0
    assert SettingsStore(tmp_path / "part-restore" / "settings.json").settings == mine
    with closing(ConversationStore(tmp_path / "part-restore" / "conversations.db")) as store:
        own = store.conversation(chat_id).own
        assert (own.sent_to, own.starts_servers) == (("https://a.example",), True)
