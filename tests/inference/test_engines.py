"""Which engine runs a model, by the model's address."""

from functools import partial

import pytest

from rdchat.inference.api import Dtype, PrefixCacheFacts, ranked_address, ranked_model, remote_address, remote_model
from rdchat.inference.engines import ChosenEngine


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

    def load(self, model: str | None, *_: object) -> str:
        self._calls.append(f"{self._name} loads {model}")
        return self._name

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
    engine = ChosenEngine()
    engine.prefix_caches(7)
    for model in ("m", "n", "remote:s/m", None, "ranks:a,b:m"):
        engine.load(model, Dtype.AUTO, lambda _: None)
    engine.close()
    assert calls == [
        *("local keeps 7", "local loads m", "local loads n"),
        *("local unloads", "remote loads remote:s/m"),
        *("remote unloads", "local loads None"),
        *("local unloads", "ranks loads ranks:a,b:m"),
        *("ranks closes", "remote closes", "local closes"),
    ]
