"""What a reply may hold: the figures of a drafted one, and Markdown of every kind."""

from rdchat.inference.api import LedgerEntry, Statistics

DRAFTED = Statistics(
    prompt_tokens=40,
    cached_prompt_tokens=8,
    generated_tokens=61,
    prefill_ms=80,
    ttft_ms=120,
    decode_ms=2000,
    rounds=30,
    drafted=90,
    accepted=30,
    target_calls=30,
    ledger=(LedgerEntry("template and tokenize", "", 1, 10), LedgerEntry("prefill", "", 1, 70)),
)
RICH = """# Title

Some *prose*
***bold at the start of a line*** and more

- one
- two
  - nested
    ```py
    x
    ```
- [x] done

3. three
3. four

> quote
> > deeper
lazy

```python
def f():

    pass
```
Setext
---
| a | b |
|---|--:|
| 1 | 2 |

    indented code

***
end <tag> ![alt](http://x/y.png)
~~~
unclosed
"""
