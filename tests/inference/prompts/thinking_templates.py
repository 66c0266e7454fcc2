"""Chat templates that leave thoughts out, in the forms that families have."""

LOOP = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ TEXT }}<|im_end|>\n{% endfor %}"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
QWEN = (
    LOOP.replace("TEXT", "message.content.split('</think>')[-1].lstrip('\\n')")
    + OPEN
    + "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
DEEPSEEK = (
    LOOP.replace("TEXT", "message.content.split('</think>')[-1]")
    + OPEN
    + "{% if thinking %}<think>{% else %}</think>{% endif %}"
)
