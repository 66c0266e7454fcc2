"""Making data: what a batch holds, and that an interrupted run makes what an uninterrupted one makes."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import ModelError, StorageError
from rdchat.inference.drafting.shipped_answers import TrainingConversation, read_answers, shipped_path
from rdchat.inference.training import data_maker
from rdchat.inference.training.data_maker import (
    MAX_ANSWER_TOKENS,
    DataMaker,
    ShardFolder,
    answer_tokens,
    chat_template,
    hidden_states,
    loops,
    write_on,
)
from rdchat.inference.training.seed_prompts import SeedPrompt, seed_prompt
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel
from scripts.drafter.pack_answers import write_answers
from tests.inference.fakes import ALPHABET, CharacterTokenizer, shared_llama, tiny_llama

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
    """Make some more batches of short answers, from where the folder's shards end."""
    making = maker(model, folder, **options)
    shards = ShardFolder(folder, len(ALPHABET))
    making.resume()
    numbers = range(len(shards), len(shards) + batches)
    for number in numbers:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(data_maker, "MAX_ANSWER_TOKENS", 44)
            counts = list(making.make_shard())
        assert counts == sorted(counts)
        assert counts[-1] == answer_tokens(shards.read_shard(number))
    return [shards.read_shard(number) for number in numbers]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return tiny_llama(2)


@pytest.fixture(scope="module")
def whole(model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four batches that were made without interruption; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    make(model, folder, 4)
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
    for item in (item for batch in read(whole, 4) for item in batch if item.number % 3):
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
    batches = read(whole, 4)
    long = [any("long" in model.decode(item.tokens[: item.answer_start]) for item in batch) for batch in batches]
    assert long == [False] * 3 + [True]


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


SHORT = [[7], [3, 4, 5, 8, 9, 10, 11, 12, 13], [3, 1, 2], [3, 4, 20, 21, 22, 23]]
LONG = [number % 25 + 1 for number in range(260)]
"""Longer than the steps by which mlx-lm's buffers grow, 256."""


def written(texts: list[list[int]], limits: list[int], temperature: float = 0.0, *, seed: int = 0,
            ends: frozenset[int] = frozenset(), window: int | None = None) -> list[list[int]]:  # fmt: skip
    """Return what is added to the texts."""
    longer = [[*text] for text in texts]
    model = shared_llama(1, window)
    mx.random.seed(seed)
    for _ in write_on(model, longer, limits, [temperature] * len(texts), ends):
        pass
    assert all(new[: len(text)] == text for new, text in zip(longer, texts, strict=True))
    return [new[len(text) :] for new, text in zip(longer, texts, strict=True)]


@pytest.mark.parametrize(("window", "call_tokens"), [(None, 256), (4, 5)])
def test_each_text_sees_its_own_tokens_only(
    window: int | None, call_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of different lengths, some dropped on the way, prompts read in several calls; windows count tokens."""
    monkeypatch.setattr(data_maker, "_CALL_TOKENS", call_tokens)
    monkeypatch.setattr(data_maker, "loops", lambda _tokens: False)
    texts = [*SHORT * 2, LONG, [5, 6]]
    limits = [30, 5, 6, 29, 1, 2, 20, 7, 30, 25]
    model = shared_llama(1, window)
    for text, added, limit in zip(texts, written(texts, limits, window=window), limits, strict=True):
        assert len(added) == limit
        logits = model.network(mx.array([[*text, *added]]), cache=make_prompt_cache(model.network))[0]
        assert added == mx.argmax(logits, axis=-1)[len(text) - 1 : -1].tolist()


def test_a_text_ends_with_its_end_token_or_at_its_limit_or_when_it_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    free = written(SHORT, [30] * 4)
    end = free[1][2]
    ended = written(SHORT, [30, 30, 30, 2], ends=frozenset({end}))
    assert ended[1] == free[1][: free[1].index(end) + 1]
    assert len(ended[3]) == 2
    monkeypatch.setattr(data_maker, "_LOOP_RUN", 1)
    monkeypatch.setattr(data_maker, "_LOOP_LENGTH", 2)
    for alone, looping in zip(free, written(SHORT, [30] * 4), strict=True):
        assert looping == alone[: next(length for length in range(31) if loops(alone[:length]))]


@pytest.mark.parametrize("period", [1, 3, 20])
def test_a_text_loops_after_eight_runs_of_eight_tokens_that_were_all_seen_before(period: int) -> None:
    tokens = [30, 31, *(number % period for number in range(100))]
    first = next(length for length in range(100) if loops(tokens[:length]))
    assert first == 2 + period + 8 + 7
    assert not loops([])
    assert not loops(list(range(100)))


def test_what_is_drawn_depends_on_the_seed() -> None:
    first, again, other = (written(SHORT, [12] * 4, 0.7, seed=seed) for seed in (4, 4, 5))
    assert first == again != other


@pytest.mark.slow
def test_tokens_are_drawn_with_their_probabilities_among_those_that_top_p_keeps() -> None:
    """Probabilities 0.5, 0.3, 0.16, 0.04 at temperature 0.5: the last is beyond the 0.95 that are kept."""
    row = 0.5 * mx.log(mx.array([[0.16, 0.5, 0.04, 0.3]]))
    mx.random.seed(3)
    drawn = np.array(data_maker._draw(0.5, mx.repeat(row, 20_000, axis=0)))
    counts = np.bincount(drawn, minlength=4) / 20_000
    np.testing.assert_allclose(counts, [0.16 / 0.96, 0.5 / 0.96, 0, 0.3 / 0.96], atol=0.015)
    assert data_maker._draw(0.0, row).tolist() == [1]


def test_a_seed_gives_the_same_prompts_as_ever() -> None:
    passages = [f"Passage {number}. It says more." for number in range(6)]
    own = ["a question of the person's own"]
    drawn = [asdict(seed_prompt(7, number, passages, number % 4 == 0, own)) for number in range(3000)]
    digest = hashlib.sha256(json.dumps([list(each.values()) for each in drawn]).encode()).hexdigest()
    assert digest == "694a7338268e6d543eb40c334d4c0720d1e4d185e5c0e8ec988b30984a905eb0"


def some(count: int) -> list[TrainingConversation]:
    draw = np.random.default_rng(0)
    made = []
    for number in range(count):
        tokens = draw.integers(0, 2**16, int(draw.integers(5, 60))).tolist()
        made.append(TrainingConversation(number, tokens, int(draw.integers(1, len(tokens))), (0.0, 0.7)[number % 2]))
    return made


def test_what_was_packed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.xz"
    made = some(70)
    assert read_answers(path) == []
    write_answers(path, made)
    assert read_answers(path) == made


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_damaged_file_says_so(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "answers.xz"
    write_answers(path, some(20))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(StorageError, match="is damaged"):
        read_answers(path)


def test_the_default_model_has_a_million_answer_tokens() -> None:
    made = read_answers(shipped_path("72084bd78ad751e3"))
    assert (len(made), answer_tokens(made)) == (8160, 1_015_895)
