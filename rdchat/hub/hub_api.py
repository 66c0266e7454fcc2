"""Questions to the hub: which models there are, and which files one has."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rdchat.hub.endpoint import AnswerLimits, check_online
from rdchat.hub.found_models import ASKED_OF_EACH, FoundModel, HubCommit, HubModel, SortBy, found_model
from rdchat.hub.hub_errors import HubError, refusal
from rdchat.hub.known_files import (
    MOST_FILE_BYTES,
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
    from rdchat.hub.hub_client import Answer

_CARD = "README.md"
_MOST_CARD_BYTES = 200_000
_MOST_FILES = 10_000
_MOST_COMMITS = 30
_LONGEST_NAME = 100  # of an account
_LONGEST_FILE_NAME = 300  # what is longer is no name that could be fetched
_SORTED_BY = {"downloads": "downloads", "likes": "likes", "last_modified": "lastModified"}
_LOG = logging.getLogger(__name__)


class HubApi:
    """Asks one hub. Each call waits for its answer.

    Args:
        access: The hub, and the person's token for it, if there is one.
        limits: What each question may take.
    """

    def __init__(self, access: HubAccess, limits: AnswerLimits = AnswerLimits()) -> None:  # noqa: B008  frozen
        self._access = access
        self._endpoint = access.endpoint
        self._limits = limits

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
        asked = [("search", words), ("filter", tag), ("sort", _SORTED_BY[sort]), ("limit", str(limit))]
        query = [(key, value) for key, value in asked if value] + [("expand", field) for field in ASKED_OF_EACH]
        with self._in_words():
            listed = self._list(f"?{urlencode(query)}", most=limit)
            named = {each["id"]: each for each in listed if isinstance(each, dict) and _is_name(each.get("id"))}
            return tuple(found_model(name, told) for name, told in named.items())

    def account(self) -> str:
        """Return the name of the account of the token.

        Raises:
            NetworkError: If the hub cannot be asked, or does not accept the token.
        """
        with self._in_words():
            return _text(self._object(f"{self._endpoint.url}/api/whoami-v2")["name"])[:_LONGEST_NAME]

    def files(self, repository: str, revision: str = "main", gguf: str = "") -> RepositoryFiles:
        """Return the files of a model to fetch.

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
        listed, told = self._listed(repository, revision)
        return listed, told["sha"]

    def commits(self, repository: str) -> tuple[HubCommit, ...]:
        """Return the newest versions of a model's main branch, 30 at most, the newest first; raises as `files`."""
        check_names(repository, "main")
        with self._in_words():
            listed = self._list(f"/{repository}/commits/main", most=_MOST_COMMITS, repository=repository)
            told = [(_text(each["id"]), _text(each["date"])) for each in listed]
            return tuple(HubCommit(commit, date.fromisoformat(day[:10])) for commit, day in told if is_commit(commit))

    def look_at(self, repository: str, revision: str = "main") -> HubModel:
        """Return a model's facts and all its files; raises as `files`."""
        listed, told = self._listed(repository, revision)
        return HubModel(found_model(repository, told), told["sha"], listed)

    def card(self, repository: str, commit: str) -> str:
        """Return the text of a model's card, the first 200 kB of it; empty where it has none.

        Raises:
            NetworkError: If the hub cannot be asked, or refuses.
        """
        check_names(repository, commit)
        from rdchat.hub.hub_client import read_answer  # noqa: PLC0415  it takes a quarter of a second

        url = self._endpoint.file_url(repository, commit, _CARD)
        with self._in_words():
            answer = read_answer(self._access, url, self._limits, first_bytes=_MOST_CARD_BYTES)
        if answer.status == 404:
            return ""
        if answer.status != 200:
            raise self._refusal(answer, repository, commit)
        return answer.body.decode("utf-8", "replace")

    def _listed(self, repository: str, revision: str) -> tuple[tuple[HubFile, ...], dict[str, Any]]:
        """Return all files of a model, and the hub's whole answer."""
        check_names(repository, revision)
        url = f"{self._endpoint.url}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
        with self._in_words():
            told = self._object(url, repository, revision)
            siblings = told.get("siblings") or []
            if not is_commit(_text(told["sha"])) or len(siblings) > _MOST_FILES:
                raise HubError(f"What the hub says of {repository} cannot be.", "Try again later.")
            return tuple(_file(sibling) for sibling in siblings), told

    def _object(self, url: str, repository: str = "", revision: str = "main") -> dict[str, Any]:
        """Return the JSON object at an address."""
        from rdchat.hub.hub_client import parsed, read_answer  # noqa: PLC0415  it takes a quarter of a second

        answer = read_answer(self._access, url, self._limits)
        if answer.status != 200:
            raise self._refusal(answer, repository, revision)
        told = parsed(answer.body, self._limits)
        if not isinstance(told, dict):
            raise TypeError("no object")
        return told

    def _list(self, path: str, most: int, repository: str = "") -> list[Any]:
        """Return the first entries of a list below `api/models`."""
        from rdchat.hub.hub_client import Answer, read_list  # noqa: PLC0415  it takes a quarter of a second

        answer = read_list(self._access, f"{self._endpoint.url}/api/models{path}", self._limits, most)
        if isinstance(answer, Answer):
            raise self._refusal(answer, repository, "main")
        return answer

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Say as a HubError that an answer is no hub's."""
        check_online()
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _LOG.info("The hub's answer was not understood", exc_info=True)
            host = self._endpoint.host
            raise HubError(f"{host} answers with something that is no hub's answer.", "Try again later.") from error

    def _refusal(self, answer: "Answer", repository: str, revision: str) -> HubError:
        return refusal(answer.status, answer.headers, self._access, repository, revision)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and is_repository(name)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _file(told: dict[str, Any]) -> HubFile:
    """Parse a file; raises HubError where size or checksum is missing."""
    name, lfs = _text(told["rfilename"])[:_LONGEST_FILE_NAME], told.get("lfs")
    facts, key = (lfs, "sha256") if lfs else (told, "blobId")
    size, digest = facts.get("size"), facts.get(key)
    if not (isinstance(size, int) and 0 <= size <= MOST_FILE_BYTES and isinstance(digest, str) and is_digest(digest)):
        raise HubError(f"The hub gives no size or checksum for {name[:200]}.", "Try again later.")
    return HubFile(name, size, digest)
