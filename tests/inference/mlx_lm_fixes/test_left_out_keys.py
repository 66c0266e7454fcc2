"""A key that a config.json leaves out means what transformers' class gives it, for each key of each family.

The classes need no torch. What their networks compute is compared by `make families` (docs/families.md).
"""

import json
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.utils import MODEL_REMAPPING
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from rdchat.inference.mlx_lm_fixes import config_fixes
from rdchat.inference.mlx_lm_fixes.config_fixes import class_settings
from rdchat.inference.models import model_settings
from tests.inference.mlx_lm_fixes.module_sources import MODULES

# Without a module that can be imported, or whose arguments have no class defaults: they are refused.
REFUSED = {"bailing_hybrid", "gpt2", "kimi_linear", "lfm2_moe", "longcat_flash", "mimo_v2_flash", "olmo", "pixtral"}
# Types whose text part is a class of another family, so that a config.json always has it.
GIVEN = {"idefics3": {"text_config"}, "smolvlm": {"text_config"}}
TYPES = sorted(name for name in CONFIG_MAPPING if MODEL_REMAPPING.get(name, name) in MODULES and name not in REFUSED)
SLOW = pytest.mark.slow


class OwnProcess:
    """Reads configurations in this process."""

    settings = staticmethod(class_settings)


def arguments(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that mlx-lm's module gets for a configuration."""
    monkeypatch.setattr(model_settings, "read_config", lambda _: config)
    settings: Any = model_settings.model_settings(Path(), OwnProcess())  # type: ignore[arg-type]
    made = model_settings.model_classes(settings.config)[1].from_dict(settings.config)
    return {"values": settings.values, **vars(made)}


@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each == "exaone4" else SLOW) for each in TYPES])
def test_a_key_that_is_left_out_means_what_transformers_gives_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_settings, "_tied_rows", lambda *_: {})
    monkeypatch.setattr(model_settings, "cached_fact", lambda _name, _folder, find: find())
    kind = CONFIG_MAPPING[name]
    whole = json.loads(kind().to_json_string(use_diff=False))
    parts = ["", *(["text_config"] if isinstance(whole.get("text_config"), dict) else [])]
    for part in parts:
        for key in (whole[part] if part else whole).keys() - {"model_type"} - GIVEN.get(name, set()):
            config = json.loads(json.dumps(whole))
            del (config[part] if part else config)[key]
            made = config_fixes._made(kind, config)
            if made is not None:
                wanted = arguments(monkeypatch, config_fixes._plain(made))
                assert arguments(monkeypatch, config) == wanted, (part, key)
