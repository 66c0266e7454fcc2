"""What to enter in coding agents so that they use the server: `resources/agents.toml`."""

import re
import tomllib
from collections.abc import Mapping
from importlib import resources

from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from rdchat.ui.style.buttons import CopyButton
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import choice_box, column, row, text_field
from rdchat.ui.style.theme import SMALL, Theme

_TEXT = resources.files("rdchat.ui").joinpath("resources/agents.toml").read_text(encoding="utf-8")
AGENTS: Mapping[str, Mapping[str, str]] = {agent["name"]: agent for agent in tomllib.loads(_TEXT)["agent"]}
"""By name: `where` the lines go, the `lines` with fields to fill in, and the version with which they were `tried`."""
_FIELD = re.compile(r"\{(url|key|model|context)\}")
_LINES = 7
_NOT_TRIED = "Not yet tried with the agent itself."


class AgentSetup(QWidget):
    """Shows the lines for one agent; the key is hidden in them until they are copied."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._values = {"url": "", "key": "", "model": "", "context": ""}
        self.agent = choice_box("Agent", "", ((name, name) for name in AGENTS), letters=0)
        self.agent.currentIndexChanged.connect(self._show)
        self.where = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.lines = text_field(_LINES, "Shown while the server is on and a model is loaded.", "Lines for the agent")
        self.lines.setReadOnly(True)
        self.lines.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.lines.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.copy_lines = CopyButton("Copy the lines, with the key", theme, lambda: self._filled(self._values))
        column(row(self.agent, None, self.copy_lines), self.where, self.lines, within=self, spacing=SMALL)

    def show_values(self, **values: str) -> None:
        """Show the lines with other values of some fields; without an address, a key or a model there are none."""
        self._values |= values
        self._show()

    def _show(self) -> None:
        agent = AGENTS[self.agent.currentText()]
        self.where.setText(agent["where"] if "tried" in agent else f"{agent['where']} {_NOT_TRIED}")
        is_ready = all(self._values.values())
        self.lines.setPlainText(self._filled(self._values | {"key": "\N{BULLET}" * 16}) if is_ready else "")
        self.copy_lines.setEnabled(is_ready)

    def _filled(self, values: Mapping[str, str]) -> str:
        return _FIELD.sub(lambda field: values[field[1]], AGENTS[self.agent.currentText()]["lines"].strip())
