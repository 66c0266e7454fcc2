"""The built-in openings: tables of patterns that `PromptSource` draws from and fills in."""


def _words(text: str) -> tuple[str, ...]:
    """Split a block of text at its bars."""
    return tuple(word.strip() for word in text.replace("\n", "").split("|"))


TOPICS = _words("""
    the water cycle|a lighthouse keeper|bicycle maintenance|the history of tea|solar panels|volcanoes|city gardens|
    a lost dog|the printing press|learning to swim|ocean currents|the Silk Road|bread baking|jazz music|black holes|
    bees|electric cars|a mountain village|public libraries|the human heart|chess|rainforests|ancient Rome|
    the moon landing|coffee farming|a school play|sleep|the stock market|dinosaurs|photosynthesis|earthquakes|
    the Olympic Games|robots|a train journey|vaccines|glaciers|the invention of the telephone|migration of birds|
    painting|remote work|honesty|a fishing harbour|computer networks|the Great Wall of China|antibiotics|football|
    desert animals|cheese|space telescopes|a museum robbery|plastic waste|the violin|wind power|Egyptian pyramids|
    friendship|online shopping|whales|opera|gravity|a new mayor|river floods|machine learning|the French Revolution|
    yoga|submarines|maps|a bakery that closes|penguins|renewable energy|the immune system|hiking|
    the Roman aqueducts|paper making|elections|storms at sea|potatoes|magnets|a hospital strike|wolves|
    the Industrial Revolution|cooking rice|satellites|an old castle|traffic jams|databases|rice|the Amazon river|
    a rock band|air pollution|birdsong|stress at work|the Renaissance|sharks|knitting|steam engines|time|
    a village school|cancer research|mushrooms|the Vikings|clocks|inflation|salt|a chess champion|fire fighters|
    elephants|a startup company|diabetes|the Mediterranean|wooden boats|the brain|house prices|snow|camels|
    a wedding|trade unions
""")

TEXTS = (  # what comes back serves as a passage later
    "Write a short news article about {topic}.",
    "Write an encyclopedia entry about {topic}.",
    "Write two paragraphs about {topic}.",
    "Tell a short story about {topic}.",
    "Write a blog post about {topic}.",
    "Write a report of what happened last week concerning {topic}.",
    "Describe {topic} to a child.",
    "Write a biography of a person who is known for {topic}.",
    "Write an article about {topic} in which two people are quoted.",
    "What should everybody know about {topic}?",
    "Give the history of {topic} in one paragraph, with names and dates.",
    "Write a short text in {language} about {topic}.",
    "Give five facts about {topic}.",
    "List the advantages and disadvantages of {topic}.",
    "Write a dialogue between two friends about {topic}.",
    "Write an email to a colleague about {topic}.",
    "Write a persuasive speech about {topic}.",
    "Write a poem about {topic}.",
    "Write a product description that has to do with {topic}.",
    "Write a letter of complaint about {topic}.",
)
QUESTION_STARTS = (
    "What is",
    "What are",
    "Why do",
    "How do I",
    "How does",
    "Which",
    "Can you explain",
    "Explain",
    "Compare",
    "Describe",
    "Give me",
    "Write a letter to",
    "Suggest",
    "Plan a",
    "Is it true that",
    "Name the",
    "What does the word",
    "Classify the following",
    "Draft a",
    "Outline",
    "Let's discuss {topic}.",
    "A question about {topic}:",
    "What is the relationship between",
    "How has {topic}",
    "Discuss the causes of",
    "What are the main differences between",
    "Explain step by step how",
    "Design an experiment that",
    "Help me",
    "I want to",
)
FACT_STARTS = (
    "Who",
    "Who was the first",
    "When did",
    "When was",
    "Where is",
    "Where does",
    "How many",
    "In which year",
    "who played",
    "who wrote",
    "who sang",
    "who is the",
    "when did the",
    "when is the",
    "where was",
    "where do",
    "how long does it take to",
    "how many people",
    "what is the meaning of",
    "what is the name of",
    "what year did",
    "what type of",
    "which country",
    "the capital of",
)
CODE_STARTS = (
    "Write a Python function that",
    "Write a Python program to",
    "Write a function in JavaScript that",
    "Write a C++ program that",
    "Write an SQL query that",
    "Write a bash script that",
    "Write an HTML page with",
    "Implement in Python",
    "Explain what this code does:\n```python\n",
    "Find the bug in this code:\n```python\ndef ",
    "How do I in Python",
    "Write a class in Java for",
    "Write unit tests for this function:\n```python\ndef ",
    "Given an array of integers, write a function that",
    "Implement an algorithm to",
    "Write a regular expression that",
    "Write a Python script that reads a file and",
)
REASONING_STARTS = (
    "Three friends",
    "{name} is taller than {other}.",
    "All of the following statements are true.",
    "{name}'s mother has {a} children.",
    "Which word does not belong with the others?",
    "If it takes {a} machines {b} minutes to",
    "{name} looks north and then turns",
    "What comes next in the sequence {a},",
    "Here is a riddle:",
    "Is the following argument valid?",
    "{name} says that {other} always lies.",
    "Yesterday {name} and {other}",
)
ROLE_STARTS = (
    "Imagine you are a",
    "Pretend to be a",
    "You are a doctor.",
    "You are an English teacher.",
    "You are a tour guide who knows all about {topic}.",
    "Act as a famous scientist and explain",
    "Act as a stand-up comedian who talks about {topic}.",
    "Speak like a pirate. Tell me about {topic}.",
    "You are a detective in an old film.",
    "Take the role of a historian and tell me",
    "Be my interviewer for the position of",
    "Play the part of a wise old farmer. I ask you about {topic}.",
    "You are a robot that has feelings.",
)
NAMES = _words("""
    Anna|Ben|Carla|David|Emma|Farid|Grace|Hugo|Ines|Jack|Kim|Leo|Maria|Noah|Olga|Paul|Rosa|Sam|Tina|Yusuf
""")
THINGS = _words("""
    apples|books|pencils|cookies|marbles|eggs|stamps|tickets|coins|shirts|chairs|bottles|cards|oranges
""")
MATHS_STARTS = (
    "{name} has {a} {things}.",
    "{name} buys {a} {things} for ${b} each.",
    "{name} buys {a} {things} for ${b} each and pays with",
    "{name} works {a} hours a day and earns ${b} an hour.",
    "A shop sells {things} at ${a} each.",
    "A shop sells {things} at ${a} each. On Monday it sold {b}, on Tuesday twice as many.",
    "A train travels at {b} miles per hour for {a} hours.",
    "{name} and {other} share {b} {things}.",
    "{name} has {a} times as many {things} as {other}.",
    "{name} is {a} years older than {other}.",
    "There are {b} students in a class. A third of them",
    "In a garden there are {a} rows of {b} plants.",
    "{name} saves ${a} every week.",
    "{name} saves ${a} every week for {b} weeks and then spends half of it.",
    "A recipe needs {a} cups of flour for {b} cakes.",
    "Every day {name} walks {a} miles.",
    "{name} reads {b} pages of a book with",
    "{name} drives {b} miles to work and back {a} days a week.",
    "{name} bakes {b} cakes. {other} bakes {a} more than that.",
    "A box holds {b} {things}. {name} fills {a} boxes and gives away",
    "{name} pays ${b} for a ticket, which is 20% more than",
    "Solve the equation",
    "What is {a} times {b}",
    "A rectangle has a length of {b} and a width of {a}.",
    "The price of a ticket is ${b}.",
    "If {name} can paint a wall in {a} hours",
    "Calculate",
    "A farmer has {b} {things} and sells",
)
INTO_ENGLISH = (
    "Translate {language} to English: {foreign}",
    "Translate into English: {foreign}",
    "Translate this {language} text to English:\n{foreign}",
    "What does this mean in English? {foreign}",
    "Please translate the following {language} text into English.\n\n{foreign}",
    "{foreign}\n\nTranslate the text above from {language} to English.",
    'English translation of "{foreign}"',
)
FROM_ENGLISH = (
    "Translate into {language}: {sentence}",
    "Translate English to {language}: {sentence}",
    "How do I say this in {language}? {sentence}",
    "Translate the following text to {language}:\n\n{passage}",
)
PASSAGE_TASKS = (
    ("summarise", "Summarize: {passage}"),
    ("summarise", "Summarize the following text:\n\n{passage}"),
    ("summarise", "{passage}\n\nSummarize this in two sentences."),
    ("summarise", "Summarise this article: {passage}"),
    ("summarise", "Give a short summary.\n\n{passage}"),
    ("summarise", "What are the main points of this text?\n\n{passage}"),
    ("summarise", "{passage}\nTL;DR:"),
    ("summarise", "Write a headline and a summary for this article.\n\n{passage}"),
    ("rewrite", "Rewrite the following text in a more formal style:\n\n{passage}"),
    ("rewrite", "Correct the grammar of this text:\n\n{passage}"),
    ("rewrite", "Make this text shorter:\n\n{passage}"),
    ("rewrite", "Rewrite this as bullet points:\n\n{passage}"),
    ("rewrite", "Continue this text:\n\n{passage}"),
    ("extract", "List all names and places in this text:\n\n{passage}"),
    ("extract", "Extract the key facts from the text below.\n\n{passage}"),
    ("extract", "Extract all names, dates and numbers as JSON:\n\n{passage}"),
    ("extract", "What is this text about, and who is in it?\n\n{passage}"),
    ("extract", "Is the tone of this text positive or negative? Rate it from 1 to 5.\n\n{passage}"),
)
PASSAGE_QUESTIONS = (
    "{passage}\n\nQuestion:",
    "{passage}\nWhat",
    "{passage}\nWho",
    "{passage}\nHow",
    "{passage}\nAccording to the text,",
    "Answer the question using the text.\n\nText: {passage}\n\nQuestion:",
    "Read the passage and answer the question.\n\n{passage}\n\n",
    "Use the context below to answer.\n\nContext:\n{passage}\n\nQuestion: What",
    "Use the context below to answer.\n\nContext:\n{passage}\n\nQuestion: Who",
    "Context: {passage}\nContext: {second}\nQuestion:",
    "{second}\n{passage}\nWhy",
    "{second}\n\n{passage}\n\nWhen",
    "Here are two documents.\n\nDocument 1: {passage}\n\nDocument 2: {second}\n\nUsing them, answer this question:",
    "Document [1]: {passage}\nDocument [2]: {second}\n\nAnswer from the documents: who",
    "Document [1]: {passage}\nDocument [2]: {second}\n\nAnswer from the documents: when",
)
