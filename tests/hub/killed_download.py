"""An app that downloads, to be killed. Its argument is the model; it writes the id of its child first."""

import sys
import threading
import time

import psutil

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_process import DownloadProcess
from rdchat.hub.endpoint import Tokens
from tests.hub.downloading import LIMITS

if __name__ == "__main__":
    ended = threading.Event()

    def tell(progress: Download) -> None:
        if progress.state is DownloadState.FAILED:
            sys.stderr.write(f"{progress.problem}\n")
        if progress.state in {DownloadState.FINISHED, DownloadState.FAILED}:
            ended.set()

    process = DownloadProcess(Tokens(), LIMITS)
    process.start(Download(sys.argv[1]), tell)
    while not (children := psutil.Process().children()):
        time.sleep(0.001)
    sys.stdout.write(f"{children[0].pid}\n")
    sys.stdout.flush()
    ended.wait(60)
    process.close()
