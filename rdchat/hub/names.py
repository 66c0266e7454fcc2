"""Checks names that become paths: of repositories, revisions, commits, checksums and files."""

import re

from rdchat.hub.hub_errors import HubError

# No lone surrogates, which cannot be in a path.
_SAFE_NAME = re.compile(r"[^\x00-\x1f\x7f/\\:*?\"<>|\ud800-\udfff]{1,200}")
# The limit of file systems, in bytes of UTF-8.
_LONGEST_NAME = 255
TEMPLATES = "additional_chat_templates/"
_REVISION = re.compile(r"[A-Za-z0-9_][\w.+-]{0,99}(/[A-Za-z0-9_][\w.+-]{0,99}){0,5}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# The hub's own limit.
_LONGEST_REPOSITORY = 96


def check_names(repository: str, revision: str) -> None:
    """Refuse names that cannot be a hub id or a revision; both become paths.

    Raises:
        HubError: If one of them cannot be.
    """
    if not is_repository(repository):
        raise HubError(f"{repository[:200]} is not the name of a model on Hugging Face.", "Write it as ORG/NAME.")
    if not is_revision(revision):
        raise HubError(f"{revision[:200]} is not a revision.", "Give a branch, a tag or a commit.")


def is_repository(name: str) -> bool:
    """Return whether a name may be a hub id, `ORG/NAME`. Such a name is also a safe folder name."""
    return (
        bool(_REPOSITORY.fullmatch(name))
        and len(name) <= _LONGEST_REPOSITORY
        and not any(word in name for word in ("..", "--"))
        and not any(part.endswith((".", "-", ".git")) for part in name.split("/"))
    )


def is_revision(name: str) -> bool:
    """Return whether a name may be a branch, tag or commit, which becomes a path below `refs`."""
    return bool(_REVISION.fullmatch(name)) and ".." not in name


def is_commit(name: str) -> bool:
    return bool(_COMMIT.fullmatch(name))


def is_digest(text: str) -> bool:
    return bool(_DIGEST.fullmatch(text))


def is_safe_name(name: str) -> bool:
    """Return whether a file's name may become a path in a snapshot: at the top, or of a chat template."""
    last = name.removeprefix(TEMPLATES)
    if not _SAFE_NAME.fullmatch(last) or last.startswith((".", "~", "-")) or last.strip() != last:
        return False
    return len(last.encode()) <= _LONGEST_NAME
