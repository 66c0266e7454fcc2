from rdchat.ui.transcript.message_column import FIRST, MAX, OPENED, STEP, MessageRange


def test_a_long_conversation_opens_at_its_end() -> None:
    window = MessageRange()
    window.show_latest(10_000)
    assert (window.start, window.end) == (10_000 - FIRST, 10_000)
    while window.grow():
        assert window.at_end
    assert (window.start, window.end) == (10_000 - OPENED, 10_000)


def test_it_slides_up_to_the_first_message_and_back_and_stays_small() -> None:
    window = MessageRange()
    window.show_latest(1000)
    while window.slide_up():
        assert window.end - window.start <= MAX
    assert window.start == 0
    assert not window.at_end
    while window.slide_down():
        assert window.end - window.start <= MAX
    assert window.end == 1000


def test_a_message_added_far_below_is_not_shown() -> None:
    window = MessageRange()
    window.show_latest(1000)
    while window.slide_up():
        pass
    end = window.end
    assert not window.count_message()
    assert (window.end, window.total) == (end, 1001)


def test_messages_added_at_the_end_push_the_oldest_out() -> None:
    window = MessageRange()
    window.show_latest(10)
    for _ in range(1000):
        assert window.count_message()
    assert window.end == 1010
    assert MAX - STEP <= window.end - window.start <= MAX


def test_a_shorter_path_after_an_edit_keeps_the_end_in_view() -> None:
    window = MessageRange()
    window.show_latest(1000)
    window.set_count(500, range(440, 499), at_end=True)
    assert (window.start, window.end, window.total) == (440, 500, 500)


def test_another_path_of_the_same_chat_makes_few_widgets_at_once() -> None:
    window = MessageRange()
    window.show_latest(1000)
    while window.grow():
        pass
    window.set_count(90_000, range(940, 970), at_end=True)
    assert (window.start, window.end) == (90_000 - FIRST, 90_000)
    window.set_count(1000, range(940, 970), at_end=False)
    assert (window.start, window.end, window.total) == (940, 970 + STEP, 1000)
