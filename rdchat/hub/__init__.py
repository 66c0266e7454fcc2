"""The Hugging Face hub: search, download, verify and delete models. No Qt, no MLX."""

from rdchat.hub.cache_layout import (
    CachedRepository,
    cached_repositories,
    downloaded_repositories,
    folders_in,
    free_bytes,
    hub_cache,
    repository_of,
    snapshot_of,
)
from rdchat.hub.endpoint import (
    DEFAULT_ENDPOINT,
    WINDOW_HINTS,
    AccessRefusedError,
    Endpoint,
    HubError,
    Lack,
    MissingError,
    Token,
    Tokens,
    TokenSource,
    find_endpoint,
    for_window,
    hub_token_file,
    proxy_of,
)
from rdchat.hub.hub_model import HubModel, PublishedKind, SortBy
from rdchat.hub.known_files import (
    PACKED_HINT,
    HubFile,
    RepositoryFiles,
    check_names,
    checksum,
    chosen_files,
    download_command,
    is_repository,
    is_safe_name,
    unpackable,
)
from rdchat.hub.newcomers import (
    SuggestedDrafter,
    Suggestion,
    downloaded_with,
    drafter_for,
    stored_suggestions,
    suggestion_of,
    suggestions,
)
from rdchat.hub.published_drafters import find_published
