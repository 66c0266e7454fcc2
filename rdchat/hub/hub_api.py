"""Requests to the hub: searches, a model's facts and files, its card, the token's account."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from rdchat.hub.endpoint import AnswerLimits, Endpoint, HubError, MissingError, check_online
from rdchat.hub.hub_client import HubReader
from rdchat.hub.hub_model import EXPANDED_FIELDS, HubModel, SortBy, parse_model
from rdchat.hub.known_files import (
    MAX_FILE_BYTES,
    HubFile,
    RepositoryFiles,
    check_names,
    chosen_files,
    is_commit,
    is_digest,
    is_repository,
)

_CARD = "README.md"
_MAX_CARD_BYTES = 200_000
_MAX_FILES = 10_000
_LONGEST_ACCOUNT_NAME = 100
# Files with longer names are never downloaded.
_LONGEST_FILE_NAME = 300
_SORTED_BY = {"downloads": "downloads", "likes": "likes", "last_modified": "lastModified"}
_LOG = logging.getLogger(__name__)


class HubApi:
    """Sends requests to one hub. Each call waits for its answer.

    Args:
        endpoint: The hub, with the person's token if there is one.
        limits: Limits of each request.
    """

    def __init__(self, endpoint: Endpoint, limits: AnswerLimits = AnswerLimits()) -> None:  # noqa: B008  frozen
        self._endpoint = endpoint
        self._limits = limits

    def search_models(
        self, text: str, *, sort: SortBy = "downloads", limit: int = 30, tag: str = "mlx"
    ) -> tuple[HubModel, ...]:
        """Return the models whose names contain the words of a text, sorted by `sort`.

        Args:
            text: Words in the names.
            sort: The order.
            limit: Maximum number of results.
            tag: A tag that the models have, such as `mlx`; empty for all models.

        Raises:
            NetworkError: If the hub cannot be reached, or refuses.
        """
        parameters = [("search", text), ("filter", tag), ("sort", _SORTED_BY[sort]), ("limit", str(limit))]
        query = [(key, value) for key, value in parameters if value] + [("expand", field) for field in EXPANDED_FIELDS]
        with self._checked() as reader:
            listed = reader.read_json(f"{self._endpoint.url}/api/models?{urlencode(query)}")
            if not isinstance(listed, list):
                raise TypeError("no list")
            models = [each for each in listed if isinstance(each, dict) and is_repository(str(each.get("id")))]
            named = {each["id"]: each for each in models[:limit]}
            return tuple(parse_model(name, answer) for name, answer in named.items())

    def account(self) -> str:
        """Return the name of the token's account.

        Raises:
            NetworkError: If the hub cannot be reached, or does not accept the token.
        """
        with self._checked() as reader:
            return _text(reader.read_json(f"{self._endpoint.url}/api/whoami-v2")["name"])[:_LONGEST_ACCOUNT_NAME]

    def files(self, repository: str, revision: str = "main") -> RepositoryFiles:
        """Return the files of a model to download.

        Args:
            repository: The hub id.
            revision: A branch, tag or commit.

        Raises:
            NetworkError: If the hub cannot be reached, refuses, or gives impossible values.
        """
        model = self.look_at(repository, revision)
        try:
            files, left_out = chosen_files(model.files, model.packed)
        except HubError as error:
            raise HubError(f"{repository} cannot be fetched. {error.message}", error.hint) from error
        return RepositoryFiles(repository, revision, model.commit, files, left_out)

    def look_at(self, repository: str, revision: str = "main") -> HubModel:
        """Return a model's facts and all its files, with the hub's names; raises as `files`."""
        check_names(repository, revision)
        url = f"{self._endpoint.url}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
        with self._checked(repository, revision) as reader:
            answer = reader.read_json(url)
            siblings = answer.get("siblings") or []
            commit = _text(answer["sha"])
            if not is_commit(commit) or len(siblings) > _MAX_FILES:
                raise HubError(f"Hugging Face sent an invalid answer about {repository}.", "Try again later.")
            return replace(parse_model(repository, answer), commit=commit, files=tuple(map(_file, siblings)))

    def card(self, repository: str, commit: str) -> str:
        """Return the text of a model's card, up to 200 kB; empty if it has none.

        Raises:
            NetworkError: If the hub cannot be reached, or refuses.
        """
        check_names(repository, commit)
        url = self._endpoint.file_url(repository, commit, _CARD)
        with self._checked(repository, commit) as reader, suppress(MissingError):
            return reader.read_address(url, _MAX_CARD_BYTES).decode("utf-8", "replace")
        return ""

    def document(self, repository: str, commit: str, name: str) -> Any:
        """Return the JSON in a repository's file, such as its index of weights.

        Raises:
            NetworkError: If the hub cannot be reached, refuses, or the file is too long or no JSON.
        """
        with self._checked(repository, commit) as reader:
            return reader.read_json(self._endpoint.file_url(repository, commit, name))

    @contextmanager
    def _checked(self, repository: str = "", revision: str = "main") -> Iterator[HubReader]:
        """Give a reader; raise HubError if an answer is not a hub's, or the environment forbids requests."""
        check_online()
        try:
            yield HubReader(self._endpoint, self._limits, repository, revision)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _LOG.info("The hub's answer was not understood", exc_info=True)
            host = self._endpoint.host
            raise HubError(f"{host} sent an answer that rdchat does not understand.", "Try again later.") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _file(answer: dict[str, Any]) -> HubFile:
    """Parse a file; raises HubError if size or checksum is missing."""
    name = _text(answer["rfilename"])[:_LONGEST_FILE_NAME]
    lfs = answer.get("lfs")
    facts, key = (lfs, "sha256") if lfs else (answer, "blobId")
    size = facts.get("size")
    digest = facts.get(key)
    if not (isinstance(size, int) and 0 <= size <= MAX_FILE_BYTES and isinstance(digest, str) and is_digest(digest)):
        raise HubError(f"Hugging Face gives no size or checksum for {name[:200]}.", "Try again later.")
    return HubFile(name, size, digest)
