"""The tokens that end a reply: those that configurations name, and the one that the chat template writes after it."""

import json
from pathlib import Path

import pytest

from rdchat.inference.prompts.model_prompts import read_tokenizer
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from tests.inference.prompts.folders import changed, with_template

LOOP = "{% for m in messages %}[{{ m.role }}]\n{{ m.content }}AFTER{% endfor %}"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
THOUGHT = "{% if m.thinking %}{{ m.thinking }}<|im_end|>{% endif %}"


def ends(folder: Path, process: TokenizerProcess) -> set[int]:
    """Return the ids that end a reply of a model whose files name the id 0 alone."""
    (folder / "generation_config.json").unlink()
    changed(folder, folder, "config.json", lambda config: config.update(eos_token_id=0))
    changed(folder, folder, "tokenizer_config.json", lambda config: config.update(eos_token="<|endoftext|>"))
    return set(read_tokenizer(folder, process).eos_token_ids)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (LOOP.replace("AFTER", "<|im_end|>\n") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", " \n<|im_end|>") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", "<|im_end|><file_sep>") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", "{% if not loop.last %}<|im_end|>{% endif %}") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", "<|endoftext|>") + OPEN, {0}),
        (LOOP.replace("AFTER", "\n### End <|im_end|>\n") + OPEN, {0}),
        (LOOP.replace("AFTER", "") + OPEN, {0}),
        (LOOP.replace("{{ m.content }}", THOUGHT + "{{ m.content }}").replace("AFTER", "<|im_end|>") + OPEN, {0}),
        ("{{ raise_exception('no') }}", {0}),
        ("a text without messages", {0}),
    ],
)
def test_the_control_token_directly_after_a_reply_ends_replies(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, template: str, expected: set[int]
) -> None:
    assert ends(with_template(small_model, tmp_path / "model", template), process) == expected


@pytest.mark.parametrize(
    ("part", "counts"),
    [({"eos_token_id": 2}, True), ({"eos_token_id": [2, 0]}, True), (None, False), ("none", False), (1, False),
     ({"eos_token_id": "2"}, False), ({"eos_token_id": True}, False), ({}, False)],
)  # fmt: skip
def test_a_text_models_own_end_counts(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, part: object, counts: bool
) -> None:
    folder = with_template(small_model, tmp_path / "model", LOOP.replace("AFTER", "\n"))
    changed(folder, folder, "config.json", lambda config: config.update(text_config=part))
    assert ends(folder, process) == ({0, 2} if counts else {0})


@pytest.mark.parametrize(
    ("written", "expected"),
    [(0, 0), ([0], 0), ([], 1), (None, 1), ("0", 1), (True, 1), ([0, "1", None], 0), ({"a": 0}, 1)],
)
def test_the_end_in_generation_config_counts_before_that_of_the_model(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, written: object, expected: int
) -> None:
    folder = with_template(small_model, tmp_path / "model", LOOP.replace("AFTER", "\n"))
    changed(folder, folder, "config.json", lambda config: config.update(eos_token_id=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": written}))
    # The tokenizer's own counts in any case.
    assert set(read_tokenizer(folder, process).eos_token_ids) == {expected, 2}
