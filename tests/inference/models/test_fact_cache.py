"""A large file is read whole once, with progress, and can be given up."""

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as GgmlType

from rdchat.inference.api.events import LoadProgress
from rdchat.inference.models.model_files import resolve_model
from tests.inference.gguf_samples import write_gguf


def test_a_gguf_file_is_read_whole_once_and_says_how_far_it_is(tmp_path: Path) -> None:
    def reading(steps: list[LoadProgress]) -> list[float | None]:
        return [step.fraction for step in steps if step.stage == "Reading the GGUF file"]

    source = write_gguf(tmp_path / "tiny.gguf")
    first, again, changed = list[LoadProgress](), list[LoadProgress](), list[LoadProgress]()
    place = resolve_model(str(source), first.append)
    assert reading(first) == [0.0, 1.0]
    assert resolve_model(str(source), again.append) == place
    assert reading(again) == []
    source.write_bytes(write_gguf(tmp_path / "other.gguf", GgmlType.Q8_0).read_bytes())
    assert resolve_model(str(source), changed.append) != place
    assert reading(changed) == [0.0, 1.0]


def test_reading_a_gguf_file_can_be_given_up_between_chunks(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf")
    with source.open("ab") as file:
        file.truncate(100 * 2**20)  # a sparse tail: six more chunks to read
    seen: list[LoadProgress] = []

    class SupersededError(Exception):
        pass

    def report(progress: LoadProgress) -> None:
        seen.append(progress)
        if progress.fraction:
            raise SupersededError

    with pytest.raises(SupersededError):
        resolve_model(str(source), report)
    assert seen[-1].stage == "Reading the GGUF file"
    assert 0 < (seen[-1].fraction or 0) < 0.2
