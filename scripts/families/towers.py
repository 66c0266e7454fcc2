"""Compares the rows of towers with transformers, one setting of the vision configuration after another.

    PYTHONPATH=. python scripts/families/towers.py make OUT       with torch, as scripts/golden_vision.py
    PYTHONPATH=. python scripts/families/towers.py compare OUT    in the project's environment; prints a table

The models are those of scripts/golden_vision.py. A setting is left out if transformers cannot compute the images with
its other value, or if rows stay the same. Equal: the largest difference is below 1e-4 of the span of the rows.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
SAME = 1e-4
MODELS = Path("tests/inference/vision/golden/models.json")
ACTIVATIONS = ("hidden_act", "hidden_activation", "projector_hidden_act")
TRAINING = ("initializer_range", "attention_dropout")


def others(key: str, value: Any) -> list[Any]:
    """Return other values of a setting, of which the first that works is taken."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, value // 2, value - 1, value + 1]
    if isinstance(value, float):
        return [0.05 if "eps" in key else value * 1.37]
    if isinstance(value, list) and all(type(each) is int for each in value):
        return [[each + 1 for each in value], value[1:]]
    if key == "rope_parameters":
        return [value | {"rope_theta": 77.0}]
    return [each for each in ("silu", "relu") if each != value] if key in ACTIVATIONS else []


def changed_configs(config: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield settings of the tower and the projector, each with configurations where it has another value."""
    eyes = config["vision_config"]
    for key, value in eyes.items():
        if key not in TRAINING:
            yield key, [config | {"vision_config": eyes | {key: other}} for other in others(key, value)]
    for key, value in config.items():
        if "token_i" not in key and key not in {"vision_config", "text_config", *eyes}:
            yield key, [config | {key: other} for other in others(key, value)]


def make_towers(out: Path) -> None:
    """Write the folders of all families, with the rows that transformers computes."""
    from scripts.golden_vision import FAMILIES, features_of, inputs_of, joined, make, prompt_of  # noqa: PLC0415

    def rows_in(folder: Path, kind: str, config: dict[str, Any]) -> np.ndarray | None:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            model, _ = make(FAMILIES[kind][0], config, str(folder))
            seen = features_of(model, inputs_of(kind, *prompt_of(kind)))
            deep = getattr(seen, "deepstack_features", None) or ()
            rows = np.concatenate([joined(each).numpy() for each in (seen.pooler_output, *deep)])
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        np.save(folder / "wanted.npy", rows)
        return rows

    for kind, (_, config) in FAMILIES.items():
        base = rows_in(out / kind / "as written", kind, config)
        assert base is not None, kind
        written = json.loads((out / kind / "as written" / "config.json").read_text())
        whole = written | {"text_config": config["text_config"]}
        whole = {key: value for key, value in whole.items() if key not in {"architectures", "transformers_version"}}
        for setting, configs in changed_configs(whole):
            folder = out / kind / setting
            rows = next((each for one in configs if (each := rows_in(folder, kind, one)) is not None), None)
            if rows is not None and rows.shape == base.shape and np.abs(rows - base).max() < SAME * np.ptp(base):
                shutil.rmtree(folder)


def prepared(kind: str, number: int, grids: list[tuple[int, int]]) -> Any:
    """Return an image of the prompt, as scripts/golden_vision.py draws it."""
    from rdchat.inference.vision.prepared_images import Layout, Prepared  # noqa: PLC0415

    count = (1 if kind == "pixtral" else 4) * sum(rows * columns for rows, columns in grids)
    shape = [count, 96 if kind.startswith("qwen") else 48]
    if kind in {"smolvlm", "gemma3"}:
        shape = [len(grids), 3, 32, 32]
    patches = np.random.default_rng(number).uniform(-1, 1, shape).astype(np.float32)
    return Prepared(patches, Layout(tuple((rows, columns) for rows, columns in grids), (32, 32)))


def verdict(folder: Path, kind: str) -> str:
    """Return what rdchat makes of a folder: equal, named with why, refused with why, or how much it differs."""
    from rdchat.errors import ModelError  # noqa: PLC0415
    from rdchat.inference.vision.families import vision_of  # noqa: PLC0415
    from rdchat.inference.vision.image_rows import ImageRows  # noqa: PLC0415

    wanted = np.load(folder / "wanted.npy")
    try:
        vision = vision_of(folder)
        if vision.family is None:
            return f"named: {vision.reason}"
        tower = ImageRows(folder, vision)
        grids = json.loads(MODELS.read_text())[kind]["grids"]
        if side := vision.family.image_settings(folder).get("token_side"):
            grids = [[(side, side)] * len(tiles) for tiles in grids]
        seen = [tower.see(str(number), prepared(kind, number, tiles)) for number, tiles in enumerate(grids)]
    except ModelError as error:
        return f"refused: {error.message}"
    parts = zip(*((each.rows, *each.deep) for each in seen), strict=True)
    rows = np.concatenate([np.array(each) for part in parts for each in part])
    if rows.shape != wanted.shape:
        return f"DIFFERS: {rows.shape}"
    apart = np.abs(rows - wanted).max() / np.ptp(wanted)
    return "equal" if apart < SAME else f"DIFFERS by {apart:.2%}"


def table(out: Path) -> Iterator[str]:
    """Yield the lines of the table of towers of docs/families.md."""
    yield "| tower | as written | also equal with | named | refused |"
    yield "|---|---|---|---|---|"
    for place in sorted(path for path in out.iterdir() if path.is_dir()):
        found = {folder.name: verdict(folder, place.name) for folder in sorted(place.iterdir())}
        base = found.pop("as written")
        kinds = ("equal", "named", "refused")
        cells = [", ".join(key for key, said in found.items() if said.startswith(kind)) for kind in kinds]
        wrong = "".join(f" {key} {said}" for key, said in found.items() if said.startswith("DIFFERS"))
        yield f"| {place.name} | {base} | {' | '.join(cells)} |".replace("_", "\\_") + wrong


if __name__ == "__main__":
    target = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "make":
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        target.mkdir(parents=True, exist_ok=True)
        make_towers(target)
    else:
        print(*table(target), sep="\n")
