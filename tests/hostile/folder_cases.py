"""Cases of model folders: each harm done to a copy of the llama sample, and some to other families."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind, ask
from tests.hostile.data import read
from tests.hostile.harm import ODD_FILES, Harm, change_json, harm_of, with_cut, with_flips, with_odd_file
from tests.hostile.samples import FAMILIES, copy_of, samples

_THERE = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors")
_LOOKED_FOR = (
    "model.safetensors.index.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json", "vocab.json", "merges.txt", "tokenizer.model",
)  # fmt: skip
_SEEDS = range(6)
_HEADER_BYTES = 4000  # of the sample's weights
_NUMBERS: Sequence[object] = (0, -1, 2**31, 2**63, "two", None, 1.5, [])
_FAMILY_KEYS = {
    "qwen3_moe": ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step"),
    "gemma3": ("sliding_window", "sliding_window_pattern"),
    "mamba2": ("state_size", "conv_kernel", "n_groups"),
    "deepseek_v3": ("kv_lora_rank", "n_routed_experts", "first_k_dense_replace"),
    "gpt_oss": ("num_local_experts", "sliding_window"),
    "qwen3_next": ("linear_num_value_heads", "full_attention_interval"),
}


def folder_case(name: str, harm: Harm, base: str = "model", of: Callable[[Path], Call] = ask) -> Case:
    """Return the case of a harmed copy of a sample."""

    def make(folder: Path) -> Call:
        model = copy_of(base, folder)
        harm(model)
        return of(model)

    return Case(Kind.FOLDERS, name, make)


def _checked_as_a_pair(model: Path) -> Call:
    return Call(("models", "check-pair", str(samples() / "model"), str(model)), model=model)


def _benchmarked(model: Path) -> Call:
    arguments = ("bench", "--model", str(model), "--modes", "off", "--trials", "1", "--max-tokens", "2")
    return Call(arguments, model=model)


def _asked_to_draft(model: Path) -> Call:
    return ask(samples() / "model", "--mode", "speculative", "--draft-model", str(model))


def folder_cases() -> Iterator[Case]:
    """Yield all cases of model folders."""
    listed = {each["name"]: each for each in read("folders")}
    for name, each in listed.items():
        yield folder_case(name, harm_of(each["do"]), of=partial(ask, statuses=(1,)) if "refused" in each else ask)
    for name in ("auto_map of the tokenizer", "auto_map of a tokenizer in the config"):
        harm = harm_of(listed[name]["do"])
        yield folder_case(f"{name}, checked as a pair", harm, of=_checked_as_a_pair)
        yield folder_case(f"{name}, benchmarked", harm, of=_benchmarked)
        yield folder_case(f"{name}, asked to draft", harm, of=_asked_to_draft)
    for name in (*_THERE, *_LOOKED_FOR):
        for what in ODD_FILES:
            yield folder_case(f"{what} as {name}", with_odd_file(name, what))
    yield from _damaged()
    yield from _families()
    yield from _whole_folders()


def _damaged() -> Iterator[Case]:
    for name in _THERE:
        within = _HEADER_BYTES if name == "model.safetensors" else None
        for seed in _SEEDS:
            yield folder_case(f"{name} with bytes changed ({seed})", with_flips(name, seed, within=within))
        for seed in _SEEDS[::2]:
            yield folder_case(f"{name} cut short ({seed})", with_cut(name, seed))


def _said(key: str, value: object, folder: Path) -> None:
    change_json(folder / "config.json", **{key: value})


def _families() -> Iterator[Case]:
    for family in FAMILIES:
        yield folder_case(f"{family} as it is", lambda _folder: None, family)
        for place, key in enumerate(_FAMILY_KEYS[family]):
            for value in _NUMBERS[place % 2 :: 2]:
                yield folder_case(f"{family} with {key} {value!r}", partial(_said, key, value), family)


def _whole_folders() -> Iterator[Case]:
    """Yield what stands in the place of the folder itself."""
    for what, put in ODD_FILES.items():

        def make(folder: Path, put: Callable[[Path], object] = put) -> Call:
            put(folder / "model")
            return ask(folder / "model")

        yield Case(Kind.FOLDERS, f"{what} as the folder", make)

    def crowded(folder: Path) -> None:
        for number in range(20_000):
            (folder / f"{number}.txt").touch()

    yield folder_case("20,000 files beside the model", crowded)
    yield folder_case("a link to the folder in the folder", lambda folder: (folder / "again").symlink_to(folder))

    def renamed(folder: Path) -> Call:
        return ask(copy_of("model", folder).rename(folder / "m\n\x1b[31mrdchat: all is well\u202e"))

    yield Case(Kind.FOLDERS, "a folder with controls in its name", renamed)
