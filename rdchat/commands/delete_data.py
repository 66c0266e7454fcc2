"""`rdchat delete-data`: deletes what rdchat keeps on this machine, before the program itself is removed.

That is its data and cache folders, its unfinished downloads in the Hugging Face cache, and its items of the keychain.
Models in that cache stay unless they are asked for, because other programs may use them.
"""

import argparse
import os
from contextlib import suppress
from pathlib import Path

from rdchat import paths
from rdchat.chat.settings import stored_settings
from rdchat.commands.preparation import LOCK
from rdchat.commands.terminal import agreed, table
from rdchat.files import FileLock, make_folder, own_entries
from rdchat.hub import DEFAULT_ENDPOINT, Endpoint, cached_repositories, find_endpoint, hub_cache
from rdchat.hub.downloads.download_record import discard, unfinished_downloads
from rdchat.hub.verifying_and_deleting import remove_folder
from rdchat.keychain import FAILED, HUB_ACCESS, OWN_SERVER, REMOTE_KEY, SERVER_KEY, TOOL_SECRETS, ask_keychain
from rdchat.wording import size_text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Deletes chats, settings, models, drafters, caches, logs, and keys in the keychain, for good. It lists them, "
        "with their sizes, and asks once. Backups and exports stay where you saved them. Then remove rdchat itself."
    )
    text = "also the models in the Hugging Face cache, which other programs may use"
    parser.add_argument("--hub-models", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    """Delete everything; the exit status is 1 if the person refuses."""
    data = paths.data_dir()
    cache = paths.cache_dir()
    make_folder(data)
    make_folder(cache)
    with FileLock(data / "instance.lock"), FileLock(cache / LOCK, "the preparation", "Try again in a minute."):
        models = [each.folder for each in cached_repositories()]
        downloads = [repository for repository, _ in unfinished_downloads()]
        # The chats come last: until all else is deleted, the settings beside them name the secrets.
        own = own_entries(cache, paths.CACHE_VARIABLE) + own_entries(data, paths.DATA_VARIABLE)
        if args.hub_models:
            own = models + own
        answers = {item: ask_keychain(item[0], "get_password", item[1]) for item in _possible_secrets()}
        secrets = [item for item, answer in answers.items() if isinstance(answer, str)]
        names = {server.origin: server.name for server in stored_settings().tool_servers}

        rows = [(size_text(_size(path)), str(path)) for path in [*own, *(each.work for each in downloads)]]
        rows += [("keychain", f"{service} ({names.get(name, name)})") for service, name in secrets]
        lines = ["This deletes for good, with all chats:", *table(rows)]
        if models and not args.hub_models:
            left = size_text(sum(map(_size, models)))
            lines.append(f"Models in {hub_cache()} stay ({left}): --hub-models deletes them too.")
        if not agreed(args.yes, "\n".join(lines)):
            return 1

        deleted = [ask_keychain(service, "delete_password", name) for service, name in secrets]
        for repository in downloads:
            with repository.locked():
                discard(repository)
        for path in filter(os.path.lexists, own):
            remove_folder(path.name, path, None)
    for folder in (cache, data):
        # What the person has there stays, and so does a link to another disk.
        with suppress(OSError):
            folder.rmdir()
    if FAILED in [*answers.values(), *deleted]:
        print("No keychain answers, or it kept an item: look there for names that begin with rdchat.")
    print("Deleted. Now remove rdchat itself.")
    return 0


def _size(path: Path) -> int:
    """Return the bytes of a file, or of a folder with all that is in it; links count as themselves."""
    inner = [] if path.is_symlink() else path.rglob("*")
    return sum(each.lstat().st_size for each in [path, *inner])


def _possible_secrets() -> list[tuple[str, str]]:
    """Return the kind and the name of each item that rdchat may have in the keychain, by the settings.

    Of the tokens these are the hub's and that of the mirror in `HF_ENDPOINT`.
    """
    settings = stored_settings()
    return [
        (SERVER_KEY, OWN_SERVER),
        *((HUB_ACCESS, name) for name in {Endpoint(DEFAULT_ENDPOINT).token_key, find_endpoint().token_key}),
        *((REMOTE_KEY, server.address) for server in settings.remote_servers),
        *((TOOL_SECRETS, server.origin) for server in settings.tool_servers),
    ]
