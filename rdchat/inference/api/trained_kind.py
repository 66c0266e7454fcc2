"""The kinds of drafter heads that `rdchat train-drafter` trains."""

from enum import StrEnum


class TrainedKind(StrEnum):
    """A kind of head, by its usual name.

    `recurrent` is a small RNN over the target's last hidden state; `eagle3` one transformer layer over the text, which
    drafts token by token; `dspark` drafts a block in one pass, with a light correction by the token before.
    """

    RECURRENT = "recurrent"
    EAGLE3 = "eagle3"
    DSPARK = "dspark"

    @property
    def words(self) -> str:
        """Its name for people."""
        return {"eagle3": "EAGLE-3", "dspark": "DSpark"}.get(self.value, self.value.capitalize())
