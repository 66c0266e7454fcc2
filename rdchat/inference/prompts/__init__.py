"""Token ids of conversations. A child process runs chat templates and tokenizers, because they are foreign data.

The engine uses `model_prompts`; `tokenizer_process` starts the process, whose module is `tokenizers_child`.
"""
