from pytestqt.qtbot import QtBot

from rdchat.services.chat.chat_context import ContextUse
from rdchat.ui.conversation.composer import ContextRing, context_text
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key


def test_the_ring_follows_what_is_typed(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    chat.engine.context_length = 20
    chat.start()
    composer = window.conversation.composer
    assert not composer.meter.isVisible()
    qtbot.keyClicks(composer.field, "one two three four")
    qtbot.waitUntil(lambda: composer.meter.text == "25%")
    assert composer.meter.isVisible()
    assert "5 of the model's 20 tokens" in composer.meter.accessibleName()
    qtbot.keyClicks(composer.field, " word" * 16)
    qtbot.waitUntil(lambda: composer.meter.text == "Too long")
    press_key(composer.field, "Ctrl+A")
    press_key(composer.field, "Del")
    qtbot.waitUntil(lambda: not composer.meter.isVisible())


def test_an_estimate_is_told_as_one() -> None:
    """It said that the chat takes 1,848 tokens, where 3,557 were counted."""
    use = ContextUse(1848, 8192, "", None, longest=16384)
    assert context_text(use) == "This chat takes about 1,800 tokens of the model's 8,192. The reply needs some too."


def test_a_share_is_never_rounded_to_all_or_nothing(qtbot: QtBot, theme: Theme) -> None:
    ring = ContextRing(theme)
    qtbot.addWidget(ring)
    for tokens, words in ((3, "<1%"), (999, "99%"), (1000, "Too long"), (None, "Too long")):
        ring.show_use(ContextUse(tokens, 1000, "x", None))
        assert ring.text == words
    for tokens, words in ((3, "~<1%"), (431, "~43%"), (1700, "~99%"), (2000, "Too long")):
        ring.show_use(ContextUse(tokens, 1000, "x", None, longest=2000))
        assert ring.text == words, "it is estimated, and nothing is refused that might fit"
    ring.show_use(None)
    assert ring.text == ""
    assert ring.isHidden()
