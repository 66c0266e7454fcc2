"""The limit of the KV caches in memory."""

from PySide6.QtCore import QObject, Signal

from rdchat.chat.settings import Settings
from rdchat.inference.api.events import PrefixCacheFacts
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.engine.engine_request import EngineEvent, LimitPrefixCaches
from rdchat.services.settings import SettingsControl


class PrefixCacheControl(QObject):
    """Limits the memory of the KV caches to the value in the settings.

    Args:
        slot: The model.
        settings: The settings.
        parent: The Qt parent.

    Attributes:
        facts: The last answer of the engine; None before that.
    """

    changed = Signal()

    def __init__(self, slot: ModelSlot, settings: SettingsControl, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._slot = slot
        self._settings = settings
        self._limit = settings.values.prefix_cache_bytes
        self.facts: PrefixCacheFacts | None = None
        slot.loaded.connect(self.look)
        settings.changed.connect(self._on_settings)

    def look(self) -> None:
        """Set the engine's limit and ask how much memory the caches have; `changed` follows."""
        if self._slot.info is not None:
            self._slot.engine.submit(LimitPrefixCaches(self._limit), self._take)

    def _on_settings(self, settings: Settings) -> None:
        if settings.prefix_cache_bytes != self._limit:
            self._limit = settings.prefix_cache_bytes
            self.look()

    def _take(self, event: EngineEvent) -> None:
        if isinstance(event, PrefixCacheFacts):
            self.facts = event
            self.changed.emit()
