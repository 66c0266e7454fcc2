"""A list for newcomers of the tests' own."""

import pytest

from rdchat.hub import SuggestedDrafter, Suggestion

MODEL = "org/model-4bit"
DRAFTER = "maker/its-drafter"


def suggest(monkeypatch: pytest.MonkeyPatch, kind: str, model: str = MODEL, drafter: str = DRAFTER) -> Suggestion:
    """Make the list for newcomers name one pair."""
    facts = {"weights_gb": 0.001, "licence": ""}
    own = SuggestedDrafter(repository=drafter, kind=kind, **facts)
    words = {"name": "A model", "family": "llama", "good_for": "", "why": ""}
    suggestion = Suggestion(memory_gb=8, active_share=1, repository=model, drafter=own, sees=False, **words, **facts)
    monkeypatch.setattr("rdchat.hub.newcomers.suggestions", lambda: (suggestion,))
    return suggestion
