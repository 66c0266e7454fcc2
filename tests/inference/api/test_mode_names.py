"""People may type `recurrent` for the mode `drafter`."""

from pathlib import Path

import pytest

from rdchat.cli import main
from rdchat.inference.api.requests import Mode


def test_recurrent_is_read_as_drafter() -> None:
    assert Mode("recurrent") is Mode("drafter") is Mode.DRAFTER
    assert (Mode.DRAFTER.value, Mode.DRAFTER.label) == ("drafter", "Drafter head")
    assert "recurrent" not in [mode.value for mode in Mode]
    with pytest.raises(ValueError, match="repeating"):
        Mode("repeating")


@pytest.mark.parametrize("arguments", [("ask", "hi", "--mode"), ("bench", "--modes")])
def test_the_command_line_takes_recurrent(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes on to look for the model; a name that is no mode is refused before."""
    model = "--model", str(tmp_path / "none")
    assert main([*arguments, "recurrent", *model]) == 1
    assert f"There is no model at {tmp_path / 'none'}" in capsys.readouterr().err
    with pytest.raises(SystemExit) as refused:
        main([*arguments, "repeating", *model])
    assert refused.value.code == 2
    assert "drafter" in capsys.readouterr().err
