"""Making data: what a batch holds, and that an interrupted run makes what an uninterrupted one makes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import ModelError
from rdchat.inference.training.data_maker import (
    MAX_ANSWER_TOKENS,
    DataMaker,
    ShardFolder,
    TrainingConversation,
    answer_tokens,
    chat_template,
    hidden_states,
)
from rdchat.inference.training.seed_prompts import SeedPrompt
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
    making = maker(model, folder, **options)
    shards = ShardFolder(folder, len(ALPHABET))
    making.resume()
    numbers = range(len(shards), len(shards) + batches)
    for number in numbers:
        counts = list(making.make_shard())
        assert counts == sorted(counts)
        assert counts[-1] == answer_tokens(shards.read_shard(number))
    return [shards.read_shard(number) for number in numbers]


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
    return [shards.read_shard(number) for number in range(batches)]


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


def test_what_ends_a_question_is_replaced_by_the_template(model: LoadedModel, whole: Path) -> None:
    template = chat_template(model)
    ends = {*template.ends, template.after[0]}
    lengths = set()
    for item in (item for batch in read(whole, 8) for item in batch if item.number % 3):
        question = item.tokens[len(template.before) : item.answer_start - len(template.after)]
        assert not ends & set(question)
        lengths.add((item.number % 2, len(question) - len("say something")))
    assert {(1, 5), (0, 0)} < lengths, "some are finished early, others reach their limit"


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
