"""Ids beyond the embedding are read out of bounds: a segmentation fault, or garbage."""

import re
from pathlib import Path
from typing import Any

import pytest

from rdchat.errors import ModelError
from rdchat.inference.api import AnswerShape, ChatMessage, GenerationRequest, ReplyEnd, Role, SamplingParams, ShapeKind
from rdchat.inference.loading import load_model
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.inference.prompts.tokenizers_child import TokenizerCalls
from rdchat.inference.session import ChatSession
from tests.inference.prompts.folders import changed, prompts_of

ROWS = 265  # of the small model


def add(token: str, token_id: int, *, special: bool = True) -> Any:
    """Return the change that gives a tokenizer another added token."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return lambda tokenizer: tokenizer["added_tokens"].append({"id": token_id, "content": token, **flags})


def grown(token_id: int) -> Any:
    return lambda tokenizer: tokenizer["model"]["vocab"].update(zz=token_id)


@pytest.mark.parametrize(
    ("change", "named"),
    [(grown(ROWS), "265 ('zz'), but the model has 265 rows"), (grown(10**6), "1,000,000 ('zz')"),
     (add("<far>", ROWS), "265 ('<far>')"), (add("word", ROWS, special=False), "265 ('word')")],
)  # fmt: skip
def test_a_token_beyond_the_model_s_rows_is_refused_at_load(
    small_model: Path, tmp_path: Path, change: Any, named: str
) -> None:
    """A control token that the template writes, and a word, which a message with it would become."""
    folder = changed(small_model, tmp_path / "wide", "tokenizer.json", change)
    changed(small_model, folder, "tokenizer_config.json", lambda config: config.update(chat_template="<far>"))
    with pytest.raises(ModelError, match=re.escape(f"a token {named}")):
        load_model(folder)


def test_a_special_token_beyond_the_rows_is_plain_text(small_model: Path, tmp_path: Path) -> None:
    """Gemma 3's tokenizer has a token for images that the models that only read have no row for."""
    folder = changed(small_model, tmp_path / "wide", "tokenizer.json", add("<image_soft_token>", ROWS))
    model = load_model(folder)
    text = "a <image_soft_token> b"
    typed = (ChatMessage(Role.USER, text),)
    assert model.encode_chat(typed, False) == load_model(small_model).encode_chat(typed, False)
    for request in (
        GenerationRequest(typed, SamplingParams(temperature=0.9, max_tokens=8), 3),
        GenerationRequest(typed, SamplingParams(temperature=0.9, max_tokens=8), 3, shape=AnswerShape(ShapeKind.JSON)),
        GenerationRequest((), SamplingParams(temperature=0, max_tokens=8), 3, text=text),
    ):
        *_, end = ChatSession(model).generate(request)
        assert isinstance(end, ReplyEnd)
        assert max(end.token_ids) < ROWS


def test_a_vocabulary_that_is_larger_only_by_padding_is_fine(small_model: Path, tmp_path: Path) -> None:
    folder = changed(small_model, tmp_path / "wide", "tokenizer.json", add("[PAD265]", ROWS))
    model = load_model(folder)
    assert max(model.encode_chat((ChatMessage(Role.USER, "a [PAD265] b"),), False)) < ROWS


def test_a_token_of_the_template_that_the_model_does_not_have_is_not_fed(small_model: Path, tmp_path: Path) -> None:
    folder = changed(small_model, tmp_path / "wide", "tokenizer.json", add("[PAD265]", ROWS))
    changed(small_model, folder, "tokenizer_config.json", lambda config: config.update(chat_template="[PAD265]"))
    model = load_model(folder)
    with pytest.raises(ModelError, match="a token 265, for which wide has no embedding"):
        model.encode_chat((ChatMessage(Role.USER, ""),), False)


GROWTH = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 9}] * 9}


@pytest.mark.slow
def test_a_normaliser_that_grows_its_input_ends_the_child_alone(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.inference.prompts.tokenizer_process._LOAD_S", 1.0)
    folder = changed(small_model, tmp_path / "grow", "tokenizer.json", lambda tok: tok.update(normalizer=GROWTH))
    with pytest.raises(ModelError, match=r"The tokenizer of grow .* (so it was ended|crashed)|cannot be used"):
        prompts_of(folder, process)


DECODERS = [
    {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 99}] * 3},
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
]


@pytest.mark.parametrize("decoder", DECODERS, ids=["grows", "searches"])
def test_a_decoder_that_would_hang_this_process_is_refused(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, decoder: dict[str, Any]
) -> None:
    folder = changed(small_model, tmp_path / "bad", "tokenizer.json", lambda tok: tok.update(decoder=decoder))
    with pytest.raises(ModelError, match=r"The tokenizer of bad (cannot be used: its|took)"):
        prompts_of(folder, process)


def test_a_tokenizer_that_adds_a_million_tokens_to_each_text_is_refused(
    small_model: Path, tmp_path: Path, process: TokenizerProcess
) -> None:
    added = {"id": "much", "ids": [1] * 10**6, "tokens": ["a"] * 10**6}
    alone = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "much", "type_id": 0}}]
    both = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    adding = {"type": "TemplateProcessing", "single": alone, "pair": both, "special_tokens": {"much": added}}
    folder = changed(small_model, tmp_path / "much", "tokenizer.json", lambda tok: tok.update(post_processor=adding))
    with pytest.raises(ModelError, match=r"of much cannot be used: it adds 1,000,000 tokens to each text\."):
        prompts_of(folder, process)


@pytest.mark.slow
def test_a_search_pattern_without_end_is_ended_as_a_template_is(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    folder = changed(small_model, tmp_path / "slow", "tokenizer.json", lambda tok: tok.update(pre_tokenizer=split))
    prompts = prompts_of(folder, process)
    monkeypatch.setattr("rdchat.inference.prompts.tokenizer_process._ENCODE_S", 0.5)
    with pytest.raises(ModelError, match=r"slow (took longer|could not be done|cannot be used)"):
        prompts.encode([ChatMessage(Role.USER, "x" * 5000)], None, 512)


def test_a_tokenizer_that_was_replaced_on_the_disk_is_read_anew(small_model: Path, tmp_path: Path) -> None:
    folder = changed(small_model, tmp_path / "again", "tokenizer.json", lambda _: None)
    message = (ChatMessage(Role.USER, "hello"),)
    before = load_model(folder).encode_chat(message, False)
    changed(small_model, folder, "tokenizer.json", lambda tokenizer: tokenizer["model"].update(merges=[]))
    after = load_model(folder).encode_chat(message, False)
    assert len(after) > len(before)


@pytest.mark.slow
def test_only_the_latest_tokenizers_are_kept_and_others_read_again(small_model: Path, tmp_path: Path) -> None:
    process = TokenizerProcess()
    try:
        folders = [changed(small_model, tmp_path / name, "config.json", lambda _: None) for name in "abcdef"]
        encoders = [prompts_of(folder, process) for folder in folders]
        ids = [encoder.encode([ChatMessage(Role.USER, "hi")], None, 512) for encoder in encoders]
        assert ids == [ids[0]] * len(folders)
        calls = TokenizerCalls()
        for folder in folders:
            calls.load(folder=str(folder), reread=False)
        assert list(calls.tokenizers) == [str(folder) for folder in folders[-4:]]
    finally:
        process.child.close()
