"""`rdchat train-drafter`: what it refuses before any work, and a whole training of a tiny model."""

import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX
from rdchat import paths
from rdchat.chat.store import ConversationStore
from rdchat.cli import main
from rdchat.inference.api import Role
from rdchat.inference.drafting.checkpoints.drafter_folder import bound_hash, load_drafter
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.verification.target import LoadedModel
from tests.commands.running import Console
from tests.inference.fakes import CharacterTokenizer, lenient_llama
from tests.inference.training.short_runs import short_evaluation


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """What the command loads."""
    tiny = lenient_llama()
    monkeypatch.setattr("rdchat.inference.training.training_run.load_model", lambda *_, **__: tiny)
    return tiny


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with short_evaluation():
        yield


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "drafter"


def train(out: Path, *arguments: str) -> int:
    return main(["train-drafter", "--out", str(out), "--epochs", "1", *arguments])


def store_chat(question: str) -> bytes:
    """Store a chat and return what the file holds."""
    store = ConversationStore(paths.database_path())
    store.add_message(store.create_conversation().id, None, Role.USER, question)
    store.close()
    return paths.database_path().read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens", "0"], "tokens 0 is out of range"),
        (["--tokens", "many"], "invalid int value"),
        (["--tokens", "1000000000000"], "tokens 1000000000000 is out of range"),
        (["--epochs", "1000000"], "epochs 1000000 is out of range"),
        (["--seed", "-1"], "seed -1 is out of range"),
        (["--epochs", "0"], "epochs 0 is out of range"),
        (["--hours", "1"], "unrecognized arguments: --hours"),
    ],
)
def test_numbers_that_are_wrong_are_refused_before_the_model_is_loaded(
    arguments: list[str], words: str, out: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rdchat.inference.training.training_run.load_model", lambda *_, **__: pytest.fail("the model was loaded")
    )
    console.refuses(["train-drafter", "--out", out, *arguments], words, 2)


def refused(words: str, out: Path, console: Console, *arguments: str) -> None:
    """Check that a training is refused with these words, and that nothing was begun."""
    assert train(out, *arguments) == 1
    assert words in console.printed().err
    assert not list(paths.cache_dir().glob("training/**/*.npz"))


def test_a_prompts_file_with_a_broken_line(model: LoadedModel, out: Path, tmp_path: Path, console: Console) -> None:
    (tmp_path / "prompts").write_text('fine\n{"prompt": \n')
    refused("Line 2 of", out, console, "--prompts", str(tmp_path / "prompts"))


def test_a_model_without_hidden_states(model: LoadedModel, out: Path, console: Console) -> None:
    trunk = model.network.model
    trunk.__class__ = trunk.__class__.__mro__[1]  # without the hook
    model.hooks.hidden = None
    refused("does not provide the hidden states", out, console)


def test_a_template_without_a_user_role(
    model: LoadedModel, out: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CharacterTokenizer, "apply_chat_template", lambda *_args, **_options: "hello")
    refused("chat template changes the user's text", out, console)


def test_a_full_disk(model: LoadedModel, out: Path, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 10**12, 0))
    refused("The training data needs", out, console)


def test_an_output_folder_that_holds_something_else(model: LoadedModel, out: Path, console: Console) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    refused("has something other than a drafter", out, console)


def test_without_chats_there_is_nothing_to_take_from_them(model: LoadedModel, out: Path, console: Console) -> None:
    refused("There are no questions in stored chats", out, console, "--from-my-chats")


@pytest.mark.slow
def test_chats_are_left_out_unless_they_are_asked_for(model: LoadedModel, out: Path, console: Console) -> None:
    store_chat("zzz from a chat")
    assert train(out, "--tokens", "1000") == 0
    assert "Training a drafter for tiny: 1,000 answer tokens" in console.printed().err
    assert "| own questions from chats | 0 |" in (out / "card.md").read_text(encoding="utf-8")
    assert not [question for question in asked(model) if "zzz" in question]


@pytest.mark.slow
def test_a_training_with_the_persons_own_questions(
    model: LoadedModel, out: Path, tmp_path: Path, console: Console
) -> None:
    before = store_chat("zzz from a chat")
    (tmp_path / "prompts").write_text("xyx from a file\n")
    arguments = ["--tokens", "1000", "--prompts", str(tmp_path / "prompts"), "--from-my-chats"]
    assert train(out, *arguments) == 0
    shown = console.printed()
    data = next(paths.cache_dir().glob("training/*/*"))
    assert shown.out == f"The drafter is in {out}. Its data is kept in {data}.\n"
    assert "of disk in" in shown.err  # the budget, before anything else
    phases = [line.split()[0] for line in shown.err.splitlines()[1:]]
    assert list(dict.fromkeys(phases)) == ["data", "prepare", "train", "evaluate", "write", "done"]

    assert bound_hash(out) is not None
    assert load_drafter(out, model).kind is HeadKind.RECURRENT
    card = (out / "card.md").read_text(encoding="utf-8")
    assert "| own questions from a file | 1 |" in card
    assert "| own questions from chats | 1 |" in card
    assert "zzz" not in card
    assert "xyx" not in card
    assert paths.database_path().read_bytes() == before
    questions = asked(model)
    assert any("zzz from a chat" in question for question in questions)
    assert any("xyx from a file" in question for question in questions)

    assert train(out, *arguments) == 1  # a second time only when told so
    assert "Continue it with --resume" in console.printed().err
    assert train(out, *arguments, "--resume") == 0


def asked(model: LoadedModel) -> list[str]:
    """Return the questions of the training's data."""
    from rdchat.inference.training.data_maker import ShardFolder

    shards = ShardFolder(next(paths.cache_dir().glob("training/*/*/shards")), model.info.vocabulary_size)
    return [model.decode(item.tokens[: item.answer_start]) for item in shards.read_shard(0)]
