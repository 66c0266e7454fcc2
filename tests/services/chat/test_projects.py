"""A folder's project: what its chats share."""

from dataclasses import replace

from rdchat.chat.conversation import Conversation, Folder, Project
from rdchat.chat.presets import Preset
from rdchat.inference.api.messages import Role
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window

RHYME = Project("Rhyme.")


def stored_chat(window: Window) -> Conversation:
    chat = window.controller.chat.stored_conversation
    assert chat is not None
    return chat


def make_project(window: Window, project: Project, name: str = "Work") -> Folder:
    """Make a folder with a project, as the window does, and return it as it is listed."""
    order = window.controller.chats.order
    folder = order.create_folder(name)
    assert folder is not None
    order.set_project(folder, project)
    listed = order.folder(folder.id)
    assert listed is not None
    return listed


def test_a_moved_chat_takes_the_project_on_with_its_next_question_and_says_so(
    window: Window, engine: ScriptedEngine
) -> None:
    window.ask("One")
    assert engine.requests[-1].messages[0].role is Role.USER
    folder = make_project(window, RHYME)
    window.controller.chats.order.move(stored_chat(window), folder.id)
    assert window.seen.notices[-1].title == "This chat is in the project “Work” now"
    assert "instructions" in window.seen.notices[-1].detail
    window.ask("Two")
    assert engine.requests[-1].messages[0].content == "Rhyme."
    window.controller.chats.undo()
    window.ask("Three")
    assert engine.requests[-1].messages[0].role is Role.USER


def test_a_plain_folder_says_nothing(window: Window) -> None:
    window.ask("One")
    folder = window.controller.chats.order.create_folder("Plain")
    assert folder is not None
    window.controller.chats.order.move(stored_chat(window), folder.id)
    assert window.seen.notices == []
    assert window.controller.chat.project_folder is None


def test_the_order_is_chat_project_preset_settings(window: Window) -> None:
    chat = window.controller.chat
    settings = window.controller.settings
    settings.change_values(system_prompt="Settings")
    preset = Preset("Short", system_prompt="Preset")
    settings.change_values(presets=(preset,))
    folder = make_project(window, Project(preset=preset.id))
    chat.start_new(folder.id)
    assert chat.values.system_prompt == "Preset"
    order = window.controller.chats.order
    order.set_project(folder, Project("Project", preset.id))
    chat.follow_project()
    assert chat.values.system_prompt == "Project"
    chat.set_options(system_prompt="Chat")
    assert chat.values.system_prompt == "Chat"
    chat.use_preset("")
    assert chat.values.system_prompt == "Project"
    window.controller.chats.undo()
    window.controller.chats.undo()
    assert chat.values.system_prompt == "Settings"


def test_an_inner_folder_has_the_project_of_the_outer_one_unless_it_has_its_own(window: Window) -> None:
    order = window.controller.chats.order
    outer = make_project(window, RHYME)
    inner = order.create_folder("Inner", outer.id)
    assert inner is not None
    chat = window.controller.chat
    chat.start_new(inner.id)
    assert chat.values.system_prompt == "Rhyme."
    order.set_project(inner, Project("Be brief."))
    assert chat.values.system_prompt == "Be brief."
    order.delete_folder(outer)
    assert chat.values.system_prompt == "Be brief."


def test_a_deleted_folder_is_no_project(window: Window) -> None:
    folder = make_project(window, RHYME)
    window.controller.chat.start_new(folder.id)
    window.controller.chats.order.delete_folder(folder)
    assert window.controller.chat.values.system_prompt == ""


def test_a_new_chat_of_a_project_is_stored_in_its_folder(window: Window, engine: ScriptedEngine) -> None:
    folder = make_project(window, RHYME)
    window.controller.chat.start_new(folder.id)
    window.ask("Hi")
    assert engine.requests[-1].messages[0].content == "Rhyme."
    assert stored_chat(window).folder_id == folder.id
    assert window.seen.notices == []


def test_the_projects_model_is_loaded_for_the_next_question_and_stays(window: Window, engine: ScriptedEngine) -> None:
    window.ask("One")
    before = len(engine.loads)
    folder = make_project(window, Project(model="big"))
    window.controller.chats.order.move(stored_chat(window), folder.id)
    assert len(engine.loads) == before
    window.controller.send("Two")
    window.qtbot.waitUntil(lambda: len(window.controller.chat.path) == 4)
    window.wait_for(EngineState.IDLE)
    assert [model for model, _ in engine.loads[before:]] == ["big"]
    window.ask("Three")
    assert len(engine.loads) == before + 1


def test_a_chat_has_the_projects_tools_until_it_chooses_its_own(window: Window) -> None:
    chat = window.controller.chat
    folder = make_project(window, Project(tools=("web", "notes")))
    chat.start_new(folder.id)
    tools = lambda: chat.replies.order.tools(chat.conversation)  # noqa: E731
    assert tools() == ("web", "notes")
    chat.set_tools(("web",), ())
    assert tools() == ("web",)
    chat.set_tools((), ())
    assert tools() == ()
    chat.set_options(system_prompt="Hello")
    assert tools() == ()
    chat.set_tools(("notes", "web"), ())
    window.controller.chats.order.set_project(folder, Project(tools=("web",)))
    assert tools() == ("web",)


def test_a_project_keeps_what_it_does_not_know(window: Window) -> None:
    folder = make_project(window, RHYME)
    organiser = window.store.organiser
    assert organiser.read_folder(folder.id).project == RHYME
    organiser.set_project(folder.id, replace(RHYME, instructions="a\ud800b"))
    assert organiser.read_folder(folder.id).project.instructions == "a?b"
