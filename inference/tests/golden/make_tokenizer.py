"""Makes `tokenizer_small.json` and `tokenizer_models.json`: what llama.cpp makes of 2,000 texts.

usage: make_tokenizer.py FOLDER [MODEL INDEX]
FOLDER holds both models, as `tests/models/fetch` leaves them; with MODEL and INDEX it prints one
text and its tokens instead. Needs gguf, numpy, tokenizers and xllamacpp from PyPI.

The texts are not written down: `text` makes them, here and in the tests. Of the tokens of each text
a hash is kept. The small vocabularies are the first tokens of the models'.

llama.cpp has approximations of the patterns of `gpt-4o` and `tekken`, which differ from what these
models were trained with where a mark follows a letter: there Hugging Face's library is the source.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import gguf
import tokenizers
import xllamacpp

HERE = Path(__file__).parent
MODELS = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3": "gemma-3-270m-q4_k_m.gguf",
}
NUM_TEXTS = 2000
NUM_SMALL_TEXTS = 200
PRE_TOKENIZERS = [
    "default", "deepseek-v3", "falcon", "gpt-2", "llama-bpe", "qwen2", "smollm",
]  # fmt: skip
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# As in the tokenizer.json of Mistral-Nemo, and in tiktoken for o200k_base.
PATTERNS = {
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-4o": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
FRAGMENTS = [
    " ", "  ", "    ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u2003",
    "\u200b", "\ufeff", " \t \n", "a", "b", "A", " a", " I", "the", " the", " The", "Hello", " world", "hello world",
    "straße", " naïve", "Ελληνικά", "русский", " язык", "עברית", "العربية", "हिन्दी", "ไทย", "日本語", "こんにちは", "カタカナ",
    "汉字", "漢字，", "。", "한국어", "\u1112\u1161\u11ab", "e\u0301", "n\u0303o", "Z\u0351\u036b\u0343\u036a\u0302A\u0334L", "👍", "👍🏽",
    "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "☕️", "1", "12", "123", "1234", " 2024", "3.14159", "0x1F", "1,000,000", "٣٤", "½", "Ⅷ", "²",
    "'s", "'t", "'re", "'S", "'LL", "’s", " don't", "I'm", "we'll", "!", "!!", "?", "...", "—", " -", "--", "=", "==", "!=",
    "=>", "->", "::", "#", "$", "%", "&", "*", "+", "/", "//", "\\", "\\n", "|", "||", "^", "~", "`", "```", "<", ">", "</", "@",
    "_", "__init__", "(", ")", "()", "[", "]", "{", "}", "};", '"', "'", ",", ";", ":", "fn main() {\n    println!(\"hi\");\n}\n",
    "def f(x):\n\treturn x ** 2\n", "for (int i = 0; i < 10; ++i)", "SELECT * FROM t WHERE a='b';", "<div class=\"x\">",
    "https://example.org/a?b=c&d=%20", "user@example.org", "CamelCase", "snake_case", "SCREAMING", "mIxEd", "iPhone", "x1y2",
    "\ufffd", "\ufffd\ufffd", "\x00", "\x07", "\x1b[0m", "\x7f", "\u0085", "\u2028", "\u202e", "\U000e0067", "\U0001d54f",
    "<|im_start|>", "<|im_end|>", "<|im_end|>\n", "<|endoftext|>", "<|im_", "im_end|>", "<bos>", "<eos>", "<pad>", "<unk>",
    "<start_of_turn>", "<end_of_turn>", "<0x0A>", "<unused0>", "▁", "▁the", "Ġ", "Ġthe", "Ċ", "system", "user", "assistant",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "                                        ", "\n" * 35, "\t" * 35, "antidisestablishmentarianism",
]  # fmt: skip
MASK = (1 << 64) - 1


class Random:
    """SplitMix64."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, limit: int) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        value = self.state
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        return (value ^ (value >> 31)) % limit


def text(index: int) -> str:
    """Fragments and single characters by chance; each hundredth text is long."""
    random = Random(index)
    num_parts = 1 + random.below(3000 if index % 100 == 99 else 12)
    parts = []
    for _ in range(num_parts):
        choice = random.below(len(FRAGMENTS) + 8)
        if choice < len(FRAGMENTS):
            parts.append(FRAGMENTS[choice])
        else:
            code = random.below(0x30000)
            parts.append("\ufffd" if 0xD800 <= code < 0xE000 else chr(code))
    return "".join(parts)


def hash_of(ids: list[int]) -> str:
    """FNV-1a, 32 bits, of the ids as little-endian 32-bit numbers."""
    value = 0x811C9DC5
    for byte in b"".join(token.to_bytes(4, "little") for token in ids):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


class _Params(ctypes.Structure):
    # Longer than any version of the structure; the callee reads its own part of it.
    _fields_ = (("bytes", ctypes.c_ubyte * 512),)


_VOCAB_ONLY = 72
_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    pointer, i32 = ctypes.c_void_p, ctypes.c_int32
    lib.llama_model_default_params.restype = _Params
    lib.llama_model_load_from_file.restype = pointer
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Params]
    lib.llama_model_get_vocab.restype = pointer
    lib.llama_model_get_vocab.argtypes = [pointer]
    lib.llama_tokenize.argtypes = [
        pointer, ctypes.c_char_p, i32, ctypes.POINTER(i32), i32, ctypes.c_bool, ctypes.c_bool,
    ]  # fmt: skip
    lib.llama_log_set(_SILENT, None)
    return lib


class Vocabulary:
    """The vocabulary of a GGUF in llama.cpp."""

    lib = _library()

    def __init__(self, path: Path) -> None:
        params = self.lib.llama_model_default_params()
        params.bytes[_VOCAB_ONLY] = 1
        model = self.lib.llama_model_load_from_file(str(path).encode(), params)
        if not model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.vocab = self.lib.llama_model_get_vocab(model)

    def tokenize(self, text: str, *, is_parsed: bool) -> list[int]:
        """Token ids without a first token, with control tokens in the text found or not."""
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 8))()
        count = self.lib.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), False, is_parsed)
        if count < 0:
            raise RuntimeError("llama.cpp does not tokenize")
        return list(ids[:count])

    def hashes(self, num_texts: int) -> dict[str, str]:
        """Hashes of all texts, one after the other."""
        return {
            name: "".join(
                hash_of(self.tokenize(text(index), is_parsed=is_parsed))
                for index in range(num_texts)
            )
            for name, is_parsed in (("as_text", False), ("parse", True))
        }


class HuggingFace(Vocabulary):
    """A byte-level vocabulary under one pattern in Hugging Face's library."""

    def __init__(self, fields: dict, pattern: str, *, takes_whole_words: bool) -> None:
        model = tokenizers.models.BPE(
            vocab={token: index for index, token in enumerate(fields["tokens"])},
            merges=[tuple(merge.split(" ")) for merge in fields["merges"]],
            ignore_merges=takes_whole_words,
        )
        self.inner = tokenizers.Tokenizer(model)
        self.inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [
                tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
                tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        kinds = zip(fields["tokens"], fields["token_type"], strict=True)
        self.inner.add_special_tokens(
            [
                tokenizers.AddedToken(token, special=True, normalized=False)
                for token, kind in kinds
                if kind == 3
            ]
        )

    def tokenize(self, text: str, *, is_parsed: bool) -> list[int]:
        self.inner.encode_special_tokens = not is_parsed
        return self.inner.encode(text, add_special_tokens=False).ids


def metadata(path: Path) -> dict:
    """What a GGUF says of its tokenizer."""
    prefix = "tokenizer.ggml."
    fields = gguf.GGUFReader(path).fields
    return {
        name.removeprefix(prefix): field.contents()
        for name, field in fields.items()
        if name.startswith(prefix)
    }


def write_vocabulary(path: Path, fields: dict) -> None:
    """Writes a GGUF without tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in fields.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def small_byte_level(model: dict) -> dict:
    """Control tokens, bytes, and the first merges of SmolLM2."""
    num_merges, num_specials = 1200, 17
    merges = model["merges"][:num_merges]
    tokens = model["tokens"][:num_specials]
    # A vocabulary may lack bytes that are in no text; this one has all that its merges need.
    tokens += [token for token in model["tokens"][num_specials:] if len(token) == 1][:256]
    known = set(tokens)
    for merge in merges:
        union = merge.replace(" ", "", 1)
        if union not in known:
            known.add(union)
            tokens.append(union)
    return {
        "model": "gpt2",
        "tokens": tokens,
        "token_type": [3] * num_specials + [1] * (len(tokens) - num_specials),
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def small_sentencepiece(model: dict) -> dict:
    """Tokens of Gemma: the first of each kind, all bytes, and letters."""
    limits = {1: 1500, 3: 12, 2: 1, 4: 200, 6: 256}
    taken = []
    letters = set("▁日本語の汉字한") | {chr(code) for code in range(0x250)}
    for index, (token, kind) in enumerate(zip(model["tokens"], model["token_type"], strict=True)):
        is_letter = kind == 1 and token in letters
        if is_letter or limits.get(kind, 0) > 0:
            limits[kind] -= 1
            taken.append(index)
            # Hugging Face's merges need both halves in the vocabulary. Letters come last in Gemma's.
            letters |= set(token) if kind == 1 else set()
    return {
        "model": "llama",
        "tokens": [model["tokens"][index] for index in taken],
        "scores": [round(model["scores"][index], 3) for index in taken],
        "token_type": [model["token_type"][index] for index in taken],
        "bos_token_id": 2,
        "eos_token_id": 1,
        "unknown_token_id": 3,
    }


def dump(name: str, value: dict) -> None:
    source = f"llama.cpp in xllamacpp {version('xllamacpp')}, tokenizers {version('tokenizers')}"
    golden = {"source": source, "fragments": FRAGMENTS, **value}
    written = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    (HERE / name).write_text(written + "\n", encoding="utf-8")


def main() -> None:
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        vocabulary, chosen = Vocabulary(folder / MODELS[sys.argv[2]]), text(int(sys.argv[3]))
        print(repr(chosen))
        for is_parsed in (False, True):
            print(vocabulary.tokenize(chosen, is_parsed=is_parsed))
        return
    paths = {name: folder / file for name, file in MODELS.items()}
    models = {name: Vocabulary(path).hashes(NUM_TEXTS) for name, path in paths.items()}
    dump("tokenizer_models.json", {"models": models})

    byte_level = small_byte_level(metadata(paths["smollm2"]))
    sentencepiece = small_sentencepiece(metadata(paths["gemma3"]))
    vocabularies = {pre: {**byte_level, "pre": pre} for pre in PRE_TOKENIZERS}
    vocabularies |= {
        f"sentencepiece {prefix}": {**sentencepiece, "add_space_prefix": prefix}
        for prefix in (False, True)
    }
    hashes = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, fields in vocabularies.items():
            path = Path(temporary) / "vocabulary.gguf"
            write_vocabulary(path, fields)
            hashes[name] = Vocabulary(path).hashes(NUM_SMALL_TEXTS)
    for name, pattern in PATTERNS.items():
        whole = name == "tekken"
        hashes[name] = HuggingFace(byte_level, pattern, takes_whole_words=whole).hashes(
            NUM_SMALL_TEXTS
        )
    small = {"byte_level": byte_level, "sentencepiece": sentencepiece, "hashes": hashes}
    dump("tokenizer_small.json", small)


if __name__ == "__main__":
    main()
