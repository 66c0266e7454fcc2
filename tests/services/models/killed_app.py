"""The real downloads service in a program of its own, to be killed. It goes on with what the one before left.

Its first argument is the model; it says `went on` or `started`, then `finished`, on lines of its standard output.
"""

import sys
from dataclasses import replace

from PySide6.QtCore import QCoreApplication

from rdchat.hub.downloads.download_progress import DownloadProgress, DownloadState
from rdchat.hub.tokens import Tokens
from rdchat.services.models.downloads import Downloads
from tests.hub.downloading import LIMITS


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    app = QCoreApplication(sys.argv[:1])
    name = sys.argv[1]
    downloads = Downloads(Tokens(), replace(LIMITS, lock_wait_s=30.0))

    def on_progress(progress: DownloadProgress) -> None:
        if progress.state is DownloadState.FAILED:
            sys.stderr.write(f"{progress.problem}\n")

    def on_restored() -> None:
        if not downloads.progress():
            say("started")
            downloads.start(name)

    downloads.progressed.connect(on_progress)
    downloads.went_on.connect(lambda _went_on: say("went on"))
    downloads.finished.connect(lambda _progress: (say("finished"), app.quit()))
    downloads.restored.connect(on_restored)
    downloads.restore()
    app.exec()
    downloads.close()
