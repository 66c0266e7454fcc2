"""The training process: it ends where its input does, whoever killed the app."""

import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from rdchat.inference.api import Phase, TrainingOrder
from rdchat.work.served import packed, read_message
from tests.inference.training.short_child import COMMAND

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_it_ends_by_itself_when_the_app_has_gone_and_keeps_what_it_made(small_model: Path, tmp_path: Path) -> None:
    order = asdict(TrainingOrder(str(small_model), "small", tokens=100_000))
    arguments = {"order": order, "folder": str(tmp_path / "task"), "questions": []}
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(packed({"id": 1, "do": "train", "arguments": arguments}))
        process.stdin.flush()
        while (message := read_message(process.stdout)) is not None:
            if message.get("progress", {}).get("phase") == Phase.DATA:
                break
        process.stdin.close()
        while (following := read_message(process.stdout)) is not None:
            message = following
        assert process.wait(60) == 0
    assert message == {"id": 1, "cancelled": True}
    assert list(tmp_path.glob("cache/training/*/*/begun.json"))


@pytest.mark.slow
def test_without_a_task_it_does_nothing() -> None:
    found = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, timeout=240, check=False)
    assert found.returncode == 0
    assert found.stdout in {b"", packed({"ready": True})}
