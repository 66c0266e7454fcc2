"""Files: written completely or not at all, locked, and checked while they are read if they are foreign.

`cache_folders` is imported by its own name: it asks the system, which plain data of the engine must not need.
"""

from rdchat.files.atomic_file import (
    FileLock,
    JsonLines,
    atomic_file,
    build_folder,
    companion,
    flush_to_disk,
    is_made,
    make_folder,
    remove_abandoned,
    set_aside,
    temporary_folder,
    temporary_of,
    write_cache_file,
    write_json,
    write_unflushed,
)
from rdchat.files.chosen_places import chosen_file, folder_beside, remove_unfinished
from rdchat.files.foreign_files import (
    MAX_ENTRIES,
    REFETCH_HINT,
    TEMPLATES,
    TOKENIZER_FILES,
    as_text,
    check_entries,
    check_file,
    entries_of,
    from_plain,
    is_nested_deeper,
    is_placeholder,
    json_or_none,
    max_bytes,
    opened,
    parse_json,
    plain,
    read_bytes,
    read_errors,
    read_json,
    read_object,
    read_text,
    readable_entries,
    reader_of,
)
from rdchat.files.image_formats import BMP, FORMATS, GIF, HEIC, JPEG, MEDIA, PNG, UNREAD, WEBP, format_of
from rdchat.files.privacy import (
    close_to_others,
    is_ours,
    is_private,
    own_entries,
    persons_umask,
    private_folder,
    with_persons_umask,
    write_privately,
)
