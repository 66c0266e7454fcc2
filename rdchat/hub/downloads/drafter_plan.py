"""A drafter to be fetched, whose files are made from parts of a repository's."""

from dataclasses import dataclass

from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.downloads.download import Download
from rdchat.hub.downloads.download_record import replace_records
from rdchat.hub.known_files import RepositoryFiles


@dataclass(frozen=True, slots=True)
class DrafterPlan:
    """A drafter to be fetched, such as a model's MTP layers."""

    repository: CachedRepository
    """Where it goes, among rdchat's drafters."""
    files: RepositoryFiles
    """The drafter's files: the weights, made from byte ranges, the card, and the configuration last."""
    is_saved: bool = False
    """Whether its record is on disk, from a download that was not finished."""

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return self.files.files[0].size

    def begin(self) -> Download:
        """Write the record, and return the download to start.

        Raises:
            StorageError: If it cannot be written, or another program downloads the same.
        """
        files, repository = self.files, self.repository
        if not self.is_saved and not repository.is_complete:
            with repository.locked():
                replace_records(repository, files)
        return Download(files.repository, files.commit, is_model=False, drafter=repository.folder.name)
