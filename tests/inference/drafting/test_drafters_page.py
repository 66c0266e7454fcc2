"""The page that says what drafts for which model names every family that mlx-lm loads, and says what the code does."""

import re

from rdchat.hub import PublishedKind
from rdchat.inference.models.model_config import PLAIN, _mlx_lm_folder, _model_remapping, unreadable
from tests.inference.drafting.drafters_table import PAGE, rows
from tests.inference.families import WITHOUT_STATES

UNKNOWN = "rdchat does not know their layout"


def loaded_types() -> dict[str, str]:
    """Return the model types that mlx-lm loads, each with the type whose module it uses."""
    folder = _mlx_lm_folder()
    modules = [path.stem for path in (folder / "models").glob("*.py") if "class ModelArgs" in path.read_text("utf-8")]
    return {name: name for name in modules} | _model_remapping(folder)


def test_every_family_that_mlx_lm_loads_is_in_the_table_once() -> None:
    assert rows().keys() == loaded_types().keys()


def test_the_table_says_which_mtp_layers_are_read() -> None:
    for name, module in loaded_types().items():
        reason = unreadable(module)
        expected = (
            f"not read: {reason}" if reason else "read where somebody trained them" if module in PLAIN else "read"
        )
        assert rows()[name][0] == ("" if reason == UNKNOWN else expected), name


def test_the_table_names_kinds_of_drafters_that_rdchat_reads() -> None:
    known = {kind.value for kind in PublishedKind} | {"DFlash 2"}
    for name, (_, drafters) in rows().items():
        kinds = {part.strip() for part in re.split(r"[,;]", re.sub(r"\([^)]*\)", "", drafters)) if part.strip()}
        assert kinds <= known, name


def test_the_page_names_the_families_without_hidden_states() -> None:
    sentence = re.search(r"hidden states, which(.*?)do not give", PAGE, re.DOTALL)
    assert sentence is not None
    assert WITHOUT_STATES.keys() == set(re.findall(r"`([^`]+)`", sentence[1]))
