# ruff: noqa: RUF001  quotation marks and other scripts are what these tests are about
"""What is read as a wish to remember something: tables of wordings, negations, abbreviations and words of others."""

import pytest
from hypothesis import given, strategies as st

from rdchat.chat.notes import asked_notes, notes_from_model

ASKED: dict[str, list[str]] = {
    "Remember that I use tabs.": ["I use tabs"],
    "Hello! Please remember that I live in Lisbon, not in Porto. And thanks.": ["I live in Lisbon, not in Porto"],
    "remember that version 3.2 is ours\nremember that Ann is the boss": ["version 3.2 is ours", "Ann is the boss"],
    "Can you remember that I use tabs?": ["I use tabs"],
    "Remember that the deadline is 3 p.m. on Friday and Dr. Lee signs. Thanks": [
        "the deadline is 3 p.m. on Friday and Dr. Lee signs"
    ],
    "Remember that Dr. Meyer and J. Smith lead.": ["Dr. Meyer and J. Smith lead"],
    "Remember that we close at 3 p.m.": ["we close at 3 p.m."],
    "Remember that we close at 3 p.m. What is the weather?": ["we close at 3 p.m."],
    "Remember that we close at 3 p.m. Friday.": ["we close at 3 p.m. Friday"],
    "Please remember: I use tabs": ["I use tabs"],
    "Remember my name is Kim": ["my name is Kim"],
    "Remember Ann is the boss": ["Ann is the boss"],
    "Don't forget that I use tabs.": ["I use tabs"],
    "Don’t forget that I use tabs.": ["I use tabs"],
    "Don't forget: I use tabs.": ["I use tabs"],
    "Do not ever forget that I use tabs.": ["I use tabs"],
    "Keep in mind that I use tabs.": ["I use tabs"],
    "Hi, also please keep in mind that I don't smoke!": ["I don't smoke"],
    "Remember that I use tabs, OK?": ["I use tabs"],
    "Remember that I use tabs, please.": ["I use tabs"],
    "Remember: never use tabs.": ["never use tabs"],
    "Remember:\n- I use tabs.\n- Ann leads.": ["I use tabs", "Ann leads"],
    "Please remember the following:\n\n1. I use tabs\n2. Ann leads\n\nThen write.": ["I use tabs", "Ann leads"],
    'Remember that my cat is called "Tom. Jr" and eats.': ['my cat is called "Tom. Jr" and eats'],
    "I'd like you to remember that I use tabs.": ["I use tabs"],
    "Could you please always remember that I use tabs?": ["I use tabs"],
    "- Remember that I use tabs.\n- Write a poem.": ["I use tabs"],
    "1. Remember that I use tabs.\n2. Write a poem.": ["I use tabs"],
    "Remember, I'm vegetarian.": ["I'm vegetarian"],
    "Remember I’m vegetarian.": ["I’m vegetarian"],
    "Merk dir, dass ich Tabs nutze.": ["ich Tabs nutze"],
    "Merke dir bitte: Die Frist ist am 3. Mai um 15 Uhr. Danke": ["Die Frist ist am 3. Mai um 15 Uhr"],
    "Bitte merk dir, dass Dr. Meyer ca. 5 kg z. B. Mehl und z.B. Öl braucht.": [
        "Dr. Meyer ca. 5 kg z. B. Mehl und z.B. Öl braucht"
    ],
    "Vergiss nicht, dass ich allergisch bin.": ["ich allergisch bin"],
    "Denk daran, dass ich in Köln wohne!": ["ich in Köln wohne"],
    "Kannst du dir bitte merken, dass ich Kim heiße?": ["ich Kim heiße"],
    "Könntest du dir merken, dass ich Kim heiße?": ["ich Kim heiße"],
    "Merken Sie sich bitte, dass wir siezen.": ["wir siezen"],
    "Merk dir: ich nutze Tabs": ["ich nutze Tabs"],
    "Behalte im Kopf, dass ich Tabs nutze.": ["ich Tabs nutze"],
    "Souviens-toi que j'utilise des tabulations.": ["j'utilise des tabulations"],
    "Souviens-toi qu’il est végétarien.": ["il est végétarien"],
    "N'oublie pas que je suis végétarien.": ["je suis végétarien"],
    "N’oubliez pas que M. Dupont signe.": ["M. Dupont signe"],
    "Rappelle-toi : je m'appelle Kim": ["je m'appelle Kim"],
    "S'il te plaît, retiens que je m'appelle Kim.": ["je m'appelle Kim"],
    "Peux-tu retenir que je m'appelle Kim ?": ["je m'appelle Kim"],
    "Garde en tête que je travaille à 80 %.": ["je travaille à 80 %"],
    "Recuerda que uso tabuladores.": ["uso tabuladores"],
    "Por favor, recuerda que la Sra. López firma a las 3 p. m. del viernes.": [
        "la Sra. López firma a las 3 p. m. del viernes"
    ],
    "No olvides que soy vegetariano.": ["soy vegetariano"],
    "No te olvides de que soy vegetariano.": ["soy vegetariano"],
    "¿Puedes recordar que uso tabuladores?": ["uso tabuladores"],
    "Ten en cuenta que vivo en Madrid.": ["vivo en Madrid"],
    "Recuerda: me llamo Kim": ["me llamo Kim"],
    "Ricorda che uso i tab.": ["uso i tab"],
    "Ricordati che sono vegetariano.": ["sono vegetariano"],
    "Per favore, non dimenticare che sono vegetariano.": ["sono vegetariano"],
    "Tieni a mente che vivo a Roma.": ["vivo a Roma"],
    "Puoi ricordare che mi chiamo Kim?": ["mi chiamo Kim"],
    "Lembre-se de que eu uso tabs.": ["eu uso tabs"],
    "Lembra-te que eu uso tabs.": ["eu uso tabs"],
    "Por favor, não te esqueças de que sou vegetariano.": ["sou vegetariano"],
    "Não se esqueça de que sou vegetariano.": ["sou vegetariano"],
    "Tenha em mente que moro em Lisboa.": ["moro em Lisboa"],
    "Pode lembrar que moro em Lisboa?": ["moro em Lisboa"],
    "请记住我用制表符。然后写一首诗。": ["我用制表符"],
    "記住：我叫小明": ["我叫小明"],
    "请记住，我不吃肉。": ["我不吃肉"],
    "别忘了我是素食者。": ["我是素食者"],
    "不要忘记我是素食者！": ["我是素食者"],
    "你好，请记住我叫小明，好吗？": ["我叫小明"],
    "你能记住我叫小明吗？": ["我叫小明"],
    "私はタブを使うことを覚えておいてください。": ["私はタブを使う"],
    "私の名前はキムだと覚えておいて。": ["私の名前はキムだ"],
    "覚えておいて：私はタブを使う": ["私はタブを使う"],
    "私がベジタリアンだということを忘れないでください。詩を書いて。": ["私がベジタリアンだ"],
    "金曜の3時が締め切りだと覚えておいてくれますか？": ["金曜の3時が締め切りだ"],
    "Never forget that Mr. Smith Jr. pays.": ["Mr. Smith Jr. pays"],
    "Hi Claude, remember that I use vim.": ["I use vim"],
    "One more thing: remember that it costs $3.50.": ["it costs $3.50"],
    "Make a note: I use vim": ["I use vim"],
    "Please remember the deadline is Friday": ["the deadline is Friday"],
    "You should remember that I live at number 12.": ["I live at number 12"],
    "Bitte vergiss nicht: ich bin Kim": ["ich bin Kim"],
    "Du sollst dir merken, dass ich Kim bin.": ["ich Kim bin"],
    "Souviens-toi, s'il te plaît, que je suis Kim": ["je suis Kim"],
    "No olvides nunca que soy Kim": ["soy Kim"],
    "Ricordati di questo: sono Kim": ["sono Kim"],
    "Nao esqueca que sou Kim": ["sou Kim"],
    "请帮我记一下我叫小明": ["我叫小明"],
    "千万别忘了我叫小明": ["我叫小明"],
    "ちなみに、私がキムだということを覚えておいて下さいね": ["私がキムだ"],
}
NOT_ASKED = (
    "Do you remember that day?",
    "I remember that it was cold.",
    "I don't remember that.",
    "What is memory?",
    "Please don’t remember that I was ill.",
    "I don’t remember that film.",
    "I can’t remember that word.",
    "I’d rather you did not ever remember that I smoke.",
    "I don't want you to remember that I was ill.",
    "Never remember that I was ill.",
    "I told you not to remember that I was ill.",
    "Did you remember that I was ill?",
    "We remember that day.",
    "They remember that he came.",
    "Can you remember that for me?",
    "Remember that, please.",
    "Remember that!",
    "Remember that?",
    "Please do not, under any circumstances, remember that I was ill.",
    "You need not remember that I smoke.",
    "No need to remember that I smoke.",
    "Could you please not remember that I smoke?",
    "Don't keep in mind that I smoke.",
    "Dont remember that I smoke.",
    "Don`t remember that I smoke.",
    "DON'T REMEMBER THAT I SMOKE",
    "She said: remember that I smoke.",
    'She wrote "remember that I smoke" to me.',
    '"Remember that I smoke" is a line of hers.',
    "“Remember that I smoke.”",
    "> Remember that I smoke.",
    "```\n# remember that I smoke\n```",
    "Explain `remember that I smoke`.",
    "    remember that I smoke",
    "„Merk dir, dass ich rauche.“",
    "« Souviens-toi que je fume. »",
    "'Remember that I smoke.'",
    "‘Don’t forget that I smoke.’",
    "「私は煙草を吸うと覚えておいて」",
    "Translate:\nRemember that I love you.",
    "Translate: Remember that I love you.",
    "Summarise this email:\n\nHi Bob,\nRemember that the meeting is on Monday.\n",
    "Remember to add tests.",
    "Remember when we met?",
    "Remember the milk.",
    "Remember not to add tests",
    "Remember me?",
    "Remember what I said.",
    "Remember to remember that",
    "Merk dir nicht, dass ich rauche.",
    "Merk dir bitte nicht, dass ich rauche.",
    "Bitte nicht merken, dass ich rauche.",
    "Denk nicht daran, dass ich rauche.",
    "Kannst du dir nicht merken, dass ich rauche?",
    "Erinnerst du dich, dass ich rauche?",
    "Ich merke mir, dass du rauchst.",
    "Vergiss, dass ich rauche.",
    "Ne te souviens pas que je fume.",
    "Ne retiens pas que je fume.",
    "Tu te souviens que je fume ?",
    "Je me souviens que tu fumes.",
    "Oublie que je fume.",
    "No recuerdes que fumo.",
    "¿Recuerdas que fumo?",
    "Recuerdo que fumabas.",
    "Olvida que fumo.",
    "No quiero que recuerdes que fumo.",
    "¿No recuerdas que fumo?",
    "Non ricordare che fumo.",
    "Ti ricordi che fumo?",
    "Non voglio che ricordi che fumo.",
    "Dimentica che fumo.",
    "Não te lembres que fumo.",
    "Não lembre que eu fumo.",
    "Lembras-te que eu fumo?",
    "Esquece que eu fumo.",
    "Lembra que eu fumo?",
    "不要记住我抽烟。",
    "请不要记住我抽烟。",
    "别记住我抽烟。",
    "我记得你抽烟。",
    "你记得我抽烟吗？",
    "不用记住我抽烟",
    "请记住这一点。",
    "忘了我抽烟。",
    "私が煙草を吸うことは覚えないでください。",
    "私が煙草を吸うことを覚えていますか？",
    "私は彼を覚えている。",
    "これを覚えておいて。",
    "煙草のことは忘れてください。",
    "覚えておいてほしくない。",
    "私が煙草を吸うことは覚えておかないで。",
    "Don't you remember that I smoke?",
    "I'd hate it if you remember that I smoke.",
    "Nobody should remember that I smoke.",
    "It is wrong to remember that I smoke.",
    "Without my leave, remember that I smoke? No.",
    "I asked you to not remember that I smoke.",
    "Stop remembering that I smoke.",
    "As she put it, “please remember that I smoke”.",
    "› Merk dir, dass ich rauche. ‹",
    "> > Remember that I smoke.",
    "~~~\nremember that I smoke\n~~~",
    "Fix this text:\n\n1. Remember that I smoke.\n2. Don't forget that I drink.",
    "You must not remember that I smoke.",
    "You don't need to remember that I smoke.",
    "You should never remember that I smoke.",
    "Remember nothing of this: I smoke",
    "Do NOT remember: I smoke.",
    "Not: remember that I smoke",
    "Subject: Remember that I smoke",
    "On Monday Bob wrote:\nRemember that I smoke",
    '{"text": "Remember that I smoke"}',
    "Bitte merke dir auf keinen Fall, dass ich rauche.",
    "Du musst dir nicht merken, dass ich rauche.",
    "Ne pas retenir que je fume.",
    "S'il te plaît, ne te souviens pas que je fume.",
    "No hace falta recordar que fumo.",
    "Per favore, non ricordare che fumo.",
    "Por favor, não lembre que fumo.",
    "请千万不要记住我抽烟。",
    "请勿记住我抽烟。",
    "私が煙草を吸うことを覚えておく必要はありません。",
    "私が煙草を吸うことは覚えてほしくない。",
)
NOTHING = (
    "none",
    "(none)",
    "None.",
    "N/A",
    "nothing new",
    "Keine neuen Notizen.",
    "nichts",
    "rien",
    "ninguna",
    "无",
    "なし",
)
BULLETS = (
    "- ",
    "* ",
    "+ ",
    "• ",
    "•",
    "– ",
    "◦ ",
    "·",
    "・",
    "1. ",
    "1) ",
    "(1) ",
    "1、",
    "a) ",
    "  - ",
    "- [ ] ",
    "‣ ",
)
ABBREVIATIONS = (
    "Dr.",
    "Prof.",
    "e.g.",
    "i.e.",
    "z.B.",
    "z. B.",
    "bzw.",
    "ca.",
    "vs.",
    "J.",
    "M.",
    "Sra.",
    "No. 5",
    "3.14",
)
ENDS = ("p.m.", "a. m.", "etc.", "usw.", "Inc.", "U.S.")
QUOTES = ("“”", "‘’", "„“", "«»", "»«", "「」", "『』", '""', "''", "``")


@pytest.mark.parametrize(("question", "notes"), ASKED.items(), ids=ASKED)
def test_a_wish_is_proposed_in_the_persons_words(question: str, notes: list[str]) -> None:
    assert asked_notes(question) == notes
    assert asked_notes(f"Thanks. {question}\nNow write a poem.") == notes


@pytest.mark.parametrize("question", NOT_ASKED)
def test_no_wish_is_seen_in_its_opposite_a_question_or_the_words_of_others(question: str) -> None:
    assert asked_notes(question) == asked_notes(f"Hello!\n\n{question}") == []


@pytest.mark.parametrize(
    ("begin", "end"),
    [("```", "```"), ("````\n```", "```\n````"), ("```text", ""), ("~~~~\n~~~", "~~~~"), ("<pre>", "</pre>"),
     ("<blockquote cite='x'>", "</BLOCKQUOTE>"), ("  <code>", "</code>"), ("> Hi", ">"), ("He wrote:", "")],
)  # fmt: skip
def test_code_and_quotations_are_not_the_persons_own(begin: str, end: str) -> None:
    for wish in ("Remember that I smoke.", "Remember:\n- I smoke\n- I drink", "请记住我抽烟。"):
        line = f"> {wish}".replace("\n", "\n> ") if begin.startswith(">") else wish
        assert asked_notes(f"{begin}\n{line}\n{end}\n\nExplain that.") == []


@pytest.mark.parametrize("apostrophe", list("'’‘ʼ´`"))
def test_each_apostrophe_is_one(apostrophe: str) -> None:
    assert asked_notes(f"Please don{apostrophe}t remember that I smoke.") == []
    assert asked_notes(f"Don{apostrophe}t forget that I smoke.") == ["I smoke"]


@pytest.mark.parametrize("quotes", QUOTES)
@pytest.mark.parametrize("wish", ["Remember that I don’t smoke.", "Merk dir, dass ich rauche."])
def test_quoted_words_are_not_the_persons_own(quotes: str, wish: str) -> None:
    first, last = quotes
    for before in ("", "She said ", "Translate this. ", "Hi!\n"):
        assert asked_notes(f"{before}{first}{wish}{last}\nThanks.") == []
    assert asked_notes(f"Remember that she says {first}No. Never.{last} to it. Go on.") == [
        f"she says {first}No. Never.{last} to it"
    ]


WORDS = st.sampled_from(["Anna", "tabs", "we", "are", "Köln", "don’t", "3.5", "10:30", "a/b", "x,", "não", "C++"])


@given(st.lists(WORDS | st.sampled_from(ABBREVIATIONS), min_size=2, max_size=8), st.sampled_from(["", ".", "!"]))
def test_abbreviations_and_numbers_end_no_sentence(words: list[str], mark: str) -> None:
    """Whatever stands where: a wish goes on to the end of its sentence, and no further."""
    fact = f"we know {' '.join(words)} well"
    for wish in ("Remember that", "Please remember:", "Don’t forget that", "Keep in mind that"):
        assert asked_notes(f"{wish} {fact}{mark}") == [fact]
        assert asked_notes(f"Hi. {wish} {fact}. And write a poem") == [fact]


@pytest.mark.parametrize("end", ENDS)
def test_an_abbreviation_may_end_a_sentence(end: str) -> None:
    assert asked_notes(f"Remember that we use {end} on Friday. Thanks") == [f"we use {end} on Friday"]
    assert asked_notes(f"Remember that we use {end}") == [f"we use {end}"]


@given(st.text("Remmbrthadon'’ \n.,:?!-“”\"`>1é。记住覚えて", max_size=60), st.text("ab. \n", max_size=20))
def test_what_is_proposed_was_typed(before: str, after: str) -> None:
    question = f"{before}Remember that {after}"
    for note in asked_notes(question):
        assert note
        assert " ".join(note.split()) in " ".join(question.split())


@pytest.mark.parametrize("text", NOTHING)
def test_a_model_that_notes_nothing_in_any_language_proposes_nothing(text: str) -> None:
    for bullet in BULLETS:
        assert notes_from_model(f"{bullet}{text}") == []


@pytest.mark.parametrize("bullet", BULLETS)
def test_a_bullet_of_any_form_is_one(bullet: str) -> None:
    assert notes_from_model(f"Notes:\n{bullet}Ann leads. She likes **tea**.\n\n{bullet}We meet at 3 p.m.\nBye.") == [
        "Ann leads. She likes **tea**",
        "We meet at 3 p.m.",
    ]


UNITS = (
    "Remember that I use tabs. ",
    "“",
    '"a ',
    "a' ",
    "' ",
    "please ",
    "Remember:\n",
    "Dr. ",
    "p.m. ",
    " ",
    "\n",
    "「",
)


@pytest.mark.parametrize(
    "unit",
    [
        *UNITS,
        "```\n",
        "````\n```\n",
        "<pre>\n",
        "<q>\n</",
        ":\n\na ",
        "覚えて",
        "请记住",
        ", please",
        "- ",
        "(",
        "Remember a b c ",
    ],
)
def test_each_sign_is_read_a_few_times_at_most(unit: str) -> None:
    """A pattern that takes the square of the length would take minutes here."""
    text = unit * (100_000 // len(unit))
    asked_notes(text)
    notes_from_model(text)
    assert asked_notes(f"Remember that I use tabs. {'a ' * 50_000}") == [], "so long a question has others' words"
