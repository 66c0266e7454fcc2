"""`rdchat ask --image`: a model that sees gets the images, and refusals come before the model is loaded."""

from pathlib import Path

import pytest

from rdchat import paths
from rdchat.commands import terminal
from rdchat.commands.bench import bench_table
from rdchat.inference.benchmark.runs_file import read_runs
from tests.commands.running import check_refused, printed_json
from tests.inference.vision.pictures import photo, stored
from tests.inference.vision.seeing_models import seeing_folder

ASK = ("ask", "what?", "--max-tokens", "3", "--mode", "off", "--seed", "1")


@pytest.mark.parametrize("kind", ["smolvlm", "qwen3_vl"])
def test_a_model_sees_the_images(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    model = seeing_folder(tmp_path / "model", kind)
    image = str(stored(tmp_path, photo(40, 24)))
    sizes = [
        printed_json(capsys, *ASK, "--model", str(model), *images)["stats"]["prompt_tokens"]
        for images in ((), ("--image", image), ("--image", image, "--image", image))
    ]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


def test_refusals_come_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "load_chosen", lambda *_: pytest.fail("loaded"))
    text = tmp_path / "text.png"
    text.write_text("no image")
    check_refused(capsys, [*ASK, "--image", str(tmp_path / "none.png")], "none.png", 1)
    check_refused(capsys, [*ASK, "--image", str(text)], "text.png is damaged, or no PNG", 1)
    check_refused(capsys, [*ASK, *["--image", str(text)] * 21], "A question takes 20 images", 2)
    check_refused(capsys, [*ASK, "--hosts", "a,b", "--image", str(text)], "several Macs run cannot see", 2)


def test_a_model_that_does_not_see_is_told_before_it_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "load_chosen", lambda *_: pytest.fail("loaded"))
    image = str(stored(tmp_path, photo()))
    check_refused(capsys, [*ASK, "--model", str(small_model), "--image", image], "cannot see images", 1)
    monkeypatch.setattr(paths, "default_model_dir", lambda: small_model)
    check_refused(capsys, [*ASK, "--image", image], f"{small_model.name} cannot see images. Choose another.", 1)


def test_a_benchmark_shows_them_with_each_prompt_and_tells_the_time_of_seeing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = seeing_folder(tmp_path / "model", "qwen3_vl")
    image = str(stored(tmp_path, photo(40, 24)))
    results = tmp_path / "runs.jsonl"
    bench = ("bench", "--model", str(model), "--image", image, "--modes", "off,lookup", "--max-tokens", "12")
    report = printed_json(capsys, *bench, "--trials", "2", "--per-group", "1", "--results", str(results))
    assert report["complete"]
    off, lookup = report["modes"]
    assert (off["mode"], lookup["mode"]) == ("off", "lookup")
    assert off["identical_text"]
    assert lookup["identical_text"] or lookup["first_difference"]["gap"] is not None
    assert off["ratio_to_mlx_lm"] is None, "it sees no images"
    seen = report["seeing_ms"]
    assert 0 < seen["prepare an image"] + seen["tower"] <= seen["see"], "each run sees it anew"
    runs = read_runs(results)
    assert all(len([entry for entry in run.statistics.ledger if entry.name == "tower"]) == 1 for run in runs.runs)
    assert "Seeing images took " in bench_table(runs)
    assert "vision tower" in bench_table(runs)
    check_refused(capsys, [*bench, "--image", str(results)], "runs.jsonl is damaged, or no PNG", 1)
