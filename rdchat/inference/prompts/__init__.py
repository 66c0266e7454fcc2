"""From a conversation to token ids: chat templates and tokenizers are a stranger's data, so a child process runs them.

`model_prompts` is what the engine uses; `child` is the process.
"""
