"""`rdchat report` writes one file without anybody's names, paths or texts."""

import json
import shutil
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication

from rdchat import cli, host
from rdchat.commands.report_page import report_page
from tests.services.conftest import AwakeLog

REPORT: dict[str, Any] = {
    "format": 1,
    "machine": {"system": "macOS 26.0 arm64", "device": "Apple <M3>", "mlx": "0.32", "qt": None},
    "window": {"beats": 900, "late_ms_median": 0.2, "late_ms_p99": 4.0, "late_ms_longest": 12.5, "characters": 6000},
    "models": [
        {
            "model": {"architecture": "llama", "dtype": "4bit", "parameters": 8_000_000_000, "load_ms": 812.0},
            "capability": {"verifies": "tree", "reason": "", "errors": {"second": 0.012, "limit": 0.05}},
            "graph": {"a plain step": {"primitives": 900, "by_name": {"Add": 900}}},
            "rows": {"128": {"plain_step_ms": 20.0, "in_plain_steps": {"1": 1.3, "4": 1.9, "32": 3.1}}},
            "plain": {
                "128": {
                    "prompt_tokens": 130,
                    "decode_tps": 50.0,
                    "mlx_lm_decode_tps": 50.5,
                    "ratio_to_mlx_lm": 0.99,
                    "peak_memory_bytes": {"rdchat": 5 * 10**9, "mlx-lm": 5 * 10**9},
                }
            },
            "divergences": [
                {"mode": "drafter", "temperature": 0.7, "tokens": 500, "per_thousand": 2.0, "gaps": [0.01]}
            ],
            "bench": {
                "modes": [
                    {
                        "mode": "auto",
                        "decode_tps": {"median": 70.0},
                        "ratio_to_plain": {"median": 1.4},
                        "ratio_to_mlx_lm": None,
                        "tokens_per_target_call": {"median": 2.1},
                        "host_syncs_per_round": {"median": 1.0},
                        "identical_text": True,
                    }
                ]
            },
        },
        {"failure": "It did not load."},
    ],
    "left_out": ["model 1: a <part>: no time left"],
}


class Balance(HTMLParser):
    """Fails where an element is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_shows_every_part_and_takes_nothing_for_markup(qapp: QCoreApplication) -> None:
    page = report_page(REPORT)
    balance = Balance()
    balance.feed(page)
    for words in ("Apple &lt;M3&gt;", "a &lt;part&gt;", "8,000 million weights", "1.40", "<svg", "It did not load."):
        assert words in page
    assert "<script" not in page
    assert "http" not in page


@pytest.mark.slow
def test_a_report_of_models_holds_no_names_and_no_paths(
    qapp: QCoreApplication, small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(small_model, tmp_path / "Aunt Mary's model")
    out = tmp_path / "report.zip"
    arguments = ["report", "--out", str(out), "--minutes", "0.1", "--no-window"]
    assert cli.main([*arguments, "--models", str(model), str(tmp_path / "none")]) == 0
    with zipfile.ZipFile(out) as file:
        assert file.namelist() == ["report.html", "report.json"]
        texts = [file.read(name).decode() for name in file.namelist()]
    report = json.loads(texts[1])
    assert report["models"][0]["model"]["architecture"] == "llama"
    assert report["models"][1] == {"failure": "It did not load."}
    assert "the window: --no-window was given" in report["left_out"]
    assert not any(word in text for word in (str(tmp_path), str(Path.home()), "Mary") for text in texts)
    assert "Left out: the window: --no-window was given." in capsys.readouterr().out


def test_the_machine_stays_awake_while_it_is_measured(
    qapp: QCoreApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = AwakeLog(), tmp_path / "report.zip"
    monkeypatch.setattr(host, "keep_awake", log)
    arguments = ["report", "--out", str(out), "--no-window", "--models", str(tmp_path / "none")]
    assert cli.main(arguments) == 0
    assert (log.entered, log.inside) == (1, 0)
    with zipfile.ZipFile(out) as file:
        machine = json.loads(file.read("report.json"))["machine"]
    assert machine["low_power_mode"] is False or host.MACOS
    assert "on_battery" in machine


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "--out", str(tmp_path / "none" / "report.zip")]) == 1
    assert "cannot be written" in capsys.readouterr().err
