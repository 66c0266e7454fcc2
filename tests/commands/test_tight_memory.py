"""A model that seems too large is refused in one line, which says how to load it anyway."""

from pathlib import Path

import pytest

from rdchat.cli import main
from rdchat.inference import loading
from rdchat.inference.device import MemoryRoom
from tests.commands.running import Console


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "memory_room", lambda: MemoryRoom(1000, 1000))


@pytest.mark.parametrize(
    "command",
    [["ask", "hi"], ["bench"], ["train-drafter", "--out", "out"]],
    ids=lambda command: command[0],
)
def test_it_is_refused(
    command: list[str],
    small_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    console: Console,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "choose a smaller model. --load-anyway tries it anyway."
    console.refuses([*command, "--model", small_model], words, 1)


def test_it_is_done_where_the_person_says_so(small_model: Path, console: Console) -> None:
    arguments = ["ask", "hi", "--mode", "off", "--max-tokens", "2", "--model", str(small_model), "--load-anyway"]
    assert main(arguments) == 0
    assert "of memory is free. It may be slow" in console.printed().err
