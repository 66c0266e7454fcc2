"""The process that draws formulas: `rdchat --child formulas`. `FormulaDrawer` asks it."""

from dataclasses import asdict
from typing import Any

from rdchat.chat.formulas.drawing import draw_formula
from rdchat.work.job import Job
from rdchat.work.served import serve


def main() -> int:
    """Answer requests until the parent has gone."""
    return serve({"draw": _draw}, prepare=lambda: draw_formula("x", True))  # that reads the font


def _draw(_job: Job[Any], tex: str, display: bool) -> dict[str, Any] | None:
    formula = draw_formula(tex, display)
    return asdict(formula) if formula else None
