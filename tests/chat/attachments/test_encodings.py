"""Texts that are not UTF-8."""

# ruff: noqa: RUF001  texts in many scripts

import pytest

from rdchat.chat.attachments.kinds import CANDIDATES, decoded, guessed

TEXTS = {
    "cp1251": ["Привет", "ПРИВЕТ", "Съешь же ещё этих мягких французских булок", "Отчёт за квартал: +12%."],
    "koi8-r": ["Привет", "ПРИВЕТ", "Москва", "Отчёт за третий квартал"],
    "cp1250": ["Zażółć gęślą jaźń", "Dobrý den, děkuji", "Příliš žluťoučký kůň", "čeština", "Łódź są"],
    "cp1253": ["Καλημέρα", "Αθήνα", "Αυτό είναι ένα κείμενο στα ελληνικά."],
    "gb18030": ["北京", "你好", "你好，世界", "这是一个测试", "简体中文", "重庆市渝中区"],
    "big5": ["這是一個測試", "繁體中文", "你好，世界", "臺灣", "今天天氣很好，我們去公園散步。"],
    "cp932": ["こんにちは", "日本語", "カタカナ", "東京都", "吾輩は猫である。名前はまだ無い。"],
    "euc-jp": ["こんにちは", "日本語", "カタカナ", "東京都", "これは日本語のテキストです。"],
    "cp949": ["안녕하세요", "대한민국", "서울", "이것은 시험이다", "파일 인코딩 테스트"],
    "cp1252": ["naïve", "café", "Größe", "»Spaß«", "“Hi”", "It’s fine – really", "più", "où êtes-vous", "£5", "50 €",
               "São Paulo", "½ cup", "señor", "Île-de-France", "rødgrød", "ÜBERGRÖSSE", "così, però, città"],
}  # fmt: skip


@pytest.mark.parametrize(("codec", "text"), [(codec, text) for codec, texts in TEXTS.items() for text in texts])
def test_even_a_short_text_is_read_in_its_encoding(codec: str, text: str) -> None:
    """charset-normalizer takes cp1251's `Привет` for Big5, and cp1252's `naïve` for cp1250."""
    read, note = guessed(text.encode(codec))
    assert read == text
    names = [each.name for each in CANDIDATES]
    assert sum(name in note for name in names) == 3, "the guess and two others"


@pytest.mark.parametrize("garbage", [b"\x80\x81", b"ok \x90", b"\xe4\xe0"])
def test_without_clear_evidence_it_is_latin_1(garbage: bytes) -> None:
    assert "Latin-1" in guessed(garbage)[1]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Zürich und Köln ".encode() + b"\xff.", "Zürich und Köln \ufffd."),
        ("日本語のテキスト".encode()[:-1], "日本語のテキス\ufffd"),
        ("日本語のテキスト".encode()[1:], "\ufffd\ufffd本語のテキスト"),
        (b"\xe9 caf\xe9, " + "Büro".encode(), "é café, BÃ¼ro"),
    ],
)
def test_a_few_bad_bytes_cost_themselves(data: bytes, text: str) -> None:
    """All of a log with one bad byte was read as Latin-1: `ZÃ¼rich`."""
    assert decoded(data, "a.txt")[0] == text


def test_a_long_text_is_judged_by_a_sample_and_read_whole() -> None:
    text = "name = value\n" * 5000 + "Москва и Петербург\n" * 5000
    assert decoded(text.encode("cp1251"), "a.txt")[0] == text
