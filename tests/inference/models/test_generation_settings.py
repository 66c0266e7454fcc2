"""A model's own generation_config.json is followed, or named; what a stranger's file has wrong is named too."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from transformers import GenerationConfig

from rdchat.inference.api import SamplingDefaults, SamplingParams
from rdchat.inference.models.model_settings import GenerationSettings, read_generation_settings

_SMALL = 135_000_000
_LARGE = 8_000_000_000


def sampling_defaults(folder: Path, parameters: int) -> SamplingDefaults:
    return read_generation_settings(folder, parameters).sampling


def settings_of(folder: Path, **written: object) -> GenerationSettings:
    (folder / "generation_config.json").write_text(json.dumps(written))
    return read_generation_settings(folder, _LARGE, end_tokens=(2,))


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
    small = sampling_defaults(tmp_path, _SMALL)
    large = sampling_defaults(tmp_path, _LARGE)
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
def test_nonsense_is_named_and_not_followed(tmp_path: Path, name: str, value: object) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({name: value, "top_p": 0.5} | {name: value}))
    defaults = sampling_defaults(tmp_path, _LARGE)
    assert name not in defaults.from_model
    assert getattr(defaults.params, name, None) == getattr(SamplingParams(), name, None)
    unread = read_generation_settings(tmp_path, _LARGE).unread
    assert unread == (() if value == 0 else (name,))


@pytest.mark.parametrize(
    ("name", "value", "suppressed", "stop", "named"),
    [
        ("suppress_tokens", [5, 7], {5, 7}, (), False),
        ("suppress_tokens", 0, {0}, (), False),
        ("suppress_tokens", [-1, 10**30], {-1, 10**30}, (), False),
        ("bad_words_ids", [[5], [7]], {5, 7}, (), False),
        ("bad_words_ids", [[2], [5]], {5}, (), False),
        ("bad_words_ids", [[5], [7, 8]], {5}, (), True),
        ("stop_strings", "END", set(), ("END",), False),
        ("stop_strings", ["END", "\n\n"], set(), ("END", "\n\n"), False),
        ("stop_strings", ["x" * 1001, "y" * 1000], set(), ("y" * 1000,), True),
        ("stop_strings", ["a"] * 65, set(), ("a",) * 64, True),
        ("begin_suppress_tokens", [5], set(), (), True),
        ("min_new_tokens", 1, set(), (), True),
        ("no_repeat_ngram_size", 3, set(), (), True),
        ("num_beams", 1, set(), (), False),
        ("max_new_tokens", 2048, set(), (), False),
        ("a_setting_of_next_year", 0.5, set(), (), True),
        ("a_setting_of_next_year", None, set(), (), False),
    ],
)  # fmt: skip
def test_what_is_said_about_tokens_is_followed_or_named(
    tmp_path: Path, name: str, value: object, suppressed: set[int], stop: tuple[str, ...], named: bool
) -> None:
    settings = settings_of(tmp_path, **{name: value})
    assert (settings.suppressed, settings.stop) == (suppressed, stop)
    assert settings.unread == ((name,) if named else ())
    assert (name in settings.warning) is named


def test_no_setting_of_transformers_is_dropped_in_silence(tmp_path: Path) -> None:
    # A reason for each that may be anything: it chooses no token.
    silent = {name for name in GenerationConfig().to_dict() if not settings_of(tmp_path, **{name: [{"x": 1}]}).unread}
    limits = {"max_length", "max_new_tokens", "max_time", "max_cache_len"}
    how = {"use_mtp", "use_cache", "cache_implementation", "cache_config", "compile_config", "disable_compile",
           "continuous_batching_config", "low_memory", "prefill_chunk_size"}  # fmt: skip
    drafts = {"is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
              "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind",
              "target_lookbehind", "assistant_ensemble_weight", "speculation_type"}  # fmt: skip
    beams = {"early_stopping", "length_penalty", "diversity_penalty", "num_beam_groups"}
    returned = {"num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "output_logits",
                "return_dict_in_generate"}  # fmt: skip
    others = {"renormalize_logits", "remove_invalid_values", "_from_model_config", "transformers_version"}
    ids = {"pad_token_id", "bos_token_id", "decoder_start_token_id"}
    assert silent == limits | how | drafts | beams | returned | others | ids


_VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-3, 9) | some.floats(allow_nan=False) | some.text(max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=2), inner, max_size=2),
    max_leaves=6,
)


@given(value=_VALUES, name=some.sampled_from(["suppress_tokens", "bad_words_ids", "stop_strings", "eos_token_id"]))
def test_each_part_of_a_list_is_followed_or_the_setting_is_named(
    tmp_path_factory: pytest.TempPathFactory, value: object, name: str
) -> None:
    settings = settings_of(tmp_path_factory.getbasetemp(), **{name: value})
    parts = value if isinstance(value, list) else [value] if value or type(value) is int else []
    followed = len(settings.suppressed) + len(settings.stop)
    if not settings.unread and parts and name != "eos_token_id":
        wanted = {json.dumps(each) for each in parts} - {"[2]"} if name == "bad_words_ids" else {*map(str, parts)}
        assert followed == len(wanted) or name == "stop_strings"
    if settings.unread:
        assert settings.unread == (name,)
