from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api import ChatMessage, Role
from rdchat.services.chat.chat_prompt import history

USER = Role.USER
ASSISTANT = Role.ASSISTANT


def path(*turns: tuple[Role, str]) -> list[Message]:
    return [
        Message(i, 1, i - 1 or None, role, text, MessageStatus.COMPLETE, 0.0) for i, (role, text) in enumerate(turns, 1)
    ]


def test_the_system_prompt_comes_first_where_there_is_one() -> None:
    hello = path((USER, "Hello"))
    assert history(hello, "Be brief.") == (ChatMessage(Role.SYSTEM, "Be brief."), ChatMessage(USER, "Hello"))
    assert history(hello, "  \n") == (ChatMessage(USER, "Hello"),)


def test_a_reply_without_a_word_is_left_out_and_its_prompt_kept() -> None:
    told = history(path((USER, "One"), (ASSISTANT, " "), (USER, "Two"), (ASSISTANT, "2"), (USER, "Three")), "")
    assert told == (ChatMessage(USER, "One\n\nTwo"), ChatMessage(ASSISTANT, "2"), ChatMessage(USER, "Three"))


def test_control_tokens_of_joined_replies_are_found_in_the_whole() -> None:
    first, second = (
        Message(i, 1, None, ASSISTANT, f"{i}<t>", MessageStatus.COMPLETE, 0.0, control_offsets=(1,)) for i in (1, 2)
    )
    (told,) = history([first, second], "")
    assert [told.content[offset : offset + 3] for offset in told.own_control] == ["<t>", "<t>"]
