"""Numbers of list items, in the forms of Word and of HTML."""

_ONES = ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"]
_ROMAN = [tens + ones for tens in ("", "x", "xx", "xxx") for ones in _ONES]
_LETTERS = ["", *"abcdefghijklmnopqrstuvwxyz"]
_FORMS = {"a": _LETTERS, "lowerletter": _LETTERS, "i": _ROMAN, "lowerroman": _ROMAN}


def whole_number(text: str, default: int = 0) -> int:
    """Return the number in an attribute, or `default` where it has none."""
    return int(text) if text.isdecimal() and len(text) < 6 else default


def numeral(number: int, form: str) -> str:
    """Return a number in a form; empty if it is too high for it, or the form is unknown."""
    if form in ("", "1", "decimal"):
        return str(number)
    numerals = _FORMS.get(form.lower().replace("upper", "lower"), [])
    text = "".join(numerals[max(number, 0) :][:1])
    return text.upper() if form[0] in "AIu" else text
