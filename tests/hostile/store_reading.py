"""Opens a database as the app does and reads all of it, for the cases about stores."""

import datetime
import sys
from pathlib import Path

_ENDS = 1  # messages at either end of a chat that are looked at one by one


def read_store(path: Path) -> int:
    """Read every chat, its alternatives and a search; return an exit status as the command line gives it."""
    from rdchat.chat.store import ConversationStore
    from rdchat.errors import StorageError
    from rdchat.inference.api import Role

    try:
        store = ConversationStore(path)
        try:
            for chat in store.conversations():
                messages = store.messages(chat.id)
                for message in (*messages[:_ENDS], *messages[_ENDS:][-_ENDS:]):
                    store.path_to(message.id)
                    store.select_sibling(message.id, 1)
                    store.trace(message.id)
            store.conversations("word")
            made = store.create_conversation("After all")  # it must be of use
            store.add_message(made.id, None, Role.USER, "Hello")
            if store.notice is not None:
                print(store.notice, datetime.datetime.now(datetime.UTC))
        finally:
            store.close()
    except StorageError as error:
        print(f"rdchat: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(read_store(Path(sys.argv[1])))
