"""An app that downloads, to be killed. It goes on with what the one before left, else it begins.

Its arguments are the model, and `window` for the whole app with its window, else there is only the service. It says
`went on` or `started`, then `finished`, on lines of its standard output.
"""

import sys
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QCoreApplication, QTimer

from rdchat import app as app_module
from rdchat.hub import Tokens
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_record import has_unfinished
from rdchat.services.models.downloads import Downloads
from tests.hub.downloads.downloading import LIMITS
from tests.services.fakes import ScriptedEngine

NAME = sys.argv[1]


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def follow(downloads: Downloads, end: Callable[[], object]) -> None:
    """Say what happens, begin where nothing was left, and end once the model is here."""

    def on_progress(progress: Download) -> None:
        if progress.state is DownloadState.FAILED:
            sys.stderr.write(f"{progress.problem}\n")

    def on_restored() -> None:
        if not downloads.all():
            say("started")
            downloads.start_download(Download(NAME))

    def on_finished(_progress: Download) -> None:
        say("finished")
        end()

    downloads.changed.connect(on_progress)
    downloads.went_on.connect(lambda _went_on: say("went on"))
    downloads.finished.connect(on_finished)
    downloads.restored.connect(on_restored)


def run_service() -> int:
    qt = QCoreApplication(sys.argv[:1])
    downloads = Downloads(Tokens(), replace(LIMITS, lock_wait_s=30.0))
    follow(downloads, qt.quit)
    downloads.restore_downloads()
    qt.exec()
    downloads.end_process()
    return 0


class FollowedApp(app_module.App):
    """Opens the models window's services by hand only where there is nothing to go on with."""

    def open_window(self) -> None:
        super().open_window()
        windows = self.window.windows
        windows.on_model_services.append(lambda models: follow(models.downloads, self.window.close))
        if not has_unfinished():
            QTimer.singleShot(0, lambda: windows.model_services)


def run_window() -> int:
    app_module.make_engine = lambda _settings: ScriptedEngine()  # type: ignore[assignment, misc]
    app_module.installed_drafters = lambda _model: ()
    app_module.App = FollowedApp  # type: ignore[misc]
    return app_module.main()


if __name__ == "__main__":
    sys.exit(run_window() if sys.argv[2:] == ["window"] else run_service())
