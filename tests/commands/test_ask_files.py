"""Files and images of `rdchat ask` come before the question, and are never cut silently."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.chat.attachments.attached_file import FileKind, ReadFile
from rdchat.cli import main
from rdchat.commands.ask_files import with_files
from rdchat.commands.bench import bench_table
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ChatMessage, Role
from rdchat.inference.benchmark.result_files import read_runs
from tests.chat.attachments.documents import pdf
from tests.commands.running import Console
from tests.grids import share
from tests.inference.vision.pictures import photo, stored
from tests.inference.vision.seeing_models import seeing_folder

BOOK = ReadFile(
    "book.pdf",
    FileKind.PDF,
    tuple(f"Page {number} {'filler ' * 50}{'apples' * (number == 7)}" for number in range(1, 31)),
)
NOTES = ReadFile("notes.txt", FileKind.TEXT, ("one two three",))


def count(messages: Sequence[ChatMessage]) -> int:
    """Words, and an error where they are far more than 400."""
    words = sum(len(message.content.split()) for message in messages)
    if words > 800:
        raise PromptTooLongError("far more")
    return words


def told(
    *files: ReadFile,
    pages: str | None = None,
    passages: bool = False,
    prompt: str = "What of apples?",
    max_tokens: int | None = 64,
) -> str:
    args = argparse.Namespace(pages=pages, passages=passages, max_tokens=max_tokens)
    return with_files(
        prompt, files, system=(ChatMessage(Role.SYSTEM, "Be brief."),), count=count, limit=400, longest=400, args=args
    )


def test_what_fits_is_put_before_the_question(console: Console) -> None:
    assert told(NOTES) == '<file name="notes.txt">\none two three\n</file>\n\nWhat of apples?'
    assert console.printed().err == ""


def test_what_does_not_fit_is_not_cut() -> None:
    with pytest.raises(PromptTooLongError) as refused:
        told(BOOK)
    assert refused.value.message.startswith("book.pdf is too long for the model: ")
    assert refused.value.message.endswith(", and the limit is 400.")
    assert refused.value.hint == (
        "Choose pages with --pages 1-4, or the passages that match the question with --passages."
    )
    with pytest.raises(PromptTooLongError, match="These files are") as refused:
        told(ReadFile("a.txt", FileKind.TEXT, ("word " * 300,)), ReadFile("b.txt", FileKind.TEXT, ("word " * 300,)))
    assert refused.value.hint == "Choose the passages that match the question with --passages."


def test_pages_are_taken_and_named(console: Console) -> None:
    assert '<file name="book.pdf" part="pages 1 to 2 of 30">\n[page 1]' in told(BOOK, NOTES, pages="1-2")
    assert console.printed().err == "rdchat: using pages 1 to 2 of 30 of book.pdf\n"
    with pytest.raises(PromptTooLongError, match="too long for the model"):
        told(BOOK, pages="1-20")


def test_passages_are_taken_as_far_as_they_fit(console: Console) -> None:
    text = told(BOOK, NOTES, passages=True)
    assert 'part="passage 7 of 30"' in text
    assert '<file name="notes.txt">' in text, "all of what fits"
    assert console.printed().err == "rdchat: using passage 7 of 30 of book.pdf\n"
    assert len(told(BOOK, passages=True, prompt="What of filler?").split()) < 400
    assert 'part="passage 7 of 30"' in told(BOOK, passages=True, max_tokens=None), "the default length of a reply"
    with pytest.raises(PromptTooLongError, match="No passage of book"):
        told(BOOK, passages=True, prompt="Zebra?")


@pytest.mark.slow
def test_a_file_stands_before_the_question(tmp_path: Path, console: Console) -> None:
    (tmp_path / "prices.csv").write_text("apples,3\npears,4\n")
    (tmp_path / "old.txt").write_bytes("Größe".encode("latin-1"))
    files = ["--file", tmp_path / "prices.csv", "--file", tmp_path / "old.txt"]
    told = console.runs("ask", "How much?", *files, "--max-tokens", "1", "--json", "--seed", "1")
    assert "rdchat: old.txt: It is not UTF-8. rdchat read it as Latin-1 (Windows-1252), which is a guess" in told.err
    plain = ["ask", '<file name="prices.csv">\napples,3\npears,4\n\n</file>\n\n<file name="old.txt">\nGröße\n</file>'
             "\n\nHow much?", "--max-tokens", "1", "--json", "--seed", "1"]  # fmt: skip
    assert main(plain) == 0
    same = json.loads(console.printed().out)
    with_file = json.loads(told.out)
    assert with_file["stats"]["prompt_tokens"] == same["stats"]["prompt_tokens"]
    assert with_file["token_ids"] == same["token_ids"]


@pytest.mark.parametrize(
    ("options", "status", "words"),
    share(
        [
            (["--pages", "1"], 2, "--pages and --passages need a file"),
            (["--file", "{folder}/a.txt", "--pages", "1"], 2, "--pages needs a PDF file"),
            (["--file", "{folder}/a.pdf", "--pages", "3"], 2, "a.pdf does not have the pages 3. It has pages 1 to 2"),
            (["--file", "{folder}/a.png"], 2, "a.png is an image, not a text. Show it with --image."),
            (["--file", "{folder}"], 1, "is a folder"),
            (["--file", "{folder}/none"], 1, "none cannot be read"),
            (["--file", ""], 1, "is a folder"),
            (["--file", "a.pdf", "--pages", "1", "--passages"], 2, "not allowed with argument"),
        ],
        3,
    ),
)
def test_what_is_wrong_with_files_is_said_before_a_model_is_loaded(
    tmp_path: Path, console: Console, options: list[str], status: int, words: str
) -> None:
    (tmp_path / "a.txt").write_text("Hi")
    (tmp_path / "a.pdf").write_bytes(pdf(["One", "Two"]))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    arguments = ["ask", "hi", *(each.format(folder=tmp_path) for each in options), "--model", "/nowhere"]
    console.refuses(arguments, words, status)


ASK = ("ask", "what?", "--max-tokens", "3", "--mode", "off", "--seed", "1")


@pytest.mark.parametrize("kind", ["smolvlm", "qwen3_vl"])
def test_a_model_sees_the_images(console: Console, tmp_path: Path, kind: str) -> None:
    model = seeing_folder(tmp_path / "model", kind)
    image = str(stored(tmp_path, photo(40, 24)))
    sizes = [
        console.json(*ASK, "--model", model, *images)["stats"]["prompt_tokens"]
        for images in ((), ("--image", image), ("--image", image, "--image", image))
    ]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


def test_refusals_come_before_the_model_is_loaded(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.inference.session.load_model", lambda *_, **__: pytest.fail("loaded"))
    text = tmp_path / "text.png"
    text.write_text("no image")
    console.refuses([*ASK, "--image", tmp_path / "none.png"], "none.png", 1)
    console.refuses([*ASK, "--image", text], "text.png is damaged, or no PNG", 1)
    console.refuses([*ASK, *["--image", text] * 21], "A question takes 20 images", 2)
    console.refuses([*ASK, "--hosts", "a,b", "--image", text], "several Macs run cannot see", 2)


def test_a_model_that_does_not_see_is_told_before_it_is_loaded(
    console: Console, tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.inference.session.load_model", lambda *_, **__: pytest.fail("loaded"))
    image = str(stored(tmp_path, photo()))
    console.refuses([*ASK, "--model", small_model, "--image", image], "cannot see images", 1)
    monkeypatch.setattr(paths, "default_model_dir", lambda: small_model)
    console.refuses([*ASK, "--image", image], f"{small_model.name} cannot see images. Choose another.", 1)


@pytest.mark.slow
def test_a_benchmark_shows_them_with_each_prompt_and_tells_the_time_of_seeing(console: Console, tmp_path: Path) -> None:
    model = seeing_folder(tmp_path / "model", "qwen3_vl")
    image = str(stored(tmp_path, photo(40, 24)))
    results = tmp_path / "runs.jsonl"
    bench = ("bench", "--model", model, "--image", image, "--modes", "off,lookup", "--max-tokens", "12")
    report = console.json(*bench, "--trials", "2", "--per-group", "1", "--results", results)
    assert report["complete"]
    off, lookup = report["modes"]
    assert (off["mode"], lookup["mode"]) == ("off", "lookup")
    assert off["identical_text"]
    assert lookup["identical_text"] or lookup["first_difference"]["gap"] is not None
    assert off["ratio_to_mlx_lm"] is None, "it sees no images"
    seen = report["seeing_ms"]
    # Medians of several runs do not add up exactly.
    assert 0 < seen["prepare an image"] + seen["tower"] <= 1.2 * seen["see"], "each run sees it anew"
    runs = read_runs(results)
    assert all(len([entry for entry in run.statistics.ledger if entry.name == "tower"]) == 1 for run in runs.runs)
    assert "Seeing images took " in bench_table(runs)
    assert "vision tower" in bench_table(runs)
    console.refuses([*bench, "--image", results], "runs.jsonl is damaged, or no PNG", 1)
