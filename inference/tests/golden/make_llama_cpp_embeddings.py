"""Makes `embeddings.json`: embeddings of five texts by llama.cpp, with pooling by the mean.

    pip install numpy==2.4.6 xllamacpp==2026.10.11549
    python make_llama_cpp_embeddings.py FOLDER_OF_MODELS

Embeddings are of length 1, in whole numbers of 1e-5.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

HERE = Path(__file__).parent
TEXTS = [
    "A cat sleeps on the warm windowsill.",
    "The kitten is napping in the sun.",
    "Interest rates rose by a quarter of a percent.",
    'fn main() { println!("hello"); }',
    "Le chat dort.",
]


def main() -> None:
    folder = Path(sys.argv[1])
    models = []
    for file in ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"):
        path = folder / file
        model = llama_cpp.Model(path)
        texts = []
        for text in TEXTS:
            ids = model.tokenize(text)
            states = model.embedding(ids).astype(np.float64)
            unit = states / np.sqrt((states**2).sum())
            texts.append({"ids": ids, "embedding": np.rint(unit * 1e5).astype(int).tolist()})
        model.close()
        models.append(
            {
                "model": {"file": file, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
                "texts": texts,
            }
        )
    golden = {"source": llama_cpp.description(), "models": models}
    compact = json.dumps(golden, separators=(",", ":"))
    (HERE / "embeddings.json").write_text(compact.replace('{"ids', '\n{"ids') + "\n")


if __name__ == "__main__":
    main()
