"""Makes a drafter from parts of a repository's files, fetched by ranges; resumes at the last byte."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from rdchat.host import flush_to_disk
from rdchat.hub.downloads.download import DownloadState
from rdchat.hub.downloads.download_record import remove_if_empty
from rdchat.hub.downloads.file_download import FileDownload, PartialFile
from rdchat.hub.downloads.parts_order import PRIVATE, WEIGHTS, PartsOrder, discard_order, is_complete, order_in
from rdchat.hub.downloads.repository_download import RepositoryDownload
from rdchat.hub.hub_client import make_async_client
from rdchat.hub.hub_errors import ChangedFileError, HubError, MissingError

_SMALL = "Free some space, or set RDCHAT_DATA_DIR to a folder on another disk."


@dataclass(frozen=True, slots=True)
class PartsDownload(RepositoryDownload):
    """Fetches what a `PartsOrder` names. Its repository is the drafter's place."""

    async def _run(self) -> Path:
        place, order = self.repository, order_in(self.repository)
        self.running.note("", "")
        if order is None:
            if is_complete(place):  # it was killed before it could say so
                shutil.rmtree(place.work)
                return place.folder
            remove_if_empty(place)
            raise HubError(f"Nothing is left of the download into {place.folder}.", "Begin it again.")
        try:
            return await self._made(order)
        except ChangedFileError:
            discard_order(place)
            raise
        except MissingError as error:
            raise MissingError(error.message, "If this version is gone for good, begin again.") from error

    async def _made(self, order: PartsOrder) -> Path:
        place, running, file = self.repository, self.running, order.weights
        running.files = order.files
        partial = PartialFile(place.work, file, PRIVATE)
        if not (place.folder / WEIGHTS).exists():
            running.done[file.digest] = partial.size
            self._check_room([partial], _SMALL)
            running.state = DownloadState.DOWNLOADING
            async with make_async_client(self.limits.stall_s, self.limits.connect_s) as client:
                access, head = (client, self.endpoint), order.head.encode("latin-1")
                await FileDownload(*access, order.files, partial, self.limits, running, head, order.parts).run()
            flush_to_disk(partial.path)
        running.done[file.digest] = file.size
        order.complete(place, partial.path)
        return place.folder
