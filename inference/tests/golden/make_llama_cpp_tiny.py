"""Makes `llama_cpp_tiny.json`: what llama.cpp says of the tiny models.

    pip install numpy==2.4.6 xllamacpp==2026.10.11549
    JUSTAPI_TINY_MODELS=FOLDER cargo test -p justapi-inference --test models tiny_models
    python make_llama_cpp_tiny.py FOLDER

Logits are whole numbers of 1e-4.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

HERE = Path(__file__).parent
POSITIONS = [0, 7, 8, 24, 39]


def main() -> None:
    folder = Path(sys.argv[1])
    token_ids = json.loads((folder / "token_ids.json").read_text())
    models = {}
    for path in sorted(folder.glob("*.gguf")):
        model = llama_cpp.Model(path, context_size=512)
        logits = model.extend(token_ids)[POSITIONS]
        model.close()
        print(path.name, logits.std())
        models[path.stem] = {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "logits": np.rint(logits.astype(np.float64) * 1e4).astype(int).tolist(),
        }
    golden = {
        "source": llama_cpp.description(),
        "token_ids": token_ids,
        "positions": POSITIONS,
        "models": models,
    }
    compact = json.dumps(golden, separators=(",", ":"))
    (HERE / "llama_cpp_tiny.json").write_text(compact.replace('{"sha', '\n{"sha') + "\n")


if __name__ == "__main__":
    main()
