"""Cases of drafters: named ones, and ones in the person's own folder while another model is used."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.case import Call, Case, Kind, ask
from tests.hostile.folder_harms import pickled
from tests.hostile.harm import (
    ODD_FILES,
    Harm,
    deep_json,
    edited,
    with_bytes,
    with_cut,
    with_each_tensor,
    with_flips,
    with_header,
    with_json,
    with_numbers,
    with_odd_file,
    without,
)
from tests.hostile.samples import HEADS, copy_of, samples
from tests.hostile.weight_harms import WEIGHTS

_FILES = ("config.json", "model.safetensors")


def _shape(**changes: Any) -> Harm:
    return edited("config.json", lambda config: config["architecture"].update(changes))


def _target(**changes: Any) -> Harm:
    return edited("config.json", lambda config: config["target"].update(changes))


_SIZES = ("hidden_size", "draft_vocabulary_size", "exit_size", "state_size", "blocks")
_VALUES: Mapping[str, Any] = {"0": 0, "-1": -1, "10**9": 10**9, "2**63": 2**63, "text": "x", "a fraction": 1.5}
HARMS: Mapping[str, Harm] = {
    **{
        f"{key} is {said}": _shape(**{key: value})
        for key in _SIZES
        for said, value in _VALUES.items()
        if key == "blocks" or said in {"10**9", "text"}
    },
    "10**9 target layers": _shape(target_layers=[10**9]),
    "a million target layers": _shape(target_layers=[0] * 10**6),
    "target layers that are no list": _shape(target_layers="all"),
    "a cell nobody knows": _shape(cell="evil"),
    "an output of its own of 10**9": _shape(output="own", draft_vocabulary_size=10**9),
    "an inverse temperature that is no number": _shape(inverse_temperature=float("nan")),
    "a field nobody knows": _shape(evil=1),
    "no architecture": without("config.json", "architecture"),
    "an architecture that is a list": with_json("config.json", architecture=[]),
    "no target": without("config.json", "target"),
    "a target that is text": with_json("config.json", target="model"),
    "another target": _target(hash="0" * 64),
    "a target of odd types": _target(name=[1], architecture={"a": 1}),
    "a target with controls in its name": _target(name="m\n\x1b[31mevil", hash="0" * 64),
    "format 2": with_json("config.json", format=2),
    "a config nested too deeply": with_bytes("config.json", deep_json()),
    "a config that is a list": with_bytes("config.json", "[]"),
    "a config that is no text": with_bytes("config.json", bytes(range(256))),
    "a checkpoint of Apple's of 10**9": with_bytes(
        "config.json",
        '{"model_type": "recurrent_drafting_drafter", "hidden_size": 1000000000, "vocab_size": 1000000000,'
        ' "exit_dim": 1000000000, "num_draft_layers": 1000000000, "rnn": true, "emb_norm": false}',
    ),
    "a card that is a link to /dev/zero": with_odd_file("card.md", "a link to /dev/zero"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "tokens beyond the rows": with_header(lambda header: header["draft_vocabulary"].update(dtype="F32")),
    "weights of types of their own": with_each_tensor(dtype="U8"),
    "a pickle as the weights": pickled("model.safetensors"),
    **{f"{what} as {name}": with_odd_file(name, what) for name in _FILES for what in ODD_FILES},
    **{
        f"{name} with bytes changed ({seed})": with_flips(name, seed, within=3000)
        for name in _FILES[:2]
        for seed in range(4)
    },
    **{f"{name} cut short ({seed})": with_cut(name, seed) for name in _FILES[:2] for seed in range(3)},
    **{name: harm for name, harm in WEIGHTS.items() if name.startswith("a header")},
}


_YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256, "mscale": 1e25}
_NAN, _INFINITE = float("nan"), float("inf")
SCORES: Mapping[str, Harm] = {
    "matrices of 1e6": with_numbers(1e6),
    "matrices of 1e30": with_numbers(1e30),
    "vectors of 1e6": with_numbers(1e6, matrices=False, vectors=True),
    "weights that are no numbers": with_numbers(_NAN, vectors=True),
    "infinite weights": with_numbers(_INFINITE, vectors=True),
    "a yarn mscale of 1e25": with_json("config.json", rope_scaling=_YARN),
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


def _own(harm: Harm, arguments: Callable[[], Call], folder: Path) -> Call:
    """Put it into the person's own folder, bound to a model that is not asked for; that must then work as ever."""
    drafters = folder / "data" / "drafters"
    drafters.mkdir(parents=True)
    harm(copy_of("drafter", drafters))
    call = arguments()
    return Call(call.arguments, model=call.model, data=folder / "data", statuses=(0,))


def _ask_another() -> Call:
    return ask(samples() / "gemma3")


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
        yield Case(Kind.DRAFTERS, f"{name}, of one's own", partial(_own, HARMS[name], _ask_another))
    for name in own[::5]:
        yield Case(Kind.DRAFTERS, f"{name}, looked at by doctor", partial(_own, HARMS[name], lambda: Call(("doctor",))))

    def own_file(folder: Path) -> Call:
        (folder / "data").mkdir()
        (folder / "data" / "drafters").write_text("no folder")
        return Call(_ask_another().arguments, data=folder / "data", statuses=(0,))

    yield Case(Kind.DRAFTERS, "a file as one's own folder of drafters", own_file)
