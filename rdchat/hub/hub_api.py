"""Asks the hub through `huggingface_hub`: which models there are, and which files one has."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rdchat import __version__
from rdchat.hub.endpoint import check_online
from rdchat.hub.found_models import ASKED_OF_EACH, FoundModel, HubCommit, HubModel, SortBy, found_model
from rdchat.hub.hub_errors import HubError, TemporaryHubError, refusal
from rdchat.hub.known_files import (
    HubFile,
    RepositoryFiles,
    SeveralFilesError,
    check_names,
    chosen_files,
    download_command,
    is_commit,
    is_digest,
    is_repository,
)
from rdchat.hub.tokens import HubAccess

if TYPE_CHECKING:
    import httpx2

_CARD = "README.md"
_MOST_CARD_BYTES = 200_000
_MOST_FILES = 10_000
_MOST_COMMITS = 30
_LONGEST_NAME = 100  # of an account
_MOST_BYTES = 2**50  # of a file
_LOG = logging.getLogger(__name__)


class HubApi:
    """Asks one hub. Each call waits for its answer.

    Args:
        access: The hub, and the person's token for it, if there is one; no other is sent.
    """

    def __init__(self, access: HubAccess) -> None:
        self._access = access
        self._endpoint = access.endpoint

    def search(
        self,
        words: str,
        *,
        sort: SortBy = "downloads",
        limit: int = 30,
        mlx_only: bool = True,
        gguf_only: bool = False,
    ) -> tuple[FoundModel, ...]:
        """Return the models whose names hold these words, those first that `sort` puts first.

        Args:
            words: Of the names.
            sort: What comes first.
            limit: So many at most.
            mlx_only: Those that are marked as MLX's.
            gguf_only: Instead, those that have GGUF files.

        Raises:
            NetworkError: If the hub cannot be asked, or refuses.
        """
        tag = "gguf" if gguf_only else "mlx" if mlx_only else None
        with self._in_words():
            found = self._api().list_models(search=words, filter=tag, sort=sort, limit=limit, expand=ASKED_OF_EACH)
            return tuple(found_model(model) for model in found if is_repository(model.id))

    def account(self) -> str:
        """Return the name of whom the token stands for.

        Raises:
            NetworkError: If the hub cannot be asked, or does not accept the token.
        """
        with self._in_words():
            told = self._api().whoami()
            return str(told["name"])[:_LONGEST_NAME]

    def files(self, repository: str, revision: str = "main", gguf: str = "") -> RepositoryFiles:
        """Return what is to be fetched of a model.

        Args:
            repository: The hub id.
            revision: A branch, tag or commit.
            gguf: The GGUF file to take, where there are several.

        Raises:
            NetworkError: If the hub cannot be asked, or refuses; or if it names what cannot be.
        """
        listed, commit = self.all_files(repository, revision)
        try:
            files, left_out = chosen_files(listed, gguf)
        except HubError as error:
            hint = error.hint
            if isinstance(error, SeveralFilesError):
                hint = f"`{download_command(repository, revision, error.first)}` fetches the first one."
            raise HubError(f"{repository} cannot be fetched. {error.message}", hint) from error
        return RepositoryFiles(repository, revision, commit, files, left_out)

    def all_files(self, repository: str, revision: str = "main") -> tuple[tuple[HubFile, ...], str]:
        """Return all files of a model, with names as the hub gives them, and the commit; raises as `files`."""
        listed, info = self._listed(repository, revision)
        return listed, str(info.sha)

    def commits(self, repository: str) -> tuple[HubCommit, ...]:
        """Return the newest versions of a model's main branch, 30 at most, the newest first; raises as `files`."""
        check_names(repository, "main")
        with self._in_words(repository):
            told = self._api().list_repo_commits(repository)[:_MOST_COMMITS]
        return tuple(HubCommit(each.commit_id, each.created_at.date()) for each in told if is_commit(each.commit_id))

    def look_at(self, repository: str, revision: str = "main") -> HubModel:
        """Return what the hub says of a model, and all its files; raises as `files`."""
        listed, info = self._listed(repository, revision)
        return HubModel(found_model(info), str(info.sha), listed)

    def card(self, repository: str, commit: str) -> str:
        """Return the text of a model's card, the first 200 kB of it; empty where it has none.

        Raises:
            NetworkError: If the hub cannot be asked, or refuses.
        """
        check_names(repository, commit)
        url = self._endpoint.file_url(repository, commit, _CARD)
        with (
            self._in_words(repository, commit),
            _library().get_session().stream("GET", url, headers=self._access.header_for(url)) as answer,
        ):
            if answer.status_code == 404:
                return ""
            answer.raise_for_status()
            data = b""
            for part in answer.iter_bytes():
                data += part
                if len(data) >= _MOST_CARD_BYTES:
                    break
        return data[:_MOST_CARD_BYTES].decode("utf-8", "replace")

    def _listed(self, repository: str, revision: str) -> tuple[tuple[HubFile, ...], Any]:
        """Return all files of a model, and the rest of what the hub says of it."""
        check_names(repository, revision)
        with self._in_words(repository, revision):
            info = self._api().model_info(repository, revision=revision, files_metadata=True, timeout=30.0)
        listed = tuple(_file(sibling) for sibling in info.siblings or ())
        if not is_commit(info.sha or "") or len(listed) > _MOST_FILES:
            raise HubError(f"What the hub says of {repository} cannot be.", "Try again later.")
        return listed, info

    def _api(self) -> Any:
        token: str | bool = (
            self._access.token.reveal() if self._access.token else False
        )  # False: nor any that it finds by itself
        return _library().HfApi(
            endpoint=self._endpoint.url, token=token, library_name="rdchat", library_version=__version__
        )

    @contextmanager
    def _in_words(self, repository: str = "", revision: str = "main") -> Iterator[None]:
        """Say as a NetworkError what goes wrong in asking."""
        import httpx2  # noqa: PLC0415  it takes a quarter of a second, and windows import this module

        check_online()
        host = self._endpoint.host
        try:
            yield
        except httpx2.HTTPStatusError as error:
            raise self._refusal(error.response, repository, revision) from error
        except httpx2.TransportError as error:
            raise TemporaryHubError(f"{host} stopped answering.", "Check the network connection.") from error
        except (httpx2.RequestError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(response := getattr(error, "response", None), httpx2.Response):
                raise self._refusal(response, repository, revision) from error
            _LOG.info("The hub's answer was not understood", exc_info=True)
            raise HubError(f"{host} answers with something that is no hub's answer.", "Try again later.") from error

    def _refusal(self, response: "httpx2.Response", repository: str, revision: str) -> HubError:
        return refusal(response.status_code, response.headers, self._access, repository, revision)


@cache
def _library() -> ModuleType:
    """Import `huggingface_hub`, which takes a third of a second, without its telemetry and with limits of time.

    Its telemetry is a request of its own, for a list of programs to look for in the environment.
    """
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    import huggingface_hub  # noqa: PLC0415
    from huggingface_hub import constants  # noqa: PLC0415

    from rdchat.hub.hub_client import make_client  # noqa: PLC0415

    constants.HF_HUB_DISABLE_TELEMETRY = True  # where somebody imported it before
    huggingface_hub.set_client_factory(make_client)
    return huggingface_hub


def _file(sibling: Any) -> HubFile:
    """Return a file as the hub tells of it; raises HubError where it leaves out size or checksum."""
    lfs = sibling.lfs
    size, digest = (lfs.size, lfs.sha256) if lfs else (sibling.size, sibling.blob_id)
    name = str(sibling.rfilename)
    if not isinstance(size, int) or not 0 <= size <= _MOST_BYTES or not is_digest(str(digest)):
        raise HubError(f"The hub gives no size or checksum for {name[:200]}.", "Try again later.")
    return HubFile(name, size, digest)
