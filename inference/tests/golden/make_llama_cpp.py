"""Makes `smollm2.json` and `gemma3.json`: what llama.cpp says of the two models that tests run.

    pip install numpy==2.4.6 xllamacpp==2026.10.11549
    python make_llama_cpp.py FOLDER_OF_MODELS

Log-probabilities are whole numbers of 1e-4, without their minus.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp import log_softmax

HERE = Path(__file__).parent
TEXT_TOKENS = 2000
CONTINUATION_TOKENS = 64
CONTINUATION_TOP = 8
POSITION_STEP = 20
POSITION_TOP = 20
SPREAD = 32

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village at the edge of a great forest,",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics are:\n1.",
    "Q: What is the boiling point of water at sea level?\nA:",
    "In 1969, the first humans",
    '{"name": "Alice", "age": 30, "city":',
    "Ingredients:\n- 2 cups of flour\n- 1 cup of sugar\n-",
    "To be, or not to be,",
    "<html>\n<head>\n<title>",
]
QUESTIONS = [
    "What is the capital of Italy?",
    "Write a haiku about the sea.",
    "Explain in one sentence why the sky is blue.",
    "List three prime numbers.",
    "Translate 'good morning' to Spanish.",
    "What is 17 plus 25?",
    "Give me a name for a grey cat.",
    "Who wrote Romeo and Juliet?",
    "Write a Python function that reverses a string.",
    "What should I pack for a day at the beach?",
]
CONTINUED = [
    "The mitochondria is",
    "Dear Sir or Madam,\n\nI am writing to",
    "SELECT name, COUNT(*) FROM users",
    "1, 1, 2, 3, 5, 8, 13,",
    "Der schnelle braune Fuchs",
    "La Révolution française a commencé en",
    "Monday, Tuesday, Wednesday,",
    "import numpy as np\n\n",
    "The quick brown fox jumps over the lazy dog. The lazy dog",
    "Chapter 1\n\nIt was a dark and stormy night;",
]


def chat(question: str) -> str:
    """A turn in ChatML, the format of SmolLM2."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def rounded(values: np.ndarray) -> list[int]:
    """Whole numbers of 1e-4, without the minus."""
    return np.rint(-values * 1e4).astype(int).tolist()


def top(values: np.ndarray, count: int) -> list[int]:
    """Ids of the greatest, greatest first."""
    candidates = np.argpartition(values, -count)[-count:]
    return candidates[np.argsort(-values[candidates], kind="stable")].tolist()


def continuation(model: llama_cpp.Model, prompt: str) -> dict:
    """Greedy text behind a prompt."""
    model.reset()
    prompt_ids = model.tokenize(prompt)
    logits = model.extend(prompt_ids)[-1]
    ids, tops, logprobs = [], [], []
    for _ in range(CONTINUATION_TOKENS):
        row = log_softmax(logits)
        best = top(row, CONTINUATION_TOP)
        ids.append(best[0])
        tops.append(best)
        logprobs.append(rounded(row[best]))
        logits = model.extend([best[0]])[-1]
    return {
        "prompt": prompt,
        "prompt_ids": prompt_ids,
        "ids": ids,
        "top_ids": tops,
        "top_logprobs": logprobs,
    }


def text(model: llama_cpp.Model) -> dict:
    """One pass over the text."""
    model.reset()
    ids = model.tokenize((HERE / "text.txt").read_text())[:TEXT_TOKENS]
    spread = [int(index * model.vocab_size / SPREAD) + 7 for index in range(SPREAD)]
    result = {"ids": ids, "logprobs": [], "best_ids": [], "best_gaps": [], "spread_ids": spread}
    positions = []
    total = 0.0
    for position, logits in enumerate(model.extend_all(ids)):
        row = log_softmax(logits)
        first, second = top(row, 2)
        result["best_ids"].append(first)
        result["best_gaps"].append(int(np.rint((row[first] - row[second]) * 1e4)))
        if position + 1 < len(ids):
            total += row[ids[position + 1]]
            result["logprobs"] += rounded(row[[ids[position + 1]]])
        if position % POSITION_STEP == POSITION_STEP - 1:
            best = top(row, POSITION_TOP)
            positions.append(
                {
                    "position": position,
                    "top_ids": best,
                    "top_logprobs": rounded(row[best]),
                    "spread_logprobs": rounded(row[spread]),
                }
            )
    result["perplexity"] = math.exp(-total / (len(ids) - 1))
    result["positions"] = positions
    return result


def main() -> None:
    folder = Path(sys.argv[1])
    for name, file, prompts in (
        ("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", PROMPTS + [chat(q) for q in QUESTIONS]),
        ("gemma3", "gemma-3-270m-q4_k_m.gguf", PROMPTS + CONTINUED),
    ):
        path = folder / file
        model = llama_cpp.Model(path)
        golden = {
            "source": llama_cpp.description(),
            "model": {"file": file, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
            "text": text(model),
            "continuations": [continuation(model, prompt) for prompt in prompts],
        }
        model.close()
        print(name, "perplexity", golden["text"]["perplexity"])
        compact = json.dumps(golden, separators=(",", ":"), ensure_ascii=False)
        (HERE / f"{name}.json").write_text(compact.replace('{"p', '\n{"p') + "\n")


if __name__ == "__main__":
    main()
