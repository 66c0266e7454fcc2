"""The SQLite file of the chats: opens, checks, migrates and searches it, and keeps a damaged one.

Other packages import from here, not from its modules.
"""

from rdchat.chat.storage.connections import reading, rows_of
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.file_check import (
    COMPANIONS,
    LONGEST_VALUE,
    WRITE_CHECK,
    address_to_read,
    copy_database,
    harden,
    is_special,
    why_unusable,
)
from rdchat.chat.storage.message_tree import (
    ACTIVATE,
    LATEST,
    NEXT_ACTIVATED,
    NOT_DELETED,
    SIBLINGS,
    TRASH_DAYS,
    DeletedMessage,
    MessageTrash,
    MessageTree,
    erase_message,
    erasing_messages,
    expiry_limit,
    repair_tree,
)
from rdchat.chat.storage.search import (
    MessageMatches,
    SearchAnswer,
    SearchQuery,
    SearchReader,
    check_index,
    index_messages,
    matching_chats,
    rebuild_search,
)
from rdchat.chat.storage.search_text import WordMatcher
from rdchat.chat.storage.stored_chats import (
    DamagedChatError,
    FullChat,
    add_files,
    add_image,
    file_from,
    file_text,
    folders_listed,
    insert_in_steps,
    insert_message,
    path_to,
    read_chat,
    read_message,
    read_project,
    set_folder_files,
    store_project,
    visible_ids,
)
from rdchat.chat.storage.stored_rows import (
    END_OF_DATES,
    FOLDER_COLUMNS,
    JSON_FIELDS,
    MESSAGE_FIELDS,
    NO_DATE,
    assignment,
    chats_with_caches,
    conversations,
    drop_consent,
    folder_from,
    listed_chats,
    message_from,
    message_row,
    options_columns,
    shape_from,
    text_column,
)
