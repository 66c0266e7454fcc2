"""A model's own sampling comes first, then its size; what a stranger's file has wrong is ignored."""

import json
from pathlib import Path

import pytest

from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.loading import sampling_defaults

_SMALL, _LARGE = 135_000_000, 8_000_000_000


def test_the_models_own_values_come_first(tmp_path: Path) -> None:
    own = {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0,
        "repetition_penalty": 1.05,
        "do_sample": True,
        "max_new_tokens": 5,
    }
    (tmp_path / "generation_config.json").write_text(json.dumps(own))
    for parameters in (_SMALL, _LARGE):
        defaults = sampling_defaults(tmp_path, parameters)
        assert defaults.params == SamplingParams(
            temperature=0.6, top_k=20, top_p=0.95, min_p=0.0, repetition_penalty=1.05
        )
        assert {defaults.source(name) for name in defaults.from_model} == {"From the model"}
        assert defaults.source("max_tokens") == ""


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"bos_token_id": 1}', '{"temperature": NaN}'])
def test_without_a_word_of_the_model_its_size_decides(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "generation_config.json").write_text(content)
    small, large = sampling_defaults(tmp_path, _SMALL), sampling_defaults(tmp_path, _LARGE)
    assert small.params == SamplingParams(temperature=0.2)
    assert large.params == SamplingParams()
    assert (small.source("temperature"), small.source("top_p")) == ("For a small model", "")
    assert large.source("temperature") == ""


def test_a_model_that_does_not_sample_is_greedy(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.9}')
    assert sampling_defaults(tmp_path, _LARGE).params.temperature == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", "0.5"),
        ("temperature", True),
        ("temperature", 50),
        ("temperature", 1e999),
        ("top_p", 0),
        ("top_p", 7),
        ("top_k", 2.5),
        ("top_k", 10**30),
        ("min_p", [0.1]),
        ("repetition_penalty", 0),
        ("do_sample", "false"),
    ],
)
def test_nonsense_is_ignored(tmp_path: Path, name: str, value: object) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({name: value, "top_p": 0.5} | {name: value}))
    defaults = sampling_defaults(tmp_path, _LARGE)
    assert name not in defaults.from_model
    assert getattr(defaults.params, name, None) == getattr(SamplingParams(), name, None)
