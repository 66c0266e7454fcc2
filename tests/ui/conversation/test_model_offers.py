"""Models that are offered: below images that the loaded one does not see, and on the page of a new chat."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.chat.notes import Note
from rdchat.chat.projects import Project
from rdchat.inference.api import (
    NO_VISION,
    ChatMessage,
    GenerationRequest,
    ImageCap,
    ModelCard,
    images_of,
    ranked_address,
)
from rdchat.services.background_work import FolderSearch
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.model_offers import SMALL_STARTERS, STARTERS, SightLine, WelcomeView, starters
from rdchat.ui.models.drafters_section import MissingPartSheet
from rdchat.ui.models.model_texts import facts_of
from rdchat.ui.style import MACHINE, Theme
from rdchat.ui.window.main_window import MainWindow
from tests.services import fakes
from tests.services.fakes import MODEL
from tests.services.models.macs import MAC_16, mac
from tests.services.window import text_file
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, entries_of, focus_on, press_key

SEEING = ModelCard("maker/Seeing-2B", "/models/seeing", "LM Studio", Path("/models/seeing"), sees=True)
OTHER = replace(SEEING, name="maker/Other-4B", model="/models/other")
BLIND = replace(SEEING, name="maker/Blind-1B", model="/models/blind", sees=False)
DAMAGED = replace(SEEING, name="maker/Damaged", model="/models/damaged", problem="A file is missing.")


def test_the_page_of_a_project_has_its_name_and_its_files(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    """It once asked for the capital of Japan, and offered a download."""
    chat.start()
    view = window.conversation
    page = view.welcome
    assert page.files.isHidden()
    order = chat.chats.order
    long = text_file("long.txt", "word " * 2000)
    for name, files in (("Work", [text_file("short.txt", "Short"), long]), ("<b>Home", [long])):
        order.set_project(order.create_folder(name), Project("Rhyme."), files)
    home, work = order.folders
    chat.store.organiser.keep_note(Note("Ann leads", work.id, None))
    chips = lambda: [chip.accessibleName() for chip in page.files.row.chips]  # noqa: E731
    chat.open.start_new(work.id)
    assert page.title.text() == "Work"
    assert view.project_line.text.text() == "Project Work: instructions, 2 files, 1 note"
    assert not page.buttons[0].isVisible()
    qtbot.waitUntil(lambda: chips() == ["short.txt, Whole file", "long.txt, In passages"])
    chat.open.start_new(home.id)
    assert page.title.text() == "<b>Home"
    qtbot.waitUntil(lambda: chips() == ["long.txt, In passages"])
    chat.open.start_new()
    assert page.title.text() == "What would you like to know?"
    assert page.files.isHidden()
    assert page.buttons[0].isVisible()


def test_a_file_of_a_project_is_read_whole_when_asked(window: MainWindow, chat: Chat) -> None:
    """From its chip, and in a chat with messages from the button for files; as often as it is asked, once."""
    chat.start()
    order = chat.chats.order
    text = "word " * 1200
    folder = order.create_folder("Work")
    order.set_project(folder, Project(), [text_file("short.txt", "Short"), text_file("long.txt", text)])
    chat.open.start_new(folder.id)
    view = window.conversation
    for _ in range(2):
        chip = view.welcome.files.row.chips[1]
        focus_on(chip)
        press_key(chip, "Space")
    assert window.focusWidget() is view.composer.field
    chat.qtbot.waitUntil(lambda: "1,2" in view.composer.files.row.chips[0].accessibleName())
    chat.say("Summarise it")
    assert text in chat.engine.last_contents[-1]
    view.composer.attach.click()
    menu = QApplication.activePopupWidget()
    entries_of(menu)["Read short.txt Whole"].trigger()
    menu.close()
    assert [file.name for file in chat.open.files.files] == ["short.txt"]


def test_a_project_without_its_model_says_so_above_its_chats(window: MainWindow, chat: Chat) -> None:
    chat.start()
    order = chat.chats.order
    folder = order.create_folder("Work")
    order.set_project(folder, Project(model="/models/gone"))
    chat.open.start_new(folder.id)
    line = window.conversation.project_line
    assert "/models/gone" in line.text.text()
    assert not line.settings.isHidden()
    order.set_project(folder, Project("Rhyme."))
    assert line.text.text() == "Project Work: instructions"


@pytest.fixture
def next_model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change what the model is that is loaded next."""
    return lambda **facts: monkeypatch.setattr(fakes, "MODEL", replace(fakes.MODEL, **facts))


def offer(qtbot: QtBot, window: MainWindow, *cards: ModelCard) -> SightLine:
    """Offer models to the line about images."""
    installed = FolderSearch(lambda: cards, window)
    sight = window.conversation.sight
    sight.offer_models(installed, window.windows.memory)
    window.header.model.offer_models(installed)
    installed.search_folders()
    qtbot.waitUntil(lambda: installed.results == cards)
    return sight


def attach(qtbot: QtBot, window: MainWindow) -> None:
    with io.BytesIO() as buffer:
        Image.new("RGB", (30, 20)).save(buffer, "PNG")
        data = buffer.getvalue()
    window.conversation.files.add_image(lambda: data)
    qtbot.waitUntil(lambda: window.conversation.composer.files.has_images)


@pytest.mark.parametrize(
    ("cards", "text"),
    [
        ((BLIND, DAMAGED), "Find a Model That Sees…"),
        ((BLIND, SEEING), "Use Seeing-2B"),
        ((SEEING, OTHER), "Use a Model That Sees"),
    ],
)
def test_the_line_offers_the_installed_models_that_see(
    qtbot: QtBot, window: MainWindow, chat: Chat, cards: tuple[ModelCard, ...], text: str
) -> None:
    chat.start()
    sight = offer(qtbot, window, *cards)
    assert not sight.isVisible()
    attach(qtbot, window)
    assert sight.isVisible()
    assert sight.text.text().startswith("tiny does not see images.")
    assert sight.button.text() == text
    sight.offer_models_window((SEEING, BLIND))  # it hears of downloads, and knows the person's own folder
    assert sight.button.text() == (text if OTHER in cards else "Use Seeing-2B")
    window.conversation.composer.files.row.chips[0].remove.click()  # type: ignore[union-attr]
    assert not sight.isVisible()


def test_one_click_loads_a_model_that_sees_and_keeps_image_and_words(
    qtbot: QtBot, window: MainWindow, chat: Chat, next_model: Callable[..., None]
) -> None:
    chat.start()
    sight = offer(qtbot, window, SEEING)
    window.conversation.composer.set_text("What is it?")
    attach(qtbot, window)
    next_model(sees=True)
    sight.button.click()
    qtbot.waitUntil(lambda: len(chat.engine.loads) == 2)
    chat.wait_for(EngineState.IDLE)
    assert window.conversation.composer.text == "What is it?"
    assert window.conversation.composer.files.has_images
    qtbot.waitUntil(lambda: not sight.isVisible())


@pytest.mark.parametrize("installed", [(), (SEEING,)])
def test_a_copy_without_vision_offers_that_of_its_original(
    qtbot: QtBot, window: MainWindow, chat: Chat, next_model: Callable[..., None], installed: tuple[ModelCard, ...]
) -> None:
    reason = "rdchat does not know how this model sees."
    next_model(blind=reason)
    chat.start()
    sight = offer(qtbot, window, *installed)
    attach(qtbot, window)
    assert sight.text.text() == f"tiny does not see images. {reason}"
    assert not sight.fetch.isVisible()
    next_model(name="tiny", blind=NO_VISION)
    chat.load(None)
    assert sight.text.text() == "tiny does not see images. This copy has no vision."
    assert sight.fetch.isVisible()
    assert sight.button.text() == ("Use Seeing-2B" if installed else "Find a Model That Sees…")
    sight.fetch.click()
    models = window.windows.models
    (sheet,) = models.installed.findChildren(MissingPartSheet)
    assert models.isVisible()
    assert sheet._model.path == fakes.MODEL.path
    sheet.reject()


def test_a_model_whose_vision_is_here_is_loaded_again(
    qtbot: QtBot, window: MainWindow, chat: Chat, next_model: Callable[..., None]
) -> None:
    next_model(blind=NO_VISION)
    chat.start()
    own = ModelCard("maker/tiny", "/models/tiny", "LM Studio", fakes.MODEL.path, sees=True)
    sight = offer(qtbot, window, SEEING, own)
    attach(qtbot, window)
    assert sight.text.text() == "tiny sees images once it is loaded again."
    assert (sight.fetch.isVisible(), sight.button.text()) == (False, "Use tiny")
    next_model(sees=True, blind="")
    sight.button.click()
    qtbot.waitUntil(lambda: len(chat.engine.loads) == 2)
    qtbot.waitUntil(lambda: not sight.isVisible())
    assert window.conversation.composer.files.has_images


def test_where_none_fits_the_smallest_is_shown_as_too_large(
    qtbot: QtBot, window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of models opened at whatever was looked at last, which may be a model that does not see."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    chat.start()
    discover = window.windows.models.discover
    discover.open_model("openbmb/MiniCPM5-2B-MLX")
    monkeypatch.setattr(window.windows.memory, "results", (mac(4).memory,))
    sight = offer(qtbot, window, BLIND)
    attach(qtbot, window)
    sight.button.click()
    qtbot.waitUntil(discover.isVisible)
    entry = discover.list.current
    assert entry.title == "Qwen3.5 4B"
    assert {text for text, _ in entry.marks} == {"For images", "Too large"}


def test_the_smallest_suggested_model_that_sees_is_one_click_away(
    qtbot: QtBot, window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(window.windows.memory, "results", (MAC_16.memory,))
    chat.start()
    sight = offer(qtbot, window, BLIND)
    window.conversation.composer.set_text("What is it?")
    attach(qtbot, window)
    qtbot.waitUntil(lambda: sight.button.text() == "Get Qwen3.5 4B…")
    with qtbot.waitSignal(sight.model_requested) as requested:
        sight.button.click()
    assert requested.args == ["mlx-community/Qwen3.5-4B-4bit"]
    qtbot.waitUntil(window.windows.models.discover.isVisible)
    assert window.conversation.composer.text == "What is it?"
    assert window.conversation.composer.files.has_images
    window.windows.end_background_work()


def test_a_model_that_does_not_see_says_so_in_a_chat_with_images(
    qtbot: QtBot, window: MainWindow, chat: Chat, next_model: Callable[..., None]
) -> None:
    next_model(sees=True)
    chat.start()
    sight = offer(qtbot, window, SEEING)
    attach(qtbot, window)
    qtbot.waitUntil(lambda: chat.open.files.tokens is not None)
    chat.say("")
    qtbot.waitUntil(lambda: bool(chat.controller.context.meter.use and chat.controller.context.meter.use.images))
    assert not sight.isVisible(), "the model sees"
    next_model(sees=False)
    chat.slot.load_model("/models/blind")
    qtbot.waitUntil(sight.isVisible)
    assert sight.text.text().startswith("/models/blind does not see the images of this chat.")
    assert sight.button.text() == "Use Seeing-2B"
    chat.say("What is it?")
    assert chat.engine.last_request.messages[0].images, "the engine writes a line in their place"
    chat.open.start_new()
    qtbot.waitUntil(lambda: not sight.isVisible())


def test_the_picker_and_the_models_window_name_who_sees(qtbot: QtBot, window: MainWindow) -> None:
    offer(qtbot, window, SEEING, BLIND)
    window.header.model.menu().aboutToShow.emit()
    texts = [action.text() for action in window.header.model.menu().actions()]
    assert {"maker/Seeing-2B  ·  sees images", "maker/Blind-1B"} <= {*texts}
    assert "Images" in [name for name, _, _ in facts_of(SEEING)]


def test_the_cap_of_an_image_is_a_setting_with_its_cost(window: MainWindow, chat: Chat) -> None:
    chat.start()
    box = window.settings_window.image_cap
    assert [box.itemText(index).partition(":")[0] for index in range(box.count())] == ["Small", "Usual", "Full"]
    assert box.currentData() == ImageCap.MEDIUM
    box.setCurrentIndex(0)
    assert chat.settings.values.image_cap is ImageCap.SMALL
    chat.say("Hello")
    assert chat.engine.last_request.image_cap is ImageCap.SMALL


def test_images_are_counted_again_when_the_cap_changes(
    qtbot: QtBot, window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.start()
    tokens = {ImageCap.MEDIUM: 1000, ImageCap.FULL: 4000}

    def count(prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        sees = isinstance(prompt, GenerationRequest) and images_of(prompt.messages)
        return tokens[prompt.image_cap] if sees and isinstance(prompt, GenerationRequest) else 1

    monkeypatch.setattr(chat.engine, "count_tokens", count)
    attach(qtbot, window)
    chip = window.conversation.composer.files.row.chips[0]
    qtbot.waitUntil(lambda: "999 tokens" in chip.accessibleName())
    chat.settings.change_values(image_cap=ImageCap.FULL)
    qtbot.waitUntil(lambda: "3,999 tokens" in chip.accessibleName())


def test_a_click_on_a_question_or_return_asks_for_it(qtbot: QtBot, theme: Theme) -> None:
    view = WelcomeView(theme)
    qtbot.addWidget(view)
    for button, question in zip(view.buttons, SMALL_STARTERS, strict=True):
        with qtbot.waitSignal(view.starter_chosen) as chosen:
            click_on(button)
        assert chosen.args == [question]
    with qtbot.waitSignal(view.starter_chosen):
        press_key(view.buttons[0], "Return")
    view.resize(400, 120)
    view.show()
    assert view.buttons[0].height() >= 34, "a low window scrolls"


@pytest.mark.parametrize(
    ("parameters", "questions"),
    [
        (135_000_000, SMALL_STARTERS),
        (4_000_000_000, STARTERS),
        # A server does not say how large its model is.
        (0, STARTERS),
    ],
)
def test_the_questions_follow_the_model(parameters: int, questions: tuple[str, ...]) -> None:
    assert starters(replace(MODEL, parameters=parameters)) == questions


def test_the_greeting_says_where_the_words_go(chat: Chat, window: MainWindow) -> None:
    """It promised that nothing leaves the machine, below the name of a remote model."""
    text = window.conversation.welcome.greeting.text
    slot = chat.slot
    here = f"Chat with a language model that runs on {MACHINE}.\nNothing you write leaves it."
    assert text() == here
    chat.start()
    assert text() == here
    chat.engine.load_gate.shut()
    slot.load_model("remote:studio/qwen")
    assert text() == "Answers come from studio.\nWhat you write is sent there."
    chat.engine.load_gate.open()
    chat.wait_for(EngineState.IDLE)
    assert text() == "Answers come from studio (https://studio.local).\nWhat you write is sent there."
    slot.load_model(ranked_address(("localhost", "mini.local"), None))
    assert text() == f"Answers come from {MACHINE} together with mini.local.\nWhat you write is sent to all of them."
    slot.load_model(ranked_address(("localhost",), None))
    assert text() == here
    slot.load_model(None)
    assert text() == here
