"""Makes README's pictures: runs the whole app offscreen on the default model, and saves its windows to docs/images.

Usage: PYTHONPATH=. python scripts/readme_pictures.py [FOLDER]     (on an idle machine, some five minutes)
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np
from PIL import Image
from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget

from rdchat import paths
from rdchat.app import App, make_engine
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import Appearance, Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role, SamplingParams
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.files.chips import FileChip
from rdchat.ui.files.sent_text import PartSheet
from scripts.seeing.drawings import drawing
from scripts.seeing.make_folder import make_folder

_CODE = "Write a Python function that reverses a list. Explain it, and show how it is used."
_AGAIN = "Write the same function again, with a comment in each line."
_STORY = "Write a short story about an old sailor and a lighthouse."
_DRAWING = 1
_LIMIT_S = 600
_SLICE_S = 40  # of what the engine does while it is idle, at most
_QUESTION = "When was the bridge of Aldea built?"
_MATHS = r"""The roots of $ax^2 + bx + c = 0$ are
$$x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$$
where the discriminant $\Delta = b^2 - 4ac$ decides how many there are.

| Discriminant | Roots | Example |
|---|---|---|
| $\Delta > 0$ | two real ones | $x^2 - 3x + 2$ |
| $\Delta = 0$ | one, twice | $x^2 - 2x + 1$ |
| $\Delta < 0$ | two complex ones | $x^2 + 1$ |

In Python:
```python
def roots(a: float, b: float, c: float) -> tuple[complex, complex]:
    d = (b * b - 4 * a * c) ** 0.5  # complex where it is negative
    return (-b + d) / (2 * a), (-b - d) / (2 * a)
```
- [x] read the formula
- [ ] try it on $2x^2 - 8$
"""


def main() -> None:
    """Make all pictures in turn."""
    pictures = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images").resolve()
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        _move_folders(Path(folder))
        qt = QApplication([])
        settings = SettingsStore(paths.settings_path())
        sampling = SamplingParams(temperature=0, max_tokens=150)
        model = str(paths.default_model_dir())
        settings.save_settings(
            Settings(model=model, sampling=sampling, titles_by_model=False, appearance=Appearance.LIGHT)
        )
        store = ConversationStore(paths.database_path())
        app = App(qt, store, settings, make_engine)
        app.open_window()
        try:
            _Pictures(qt, app, store, pictures).make(Path(folder))
        finally:
            app.window.close()
            app.end_app()


def _move_folders(folder: Path) -> None:
    """Keep the person's own chats and settings out of the pictures."""
    model = paths.default_model_dir()
    os.environ |= {"RDCHAT_DATA_DIR": str(folder / "data"), "RDCHAT_CACHE_DIR": str(folder / "cache")}
    paths.default_model_dir().parent.mkdir(parents=True)
    paths.default_model_dir().symlink_to(model, target_is_directory=True)


class _Pictures:
    def __init__(self, qt: QApplication, app: App, store: ConversationStore, folder: Path) -> None:
        self._qt = qt
        self._store = store
        self._folder = folder
        self._window = app.window
        self._controller = app.controller
        self._worked_at = time.monotonic()
        self._controller.model_slot.engine.idle_worked.connect(self._note_work)

    def make(self, scratch: Path) -> None:
        self._wait(lambda: self._controller.model_slot.info is not None)
        # It prepares and measures what it drafts with, a slice at a time.
        self._wait(lambda: time.monotonic() - self._worked_at > _SLICE_S)
        self._chat()
        self._drafts()
        self._reading()
        self._models()
        self._files(scratch)
        self._seeing(scratch)

    def _chat(self) -> None:
        self._window.resize(1280, 800)
        for prompt in (_CODE, _AGAIN):
            self._ask(prompt)
        for appearance in (Appearance.LIGHT, Appearance.DARK):
            self._look(appearance)
            self._save(self._window, f"window-{appearance.value}")
        self._look(Appearance.LIGHT)

    def _drafts(self) -> None:
        actions = self._window.actions_
        actions.new_chat.trigger()
        actions.draft_drafter.trigger()
        self._ask(_STORY)
        tokens = self._opened(actions.tokens.trigger)
        tokens.resize(900, 680)
        self._rest(2)
        self._save(tokens, "drafts-light")
        tokens.close()
        actions.draft_auto.trigger()

    def _reading(self) -> None:
        store = self._store
        chat = store.create_conversation("Quadratic equations")
        prompt = store.add_message(chat.id, None, Role.USER, "How do I solve a quadratic equation?")
        store.add_message(chat.id, prompt.id, Role.ASSISTANT, _MATHS)
        self._window.resize(1180, 900)
        self._controller.chats.update_list()
        self._controller.chat.open_chat(chat.id)
        self._rest(5)
        self._save(self._window, "reading-light")

    def _models(self) -> None:
        models = self._opened(self._window.actions_.models.trigger)
        models.resize(1000, 680)
        self._rest(4)
        for label in models.findChildren(QLabel):  # a path of this machine
            if str(Path(paths.default_model_dir())) in label.text():
                label.setText("rdchat  ·  ~/Library/Caches/rdchat/models/smollm2-135m-instruct")
        self._save(models, "models-light")
        models.close()

    def _files(self, scratch: Path) -> None:
        report = scratch / "long-report.md"
        report.write_text("# Report\n" + "".join(f"\n{_paragraph(number)}\n" for number in range(160)))
        self._look(Appearance.DARK)
        self._window.resize(1180, 780)
        self._window.actions_.new_chat.trigger()
        self._rest(1)
        self._controller.chat.files.add_files([str(report)])
        self._type(_QUESTION)
        self._rest(6)
        chip = self._window.findChild(FileChip)
        assert chip is not None
        sheet = self._opened(chip.click)
        assert isinstance(sheet, PartSheet)
        self._rest(3)
        source = self._window.grab()
        painter = QPainter(source)
        middle = QPoint((source.width() - sheet.width()) // 2, (source.height() - sheet.height()) // 3)
        painter.drawPixmap(middle, sheet.grab())
        painter.end()
        self._save(source, "files-dark")
        sheet.close()
        self._controller.chat.files.remove_files()
        self._window.conversation.composer.field.clear()

    def _seeing(self, scratch: Path) -> None:
        model = scratch / "Demonstration"
        image = scratch / "drawing.png"
        make_folder(model)
        Image.fromarray(drawing(np.random.default_rng(_DRAWING), 256)[0]).save(image)
        self._look(Appearance.LIGHT)
        self._window.resize(760, 620)
        self._window.actions_.new_chat.trigger()
        self._controller.model_slot.load_model(str(model))
        self._wait(lambda: not self._controller.model_slot.loading)
        self._rest(15)
        self._controller.chat.files.add_files([str(image)])
        self._rest(3)
        self._ask("Describe the picture in one sentence.")
        self._save(self._window, "seeing-light")

    def _note_work(self) -> None:
        self._worked_at = time.monotonic()

    def _look(self, appearance: Appearance) -> None:
        settings = self._controller.settings
        settings.change(replace(settings.values, appearance=appearance))
        self._rest(2)

    def _type(self, text: str) -> None:
        QTest.keyClicks(self._window.conversation.composer.field, text)

    def _ask(self, prompt: str) -> None:
        before = len(self._controller.chat.path)
        self._type(prompt)
        QTest.keyClick(self._window.conversation.composer.field, Qt.Key.Key_Return)
        self._wait(lambda: len(self._controller.chat.path) == before + 2)
        self._wait(lambda: self._controller.chat.path[-1].status is not MessageStatus.STREAMING)
        self._wait(lambda: self._controller.replies.state is EngineState.IDLE)
        self._rest(2)

    def _opened(self, act: Callable[[], object]) -> QWidget:
        before = set(QApplication.topLevelWidgets())
        QTimer.singleShot(0, act)
        self._rest(2)
        return next(each for each in QApplication.topLevelWidgets() if each.isVisible() and each not in before)

    def _save(self, source: QWidget | QPixmap, name: str) -> None:
        picture = source if isinstance(source, QPixmap) else source.grab()
        picture.save(str(self._folder / f"{name}.png"))
        print(f"{name}.png, {picture.width()} x {picture.height()}")

    def _wait(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + _LIMIT_S
        while not reached():
            if time.monotonic() > end:
                raise TimeoutError("the app did not get there within ten minutes")
            self._rest(0.1)

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._qt.processEvents()
            time.sleep(0.01)


def _paragraph(number: int) -> str:
    if number == 90:
        return "The bridge of Aldea was built in 1873, after the flood of the year before."
    return f"Section {number}. " + "The quick brown fox measures the river and writes the numbers down. " * 8


if __name__ == "__main__":
    main()
