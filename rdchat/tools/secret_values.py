"""Which values of a server are secret, and the mask that replaces them in what the server sends.

What is secret is said by the person, who ticks variables when they are imported, or writes them under Keys. Headers and
passwords in addresses always are. Names only decide which boxes are ticked at first.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from rdchat.tools.definitions import ToolServer

# Names of probable keys: GITHUB_TOKEN, apiKey and PGPASSWORD, but not MAX_TOKENS, KEYWORDS or TOKEN_URL.
KEY_NAME = re.compile(
    r"(?i)(?!.*(?:path|file|url|dir|name|limit)\Z).*(?:token|keys?|secrets?|passw(?:or)?ds?|passphrases?|credentials?"
    r"|authorization|cookies?|headers?|(?<![a-z])(?:pass|pwd|pat))(?![a-z])"
)
# The password of an address: `://name:password@`, or `?password=` as databases have it.
PASSWORD = re.compile(r"://[^\s/?#:@]*+:([^\s/?#]+)@|[?&](?i:password|pwd)=([^\s&#]+)")
# What stands before the secret of a header.
_SCHEME = re.compile(r"(?i)\A(?:bearer|basic|token|api-?key) +")
# A shorter secret is masked only where it stands alone: it may be a part of ordinary words.
_LONG = 8
_LONG_WORD = re.compile(r"\S{8,}")
# What must stand around a short secret; also an escape, such as `\n` or `%3D`, may stand before it. The secret comes
# first, since a search for its letters is fast.
_ALONE = r"{0}(?:(?<!\w{0})|(?<=\\[nrt]{0})|(?<=%[0-9A-Fa-f][0-9A-Fa-f]{0}))(?!\w)"
# Fields of a tool's definition whose values calls need as they are. An argument may be named so; its value is a schema.
_NAMES = {"name", "type", "required"}


class SecretMask:
    """Replaces the secrets of a server in what it sends by `•••`.

    A server may quote a secret as JSON, or as in an address (`%2F` for `/`), or quote a long word of it, or what stands
    behind `Bearer`. One with fewer than eight characters is replaced where no ASCII letter or digit is beside it.

    Args:
        server: The server.
        values: Values of its secrets, by name.
    """

    def __init__(self, server: ToolServer, values: Mapping[str, str]) -> None:
        is_chosen = server.keys_chosen or server.url
        secrets = [value.strip() for name, value in values.items() if is_chosen or KEY_NAME.match(name)]
        texts = [*values.values(), *server.environment.values(), *server.command]
        secrets += map("".join, PASSWORD.findall("\n".join(texts)))
        forms: set[str] = set()
        for secret in secrets:
            bare = _SCHEME.sub("", secret)
            forms |= {secret, bare, *_LONG_WORD.findall(secret), unquote(secret), quote(bare, ""), quote(bare, "!'()*")}
            forms |= {json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True)}
        self._patterns = [
            re.compile((_ALONE if len(form) < _LONG else "{0}").format(re.escape(form)), re.ASCII)
            for form in sorted(forms - {""}, key=len, reverse=True)
        ]

    def __call__(self, value: Any) -> Any:
        """Return a text, or the parsed JSON of a list of tools, without the secrets; names in it stay."""
        match value:
            case str():
                for pattern in self._patterns:
                    value = pattern.sub("•••", value)
            case list():
                return [self(each) for each in value]
            case dict():
                return {
                    name: each if name in _NAMES and not isinstance(each, dict) else self(each)
                    for name, each in value.items()
                }
        return value
