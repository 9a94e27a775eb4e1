"""Makes `transformers.json`: what Hugging Face's transformers say of the tiny models.

Beside it `transformers_configs.json`: `config.json` of each as this version writes it.

    pip install torch==2.15.0 transformers==5.24.0
    JUSTAPI_TINY_MODELS=FOLDER cargo test -p justapi-inference --test models tiny_models
    python make_transformers.py FOLDER

Logits are whole numbers of 1e-5.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
POSITIONS = [0, 3, 7, 8, 15, 24, 39]


def main() -> None:
    folder = Path(sys.argv[1])
    token_ids = json.loads((folder / "token_ids.json").read_text())
    torch.manual_seed(0)
    models, configs = {}, {}
    for path in sorted(folder.glob("*-F32")):
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        )
        with torch.no_grad():
            logits = model(torch.tensor([token_ids])).logits[0, POSITIONS].double()
        print(path.name, model.config.__class__.__name__, logits.std().item())
        models[path.name.removesuffix("-F32")] = {
            "sha256": hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest(),
            "logits": (logits * 1e5).round().to(torch.int64).tolist(),
        }
        configs[path.name.removesuffix("-F32")] = json.loads(model.config.to_json_string())
    golden = {
        "source": f"transformers {version('transformers')}, torch {version('torch')}, f32, eager",
        "token_ids": token_ids,
        "positions": POSITIONS,
        "models": models,
    }
    compact = json.dumps(golden, separators=(",", ":"))
    (HERE / "transformers.json").write_text(compact.replace('{"sha', '\n{"sha') + "\n")
    compact = json.dumps(configs, separators=(",", ":"), sort_keys=True)
    (HERE / "transformers_configs.json").write_text(compact.replace("},", "},\n") + "\n")


if __name__ == "__main__":
    main()
