"""Secrets in the system's keychain. The system may ask the person first, so a call may wait for long.

Not yet tried on a Mac.
"""

import logging
from typing import Any

FAILED = object()
"""The answer where there is no keychain, or it refuses."""
# The kinds of secrets, as people see them in their keychain. `rdchat delete-data` deletes each of them.
HUB_ACCESS = "rdchat: Hugging Face token"
REMOTE_KEY = "rdchat: key of a remote server"
SERVER_KEY = "rdchat: server key"
OWN_SERVER = "server"
"""The name of the one secret of the kind `SERVER_KEY`."""
TOOL_SECRETS = "rdchat: tool server"
# Backends below this priority store secrets in plain text, or nowhere.
_MIN_PRIORITY = 1
_LOG = logging.getLogger(__name__)


def ask_keychain(service: str, method: str, *arguments: str) -> Any:
    """Call a method of the system's keychain; `FAILED` if it is missing or refuses.

    Args:
        service: One of the kinds above.
        method: `get_password`, `set_password` or `delete_password`.
        arguments: The name of the secret, and what the method takes after it.
    """
    import keyring  # noqa: PLC0415  slow to import
    import keyring.errors  # noqa: PLC0415

    try:
        backend = keyring.get_keyring()
        if backend.priority < _MIN_PRIORITY:
            return FAILED
        return getattr(backend, method)(service, *arguments)
    except keyring.errors.PasswordDeleteError:
        return FAILED
    # The backend is foreign code, over D-Bus or the keychain's own interface.
    except Exception as error:
        # The error's text might contain the secret.
        _LOG.warning("The keychain cannot be used: %s", type(error).__name__)
        return FAILED
