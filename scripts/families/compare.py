"""Compares what rdchat computes of the folders of `make.py` with the logits of transformers.

    python compare.py types                    prints the model types that transformers and mlx-lm both have
    python compare.py run OUT [TYPE ...]       loads every folder; writes OUT/TYPE.seen.json
    python compare.py table OUT                prints the table of docs/families.md

Equal: the largest difference of a logit is below 1e-4 of the span of the logits. It runs in the project's environment.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1"}
import rdchat.inference.loading as loading

# isort: split
import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from type_processes import in_processes

from rdchat.errors import RdchatError
from rdchat.inference.api import Dtype
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers

EQUAL = 1e-4


def types() -> list[str]:
    """Return the model types of transformers for which mlx-lm has a module."""
    from mlx_lm.utils import MODEL_REMAPPING  # noqa: PLC0415
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # noqa: PLC0415

    spec = importlib.util.find_spec("mlx_lm.models")
    assert spec is not None
    assert spec.submodule_search_locations
    modules = {path.stem for path in Path(spec.submodule_search_locations[0]).glob("*.py")}
    return [name for name in CONFIG_MAPPING_NAMES if MODEL_REMAPPING.get(name, name) in modules]


def verdict(folder: Path, wanted: np.ndarray) -> str:
    """Return what rdchat makes of a folder: equal, named with why, refused with why, or how much it differs."""
    (folder / "tokenizer.json").touch()
    try:
        files = check_model_folder(folder)
        network, _, settings = loading._weights(
            files, Dtype.FLOAT32, loading.Part(), lambda _: None, shared_tokenizers()
        )
        ids = mx.arange(len(wanted))[None] * 37 % 89 + 20
        got = np.array(network(ids, cache=make_prompt_cache(network))[0].astype(mx.float32))
        context = settings.context(network, files.sizes.context_length)
    except RdchatError as error:
        return f"refused: {error}".replace(f"{folder.name} cannot be loaded: ", "")
    except SystemExit:
        return "refused: its module ends the program"
    except Exception as error:
        return f"not run: {type(error).__name__}: {error}"[:300]
    apart = float(abs(got - wanted).max() / (wanted.max() - wanted.min()))
    named = f"named: {', '.join(settings.unread)}" if settings.unread else ""
    if context < len(wanted):
        named = named or "named: the context ends at the window"
    return "equal" if apart < EQUAL and not named else named or f"DIFFERS by {apart:.2%}"


def variants(place: Path) -> Iterator[tuple[str, Path, np.ndarray]]:
    """Yield the folders of a type: as written, with one setting changed, and with one key left out."""
    for note in sorted(place.glob("*/note.json")):
        folder = note.parent
        wanted = np.load(note.with_name("wanted.npy"))
        yield json.loads(note.read_text())["setting"] or "as written", folder, wanted


def run(out: Path, name: str) -> dict[str, Any]:
    """Return the verdicts on the folders of a type, by setting."""
    seen = {setting: verdict(folder, wanted) for setting, folder, wanted in variants(out / name)}
    base = out / name / "base"
    if seen.get("as written") != "equal":
        return seen
    path = base / "config.json"
    wanted = np.load(base / "wanted.npy")
    whole = path.read_text()
    try:
        for key in absent_keys(json.loads(whole)):
            config = json.loads(whole)
            part = config.get("text_config", config)
            part.pop(key)
            path.write_text(json.dumps(config))
            seen[f"without {key}"] = verdict(base, wanted)
    finally:
        path.write_text(whole)
    return seen


def absent_keys(config: dict[str, Any]) -> list[str]:
    """Return the keys whose value is that of the class where they are absent."""
    from transformers import AutoConfig  # noqa: PLC0415

    part = config.get("text_config", config)
    defaults = json.loads(AutoConfig.for_model(config["model_type"]).to_json_string(use_diff=False))
    defaults = defaults.get("text_config", defaults)
    same = [key for key in part if key in defaults and defaults[key] == part[key]]
    return [key for key in same if key not in {"model_type", "vocab_size"}]


def table(out: Path) -> Iterator[str]:
    """Yield the lines of the table of docs/families.md."""
    yield "| family | as written | also equal with | named | refused |"
    yield "|---|---|---|---|---|"
    for path in sorted(out.glob("*.seen.json")):
        seen = json.loads(path.read_text())
        if "as written" not in seen:
            continue
        base = seen.pop("as written")
        kinds: dict[str, list[str]] = {"equal": [], "named": [], "refused": [], "DIFFERS": [], "not": []}
        for setting, found in seen.items():
            kinds[found.split()[0].rstrip(":")].append(setting)
        absent = [setting for setting in kinds["equal"] if setting.startswith("without ")]
        equal = [setting for setting in kinds["equal"] if setting not in absent]
        equal += [f"{len(absent)} keys left out one by one"] if absent else []
        cells = [
            path.name.split(".")[0],
            base,
            ", ".join(equal),
            ", ".join(kinds["named"]),
            ", ".join(kinds["refused"]),
        ]
        wrong = "".join(f" {setting} DIFFERS" for setting in kinds["DIFFERS"])
        yield "| " + " | ".join(cell.split(": ")[0].replace("_", "\\_") for cell in cells) + " |" + wrong


if __name__ == "__main__":
    task = sys.argv[1]
    place = Path(*sys.argv[2:3]).resolve()
    names = sys.argv[3:]
    if task == "types":
        print(*types())
    elif task == "table":
        print(*table(place), sep="\n")
    else:
        names = names or sorted(path.name for path in place.iterdir() if path.is_dir())
        for name, found in in_processes(names, run, place, ".seen.json", failed="as written"):
            wrong = {key: value for key, value in found.items() if value.startswith(("DIFFERS", "not run"))}
            print(f"{name}: {found.get('as written', '-')[:150]} | {wrong}", flush=True)
