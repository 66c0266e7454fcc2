"""Published drafters for a model are found by name, with their sizes."""

from pathlib import Path

import pytest

from rdchat.hub import HubError, HubModel, PublishedKind, find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.hub.published_drafters import (
    base_name,
    family_name,
    find_published,
)
from tests.hub.hub_server import Fault, HubServer

WEIGHTS = {"config.json": b"{}", "model.safetensors": b"w" * 100}


@pytest.fixture
def api(hub: HubServer) -> HubApi:
    return HubApi(find_endpoint())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose weights are large beside what the test's hub says of all of its models."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(b"tokens")
    (folder / "model.safetensors").write_bytes(b"w" * 5000)
    return folder


def last(api: HubApi, model: Path) -> dict[str, HubModel]:
    *_, found = find_published(api, "mlx-community/Qwen3-4B-4bit", model)
    return {each.repository: each for each in found}


def test_heads_that_name_the_model_and_smaller_models_of_its_family_are_found(
    hub: HubServer, api: HubApi, model: Path
) -> None:
    kinds = {
        "a/Qwen3-4B_eagle3": PublishedKind.EAGLE3,
        "b/dspark_qwen3_4b_block7": PublishedKind.DSPARK,
        "c/Qwen3-4B-DFlash-b16": PublishedKind.DFLASH,
        "d/qwen3-4b-rdchat": PublishedKind.RDCHAT,
        "d/Qwen3-4B-Domino-b16": PublishedKind.DOMINO,
        "d/jetspec-qwen3-4b": PublishedKind.JETSPEC,
        "d/Qwen3-4B-XPress": PublishedKind.XPRESS,
        "e/Qwen3-4B-it-assistant": PublishedKind.ASSISTANT,
    }
    for name in (*kinds, "d/express-qwen3-4b", "e/EAGLE3-Qwen3-14B", "f/eagle3-Llama-3.2-3B", "i/Qwen3.5-0.8B"):
        hub.add(name, WEIGHTS)
    hub.add("g/Qwen3-0.6B-4bit", WEIGHTS | {"tokenizer.json": b"tokens"})
    hub.add("h/Qwen3-1.7B", WEIGHTS | {"tokenizer.json": b"others"})
    found = last(api, model)
    smaller = dict.fromkeys(("g/Qwen3-0.6B-4bit", "h/Qwen3-1.7B"), PublishedKind.MODEL)
    assert {name: each.kind for name, each in found.items()} == kinds | smaller
    assert found["b/dspark_qwen3_4b_block7"].download_bytes == 102
    assert found["g/Qwen3-0.6B-4bit"].same_tokenizer
    assert not found["h/Qwen3-1.7B"].same_tokenizer


def test_what_cannot_be_fetched_says_why(hub: HubServer, api: HubApi, model: Path) -> None:
    hub.add("a/Qwen3-4B-eagle3", {"pytorch_model.bin": b"pickle", "config.json": b"{}"})
    hub.add("b/Qwen3-4B-eagle3", WEIGHTS, gated=True)
    found = last(api, model)
    assert "has no weights that rdchat can read" in found["a/Qwen3-4B-eagle3"].problem
    assert "gated" in found["b/Qwen3-4B-eagle3"].problem
    assert found["b/Qwen3-4B-eagle3"].gated


def test_names_come_first_and_what_is_not_wanted_any_more_is_not_asked_for(
    hub: HubServer, api: HubApi, model: Path
) -> None:
    hub.add("a/Qwen3-4B-eagle3", WEIGHTS)
    results = find_published(api, "mlx-community/Qwen3-4B-4bit", model)
    assert [each.download_bytes for each in next(results)] == [None]
    asked = len(hub.requests)
    results.close()  # as it ends when nobody takes more
    assert len(hub.requests) == asked


def test_a_hub_that_refuses_is_told_of(hub: HubServer, api: HubApi, model: Path) -> None:
    hub.api_faults.append(Fault(status=429))
    with pytest.raises(HubError, match="too many requests"):
        next(find_published(api, "mlx-community/Qwen3-4B-4bit", model))


@pytest.mark.parametrize(
    ("name", "base", "family"),
    [
        ("mlx-community/Qwen3-4B-4bit", "Qwen3-4B", "Qwen3"),
        ("mlx-community/Llama-3.2-3B-Instruct-bf16", "Llama-3.2-3B-Instruct", "Llama-3.2"),
        ("mlx-community/gemma-3-4b-it-qat-4bit", "gemma-3-4b-it", "gemma-3"),
        ("lmstudio-community/Qwen2.5-Coder-7B-Instruct-MLX-8bit", "Qwen2.5-Coder-7B-Instruct", "Qwen2.5-Coder"),
        ("openai/gpt-oss-20b", "gpt-oss-20b", "gpt-oss"),
        ("mlx-community/gpt-oss-20b-MXFP4-Q8", "gpt-oss-20b", "gpt-oss"),
        ("smollm2-135m-instruct", "smollm2-135m-instruct", "smollm2"),
        ("org/thing", "thing", ""),
    ],
)
def test_a_models_name_has_a_base_and_a_family(name: str, base: str, family: str) -> None:
    assert base_name(name) == base
    assert family_name(name) == family
