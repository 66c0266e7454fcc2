"""`rdchat chats list`: list the chats with their ids."""

import argparse
import json
import sys
from datetime import datetime
from typing import Any

from rdchat import paths
from rdchat.chat.storage.connections import reading
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.rows import CONVERSATION_COLUMNS, conversation_from
from rdchat.chat.storage.search import search_condition
from rdchat.commands.chats.through_app import counted
from rdchat.commands.models.table import print_table


def add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `list`."""
    parser = actions.add_parser("list", help="list the chats, newest first")
    parser.add_argument("--search", default="", metavar="WORDS", help="only those that have all these words")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_list)


def _list(args: argparse.Namespace) -> int:
    chats = _chats(args.search) if paths.database_path().exists() else []
    if args.json:
        print(json.dumps({"chats": chats}, ensure_ascii=False))
        return 0
    if not chats:
        print("No chat has these words." if args.search else "No chats yet.", file=sys.stderr)
    print_table(
        [
            (str(chat["id"]), chat["title"], counted(chat["messages"], "message"), _date(chat["updated_at"]))
            for chat in chats
        ]
    )
    return 0


def _chats(search: str) -> list[dict[str, Any]]:
    """Return the chats as JSON; dates are seconds since the epoch, None where they are not known."""
    condition, parameters = search_condition(search)
    where = "deleted_at IS NULL AND unlisted = 0" + (f" AND {condition}" if condition else "")
    count = f"(SELECT count(*) FROM messages WHERE conversation_id = conversations.id AND {KEPT})"  # noqa: S608
    columns = f"{CONVERSATION_COLUMNS}, {count}"
    sql = f"SELECT {columns} FROM conversations WHERE {where} ORDER BY updated_at DESC, id DESC"  # noqa: S608  constants
    with reading(paths.database_path()) as connection:
        rows = connection.execute(sql, parameters).fetchall()
    fields = ("id", "title", "created_at", "updated_at")
    return [{name: getattr(conversation_from(row), name) for name in fields} | {"messages": row[-1]} for row in rows]


def _date(seconds: float | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"
