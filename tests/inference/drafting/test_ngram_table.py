"""The n-gram table gives the chances of Witten and Bell, from a file that is checked."""

import math
from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as some
from tokenizers import Tokenizer

from rdchat import paths
from rdchat.errors import StorageError
from rdchat.inference.api import (
    NGRAMS,
    ChatMessage,
    DraftSettings,
    GenerationRequest,
    Mode,
    Role,
    SamplingParams,
    TokenEvent,
)
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.decoding.sampling import noise_of_one
from rdchat.inference.drafters import Drafters
from rdchat.inference.drafting.lookup_index import LookupEstimate, NgramModel, Rate
from rdchat.inference.drafting.ngram_store import NgramStore
from rdchat.inference.drafting.ngram_table import NgramTable, count_ngrams, write_table
from rdchat.inference.drafting.shipped_answers import (
    DEFAULT_MODEL,
    DEFAULT_TOKENIZER,
    TrainingConversation,
    read_answers,
    read_pieces,
    shipped_path,
)
from rdchat.inference.loading import load_model
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers, tokenizer_key
from rdchat.inference.session import ChatSession

# Few different ids, so that runs repeat; two of them need more than 16 bits.
_IDS = some.sampled_from([0, 1, 2, 70_000, 200_000])
_TEXTS = some.lists(some.tuples(some.lists(_IDS, min_size=1, max_size=30), some.integers(0, 3)), max_size=4)


def table(folder: Path, texts: list[tuple[list[int], int]]) -> NgramTable:
    path = folder / "n-grams"
    write_table(path, count_ngrams(texts))
    return NgramTable(path)


def followers(texts: list[tuple[list[int], int]], run: tuple[int, ...]) -> Counter[int]:
    """Count what followed a run, one text after the other."""
    found = Counter[int]()
    for text, start in texts:
        for place in range(max(len(run), start), len(text)):
            if tuple(text[place - len(run) : place]) == run:
                found[text[place]] += 1
    return found


def blended(texts: list[tuple[list[int], int]], ending: list[int]) -> dict[int, float]:
    """Return the chances after an ending by the formula, from the shortest run to the longest."""
    chances: dict[int, float] = {}
    for length in range(1, min(4, len(ending)) + 1):
        found = followers(texts, tuple(ending[-length:]))
        if found.total() < 3:
            continue
        weight = found.total() + len(found)
        chances = {token: chance * len(found) / weight for token, chance in chances.items()}
        for token, count in found.items():
            chances[token] = chances.get(token, 0.0) + count / weight
    return chances


@settings(max_examples=25)
@given(_TEXTS, some.lists(_IDS, max_size=6))
def test_chances_are_those_of_witten_and_bell(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[list[int], int]], ending: list[int]
) -> None:
    chances = table(tmp_path_factory.mktemp("table"), texts).chances(ending)
    assert chances == pytest.approx(blended(texts, ending))
    assert sum(chances.values()) <= 1 + 1e-6


@settings(max_examples=40)
@given(_TEXTS, some.lists(_IDS, min_size=1, max_size=4), some.integers(0, 2**64 - 1), some.floats(1e-9, 1.0))
def test_chances_are_steady_as_the_temperature_falls(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[list[int], int]], ending: list[int], seed: int, t: float
) -> None:
    """Law: the odds of a token move with the temperature by no more than the noise does. At 0.05 few were drafted."""
    stored = table(tmp_path_factory.mktemp("table"), texts)
    noise = partial(noise_of_one, seed)

    def log_odds(temperature: float) -> dict[int, float]:
        chances = NgramModel(stored, temperature, noise).chances(ending, 9, Rate(1.0))
        total = sum(chances.values())
        assert total <= 1 + 1e-6
        return {token: math.log(chance / max(1 - total, 1e-9)) for token, chance in chances.items()}

    cold = log_odds(0.0)
    for token, odds in log_odds(t).items():
        assert odds - cold[token] == pytest.approx(t * noise(9, token), abs=1e-3)


def test_only_the_most_frequent_followers_are_kept(tmp_path: Path) -> None:
    texts = [([7, follower] * (20 - follower), 0) for follower in range(10, 20)]
    chances = table(tmp_path, texts).chances([7])
    assert sorted(chances) == list(range(10, 18))


def test_nothing_follows_an_unknown_run(tmp_path: Path) -> None:
    known = table(tmp_path, [([1, 2, 3] * 4, 0)])
    assert known.chances([9]) == known.chances([]) == known.chances([-1, -5]) == {}


@pytest.mark.parametrize("change", ["a byte", "cut", "empty", "gone"])
def test_a_damaged_file_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "n-grams"
    write_table(path, count_ngrams([([1, 2] * 5, 0)]))
    whole = path.read_bytes()
    match change:
        case "a byte":
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        case "cut":
            path.write_bytes(whole[:-4])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
    with pytest.raises(StorageError):
        NgramTable(path)


_REQUEST = GenerationRequest((ChatMessage(Role.USER, "Why is the sky blue?"),))


def tables() -> list[Path]:
    return list((paths.cache_dir() / "phrases").glob("*"))


@pytest.fixture
def few_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hundred answers, as counting all takes seconds."""
    monkeypatch.setattr("rdchat.inference.drafting.ngram_store.read_answers", first_answers)


@cache
def first_answers(path: Path) -> list[TrainingConversation]:
    return read_answers(path)[:100]


def test_a_table_is_counted_once_a_reply_has_missed_it(default_model: Path, few_answers: None) -> None:
    ngrams = NgramStore(default_model, shared_tokenizers())
    ngrams.finish_counting()
    assert not tables(), "no reply could have used it"
    assert ngrams.for_reply(_REQUEST) is None
    ngrams.finish_counting()
    assert len(tables()) == 1
    assert ngrams.for_reply(_REQUEST) is not None
    assert NgramStore(default_model, shared_tokenizers()).for_reply(_REQUEST) is not None, "the next start finds it"


def test_a_table_that_was_waited_for_is_used_at_once(
    default_model: Path, few_answers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ngrams = NgramStore(default_model, shared_tokenizers())
    assert ngrams.for_reply(_REQUEST) is None
    # A job makes its call after its result is there, so it may come later than the next reply.
    monkeypatch.setattr(ngrams, "_take", lambda _outcome: None)
    ngrams.finish_counting()
    assert ngrams.for_reply(_REQUEST) is not None


def test_another_tokenizer_gets_a_table_of_its_own(few_answers: None, small_model: Path) -> None:
    """Without the default model on the machine nothing was counted, and nobody was told."""
    assert not paths.default_model_dir().exists()
    ngrams = NgramStore(small_model, shared_tokenizers())
    assert ngrams.for_reply(_REQUEST) is None
    ngrams.finish_counting()
    found = ngrams.for_reply(_REQUEST)
    assert found is not None
    ids = shared_tokenizers().encode_text(small_model, "in the")
    assert found.chances(ids, 10, LookupEstimate().ngrams)


def test_the_answers_are_those_of_the_default_model(default_model: Path) -> None:
    """Their texts are those of its tokenizer, and its own table is counted by its ids."""
    assert target_hash(default_model).startswith(DEFAULT_MODEL)
    assert tokenizer_key(default_model) == DEFAULT_TOKENIZER
    decode = Tokenizer.from_file(str(default_model / "tokenizer.json")).decode
    pieces = read_pieces()
    answers = read_answers(shipped_path(DEFAULT_MODEL))
    assert all(answer.text(pieces) == decode(answer.answer) for answer in answers)


def test_answers_that_are_damaged_end_no_reply(default_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(path: Path) -> list[TrainingConversation]:
        raise StorageError(f"{path} is damaged.")

    monkeypatch.setattr("rdchat.inference.drafting.ngram_store.read_answers", damaged)
    ngrams = NgramStore(default_model, shared_tokenizers())
    assert ngrams.for_reply(_REQUEST) is None
    ngrams.finish_counting()
    assert ngrams.for_reply(_REQUEST) is None
    assert not tables()


@pytest.mark.slow
def test_ngrams_change_no_text(default_model: Path, few_answers: None) -> None:
    model = load_model(default_model)
    drafters = Drafters(model)
    session = ChatSession(model, drafters)
    drafters.auto.available = AvailableDrafters()

    def reply(temperature: float, mode: Mode, tokens: int = 20) -> list[TokenEvent]:
        sampling = SamplingParams(temperature=temperature, max_tokens=tokens)
        request = GenerationRequest(_REQUEST.messages, sampling, 7, draft=DraftSettings(mode))
        events = [event for event in session.generate(request) if isinstance(event, TokenEvent)]
        drafters.ngrams.finish_counting()
        return events

    reply(0.9, Mode.LOOKUP, 2)  # misses the table
    for temperature in (0.0, 0.9):
        found = reply(temperature, Mode.LOOKUP)
        assert [event.token_id for event in found] == [event.token_id for event in reply(temperature, Mode.OFF)]
        assert NGRAMS in {event.drafter for event in found}
