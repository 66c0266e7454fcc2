"""Messages, or what is selected of them, as Markdown, plain text and rich text for other apps."""
