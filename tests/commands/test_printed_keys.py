"""The commands' JSON has at least the keys that other programs use."""

import json
from pathlib import Path

import pytest

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX
from tests.commands.running import Console

WRITTEN: dict[str, list[str]] = json.loads((Path(__file__).parent / "printed_keys.json").read_bytes())


def key_paths(value: object, path: str = "") -> set[str]:
    """Return the dotted paths of all keys; `[]` stands for any place in a list."""
    if isinstance(value, dict):
        return set().union(*({f"{path}{key}"} | key_paths(each, f"{path}{key}.") for key, each in value.items()))
    if isinstance(value, list):
        return set().union(*(key_paths(each, f"{path}[].") for each in value))
    return set()


def missing(name: str, report: object) -> set[str]:
    return set(WRITTEN[name]) - key_paths(report)


@pytest.mark.parametrize("mode", ["off", "lookup", "auto"])
def test_ask(mode: str, small_model: Path, console: Console) -> None:
    options = ("--model", small_model, "--max-tokens", "8", "--temperature", "0", "--mode", mode)
    assert not missing(f"ask {mode}", console.json("ask", "a a a a", *options))


@pytest.mark.slow
def test_bench_and_its_file(small_model: Path, tmp_path: Path, console: Console) -> None:
    prompts = tmp_path / "prompts.txt"
    runs = tmp_path / "runs.csv"
    prompts.write_text("a a a a\nb\n")
    options = ("--model", small_model, "--max-tokens", "8", "--temperature", "0", "--prompts", prompts)
    report = console.json("bench", *options, "--modes", "off,lookup", "--trials", "1", "--csv", runs)
    assert not missing("bench", report)
    header = runs.read_text().splitlines()[0].split(",")
    assert header[: len(WRITTEN["bench csv"])] == WRITTEN["bench csv"]


def test_doctor(console: Console) -> None:
    assert not missing("doctor", console.json("doctor"))
