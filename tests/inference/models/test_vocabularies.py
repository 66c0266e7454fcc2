"""Two models fit together if their token ids mean the same: real tokenizer files, each changed in one place."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdchat.errors import ModelError
from rdchat.inference.drafting.draft_model import load_draft_model
from rdchat.inference.library.model_library import check_pair
from rdchat.inference.loading import load_model

Change = Callable[[dict[str, Any]], None]
COUNT = 265  # tokens of the small model


@pytest.fixture
def target(small_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_model, tmp_path / "big"))


def changed(folder: Path, change: Change, file: str = "tokenizer.json") -> Path:
    """Copy a model folder with another tokenizer."""
    copy = Path(shutil.copytree(folder, folder.parent / "little"))
    content = json.loads((copy / file).read_text())
    change(content)
    (copy / file).write_text(json.dumps(content))
    return copy


def test_equal_vocabularies_go_together(target: Path) -> None:
    verdict = check_pair(str(target), str(changed(target, lambda _: None)))
    assert (verdict.compatible, verdict.shared_tokens, verdict.differences) == (True, COUNT, ())
    assert str(verdict) == "little can draft for big: both have the same 265 tokens."


def shifted(tokenizer: dict[str, Any]) -> None:
    """Change what most ids mean."""
    vocabulary = tokenizer["model"]["vocab"]
    ids = sorted(vocabulary.values())
    turned = dict(zip(ids, ids[1:] + ids[:1], strict=True))
    tokenizer["model"]["vocab"] = {text: turned[token] for text, token in vocabulary.items()}


def test_a_differing_token_is_named_with_both_texts(target: Path) -> None:
    verdict = check_pair(str(target), str(changed(target, shifted)))
    count, named = verdict.differences
    assert count.endswith("of the 265 ids that both have are different tokens.")
    assert re.fullmatch(r"Token \d+ is '.+' in big and '.+' in little\.", named)
    assert str(verdict) == f"little cannot draft for big: {count} {named}"
    assert verdict.shared_tokens == 0


def test_a_hundredth_may_differ_and_is_never_drafted(target: Path) -> None:
    """Names of reserved tokens differ within families: the draft model was refused, though drafts are verified."""

    def swap(tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["!"], vocabulary["#"] = vocabulary["#"], vocabulary["!"]

    verdict = check_pair(str(target), str(changed(target, swap)))
    assert (verdict.compatible, verdict.shared_tokens, verdict.other_tokens) == (True, COUNT, (36, 38))
    assert str(verdict) == "little can draft for big: both have the same 263 tokens. 2 others are never drafted."


def grow(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["vocab"]["zz"] = COUNT


def pad(tokenizer: dict[str, Any]) -> None:
    """As converted files name the ids that only fill up the width of the logits."""
    tokenizer["model"]["vocab"] |= {f"[PAD{token}]": token for token in range(COUNT, COUNT + 7)}


def forget_merges(tokenizer: dict[str, Any]) -> None:
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:1]


def end_otherwise(config: dict[str, Any]) -> None:
    config["eos_token"] = "<|endoftext|>"


@pytest.mark.parametrize(
    ("change", "file"),
    [(grow, "tokenizer.json"), (pad, "tokenizer.json"), (forget_merges, "tokenizer.json"),
     (end_otherwise, "tokenizer_config.json")],
)  # fmt: skip
def test_what_does_not_change_the_meaning_of_ids_makes_no_difference(target: Path, change: Change, file: str) -> None:
    other = str(changed(target, change, file))
    for pair in ((str(target), other), (other, str(target))):
        verdict = check_pair(*pair)
        assert (verdict.compatible, verdict.shared_tokens, verdict.other_tokens) == (True, COUNT, ())


def test_a_tokenizer_that_cannot_be_read_is_named(target: Path) -> None:
    other = changed(target, lambda tokenizer: tokenizer.pop("model"))
    with pytest.raises(ModelError, match=r"The tokenizer of little cannot be used: "):
        check_pair(str(target), str(other))


def test_a_draft_model_that_is_wrong_missing_or_damaged_says_so(target: Path) -> None:
    model = load_model(target)
    other = changed(target, shifted)
    with pytest.raises(ModelError, match=r"little cannot draft for big: \d+ of the 265 ids"):
        load_draft_model(other, model)
    with pytest.raises(ModelError, match="There is no model at"):
        load_draft_model(target / "nowhere", model)
    shutil.copy(target / "tokenizer.json", other / "tokenizer.json")
    weights = next(other.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match=weights.name):
        load_draft_model(other, model)
