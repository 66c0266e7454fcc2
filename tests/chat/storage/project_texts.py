"""Files for projects, by the letters of their names; long ones, which take a while to store."""

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile, attached

NAMES = ("abcde", "cdefg")


def text_file(name: str, text: str) -> tuple[AttachedFile, str]:
    return attached(ReadFile(name, FileKind.TEXT, (text,)), text), text


def files_named(names: str) -> list[tuple[AttachedFile, str]]:
    return [text_file(name, name * 300_000) for name in names]
