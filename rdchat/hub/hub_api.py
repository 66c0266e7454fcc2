"""Asks the hub through `huggingface_hub`: which models there are, and which files one has."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal

import httpx2

from rdchat import __version__
from rdchat.hub.connections import tls_context
from rdchat.hub.endpoint import check_online
from rdchat.hub.hub_errors import HubError, TemporaryHubError, refusal
from rdchat.hub.known_files import (
    HubFile,
    RepositoryFiles,
    chosen_files,
    is_commit,
    is_digest,
    is_repository,
    is_revision,
)
from rdchat.hub.tokens import HubAccess

SortBy = Literal["downloads", "likes", "last_modified"]
_TIMEOUT = httpx2.Timeout(30.0, connect=15.0)
_MOST_FILES = 10_000
_MOST_BYTES = 2**50  # of a file
_EXPAND = ["config", "downloads", "gated", "lastModified", "likes", "safetensors", "tags"]
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U32": 32, "I32": 32, "U16": 16, "I16": 16}
_NAMED_BITS = re.compile(r"(?<![0-9])([2-8])-?bit|[Qq]([2-8])_|(mxfp4|mxfp8|nvfp4)", re.ASCII)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that a search found.

    Attributes:
        repository: The hub id.
        downloads: Of the last month.
        likes: Of all time.
        changed: The day of its last change, as 2026-11-22; empty where the hub does not say.
        gated: Whether its authors give access on its page only.
        licence: As its authors name it; empty where they do not.
        family: The architecture, such as `llama`; empty where the hub does not say.
        quantization: Such as `4-bit`; empty where nothing says.
        weight_bytes: Of its safetensors; None where the hub does not say.
    """

    repository: str
    downloads: int
    likes: int
    changed: str
    gated: bool
    licence: str
    family: str
    quantization: str
    weight_bytes: int | None


class HubApi:
    """Asks one hub. Each call waits for its answer.

    Args:
        access: The hub, and the person's token for it, if there is one; no other is sent.
    """

    def __init__(self, access: HubAccess) -> None:
        self._access = access
        self._endpoint = access.endpoint

    def search(
        self, words: str, *, sort: SortBy = "downloads", limit: int = 30, mlx_only: bool = True
    ) -> tuple[FoundModel, ...]:
        """Return the models whose names hold these words, those first that `sort` puts first.

        Raises:
            NetworkError: If the hub cannot be asked, or refuses.
        """
        with self._in_words():
            found = self._api().list_models(
                search=words, filter="mlx" if mlx_only else None, sort=sort, limit=limit, expand=_EXPAND
            )
            return tuple(_found(model) for model in found if is_repository(model.id))

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
            raise HubError(f"{repository} cannot be fetched. {error.message}", error.hint) from error
        return RepositoryFiles(repository, revision, commit, files, left_out)

    def all_files(self, repository: str, revision: str = "main") -> tuple[tuple[HubFile, ...], str]:
        """Return all files of a model, with names as the hub gives them, and the commit; raises as `files`."""
        check_names(repository, revision)
        with self._in_words(repository, revision):
            info = self._api().model_info(repository, revision=revision, files_metadata=True, timeout=30.0)
        listed = tuple(_file(sibling) for sibling in info.siblings or ())
        if not is_commit(info.sha or "") or len(listed) > _MOST_FILES:
            raise HubError(f"What the hub says of {repository} cannot be.", "Try again later.")
        return listed, str(info.sha)

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
        check_online()
        host = self._endpoint.host
        try:
            yield
        except httpx2.HTTPStatusError as error:
            raise self._refusal(error.response, repository, revision) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(response := getattr(error, "response", None), httpx2.Response):
                raise self._refusal(response, repository, revision) from error
            _LOG.info("The hub's answer was not understood", exc_info=True)
            raise HubError(f"{host} answers with something that is no hub's answer.", "Try again later.") from error

    def _refusal(self, response: httpx2.Response, repository: str, revision: str) -> HubError:
        return refusal(response.status_code, response.headers, self._access, repository, revision)


def check_names(repository: str, revision: str) -> None:
    """Refuse what cannot be a hub id or a revision; both become paths.

    Raises:
        HubError: If one of them cannot be.
    """
    if not is_repository(repository):
        raise HubError(f"{repository[:200]} is no model's name on the hub.", "Such a name is ORG/NAME.")
    if not is_revision(revision):
        raise HubError(f"{revision[:200]} is no revision.", "Name a branch, a tag or a commit.")


@cache
def _library() -> ModuleType:
    """Import `huggingface_hub`, which takes a third of a second, without its telemetry and with limits of time.

    Its telemetry is a request of its own, for a list of programs to look for in the environment.
    """
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    import huggingface_hub  # noqa: PLC0415
    from huggingface_hub import constants  # noqa: PLC0415

    constants.HF_HUB_DISABLE_TELEMETRY = True  # where somebody imported it before
    huggingface_hub.set_client_factory(lambda: _Client(verify=tls_context(), follow_redirects=True, timeout=_TIMEOUT))
    return huggingface_hub


class _Client(httpx2.Client):
    """Says at once what goes wrong, which `huggingface_hub` would try for half a minute before it says so."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        host = request.url.netloc.decode()
        try:
            response = super().send(request, **options)
        except httpx2.TimeoutException as error:
            raise TemporaryHubError(f"{host} does not answer.", "Check the network connection.") from error
        except httpx2.TransportError as error:
            hint = "Check the network connection, and the proxy where there is one."
            raise HubError(f"{host} cannot be reached.", hint) from error
        if response.status_code == 429 or response.is_server_error:
            response.raise_for_status()
        return response


def _file(sibling: Any) -> HubFile:
    """Return a file as the hub tells of it; raises HubError where it leaves out size or checksum."""
    lfs = sibling.lfs
    size, digest = (lfs.size, lfs.sha256) if lfs else (sibling.size, sibling.blob_id)
    name = str(sibling.rfilename)
    if not isinstance(size, int) or not 0 <= size <= _MOST_BYTES or not is_digest(str(digest)):
        raise HubError(f"The hub gives no size or checksum for {name[:200]}.", "Try again later.")
    return HubFile(name, size, digest)


def _found(model: Any) -> FoundModel:
    config = model.config if isinstance(model.config, dict) else {}
    tags = [tag for tag in model.tags or () if isinstance(tag, str)]
    licence = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    return FoundModel(
        repository=model.id,
        downloads=model.downloads or 0,
        likes=model.likes or 0,
        changed=model.last_modified.date().isoformat() if model.last_modified else "",
        gated=bool(model.gated),
        licence=licence[:60],
        family=str(config.get("model_type") or "")[:60],
        quantization=_quantization(config, model.id),
        weight_bytes=_weight_bytes(model.safetensors),
    )


def _quantization(config: dict[str, Any], name: str) -> str:
    settings = config.get("quantization_config") or config.get("quantization")
    bits = settings.get("bits") if isinstance(settings, dict) else None
    if isinstance(bits, int):
        return f"{bits}-bit"
    named = _NAMED_BITS.search(name)
    return (named[3] or f"{named[1] or named[2]}-bit") if named else ""


def _weight_bytes(safetensors: Any) -> int | None:
    counts = getattr(safetensors, "parameters", None)
    if not isinstance(counts, dict) or not counts:
        return None
    return sum(int(count) * _BITS.get(str(dtype), 8) // 8 for dtype, count in counts.items())
