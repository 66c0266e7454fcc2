"""An app that downloads, to be killed: `python -m tests.hub.killed_download REPOSITORY`. Prints its child's id first."""

import sys
import threading

import psutil

from rdchat.hub.downloads.download_process import DownloadProcess
from rdchat.hub.downloads.download_progress import DownloadProgress, DownloadState
from rdchat.hub.tokens import Tokens
from tests.hub.downloading import LIMITS

if __name__ == "__main__":
    ended = threading.Event()

    def tell(progress: DownloadProgress) -> None:
        if progress.state is DownloadState.FINISHED:
            ended.set()

    process = DownloadProcess(tell, Tokens(), LIMITS)
    process.start(sys.argv[1])
    print(psutil.Process().children()[0].pid, flush=True)
    ended.wait(60)
    process.close()
