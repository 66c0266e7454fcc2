"""Making data: what a batch holds, and that an interrupted run makes what an uninterrupted one makes."""

import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import ModelError, StorageError
from rdchat.inference.training.data.batched_decoding import hidden_states
from rdchat.inference.training.data.data_maker import MAX_ANSWER_TOKENS, DataMaker, chat_template
from rdchat.inference.training.data.seed_prompts import SeedPrompt, foreign_text, seed_prompt, texts
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.fakes import ALPHABET, CharacterTokenizer, tiny_llama

pytestmark = pytest.mark.across_rows

SEQUENCES = 6
EMPTY = 3  # the opening that leaves all to the target


def opening(number: int, passages: Sequence[str], long: bool) -> SeedPrompt:
    """Closed and open questions in turn, some with a passage; those of long batches say so."""
    text = "say something long" if long else "say something"
    if passages and number % 3 == 0:
        text = passages[number % len(passages)][:9]
    text = "" if number == EMPTY else text
    return SeedPrompt("test", text, 5 if number % 2 else 0)


def maker(model: LoadedModel, folder: Path, **options: Any) -> DataMaker:
    settings = {"seed": 3, "sequences": SEQUENCES, **options}
    return DataMaker(model, chat_template(model), opening, ShardFolder(folder, len(ALPHABET)), **settings)


def make(model: LoadedModel, folder: Path, batches: int, **options: Any) -> list[list[TrainingConversation]]:
    """Make some more batches, from where the folder's shards end."""
    making, shards = maker(model, folder, **options), ShardFolder(folder, len(ALPHABET))
    making.resume()
    numbers = range(len(shards), len(shards) + batches)
    for number in numbers:
        counts = list(making.make_shard())
        assert counts == sorted(counts)
        assert counts[-1] == answer_tokens(shards.read(number))
    return [shards.read(number) for number in numbers]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return tiny_llama(2)


@pytest.fixture(scope="module")
def whole(model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight batches that were made without interruption; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    make(model, folder, 8)
    return folder


def read(folder: Path, batches: int) -> list[list[TrainingConversation]]:
    """Return the first batches of a folder."""
    shards = ShardFolder(folder, len(ALPHABET))
    return [shards.read(number) for number in range(batches)]


def test_the_template_is_found_around_the_question(model: LoadedModel) -> None:
    template = chat_template(model)
    assert model.decode(list(template.before)) == "user: "
    assert model.decode(list(template.after)) == "\nassistant: "


def test_a_model_without_a_chat_template_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CharacterTokenizer, "has_chat_template", False)
    with pytest.raises(ModelError, match="no chat template"):
        chat_template(tiny_llama(2))


def test_conversations_begin_with_the_template_and_their_opening(model: LoadedModel, whole: Path) -> None:
    template = chat_template(model)
    for item in read(whole, 1)[0]:
        assert tuple(item.tokens[: len(template.before)]) == template.before
        question_end = item.answer_start - len(template.after)
        assert tuple(item.tokens[question_end : item.answer_start]) == template.after
        question = model.decode(item.tokens[len(template.before) : question_end])
        begun = "" if item.number == EMPTY else "say something"
        assert question.startswith(begun)
        assert 0 <= len(question) - len(begun) <= (5 if item.number % 2 else 0)


def test_questions_leave_room_for_an_answer_within_the_context(model: LoadedModel, whole: Path) -> None:
    """A context of 512 characters is far too short for an article."""
    for batch in read(whole, 4):
        for item in batch:
            assert item.answer_start + MAX_ANSWER_TOKENS <= model.info.context_length


def test_every_fourth_batch_asks_about_long_texts(model: LoadedModel, whole: Path) -> None:
    batches = read(whole, 8)
    long = [any("long" in model.decode(item.tokens[: item.answer_start]) for item in batch) for batch in batches]
    assert long == ([False] * 3 + [True]) * 2


def test_greedy_answers_are_the_targets_own(model: LoadedModel, whole: Path) -> None:
    greedy = [item for item in read(whole, 1)[0] if item.temperature == 0]
    assert greedy
    for item in greedy:
        logits = model.network(mx.array([item.tokens]), cache=make_prompt_cache(model.network))[0]
        chosen = np.array(mx.argmax(logits, axis=-1))
        assert item.answer == chosen[item.answer_start - 1 : -1].tolist()


def test_hidden_states_are_those_of_each_conversation_alone(model: LoadedModel, whole: Path) -> None:
    made = read(whole, 1)[0]
    states = dict(hidden_states(model, made, HiddenReads()))
    assert sorted(states) == list(range(len(made)))
    for index, item in enumerate(made):
        model.network(mx.array([item.tokens]), cache=make_prompt_cache(model.network))
        assert model.hooks.hidden is not None
        np.testing.assert_allclose(states[index], np.array(model.hooks.hidden[0]), atol=5e-3)


@pytest.mark.slow
def test_an_interrupted_run_makes_what_an_uninterrupted_one_makes(
    model: LoadedModel, tmp_path: Path, whole: Path
) -> None:
    first = make(model, tmp_path / "parts", 1)
    (tmp_path / "parts" / "part-00001.npz").write_bytes(b"cut short")  # what a power loss may leave behind
    assert first + make(model, tmp_path / "parts", 2) == read(whole, 3)
    assert read(tmp_path / "parts", 3) == read(whole, 3)


@pytest.mark.slow
@pytest.mark.parametrize("steps", share([40, 1, 70]))
def test_a_batch_that_was_interrupted_is_made_again(
    model: LoadedModel, tmp_path: Path, whole: Path, steps: int
) -> None:
    first, second = read(whole, 2)
    assert make(model, tmp_path / "parts", 1) == [first]
    making = maker(model, tmp_path / "parts")
    making.resume()
    batch = making.make_shard()
    for _ in range(steps):
        next(batch)
    batch.close()
    assert make(model, tmp_path / "parts", 1) == [second]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def test_damaged_shards_are_named(whole: Path, tmp_path: Path) -> None:
    shutil.copy(whole / "00000.npz", tmp_path)
    cut(tmp_path / "00000.npz")
    with pytest.raises(StorageError, match=r"00000\.npz is damaged"):
        ShardFolder(tmp_path, len(ALPHABET)).read(0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tokens": np.full(4, len(ALPHABET), np.uint16)}, "tokens that the model does not have"),
        ({"tokens": np.zeros(4, np.int16) - 1}, "tokens that the model does not have"),
        ({"facts": np.array([[0, 5, 2]], np.int32)}, "do not match its tokens"),
        ({"facts": np.array([[0, 4, -2]], np.int32)}, "do not match its tokens"),
        ({"facts": np.zeros(3, np.int32)}, "too many indices"),
        ({"temperatures": np.zeros(2)}, "no temperatures"),
    ],
)
def test_shards_that_were_made_by_hand_are_refused(tmp_path: Path, changed: dict[str, np.ndarray], words: str) -> None:
    """MLX looks up an embedding without asking whether it is there."""
    shard = {"tokens": np.zeros(4, np.uint16), "facts": np.array([[0, 4, 2]], np.int32), "temperatures": np.zeros(1)}
    np.savez(tmp_path / "00000.npz", **shard)
    shards = ShardFolder(tmp_path, len(ALPHABET))
    assert [item.answer for item in shards.read(0)] == [[0, 0]]
    np.savez(tmp_path / "00000.npz", **shard | changed)
    with pytest.raises(StorageError, match=rf"00000\.npz is damaged: .*{words}"):
        shards.read(0)


@pytest.mark.parametrize("template", ["{text}\nassistant: ", "user: {text}"])
def test_a_template_that_marks_no_turns_is_refused(
    model: LoadedModel, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apply(_self: object, turns: list[dict[str, str]], **_options: object) -> str:
        return template.format(text=turns[-1]["content"])

    monkeypatch.setattr(CharacterTokenizer, "apply_chat_template", apply)
    with pytest.raises(ModelError, match="does not mark where the user's text begins and ends"):
        chat_template(model)


def test_answers_that_go_round_in_circles_are_cut(whole: Path) -> None:
    """A greedy tiny model loops for ever: no run of 8 tokens may come again more than 8 times in a row."""
    cut = 0
    for item in read(whole, 1)[0]:
        runs = [tuple(item.answer[i : i + 8]) for i in range(len(item.answer) - 7)]
        repeated = [run in runs[:place] for place, run in enumerate(runs)]
        cut += repeated[-8:] == [True] * 8
        assert not all(repeated[-9:]) or len(repeated) < 9
    assert cut


def test_openings_depend_on_seed_and_number_alone() -> None:
    passages = ["one text", "another text"]
    drawn = [seed_prompt(1, number, passages, False) for number in range(300)]
    assert drawn == [seed_prompt(1, number, passages, False) for number in range(300)]
    assert drawn != [seed_prompt(2, number, passages, False) for number in range(300)]
    kinds = {"summarise", "translate", "maths", "code", "fact", "role", "passage question", "own"}
    assert kinds <= {item.kind for item in drawn}
    assert not [item.text for item in drawn if "{" in item.text.replace("{passage}", "") and "code" not in item.kind]


def test_long_openings_join_passages() -> None:
    passages = [f"passage {number} " + 20 * "word " for number in range(10)]
    drawn = [seed_prompt(1, number, passages, True) for number in range(400)]
    joined = [prompt for prompt in drawn if re.search(r"passage \d word", prompt.text)]
    assert len(joined) > 20
    assert all(2 <= len(re.findall(r"passage \d word", prompt.text)) <= 4 for prompt in joined)
    short = [seed_prompt(1, number, passages, False).text.count(" word ") for number in range(100)]
    assert max(short) <= 40


def test_foreign_texts_end_as_sentences() -> None:
    draw = random.Random(1)
    for language in texts("foreign_texts"):
        drawn = {foreign_text(draw, language) for _ in range(50)}
        assert len(drawn) > 45
        assert all(text.endswith(".") and text[0].isupper() and "|" not in text and "  " not in text for text in drawn)


def test_without_passages_no_opening_asks_about_one() -> None:
    kinds = {seed_prompt(1, number, [], True).kind for number in range(300)}
    assert not kinds & {"summarise", "rewrite", "extract", "passage question"}


def test_prompts_of_the_persons_own_are_mixed_in() -> None:
    drawn = [seed_prompt(1, number, [], False, ["my own question"]) for number in range(100)]
    assert 30 < sum(item.text == "my own question" for item in drawn) < 70
