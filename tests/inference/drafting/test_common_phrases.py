"""The table of common phrases: counted once for a tokenizer, used by replies without another drafter."""

import shutil
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.inference.api import (
    PHRASES,
    ChatMessage,
    DraftSettings,
    GenerationRequest,
    Mode,
    Role,
    SamplingParams,
    TokenEvent,
)
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.drafters import Drafters
from rdchat.inference.drafting.common_phrases import CommonPhrases
from rdchat.inference.drafting.lookup_index import LookupEstimate
from rdchat.inference.drafting.shipped_answers import read_answers
from rdchat.inference.loading import load_model
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers
from rdchat.inference.session import ChatSession

_REQUEST = GenerationRequest((ChatMessage(Role.USER, "Why is the sky blue?"),))


def tables() -> list[Path]:
    return list((paths.cache_dir() / "phrases").glob("*"))


@pytest.fixture
def few_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hundred answers, as counting all takes seconds."""
    read = "rdchat.inference.drafting.common_phrases.read_answers"
    monkeypatch.setattr(read, lambda path: read_answers(path)[:100])


def test_a_table_is_counted_once_a_reply_has_missed_it(default_model: Path, few_answers: None) -> None:
    phrases = CommonPhrases(default_model, shared_tokenizers())
    phrases.finish_counting()
    assert not tables(), "no reply could have used it"
    assert phrases.for_reply(_REQUEST) is None
    phrases.finish_counting()
    assert len(tables()) == 1
    assert phrases.for_reply(_REQUEST) is not None
    assert CommonPhrases(default_model, shared_tokenizers()).for_reply(_REQUEST) is not None, "the next start finds it"


def test_another_tokenizer_gets_a_table_of_its_own(default_model: Path, few_answers: None, small_model: Path) -> None:
    phrases = CommonPhrases(small_model, shared_tokenizers())
    assert phrases.for_reply(_REQUEST) is None
    phrases.finish_counting()
    found = phrases.for_reply(_REQUEST)
    assert found is not None
    ids = shared_tokenizers().encode_text(small_model, "in the")
    assert found.chances(ids, 10, LookupEstimate().phrases)


def test_without_answers_replies_go_on(default_model: Path, tmp_path: Path) -> None:
    shutil.copytree(default_model, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    phrases = CommonPhrases(tmp_path / "model", shared_tokenizers())
    paths.default_model_dir().unlink()
    assert phrases.for_reply(_REQUEST) is None
    phrases.finish_counting()
    assert phrases.for_reply(_REQUEST) is None
    assert not tables()


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_phrases_change_no_text(default_model: Path, few_answers: None, temperature: float) -> None:
    model = load_model(default_model)
    drafters = Drafters(model)
    session = ChatSession(model, drafters)
    drafters.auto.available = AvailableDrafters()
    texts = {}
    sources = {}
    for mode in (Mode.OFF, Mode.LOOKUP, Mode.LOOKUP):
        sampling = SamplingParams(temperature=temperature, max_tokens=48)
        request = GenerationRequest(_REQUEST.messages, sampling, 7, draft=DraftSettings(mode))
        events = [event for event in session.generate(request) if isinstance(event, TokenEvent)]
        texts[mode] = [event.token_id for event in events]
        sources[mode] = {event.drafter for event in events}
        drafters.phrases.finish_counting()
        assert texts[mode] == texts[Mode.OFF]
    assert PHRASES in sources[Mode.LOOKUP]
