"""Names and explanations of what the windows show: `resources/definitions.toml`."""

import tomllib
from collections.abc import Mapping
from importlib import resources

_TEXTS = tomllib.loads(resources.files("rdchat.ui").joinpath("resources/definitions.toml").read_text(encoding="utf-8"))
STAGES: Mapping[str, tuple[str, str]] = _TEXTS.pop("Stages")
"""The name and the definition of each row of the time ledger."""
LEDGER_COLUMNS: Mapping[str, str] = _TEXTS.pop("Ledger columns")
DRAFT_SETTINGS: Mapping[str, str] = _TEXTS.pop("Draft settings")
TOKEN_FACTS: Mapping[str, str] = _TEXTS.pop("Token")
MODES: Mapping[str, str] = _TEXTS.pop("Modes")
ENGINE_STATES: Mapping[str, str] = _TEXTS.pop("Engine states")
WAITING = "Waiting…"
"""What is shown in place of the state until a reply is asked of the model."""
REQUEST_PHASES: Mapping[str, str] = _TEXTS.pop("Request phases")
LEGENDS: Mapping[str, str] = _TEXTS.pop("Legends")
ENDS: Mapping[str, tuple[str, str]] = _TEXTS.pop("Ends")
SAMPLING: Mapping[str, tuple[str, str]] = _TEXTS.pop("Sampling")
TRAINING: Mapping[str, Mapping[str, str]] = _TEXTS.pop("Training")
_ENDED = "".join(f"\n{text}: {reason}" for text, reason in ENDS.values())
DEFINITIONS: Mapping[str, str] = {**_TEXTS, "Ended": f"Why the reply ended.{_ENDED}"}
"""The definition of each figure."""
