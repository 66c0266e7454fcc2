"""The app is killed while it writes a reply."""

from contextlib import closing
from pathlib import Path

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from tests.chat.conftest import StartProcess

STREAM = """
import sys, threading
from pathlib import Path
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.messages import Role

store = ConversationStore(Path(sys.argv[1]))
chat = store.create_conversation("interrupted")
prompt = store.add_message(chat.id, None, Role.USER, "Count.")
reply = store.add_message(chat.id, prompt.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
text, pause = "", threading.Event()
for number in range(10_000):
    text += f"{number} "
    store.save_text(reply.id, text)
    print(number, flush=True)
    pause.wait(0.1)
"""


def test_a_killed_app_leaves_an_interrupted_reply_with_all_that_was_saved(
    database: Path, start_process: StartProcess
) -> None:
    app = start_process(STREAM, database)
    assert app.stdout is not None
    saved = 0
    while saved < 8:
        saved = int(app.stdout.readline())
    app.kill()
    app.wait()
    assert database.with_name(f"{database.name}-wal").exists()  # it had no time to tidy up
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        (chat,) = store.conversations()
        prompt, reply = store.messages(chat.id)
        assert prompt.text == "Count."
        assert reply.status is MessageStatus.INTERRUPTED
        assert reply.text.split()[: saved + 1] == [str(number) for number in range(saved + 1)]
        again = store.reopen_message(reply.id)
        assert (again.status, again.text) == (MessageStatus.STREAMING, reply.text)
