"""An app that downloads, to be killed. It writes the id of its child first.

Its arguments are the model, and the commit and the drafter where its files make one.
"""

import sys
import threading
import time

import psutil

from rdchat.hub import Tokens
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_process import DownloadProcess
from tests.hub.downloads.downloading import LIMITS

if __name__ == "__main__":
    ended = threading.Event()

    def tell(progress: Download) -> None:
        if progress.state is DownloadState.FAILED:
            sys.stderr.write(f"{progress.problem}\n")
        if progress.state in {DownloadState.FINISHED, DownloadState.FAILED}:
            ended.set()

    process = DownloadProcess(Tokens(), LIMITS)
    name, *parts = sys.argv[1:]
    process.start_download(Download(name, parts[0], drafter=parts[1]) if parts else Download(name), tell)
    while not (children := psutil.Process().children()):
        time.sleep(0.001)
    sys.stdout.write(f"{children[0].pid}\n")
    sys.stdout.flush()
    ended.wait(60)
    process.close()
