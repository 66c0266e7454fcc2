"""Cases of drafters: named ones, and ones in the person's own folder while another model is used."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.case import Call, Case, Kind, ask
from tests.hostile.data import read
from tests.hostile.harm import (
    ODD_FILES,
    Harm,
    change_json,
    harm_of,
    with_cut,
    with_flips,
    with_numbers,
    with_odd_file,
)
from tests.hostile.samples import HEADS, copy_of, samples

_FILES = ("config.json", "model.safetensors")


HARMS: Mapping[str, Harm] = {
    **{each["name"]: harm_of(each["do"]) for each in read("drafters")},
    "a card that is a link to /dev/zero": with_odd_file("card.md", "a link to /dev/zero"),
    **{f"{what} as {name}": with_odd_file(name, what) for name in _FILES for what in ODD_FILES},
    **{
        f"{name} with bytes changed ({seed})": with_flips(name, seed, within=3000)
        for name in _FILES
        for seed in range(4)
    },
    **{f"{name} cut short ({seed})": with_cut(name, seed) for name in _FILES for seed in range(3)},
    **{each["name"]: harm_of(each["do"]) for each in read("folders") if each["name"].startswith("a header")},
}


_YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256, "mscale": 1e25}
_NAN = float("nan")
_INFINITE = float("inf")
SCORES: Mapping[str, Harm] = {
    "matrices of 1e6": with_numbers(1e6),
    "matrices of 1e30": with_numbers(1e30),
    "vectors of 1e6": with_numbers(1e6, matrices=False, vectors=True),
    "weights that are no numbers": with_numbers(_NAN, vectors=True),
    "infinite weights": with_numbers(_INFINITE, vectors=True),
    "a yarn mscale of 1e25": lambda folder: change_json(folder / "config.json", rope_scaling=_YARN),
}


def _named(harm: Harm, mode: str, folder: Path, of: str = "drafter", options: Sequence[str] = ()) -> Call:
    drafter = copy_of(of, folder)
    harm(drafter)
    return _compared("--mode", mode, "--drafter", str(drafter), options=options, drafter=drafter)


def _draft_model(harm: Harm, options: Sequence[str], folder: Path) -> Call:
    draft_model = copy_of("model", folder)
    harm(draft_model)
    return _compared("--mode", "speculative", "--draft-model", str(draft_model), options=options)


def _compared(*draft: str, options: Sequence[str], **more: Any) -> Call:
    """Return a call whose reply must have the tokens of plain decoding."""
    asked = ("--json", "--max-tokens", "16", "--seed", "3", *options)
    model = samples() / "model"
    return ask(model, *draft, *asked, plain=ask(model, "--mode", "off", *asked).arguments, **more)


def _own(harm: Harm, folder: Path) -> Call:
    """Put it into the person's own folder, bound to a model that is not asked for."""
    drafters = folder / "data" / "drafters"
    drafters.mkdir(parents=True)
    harm(copy_of("drafter", drafters))
    return _ask_another(folder)


def _own_file(folder: Path) -> Call:
    (folder / "data").mkdir()
    (folder / "data" / "drafters").write_text("no folder")
    return _ask_another(folder)


def _ask_another(folder: Path) -> Call:
    """Return the call that asks a model with the person's own folder of drafters; it must work as ever."""
    return ask(samples() / "gemma3", data=folder / "data", statuses=(0,))


def drafter_cases() -> Iterator[Case]:
    """Yield all cases of drafters."""
    for place, (name, harm) in enumerate(HARMS.items()):
        mode = ("drafter", "auto")[place % 2]
        yield Case(Kind.DRAFTERS, f"{name} ({mode})", partial(_named, harm, mode))
    for name, harm in SCORES.items():
        for place, dtype in enumerate(("float32", "float16")):
            options = ("--dtype", dtype, "--temperature", str((0, 0.9)[place]))
            for kind in ("drafter", *HEADS):
                if kind != "drafter" or "yarn" not in name:
                    yield Case(
                        Kind.DRAFTERS,
                        f"{kind}: {name}, beside {dtype}",
                        partial(_named, harm, "drafter", of=kind, options=options),
                    )
            yield Case(Kind.DRAFTERS, f"draft model: {name}, beside {dtype}", partial(_draft_model, harm, options))
    own = [name for name in HARMS if name.startswith(tuple(ODD_FILES)) or "config" in name or "deeply" in name]
    for name in own:
        yield Case(Kind.DRAFTERS, f"{name}, of one's own", partial(_own, HARMS[name]))
    yield Case(Kind.DRAFTERS, "a file as one's own folder of drafters", _own_file)
