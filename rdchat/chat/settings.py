"""The person's settings, stored in a JSON file that a person can read and edit."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rdchat import host, paths
from rdchat.chat.conversation import Notice
from rdchat.chat.presets import STARTER_PROMPTS, LongChats, Preset, SavedPrompt
from rdchat.errors import file_error
from rdchat.files import atomic_file, from_plain, json_or_none, set_aside
from rdchat.inference.api import (
    DEFAULT_PORT,
    DraftSettings,
    Dtype,
    Host,
    ImageCap,
    RemoteServer,
    SamplingDefaults,
    SamplingParams,
    check_seed,
    require,
)
from rdchat.tools.definitions import ToolServer

# Limits of the text size, in points.
MIN_TEXT_SIZE = 9
MAX_TEXT_SIZE = 32
MAX_DOWNLOADS = 8
"""Limit of the downloads that run at the same time."""
MAX_STORED_GB = 999
"""Limit of the size of the caches on disk, in GB."""
# Each item of these is read by itself, and kept in the file if it cannot be read.
_LISTS = ("presets", "prompts", "tool_servers", "remote_servers", "hosts")


class Appearance(StrEnum):
    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """How one model's replies are drafted; `model` is its folder."""

    model: str
    draft: DraftSettings


@dataclass(frozen=True, slots=True)
class ToolApproval:
    """A tool that may always be called; it ends when the tool's definition or its server's command changes.

    Attributes:
        tool: Its full name.
        fingerprint: `ToolDefinition.fingerprint`.
    """

    tool: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class WindowGeometry:
    """Position and size of a side window when rdchat last quit."""

    window: str
    geometry: str  # Qt's own blob, base64


@dataclass(frozen=True, slots=True)
class Consents:
    """The settings that start, open, send or allow something. Those of a backup come in off (`from_elsewhere`).

    All other settings are harmless. A test fails for one that is not sorted.

    Attributes:
        tool_servers: The person's servers of tools; those that come with rdchat once they were changed.
        tool_approvals: Tools that may always be called.
        remote_servers: Servers whose models can be chosen.
        hosts: Macs that can run a model together with this one.
        server_hosts: Further names by which programs call this computer.
        server_at_start: Whether the server for other programs starts with the app.
        server_on_network: Whether other computers can reach the server.
        server_loads_models: Whether a request to the server may load another model.
        looks_for_updates: Whether to look for new versions once a day; None until the person has answered.
        notes_everywhere: Whether chats outside of projects have notes, which all chats share.
        quick_shortcut: The quick window's shortcut over other programs, such as Ctrl+Alt+Q; empty for none.
        wired_memory: Whether a Mac may not page out the model's weights (docs/limits.md); read when the app starts.
    """

    tool_servers: tuple[ToolServer, ...] = ()
    tool_approvals: tuple[ToolApproval, ...] = ()
    remote_servers: tuple[RemoteServer, ...] = ()
    hosts: tuple[Host, ...] = ()
    server_hosts: tuple[str, ...] = ()
    server_at_start: bool = False
    server_on_network: bool = False
    server_loads_models: bool = False
    looks_for_updates: bool | None = None
    notes_everywhere: bool = False
    quick_shortcut: str = ""
    wired_memory: bool = False

    @property
    def entries(self) -> list[tuple[str, Any]]:
        """All that is on: the name of the setting, and its value or one of its items."""
        values = ((name, value if isinstance(value, tuple) else (value,)) for name, value in _by_name(self).items())
        return [(name, item) for name, items in values for item in items if item and getattr(item, "confirmed", True)]


@dataclass(frozen=True, slots=True)
class Settings(Consents):
    """The app's settings; the command line does not use them.

    Attributes:
        appearance: Light, dark, or as in the system.
        text_size: Size of the transcript's text, in points; controls follow it, within limits.
        sampling: Sampling of chats that have none of their own; see `sampling_chosen`.
        sampling_chosen: Names of the values in `sampling` that the person chose; some may equal the defaults.
        system_prompt: System prompt of new chats; empty leaves it to the model's chat template.
        seed: Seed of every reply; None draws a new one for each reply.
        model: The model; None is the default model.
        dtype: Precision of the model.
        recent_models: Models that were loaded before, latest first.
        drafts: Draft settings of each model, the last changed first.
        downloads_at_once: Number of models that are downloaded at the same time.
        models_folder: A folder whose models are listed, and where "Open Model Folder…" begins; empty for none.
        last_chat: The chat that was open when the app ended; None opens the newest.
        larger_model_declined: Whether the person used a larger model here, or dismissed the offer of one.
        looked_for_updates: Day of the last look for a new version, as 2026-11-25.
        panel_visible: Whether the speed panel is shown; None until the question after the first reply.
        panel_unfolded: Names of the panel's unfolded sections.
        sidebar_visible: Whether the list of conversations is shown.
        titles_by_model: Whether the model writes titles of new chats while it is idle.
        earlier_replies: Whether drafts may come from earlier replies.
        earlier_replies_after: The highest id of the replies that the person cleared; drafts never come from these.
        server_port: The server's port.
        server_substitutes_models: Whether the loaded model answers for one that is not installed.
        prefix_cache_bytes: Memory for the KV caches of earlier chats; None for the engine's own limit.
        unload_after_minutes: Minutes without a request until the model is unloaded; 0 for never, None for 15 on battery
            or if memory is short.
        menu_bar_item: Whether rdchat has an item in the menu bar, or in the system tray.
        stays_open: Whether the app goes on when its window is closed, if the item or the Dock can bring it back.
        window_geometry: Qt's own format, in base64.
        window_state: Sizes of the splitter, in base64.
        side_windows: Positions and sizes of side windows.
        presets: Options of chats under names, in the person's order.
        prompts: Saved prompts.
        palette_recent: Keys of what was chosen in the command palette, the last one first.
        keep_caches: Whether KV caches of chats are kept on disk.
        kept_caches_gb: Size limit of the caches on disk, in units of 10**9 bytes.
        image_cap: How many tokens of the context an image may take.
        notes_tokens: The most tokens of the notes in a prompt.
        long_chats: What happens when a chat nearly fills the model's context.
        unconfirmed: What was on in a restored backup, and is off here until the person confirms it.

    Raises:
        InvalidSettingError: If the text size, the downloads, the seed, the port or the memory are out of range.
    """

    appearance: Appearance = Appearance.SYSTEM
    text_size: int = 13
    sampling: SamplingParams = field(default_factory=SamplingParams)
    sampling_chosen: tuple[str, ...] = ()
    system_prompt: str = ""
    seed: int | None = None
    model: str | None = None
    dtype: Dtype = Dtype.AUTO
    recent_models: tuple[str, ...] = ()
    drafts: tuple[ModelDraft, ...] = ()
    downloads_at_once: int = 2
    models_folder: str = ""
    last_chat: int | None = None
    larger_model_declined: bool = False
    looked_for_updates: str = ""
    panel_visible: bool | None = None
    panel_unfolded: tuple[str, ...] = ()
    sidebar_visible: bool = True
    titles_by_model: bool = True
    earlier_replies: bool = True
    earlier_replies_after: int = 0
    server_port: int = DEFAULT_PORT
    server_substitutes_models: bool = True
    server_hosts: tuple[str, ...] = ("host.docker.internal",)
    prefix_cache_bytes: int | None = None
    unload_after_minutes: int | None = None
    menu_bar_item: bool = host.MACOS
    stays_open: bool = host.MACOS
    window_geometry: str = ""
    window_state: str = ""
    side_windows: tuple[WindowGeometry, ...] = ()
    presets: tuple[Preset, ...] = ()
    prompts: tuple[SavedPrompt, ...] = STARTER_PROMPTS
    palette_recent: tuple[str, ...] = ()
    keep_caches: bool = True
    kept_caches_gb: int = 10
    image_cap: ImageCap = ImageCap.MEDIUM
    notes_tokens: int = 1000
    long_chats: LongChats = LongChats.ASK
    unconfirmed: Consents = Consents()

    def __post_init__(self) -> None:
        sizes = f"from {MIN_TEXT_SIZE} to {MAX_TEXT_SIZE}"
        require(MIN_TEXT_SIZE <= self.text_size <= MAX_TEXT_SIZE, "text size", self.text_size, sizes)
        downloads = self.downloads_at_once
        require(1 <= downloads <= MAX_DOWNLOADS, "downloads at once", downloads, f"from 1 to {MAX_DOWNLOADS}")
        require(1 <= self.server_port < 2**16, "server port", self.server_port, "from 1 to 65535")
        cache_bytes = self.prefix_cache_bytes
        require(cache_bytes is None or cache_bytes >= 0, "memory for earlier chats", cache_bytes, "at least 0")
        idle = self.unload_after_minutes
        require(idle is None or idle >= 0, "minutes until the model is unloaded", idle, "at least 0")
        allowed = f"from 1 to {MAX_STORED_GB}"
        require(1 <= self.kept_caches_gb <= MAX_STORED_GB, "GB of caches on disk", self.kept_caches_gb, allowed)
        if self.seed is not None:
            check_seed(self.seed)

    @property
    def chosen_sampling(self) -> dict[str, Any]:
        """The sampling values that the person chose, by name; a model decides the others.

        Chosen are those that `sampling_chosen` names, and those that differ from the defaults of `SamplingParams`, here
        `usual`.
        """
        usual = asdict(SamplingParams())
        chosen = self.sampling_chosen
        return {name: value for name, value in asdict(self.sampling).items() if name in chosen or value != usual[name]}

    def sampling_for(self, defaults: SamplingDefaults) -> SamplingParams:
        """Return the sampling with a model: the person's values over the model's."""
        return replace(defaults.params, **self.chosen_sampling)

    def choosing(self, values: SamplingParams, defaults: SamplingDefaults) -> "Settings":
        """Return the settings after the person changed the sampling that they saw with a model to `values`.

        Chosen are then the values that were chosen before, and those that differ from what the person saw.
        """
        seen = asdict(self.sampling_for(defaults))
        before = self.chosen_sampling
        chosen = {name: value for name, value in asdict(values).items() if name in before or value != seen[name]}
        return replace(self, sampling=SamplingParams(**chosen), sampling_chosen=tuple(sorted(chosen)))

    def from_elsewhere(self, here: "Settings") -> "Settings":
        """Return the settings of a backup with all off that was not agreed to here; `unconfirmed` has that.

        A server of tools was agreed to if one of its `origin` was confirmed. Others stay in the list, off.
        """
        given = self.with_consent()
        kept = _by_name(Consents())
        off = dict(kept)
        for name in off:
            value = getattr(given, name)
            mine = getattr(here, name)
            if isinstance(value, tuple):
                agreed = [*map(_agreed, mine)]
                kept[name] = tuple(each for each in value if _agreed(each) in agreed)
                off[name] = tuple(each for each in value if _agreed(each) not in agreed)
            else:
                (kept if value == mine else off)[name] = value
        kept["tool_servers"] += tuple(replace(each, enabled=False, confirmed=False) for each in off["tool_servers"])
        return replace(given, unconfirmed=Consents(**off), **kept)

    def with_consent(self) -> "Settings":
        """Return the settings with all on that `unconfirmed` has.

        A server of tools that the person has changed or removed meanwhile stays as it is.
        """
        values = _by_name(self.unconfirmed)
        for name, more in values.items():
            mine = getattr(self, name)
            values[name] = mine + more if isinstance(mine, tuple) else mine or more
        seen = {each.origin: each for each in self.unconfirmed.tool_servers}
        values["tool_servers"] = tuple(seen.get(each.origin, each) for each in self.tool_servers)
        return replace(self, unconfirmed=Consents(), **values)


def _agreed(item: Any) -> Any:
    """Return what must be the same, so that an item of a list counts as agreed to."""
    return (item.origin, item.keys_chosen) if isinstance(item, ToolServer) and item.confirmed else item


class SettingsStore:
    """Reads the settings once, and writes all of them at each change.

    Attributes:
        settings: The current settings. Whoever assigns others has `save_changes` called.
        notice: A problem of the file, or None.
    """

    def __init__(self, path: Path) -> None:
        """Read `path`; without a file, the defaults apply.

        A damaged file is moved aside, and a value out of range is replaced by its default; then `notice` says so.

        Raises:
            StorageError: If the file cannot be read, or is damaged and cannot be moved.
        """
        # If the path is a link, it stays one when the file is replaced.
        self.path = path.resolve()
        self.read_settings()

    def read_settings(self) -> None:
        """Read the file, also after it was replaced; see `__init__`."""
        self.notice: Notice | None = None
        self._data = self._read()
        # Items of lists that cannot be read; `save_settings` writes them again.
        self._unread = dict[str, list[Any]]()
        read = dict[str, list[Any]]()
        for name in _LISTS:
            if isinstance(items := self._data.get(name), list):
                self._unread[name] = [each for each in items if from_plain(Settings(), {name: [each]})[1]]
                read[name] = [each for each in items if each not in self._unread[name]]
        self.settings, wrong = from_plain(Settings(), {**self._data, **read})
        # The settings that were written last, perhaps without success.
        self._saved = self.settings
        problems = list[str]()
        if wrong:
            problems.append(f"These were reset to their defaults: {', '.join(map(_as_text, wrong))}.")
        if unread := ", ".join(name for name, items in self._unread.items() if items):
            problems.append(f"Some of these cannot be read and stay in the file: {unread}.")
        if problems:
            self.notice = Notice("Some settings could not be used", " ".join(problems))

    def save_settings(self, settings: Settings) -> None:
        """Use `settings` from now on and write them; what cannot be read in the file is kept.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If the file cannot be written. In both cases the file is unchanged, and `settings` apply until
                the app quits.
        """
        self.settings = settings
        self._write(settings)

    def save_changes(self) -> None:
        """Write the current settings, unless they were written; on one thread at a time. Raises as `save_settings`.

        A failure is not repeated before the next change, which writes everything.
        """
        if self.settings is not self._saved:
            self._write(self.settings)

    def _write(self, settings: Settings) -> None:
        self._saved = settings
        plain = asdict(settings)
        plain.update((name, [*plain[name], *items]) for name, items in self._unread.items())
        self._data = _merged(self._data, plain)
        text = json.dumps(self._data, indent=2, ensure_ascii=False) + "\n"
        problem = f"The settings could not be saved to {self.path}"
        with atomic_file(self.path, problem) as temporary:
            temporary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.touch(mode=0o600)
            temporary.write_bytes(text.encode("utf-8", "replace"))

    def drop_consent(self, here: Settings) -> Consents:
        """Rewrite the file of a backup's settings with all off that was not agreed to here; return what is off.

        Unknown settings and damaged items of `Consents` go, as a later version could read and start them.
        """
        settings = self.settings.from_elsewhere(here)
        off = settings.unconfirmed
        plain = asdict(settings)
        consents = {"unconfirmed", *_by_name(off)}
        data = {name: value for name, value in self._data.items() if name in plain.keys() - consents}
        data |= {name: plain[name] for name in consents if name in self._data or off.entries}
        self.path.write_text(json.dumps(data))
        return off

    def _read(self) -> dict[str, Any]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            hint = "Check the permissions of the file and of its folder."
            raise file_error(error, f"The settings in {self.path} cannot be read", hint) from error
        if isinstance(data := json_or_none(content), dict):
            return data
        moved = set_aside(self.path, "damaged")
        self.notice = Notice(
            "Your settings could not be read",
            f"Their file is damaged. It was kept as {moved}, and rdchat uses the default settings.",
        )
        return {}


def stored_settings(path: Path | None = None) -> Settings:
    """Return the settings, or those of another file, without changing the file, whatever its state."""
    data: Any = None
    with suppress(OSError):
        data = json_or_none((path or paths.settings_path()).read_bytes())
    return from_plain(Settings(), data)[0] if isinstance(data, dict) else Settings()


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return `old` updated with `new`; an object that both have is merged in the same way."""
    groups = {name: _merged(old[name], value) for name, value in new.items()
              if isinstance(value, dict) and isinstance(old.get(name), dict)}  # fmt: skip
    return {**old, **new, **groups}


def _as_text(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")


def _by_name(values: Consents) -> dict[str, Any]:
    return {each.name: getattr(values, each.name) for each in fields(values)}
