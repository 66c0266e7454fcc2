"""Images on their way from the message field into the prompt."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.attachments.attached_file import MAX_FILES, MAX_IMAGE_BYTES, image_file
from rdchat.chat.conversation import Message
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import MAX_IMAGES, ChatImage, ChatMessage, Role, ToolCall
from rdchat.services.chat.chat_prompt import ChatPrompt, FilledPrompt, ends_with_question
from rdchat.services.chat.cut_plan import Budget, cut_position
from rdchat.services.chat.summary_requests import text_of
from rdchat.tools.definitions import ToolResult
from tests.cloud import only_in_cloud
from tests.inference.vision.pictures import encoded, photo
from tests.services.fakes import ScriptedEngine
from tests.services.tool_chats import ANSWER, approve, ask as ask_tools, tools  # noqa: F401  a fixture
from tests.services.tool_fakes import ScriptedServers
from tests.services.window import Window, bring, collected

DATA = encoded(photo(37, 23), "PNG")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    path.write_bytes(DATA)
    return path


def seen(engine: ScriptedEngine, place: int = -1) -> list[list[tuple[str, int, int, bytes]]]:
    """Return the images of each message of a request, as the engine can read them."""
    return [
        [(image.name, image.width, image.height, image.path.read_bytes()) for image in message.images]
        for message in engine.requests[place].messages
    ]


CAT = ("cat.png", 37, 23, DATA)


def test_an_image_without_words_is_sent_and_stays_for_the_next_question(
    window: Window, engine: ScriptedEngine, picture: Path
) -> None:
    (file,) = bring(window, picture)
    picture.unlink()
    assert (file.image is not None, file.block, window.chat.files.to_shorten) == (True, "", ())
    window.ask("")
    assert (seen(engine), engine.last_request.messages[0].content) == ([[CAT]], "")
    assert window.titles == ["cat.png"]
    window.ask("What is it?")
    assert seen(engine) == [[CAT], [], []]
    (stored,) = window.chat.path[0].files
    assert (stored.width, stored.height) == (37, 23)


def test_an_image_or_text_that_only_icloud_has_is_downloaded_outside_of_the_app_or_refused(
    window: Window, picture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "a.txt"
    text.write_text("Hi")
    with only_in_cloud(monkeypatch, picture, text):
        assert [file.name for file in bring(window, picture, text)] == ["cat.png", "a.txt"]
    files = window.chat.files
    refusals = collected(files.refused)
    with only_in_cloud(monkeypatch, picture, text):
        picture.unlink()
        text.unlink()
        files.add_files([str(picture), str(text)])
        window.wait_until(lambda: len(refusals) == 2)
    assert [each.partition(" is in iCloud")[0] for each in refusals] == ["cat.png", "a.txt"]


def test_damaged_too_large_and_too_many_images_are_refused_in_a_line(
    window: Window, tmp_path: Path, picture: Path
) -> None:
    files = window.chat.files
    refusals = collected(files.refused)
    (tmp_path / "cut.png").write_bytes(DATA[:-30])
    with (tmp_path / "large.png").open("wb") as file:
        file.write(DATA)
        file.truncate(MAX_IMAGE_BYTES + 1)
    files.add_files([str(tmp_path / "cut.png"), str(tmp_path / "large.png")])
    window.wait_until(lambda: len(refusals) == 2)
    assert all("\n" not in each and str(tmp_path) not in each for each in refusals)
    assert (refusals[0].split()[0], refusals[1].split()[0]) == ("cut.png", "large.png")
    assert not files.files
    files.add_files([str(picture)] * (MAX_FILES + 1))
    files.add_image(lambda: DATA, "one more.png")
    assert refusals[2:] == [f"A message takes {MAX_FILES} files at most."] * 2


def test_images_of_results_reach_the_model_with_the_result(
    tools: Window,  # noqa: F811
    engine: ScriptedEngine,
    servers: ScriptedServers,
) -> None:
    servers.result = ToolResult("[image 1]", images=(DATA,))
    ask_tools(tools)
    approve(tools)
    assert seen(engine, 1)[-1] == [("image 1.png", 37, 23, DATA)]
    message = engine.requests[1].messages[-1]
    assert (message.role, message.content) == (Role.TOOL, "[image 1]")
    stored = tools.store.message(tools.chat.path[2].id).files[0]
    assert (stored.width, stored.height) == (37, 23)


def image(number: int) -> ChatImage:
    return ChatImage(Path(str(number)), str(number), 4, 4, f"{number}.png")


def asked(number: int, text: str = "", cut: ContextCut | None = None) -> Message:
    files = (image_file(bytes([number]), f"{number}.png")[0],)
    parent = number - 1 or None
    return Message(number, 1, parent, Role.USER, text, context_cut=cut, files=files)


def reply(number: int, text: str = "Yes.", cut: ContextCut | None = None) -> Message:
    return Message(number, 1, number - 1, Role.ASSISTANT, text, context_cut=cut)


def prompt(*path: Message) -> FilledPrompt:
    return ChatPrompt(path, "").with_files(lambda _file: "", image_of=lambda file, _: image(int(file.name[0])))


def test_images_above_a_cut_are_left_out() -> None:
    turns = prompt(asked(1), reply(2, cut=ContextCut()), asked(3)).turns()
    assert [each.images for each in turns] == [(image(3),)]


def test_images_of_neighbours_that_are_joined_stay_in_order() -> None:
    turns = prompt(asked(1, "a"), reply(2, ""), asked(3, "b")).turns()
    assert turns == (ChatMessage(Role.USER, "a\n\nb", images=(image(1), image(3)), image_offsets=(0, 3)),)


def test_of_more_images_than_a_prompt_takes_the_oldest_are_lines() -> None:
    """Such a chat was refused for ever: its messages had to be deleted."""
    path = [asked(1, "One?"), reply(2), asked(3), reply(4), asked(5, "Five?")]
    files = {1: 40, 3: 30, 5: 30}
    path = [replace(each, files=each.files * files.get(each.id, 0)) for each in path]
    complete = ChatPrompt(path, "", typed_images=(image(7),) * 15).with_files(
        lambda _file: "", image_of=lambda file, _: image(int(file.name[0]))
    )
    assert complete.asks
    turns = complete.turns()
    assert sum(len(each.images) for each in turns) == MAX_IMAGES
    assert turns[0].content == "\n".join(["(an image that is left out)"] * 15 + ["One?"])
    assert complete.left_out == {1: [image(1).digest] * 15}
    assert [len(each.images) for each in turns] == [25, 0, 30, 0, 45]


def test_an_image_alone_is_a_question_and_is_named_in_a_summary() -> None:
    assert ends_with_question([asked(1)])
    text = text_of(prompt(asked(1, "What?"), reply(2)).turns())
    assert text == "<turn>Person: (image: 1.png)\nWhat?\n\n<turn>Assistant: Yes."


def test_images_count_where_a_chat_is_cut() -> None:
    def count(messages: object) -> int:
        return sum(100 * len(each.images) + 1 for each in messages)  # type: ignore[attr-defined]

    complete = prompt(asked(1), reply(2), asked(3), reply(4), asked(5))
    assert cut_position(complete, Budget(150, 10), count) == 4
    assert cut_position(complete, Budget(250, 10), count) == 2


def test_a_call_that_is_answered_by_an_image_keeps_its_id() -> None:
    call = Message(1, 1, None, Role.ASSISTANT, "", tool_calls=(ToolCall("shot", "{}", "x"),))
    (file,) = asked(2).files
    result = Message(2, 1, 1, Role.TOOL, "done", tool_call_id="x", tool_name="shot", files=(file,))
    turns = prompt(call, result).turns()
    assert turns[1] == ChatMessage(Role.TOOL, "done", tool_call_id="x", name="shot", images=(image(2),))
