"""`rdchat models vision` fetches what a copy lacks to see, and refusals come before a model is loaded."""

from pathlib import Path

import pytest

from rdchat import paths
from rdchat.inference.models.safetensors_file import target_hash
from tests.commands.running import Console
from tests.hub.hub_server import HubServer
from tests.inference.vision.pictures import photo, stored
from tests.inference.vision.seeing_models import ORIGINAL, put_original, seeing_folder, without_tower

ASK = ("ask", "what?", "--max-tokens", "3", "--mode", "off", "--seed", "1")


@pytest.mark.slow
def test_a_copy_sees_after_its_size_was_agreed_to(
    hub: HubServer, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_original(hub, tmp_path / "original", "qwen3_vl")
    copy = without_tower(seeing_folder(paths.models_dir() / "tiny", "qwen3_vl"))
    (copy / "README.md").write_text(f"---\nbase_model: {ORIGINAL}\nbase_model_relation: quantized\n---\n")
    image = str(stored(tmp_path, photo(40, 24)))
    with monkeypatch.context() as patch:
        patch.setattr("rdchat.inference.session.load_model", lambda *_, **__: pytest.fail("loaded"))
        console.refuses(
            [*ASK, "--model", "tiny", "--image", image],
            "tiny cannot see images. This copy has no vision. Get that of its original: `rdchat models vision tiny`.",
            1,
        )
    assert console.runs("models", "vision", "tiny", status=2).err.splitlines() == [
        f"This copy has no vision. Its original has: 545 KB to download from {ORIGINAL}. Only that part is kept.",
        "rdchat: There is no terminal to ask you. Add --yes.",
    ]
    report = console.json("models", "vision", "tiny", "--yes")
    assert (report["model"], report["repository"]) == ("tiny", ORIGINAL)
    assert Path(report["folder"]).parent == paths.towers_dir()
    asked = [console.json(*ASK, "--model", "tiny", *more) for more in ((), ("--image", image))]
    assert asked[0]["stats"]["prompt_tokens"] < asked[1]["stats"]["prompt_tokens"]
    console.refuses(["models", "vision", "tiny", "--yes"], "There is nothing to get", 1)
    name = Path(report["folder"]).name
    listed = console.models()
    assert (listed[name]["kind"], listed[name]["complete"], listed["tiny"]["kind"]) == ("vision", True, "model")
    assert console.json("models", "delete", name, "--yes")["model"] == name
    console.refuses([*ASK, "--model", "tiny", "--image", image], "This copy has no vision.", 1)


def test_deleting_a_model_says_how_to_delete_its_tower(console: Console, system_trash: Path) -> None:
    copy = without_tower(seeing_folder(paths.models_dir() / "tiny", "qwen3_vl"))
    tower = paths.towers_dir() / f"tiny-vision-{target_hash(copy)[:6]}"
    tower.mkdir(parents=True)
    (tower / "config.json").write_text("{}")
    said = console.runs("models", "delete", "tiny", "--yes").out
    assert said == f"tiny is in the Trash. Its vision stays; `rdchat models delete {tower.name}` deletes it.\n"
    assert (system_trash / "tiny" / "config.json").exists()
    console.runs("models", "delete", tower.name, "--yes")
    assert not tower.exists()
