"""Whether a model can be split over ranks is known before it is loaded; a refusal is one line."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mlx.core as mx
import pytest

from rdchat.errors import DoesNotFitError, RanksError
from rdchat.inference import loading
from rdchat.inference.api import Dtype, MemoryNeed, MemoryRoom, each_need, macs_for
from rdchat.inference.sharding.model_split import Split, part_of, shard, split_of
from rdchat.inference.sharding.rank_messages import join
from tests.inference.families import COMMON, HYBRIDS, TREES, network_of
from tests.inference.sharding.programs import StandIn

GIGABYTE = 2**30


def model(place: Path, family: str, **options: Any) -> Path:
    folder = place / "tiny"
    folder.mkdir()
    name, more = (TREES | HYBRIDS)[family]
    (folder / "config.json").write_text(json.dumps({**COMMON, "model_type": name, **more, **options}))
    return folder


@pytest.mark.parametrize(
    ("family", "heads", "kv_heads", "count", "split"),
    [
        ("llama", 9, 3, 3, Split.TENSOR),
        ("qwen3_moe", 4, 2, 2, Split.TENSOR),
        ("qwen2", 4, 2, 2, Split.TENSOR),
        ("qwen2", 4, 2, 3, Split.PIPELINE),
        ("deepseek_v3", 4, 4, 3, Split.PIPELINE),
    ],
)
def test_layers_are_divided_if_their_heads_can_be_and_spread_if_not(
    tmp_path: Path, family: str, heads: int, kv_heads: int, count: int, split: Split
) -> None:
    folder = model(tmp_path, family, num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=144)
    assert split_of(folder, count) is split


@pytest.mark.parametrize(
    ("family", "options", "count", "line"),
    [
        (
            "llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 144}, 2,
            "tiny cannot be split over two Macs: its layers have 9 heads. It can be over three.",
        ),
        (
            "llama", {"num_attention_heads": 8, "num_key_value_heads": 2}, 4,
            "tiny cannot be split over four Macs: its layers have 2 key-value heads. It can be over two.",
        ),
        (
            "qwen2", {}, 7,
            "tiny cannot be split over seven Macs: its layers cannot be divided (Cannot shard the output of size 64",
        ),
        (
            "gemma2", {}, 2,
            "tiny cannot be split over two Macs: mlx-lm cannot split its family, gemma2. Choose another model.",
        ),
        (
            "qwen3_next", {}, 2,
            "tiny cannot be split over two Macs: mlx-lm cannot split its family, qwen3_next. Choose another model.",
        ),
        (
            "llama", {"num_attention_heads": "four"}, 2,
            "tiny cannot be split over several Macs: ",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_refused_in_a_line(
    tmp_path: Path, family: str, options: dict[str, Any], count: int, line: str
) -> None:
    with pytest.raises(RanksError) as caught:
        split_of(model(tmp_path, family, **options), count)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_a_refusal_comes_before_the_weights_are_read(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_read", lambda _: pytest.fail("The weights are read."))
    with pytest.raises(RanksError, match="cannot be split over five Macs"):
        loading.load_model(small_model, part=part_of(small_model, StandIn(5)))  # type: ignore[arg-type]


def test_the_output_layer_is_not_divided() -> None:
    """Heads use it outside of calls, where the ranks cannot add up its parts."""
    network = network_of(*HYBRIDS["qwen3_5"])
    output = network.language_model.lm_head
    shard(network, StandIn(2), Split.TENSOR)
    assert network.language_model.lm_head is output
    assert network.language_model.sharding_group is None


def test_a_model_that_fits_two_macs_but_not_one() -> None:
    need = MemoryNeed(20 * GIGABYTE, 2 * GIGABYTE, 4096, "4bit")
    room = MemoryRoom(12 * GIGABYTE, 12 * GIGABYTE)
    assert macs_for(need, [room]) == 0
    assert macs_for(need, [room, room]) == 2
    assert macs_for(need, [MemoryRoom(24 * GIGABYTE, 24 * GIGABYTE), room]) == 1
    assert macs_for(need, [room, MemoryRoom(GIGABYTE, GIGABYTE)]) == 0
    assert each_need(need, 2).total_bytes == 11 * GIGABYTE


def test_each_rank_needs_its_own_part(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = loading.check_model_folder(small_model)
    need = MemoryNeed.for_sizes(files.sizes, Dtype.FLOAT32, on_gpu=False).total_bytes
    monkeypatch.setattr(loading, "memory_room", lambda: MemoryRoom(int(0.7 * need), int(0.7 * need)))
    with pytest.raises(DoesNotFitError):
        loading._check_memory(small_model.name, files.sizes, Dtype.FLOAT32, False, 1)
    assert loading._check_memory(small_model.name, files.sizes, Dtype.FLOAT32, False, 2) == ""


def test_a_ring_that_cannot_be_made_is_named() -> None:
    with pytest.raises(RanksError, match="Rank 0 could not join the others at nowhere:1, nowhere:2"):
        join(0, ["nowhere:1", "nowhere:2"], "key")


def test_a_refused_local_network_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = RuntimeError("[ring] Couldn't connect to any resolved address (last error: 65)")
    monkeypatch.setattr(mx.distributed, "init", Mock(side_effect=refusal))
    with pytest.raises(RanksError, match="could not join") as caught:
        join(0, ["10.0.0.1:1", "10.0.0.2:1"], "key")
    assert "Local Network must allow rdchat" in caught.value.hint
