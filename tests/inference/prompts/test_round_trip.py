"""Law: a tokenizer gives texts back as they were, or is mended, or the person reads that it does not."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

from rdchat.errors import ModelError
from rdchat.inference.loading import load_model
from rdchat.inference.prompts.model_prompts import check_round_trip
from tests.inference.prompts.folders import changed
from tests.inference.tokenizer_kinds import Kind, kinds

BLANK = " "
MARK = "▁"
PIECES = decoders.Sequence([decoders.Replace(MARK, BLANK), decoders.ByteFallback(), decoders.Fuse()])
NORMALIZERS = (None, normalizers.Replace(BLANK, MARK), normalizers.Replace("\n", BLANK), normalizers.ByteLevel())
PRE_TOKENIZERS = (
    None,
    pre_tokenizers.ByteLevel(add_prefix_space=False),
    pre_tokenizers.Metaspace(MARK, "first", False),
    pre_tokenizers.Whitespace(),
)
DECODERS = (None, decoders.ByteLevel(), PIECES, decoders.Metaspace(MARK, "first", False), decoders.WordPiece("##"))
RULES = tuple(product(NORMALIZERS, PRE_TOKENIZERS, DECODERS))


def with_rules(name: str, normalizer: Any, pre_tokenizer: Any, decoder: Any) -> Any:
    """Return a tokenizer with the vocabulary of a kind, and other rules."""
    own = Tokenizer.from_str(kinds()[name].own.to_str())
    own.normalizer = normalizer
    own.pre_tokenizer = pre_tokenizer
    own.decoder = decoder
    return Kind(own, str.encode).loaded


@pytest.mark.parametrize("name", ["byte-level", "Gemma"])
def test_no_tokenizer_changes_a_text_unsaid(name: str) -> None:
    unsaid = []
    for number, rules in enumerate(RULES):
        tokenizer = with_rules(name, *rules)
        try:
            warning = check_round_trip(tokenizer, "copy")
        except ModelError:
            continue
        for text in ("a b\nc", "the  fox\n\n a", "lazy dog\n"):
            read = tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)).removeprefix(BLANK)
            if read != text and not warning:
                unsaid.append((number, text, read))
    assert unsaid == []


@pytest.mark.parametrize("name", kinds())
def test_a_tokenizer_as_its_authors_made_it_is_no_news(name: str) -> None:
    assert check_round_trip(kinds()[name].loaded, "copy") == ""


@pytest.mark.parametrize("decoder", [each for each in DECODERS if not isinstance(each, decoders.ByteLevel)])
@pytest.mark.parametrize("rule", [(None, PRE_TOKENIZERS[1]), (NORMALIZERS[3], None)])
def test_a_decoder_that_a_conversion_changed_is_mended(rule: tuple[Any, Any], decoder: Any) -> None:
    tokenizer = with_rules("byte-level", *rule, decoder)
    assert check_round_trip(tokenizer, "copy") == ""
    text = "naïve  café\n\t漢字 😀"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.parametrize("pre_tokenizer", [PRE_TOKENIZERS[0], *PRE_TOKENIZERS[2:]])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_lost_pattern_is_refused(pre_tokenizer: Any, decoder: Any) -> None:
    with pytest.raises(ModelError, match="A conversion damaged the tokenizer of copy") as refused:
        check_round_trip(with_rules("byte-level", None, pre_tokenizer, decoder), "copy")
    assert "Download another copy" in refused.value.hint


def lose_line_ends(tokenizer: dict[str, Any]) -> None:
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": "\n"}, "content": " "}


def lose_decoder(tokenizer: dict[str, Any]) -> None:
    tokenizer["decoder"] = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}


def lose_pattern(tokenizer: dict[str, Any]) -> None:
    lose_decoder(tokenizer)
    tokenizer["pre_tokenizer"] = tokenizer["decoder"]


@pytest.mark.parametrize(
    ("harm", "warning"),
    [(lose_decoder, ""), (lose_line_ends, "The tokenizer of model turns 'a b\\nc' into 'a b c'")],
)
def test_a_model_is_loaded_with_a_warning(
    small_model: Path, tmp_path: Path, harm: Callable[[dict[str, Any]], None], warning: str
) -> None:
    model = load_model(changed(small_model, tmp_path / "model", "tokenizer.json", harm), "float32")
    assert model.info.warning.partition(". If")[0] == warning
    assert model.info.may_differ == bool(warning)
    assert model.decode(model.prompts.encode_text("one word")) == "one word"


def test_a_model_whose_pattern_is_lost_is_refused(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="loses the blanks"):
        load_model(changed(small_model, tmp_path / "model", "tokenizer.json", lose_pattern), "float32")
