"""An original that sees at the hub, and a copy of it without a tower on this machine."""

import json
from collections.abc import Iterable
from pathlib import Path

from safetensors.numpy import load_file, save_file

from rdchat.hub.downloads.download_record import begin_drafter
from rdchat.hub.endpoint import Tokens, find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.hub.known_files import RepositoryFiles
from rdchat.inference.api import ModelCard, ModelPart
from rdchat.inference.library.original_source import IncompleteModel, plan_part
from tests.hub.hub_server import HubServer
from tests.hub.mtp_samples import run
from tests.inference.vision.seeing_chats import seeing_folder

ORIGINAL = "authors/Tiny-Sees"
COPY = "some-org/Tiny-Sees-4bit"
TOWER = ("visual", "vision", "connector", "multi_modal")
SETTINGS = "preprocessor_config.json"


def is_tower(tensor: str) -> bool:
    return any(word in tensor for word in TOWER)


def without_tower(folder: Path) -> Path:
    """Drop the tower of a folder and its settings, as mlx_lm.convert does, and keep its configuration."""
    file = folder / "model.safetensors"
    save_file({name: each for name, each in load_file(file).items() if not is_tower(name)}, file, {"format": "mlx"})
    (folder / SETTINGS).unlink(missing_ok=True)
    return folder


def put_original(hub: HubServer, place: Path, kind: str, name: str = ORIGINAL) -> Path:
    """Put a model at the hub: its text in one file, its tower in another."""
    folder = seeing_folder(place, kind)
    tensors = load_file(folder / "model.safetensors")
    shards = dict[str, bytes]()
    index = dict[str, str]()
    for number, kept in enumerate((False, True), 1):
        file = folder / f"model-0000{number}-of-00002.safetensors"
        save_file({each: array for each, array in tensors.items() if is_tower(each) is kept}, file, {"format": "pt"})
        shards[file.name] = file.read_bytes()
        index |= {each: file.name for each in tensors if is_tower(each) is kept}
        file.unlink()
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "model.safetensors"}
    hub.add(name, files | shards | {"model.safetensors.index.json": json.dumps({"weight_map": index}).encode()})
    return folder


def card_of(folder: Path) -> ModelCard:
    return ModelCard(COPY, COPY, "", folder)


def planned(folder: Path) -> RepositoryFiles:
    """Return what is fetched for a copy."""
    api = HubApi(Tokens().access(find_endpoint()))
    return plan_part(api, IncompleteModel.read_model(card_of(folder), ModelPart.VISION), ORIGINAL)


def fetched(folder: Path) -> Path:
    """Fetch the tower of a copy."""
    return run(begin_drafter(planned(folder)))


def bytes_of(paths: Iterable[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}
