"""What the files of settings say is what is computed or written, or it is named; caches have the size that is told."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, strategies as some
from mlx.utils import tree_flatten
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache
from safetensors.numpy import load_file, save_file
from transformers import GenerationConfig

from rdchat.inference.api import DraftKind, SamplingDefaults, SamplingParams
from rdchat.inference.loading import load_model
from rdchat.inference.mlx_lm_fixes.config_fixes import class_settings
from rdchat.inference.mlx_lm_fixes.network_fixes import follow_ropes
from rdchat.inference.models import model_settings
from rdchat.inference.models.model_config import kv_values_per_token
from rdchat.inference.models.model_settings import GenerationSettings, read_generation_settings
from rdchat.inference.models.stored_facts import stamp_of, stored_facts
from scripts.families.drawn_weights import drawn
from tests.grids import share
from tests.inference.families import CHAINS, COMMON, FED_AGAIN, HYBRIDS, TREES, network_of
from tests.inference.golden_families import EQUAL, GOLDEN, difference, golden_folder, logits
from tests.inference.model_folders import change_config

THETA = {"rope_type": "default", "rope_theta": 77.0}
LONG = {"original_max_position_embeddings": 64}
FEW = {"factor": 4.0, **LONG}
LLAMA3 = {**FEW, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def add_output_rows(folder: Path, equal: bool) -> None:
    """Give a folder with tied rows rows of its own for the output."""
    tensors = load_file(folder / "model.safetensors")
    inputs = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = inputs.copy() if equal else drawn("lm_head.weight", list(inputs.shape))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("name", share(sorted(GOLDEN), 6))
def test_a_family_computes_what_transformers_does(tmp_path: Path, name: str) -> None:
    """They were silently different, or refused for arguments or names of weights: see docs/families.md."""
    model = load_model(golden_folder(tmp_path / "model", name), "float32")
    assert difference(logits(model.network)[-1], np.array(GOLDEN[name]["logits"])) < EQUAL
    assert not model.info.warning or name.startswith("gemma3_text")


ROPES = some.one_of(
    some.just({"rope_type": "default"}),
    some.builds(lambda factor: {"rope_type": "linear", "factor": factor}, some.floats(1.5, 40)),
    some.builds(lambda factor: {"rope_type": "yarn", **LONG, "factor": factor}, some.floats(1.5, 40)),
    some.builds(lambda factor: {"rope_type": "llama3", **LLAMA3, "factor": factor}, some.floats(1.5, 40)),
)


@given(ROPES, some.floats(50, 1e6))
def test_one_key_and_two_mean_the_same_positions(rope: dict[str, Any], theta: float) -> None:
    """`rope_parameters` alone, as transformers 5 writes it, was not read: the module's default was used."""
    sizes = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}
    values = class_settings(sizes | {"rope_parameters": {"rope_theta": theta, **rope}})[0]["values"]
    older = class_settings(sizes | {"rope_theta": theta, "rope_scaling": rope})[0]["values"]
    assert values["rope_parameters"] == older["rope_parameters"]
    needed = {"num_hidden_layers": 1, "intermediate_size": 8, "rms_norm_eps": 1e-5, "vocab_size": 8}
    stock = llama.Model(llama.ModelArgs.from_dict({**sizes, **needed, "rope_theta": theta, "rope_scaling": rope}))
    ours = llama.Model(llama.ModelArgs.from_dict({**sizes, **needed}))
    follow_ropes(ours, values)
    x = mx.random.normal((1, 4, 9, 16), key=mx.random.key(0))
    turned, wanted = (np.array(each.layers[0].self_attn.rope(x, offset=1000)) for each in (ours, stock))
    assert np.abs(turned - wanted).max() < 1e-3


def test_infinity_is_read_as_transformers_writes_it(tmp_path: Path) -> None:
    """JSON has none, so `time_step_limit` of Mamba 2 ends in an object."""
    folder = golden_folder(tmp_path / "model", "mamba2")
    assert {"__float__": "Infinity"} in json.loads((folder / "config.json").read_text())["time_step_limit"]
    assert np.isfinite(logits(load_model(folder, "float32").network)).all()


def test_ordinary_folders_keep_their_modules(tmp_path: Path) -> None:
    """Nothing is replaced where mlx-lm is right: every bit of the logits stays."""
    config = {"rope_parameters": ..., "rope_theta": 5e5, "rope_scaling": {**LLAMA3, "rope_type": "llama3"}}
    folder = golden_folder(tmp_path / "model", "llama with yarn", **config)
    stock, _ = mlx_lm_utils.load_model(folder)
    assert np.array_equal(logits(load_model(folder, "float32").network), logits(stock))


def test_dynamic_positions_are_plain_within_the_context(tmp_path: Path) -> None:
    """mlx-lm computes their base anew in each call, which forbade all drafts."""
    dynamic = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 77.0}
    folder = golden_folder(
        tmp_path / "model", "llama with yarn", rope_parameters=..., rope_scaling=dynamic, rope_theta=77.0
    )
    assert load_model(folder).capability.kind is DraftKind.TREE


@pytest.mark.parametrize("said", [True, None])
@pytest.mark.parametrize("equal", [True, False])
def test_rows_in_the_file_decide_whether_they_are_tied(tmp_path: Path, equal: bool, said: bool | None) -> None:
    """Without `tie_word_embeddings`, and with a wrong one, a checkpoint's own output rows were thrown away."""
    tie = ... if said is None else said
    folder = golden_folder(tmp_path / "model", "llama with yarn", tie_word_embeddings=tie)
    add_output_rows(folder, equal)
    network = load_model(folder, "float32").network
    assert ("lm_head" in network) is not equal
    assert stored_facts("tied rows", folder, stamp_of(folder)) is equal
    change_config(folder, tie_word_embeddings=False)
    assert np.array_equal(logits(load_model(folder, "float32").network), logits(network))


def test_compared_rows_are_not_compared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = golden_folder(tmp_path / "model", "llama with yarn", tie_word_embeddings=True)
    add_output_rows(folder, equal=True)
    load_model(folder)
    monkeypatch.setattr(model_settings, "_are_equal", pytest.fail)
    assert "lm_head" not in load_model(folder).network


def test_a_window_that_the_module_does_not_read_ends_the_context(tmp_path: Path) -> None:
    """Mistral 7B 0.1 has one of 4,096 in all layers; beyond it, replies were other ones than the model's."""
    folder = golden_folder(tmp_path / "model", "llama with yarn", rope_parameters=THETA, max_position_embeddings=64)
    change_config(folder, model_type="mistral", sliding_window=16)
    assert load_model(folder).info.context_length == 16
    change_config(folder, sliding_window=2048)
    assert load_model(folder).info.context_length == 64


def test_a_window_in_the_caches_does_not_end_the_context(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "gemma3_text", layer_types=...)
    assert load_model(folder).info.context_length == GOLDEN["gemma3_text"]["config"]["max_position_embeddings"]


def test_longrope_ends_where_its_short_factors_do(tmp_path: Path) -> None:
    """mlx-lm takes the long factors for short texts too."""
    assert load_model(golden_folder(tmp_path / "model", "phi3 with longrope")).info.context_length == 64


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(("positions", "length"), [(64, 256), (512, 512)])
def test_yarn_lengthens_the_context(tmp_path: Path, place: str, positions: int, length: int) -> None:
    """As model cards tell people to add it: `max_position_embeddings` stays, and prompts were refused."""
    yarn = {"rope_parameters": ..., "max_position_embeddings": positions, place: {"rope_type": "yarn", **FEW}}
    assert load_model(golden_folder(tmp_path / "model", "qwen2", **yarn)).info.context_length == length


def test_settings_that_the_module_does_not_read_are_named(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "qwen2", hidden_act="relu", attention_dropout=0.5)
    assert load_model(folder).info.warning == (
        "mlx-lm does not follow hidden_act of its config.json: replies can differ."
    )


@pytest.mark.parametrize("wrong", [{"rms_norm_eps": 1}, {"use_cache": None}, {"rms_norm_eps": "much"}])
def test_a_value_of_a_wrong_type_does_not_hide_the_others(wrong: dict[str, Any]) -> None:
    config = {"model_type": "llama", "rope_parameters": THETA, **wrong}
    assert class_settings(config)[0]["values"]["rope_parameters"] == THETA


def test_settings_that_their_part_does_not_have_are_not_named() -> None:
    """Some files repeat those of the text beside it, where no library reads them."""
    config = {"model_type": "llama4", "rms_norm_eps": 0.3, "text_config": {"rms_norm_eps": 0.3}}
    assert [set(part["changed"]) for part in class_settings(config)] == [set(), {"rms_norm_eps"}]


def test_an_unknown_model_type_has_its_own_settings(tmp_path: Path) -> None:
    """transformers does not know it, mlx-lm does: `rope_parameters` is handed over all the same."""
    folder = golden_folder(tmp_path / "model", "llama with yarn", model_type="nanbeige", rope_parameters=THETA)
    assert class_settings(json.loads((folder / "config.json").read_text()))[0]["values"] == {}
    network = load_model(folder).network
    assert network.layers[0].self_attn.rope.base == 77.0
    assert not any("rope" in name for name, _ in tree_flatten(network.parameters()))


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
        ("bad_words_ids", [[2], [5]], {5}, (), False),
        ("bad_words_ids", [[5], [7, 8]], {5}, (), True),
        ("stop_strings", "END", set(), ("END",), False),
        ("stop_strings", ["END", "\n\n"], set(), ("END", "\n\n"), False),
        ("stop_strings", ["x" * 1001, "y" * 1000], set(), ("y" * 1000,), True),
        ("stop_strings", ["a"] * 65, set(), ("a",) * 64, True),
        ("begin_suppress_tokens", [5], set(), (), True),
        ("no_repeat_ngram_size", 3, set(), (), True),
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


_LATENT: dict[str, Any] = {
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 8,
    "attention_bias": False,
}  # fmt: skip
_YARN = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256, "mscale": 1.0, "mscale_all_dim": 1.0}
_FACTORS = {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4, "original_max_position_embeddings": 512}
LATENT: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek_v2": (
        "deepseek_v2",
        {
            **TREES["deepseek_v3"][1], **_LATENT, "moe_layer_freq": 1, "topk_method": "greedy", "rope_scaling": _YARN
        },
    ),
    "minicpm3": (
        "minicpm3", {**_LATENT, "dim_model_base": 32, "scale_depth": 1.0, "scale_emb": 1.0, "rope_scaling": _FACTORS}
    ),
    "youtu_llm": ("youtu_llm", _LATENT),
    "longcat_flash": (
        "longcat_flash",
        {
            **_LATENT, "num_layers": 3, "ffn_hidden_size": 64, "expert_ffn_hidden_size": 32, "moe_topk": 2,
            "n_routed_experts": 4, "zero_expert_num": 1, "zero_expert_type": "identity", "attention_method": "MLA",
            "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "routed_scaling_factor": 1.0,
        },
    ),
}  # fmt: skip
# Its own keys stand beside those of other families here.
_MIXED = {"gpt2"}
OTHERS = {name: each for name, each in (TREES | CHAINS | HYBRIDS | FED_AGAIN).items() if name not in _MIXED}


def grown(module: str, options: dict[str, Any], tokens: int = 256) -> float:
    """Return how many numbers the caches hold more for each further token."""
    network = network_of(module, options)
    caches = make_prompt_cache(network)
    held = []
    for _ in range(2):
        network(mx.zeros((1, tokens), mx.int32), cache=caches)
        arrays = [array for cache in caches for _, array in tree_flatten(cache.state) if isinstance(array, mx.array)]
        held.append(sum(array.size for array in arrays))
    return (held[1] - held[0]) / tokens


@pytest.mark.parametrize("family", [*LATENT, "deepseek_v3", "deepseek_v32", *share(sorted(OTHERS), 8)])
def test_no_cache_is_larger_than_told(family: str) -> None:
    """Modules that keep whole keys needed up to 22 times what was told."""
    module, options = (LATENT | OTHERS)[family]
    told = kv_values_per_token({**COMMON, "model_type": module, **options})
    assert grown(module, options) <= told
    if family in LATENT:
        assert grown(module, options) == told
