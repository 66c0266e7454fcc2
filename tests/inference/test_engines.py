"""Which engine runs a model, and how this machine's engine loads, rests, sleeps and ends."""

import gc
import shutil
import weakref
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest

from rdchat.errors import ModelError
from rdchat.inference import blas
from rdchat.inference.api import (
    DraftSettings,
    Dtype,
    LoadProgress,
    Mode,
    PrefixCacheFacts,
    ranked_address,
    ranked_model,
    remote_address,
    remote_model,
)
from rdchat.inference.engines import EnginesByAddress
from rdchat.inference.local_engine import LocalEngine
from tests.inference.fakes import ask, reply_end
from tests.inference.threads import load_silently, on_a_thread


@pytest.mark.parametrize("model", ["qwen", "mlx-community/Qwen3-8B-4bit", "a:b/c"])
def test_an_address_of_a_remote_model_is_read_as_it_was_written(model: str) -> None:
    assert remote_model(remote_address("studio", model)) == ("studio", model)


def test_an_address_of_a_model_over_hosts_is_read_as_it_was_written() -> None:
    assert ranked_model(ranked_address(("a", "me@b.local"), "org/m:1")) == (("a", "me@b.local"), "org/m:1")
    assert ranked_model(ranked_address(("a", "b"), None)) == (("a", "b"), None)


@pytest.mark.parametrize("address", [None, "", "org/model", "/models/remote:x", "remote:x", "remote:/x", "remote:x/"])
def test_other_addresses_are_local(address: str | None) -> None:
    assert remote_model(address) is None
    assert ranked_model(address) is None


class _Engine:
    def __init__(self, name: str, calls: list[str]) -> None:
        self._name = name
        self._calls = calls

    def load(self, model: str | None, *_: object) -> SimpleNamespace:
        self._calls.append(f"{self._name} loads {model}")
        return SimpleNamespace(server="s" if self._name == "remote" else "", path=Path(model or "default"))

    def unload(self) -> int:
        self._calls.append(f"{self._name} unloads")
        return 1

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        self._calls.append(f"{self._name} keeps {limit_bytes}")
        return PrefixCacheFacts(0, 0, limit_bytes or 0)

    def close(self) -> None:
        self._calls.append(f"{self._name} closes")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    for kind, module in (
        ("Local", "local_engine"),
        ("Remote", "remote.remote_engine"),
        ("Ranks", "rank_processes.ranks_engine"),
    ):
        make = partial(_Engine, kind.lower(), calls)
        monkeypatch.setattr(f"rdchat.inference.{module}.{kind}Engine", lambda *_, make=make: make())
    return calls


def test_another_kind_of_model_is_loaded_after_the_old_one_is_freed(calls: list[str]) -> None:
    engines = EnginesByAddress()
    engines.chosen.prefix_caches(7)
    for model in ("m", "n", "remote:s/m", None, "ranks:a,b:m"):
        load_silently(engines, model)
    engines.close()
    assert calls == [
        *("local keeps 7", "local loads m", "local loads n"),
        *("local unloads", "remote loads remote:s/m"),
        *("remote unloads", "local loads None"),
        *("local unloads", "ranks loads ranks:a,b:m"),
        *("ranks closes", "remote closes", "local closes"),
    ]


def test_a_text_for_a_server_is_counted_by_the_tokenizer_of_the_last_model_here(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file had 5,638 tokens with a model here, and 4,057 with a remote one."""
    asked: list[Path] = []

    def encode_text(folder: Path, text: str) -> list[int]:
        asked.append(folder)
        return [0] * len(text.split())

    monkeypatch.setattr("rdchat.inference.engines.shared_tokenizers", lambda: SimpleNamespace(encode_text=encode_text))
    engines = EnginesByAddress()
    load_silently(engines, "remote:s/m")
    assert engines._count_text("one two three") == 0, "no model was used here"
    load_silently(engines, "here")
    load_silently(engines, "remote:s/m")
    assert engines._count_text("one two three") == 3
    assert engines._count_text("a" * 1_000_001) == 0, "it would take seconds"
    assert asked == [Path("here")]
    assert calls[-1] == "remote loads remote:s/m"


class Label(str):
    """Part of what a compiled function returns, so kept by MLX for its thread; unlike `str` it can be referred to."""


def first_words(engine: LocalEngine, model: Path) -> tuple[int, ...]:
    load_silently(engine, model)
    end = reply_end(engine.generate(ask("Hello", max_tokens=4)))
    return end.token_ids


@pytest.mark.skipif("config.getoption('round_by_rows')", reason="nothing is compiled on that device")
def test_a_closed_engine_leaves_nothing_compiled_on_its_thread(small_model: Path) -> None:
    labels = [Label("label")]
    compiled = mx.compile(lambda x: {"label": labels.pop(), "twice": 2 * x})  # outlives the thread, as a module's does

    def work() -> tuple[bool, bool, mx.array]:
        engine = LocalEngine()
        first_words(engine, small_model)
        label = weakref.ref(labels[0])
        twice = compiled(mx.ones(3))["twice"]
        mx.async_eval(twice)  # may be under way as its stream goes
        kept = label() is not None
        engine.close()
        return kept, label() is not None, twice

    kept, still_kept, twice = on_a_thread(work)
    assert kept
    assert not still_kept
    assert (twice + 1).tolist() == [3, 3, 3]  # what was computed there is of use everywhere


@pytest.mark.slow
def test_an_engine_works_after_another_was_closed_on_its_thread(small_model: Path) -> None:
    def work() -> tuple[int, ...]:
        engine = LocalEngine()
        try:
            return first_words(engine, small_model)
        finally:
            engine.close()

    first = on_a_thread(work)
    assert len(first) == 4
    assert on_a_thread(work) == first
    assert first_words(LocalEngine(), small_model) == first


@pytest.mark.slow
def test_a_model_that_is_let_go_of_needs_no_collector(small_model: Path) -> None:
    """In the app the collector runs on another thread, and the next model may not fit beside the last."""
    engine = LocalEngine()
    gc.collect()
    before = mx.get_active_memory()
    load_silently(engine, small_model)
    for mode in Mode:
        end = reply_end(
            engine.generate(replace(ask("Hello hello hello", max_tokens=8), draft=DraftSettings(mode=mode)))
        )
    del end
    loaded = mx.get_active_memory()
    with pytest.raises(ModelError):
        load_silently(engine, "/nowhere")
    assert mx.get_active_memory() - before < 0.1 * (loaded - before)


def test_a_resting_engine_only_writes_caches_until_the_next_reply(small_model: Path) -> None:
    def work() -> None:
        engine = LocalEngine()
        engine.rest()  # nothing is loaded
        expected = first_words(engine, small_model)
        engine.rest()
        engine.rest()
        assert not engine.idle()
        end = reply_end(engine.generate(ask("Hello", max_tokens=4)))
        assert end.token_ids == expected
        engine.close()

    on_a_thread(work)


def test_a_model_that_sleeps_takes_no_memory_and_is_loaded_again_by_whatever_needs_it(small_model: Path) -> None:
    weights = sum(file.stat().st_size for file in small_model.glob("*.safetensors")) // 2

    def work() -> None:
        engine = LocalEngine()
        engine.sleep()  # nothing is loaded
        engine.wake()
        expected = first_words(engine, small_model)
        question = ask("Hello", max_tokens=4)
        tokens = engine.count_tokens(question)
        loaded = mx.get_active_memory()
        engine.sleep()
        asleep = mx.get_active_memory()
        assert asleep < loaded - weights
        assert engine.count_tokens(question) == tokens, "counting needs no weights"
        assert not engine.idle()
        end = reply_end(engine.generate(question))
        assert end.token_ids == expected
        engine.sleep()
        engine.wake()
        assert mx.get_active_memory() > asleep + weights
        engine.sleep()
        engine.unload()
        with pytest.raises(ModelError, match="No model is loaded"):
            engine.generate(question)
        engine.close()

    on_a_thread(work)


def test_a_model_that_was_deleted_while_it_slept_is_an_error(small_model: Path, tmp_path: Path) -> None:
    def work() -> None:
        folder = shutil.copytree(small_model, tmp_path / "model")
        engine = LocalEngine()
        first_words(engine, folder)
        engine.sleep()
        shutil.rmtree(folder)
        for _ in range(2):
            with pytest.raises(ModelError, match="model"):
                engine.generate(ask("Hello", max_tokens=4))
        engine.close()

    on_a_thread(work)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_load_has_one_share(small_model: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    """At the first use that of what is compiled once, which takes longest; otherwise that of the weights."""
    monkeypatch.setattr(blas, "is_first_use", lambda: is_first)
    told: list[LoadProgress] = []

    def load() -> None:
        with closing(LocalEngine()) as engine:
            engine.load(str(small_model), Dtype.FLOAT32, told.append)

    on_a_thread(load)
    with_share = {each.stage for each in told if each.fraction is not None}
    assert ("Reading weights" in with_share) is not is_first
    assert all(each.once for each in told) or not is_first


def test_the_first_use_ends_with_the_first_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "kernel_folder", lambda: tmp_path)
    assert blas.is_first_use()
    (tmp_path / "compiled-1a2b").touch()
    assert not blas.is_first_use()
