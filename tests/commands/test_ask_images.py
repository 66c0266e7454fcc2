"""`rdchat ask --image`: a model that sees gets the images, and refusals come before the model is loaded."""

from pathlib import Path

import pytest

from rdchat import paths
from rdchat.commands import terminal
from tests.commands.running import check_refused, printed_json
from tests.inference.vision.pictures import photo, stored
from tests.inference.vision.seeing_chats import seeing_folder

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
