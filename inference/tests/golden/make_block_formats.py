"""Writes block_formats.txt: random blocks of each format, and their values by the package gguf.

usage: python make_block_formats.py     needs gguf 0.19 and numpy

A line is the format's name, the bytes of its blocks and the bytes of the values (f32, little
endian), in hexadecimal. All bits are random but for scales: an infinite one is not a weight.
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Where the half-precision numbers of a block are.
SCALES = {
    "F32": [],
    "F16": [],
    "BF16": [],
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
NUM_BLOCKS = 4
# Zero, the largest, the smallest normal and a subnormal number.
SPECIAL_SCALES = [0.0, 65504.0, -6.104e-05, 5.96e-08]


def blocks_of(name: str, random: np.random.Generator) -> np.ndarray:
    """Bytes of random blocks, and one of special scales."""
    block_len, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    if block_len == 1:
        kind = {"F32": np.float32, "F16": np.float16, "BF16": np.float32}[name]
        values = (random.standard_normal(40) * 10.0 ** random.integers(-7, 4, 40)).astype(kind)
        if name == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.view(np.uint8)
    blocks = random.integers(0, 256, (NUM_BLOCKS, block_bytes), dtype=np.uint8)
    blocks[0, :] = 0xFF
    for column, offset in enumerate(SCALES[name]):
        scales = (random.standard_normal(NUM_BLOCKS) * 0.02).astype(np.float16)
        scales[-1] = SPECIAL_SCALES[(column + len(name) + block_bytes) % len(SPECIAL_SCALES)]
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(NUM_BLOCKS, 2)
    return blocks.reshape(-1)


def main() -> None:
    """Writes the file beside this script."""
    random = np.random.default_rng(20260801)
    lines = []
    for name in SCALES:
        blocks = blocks_of(name, random)
        values = dequantize(blocks, GGMLQuantizationType[name]).astype("<f4")
        assert np.isfinite(values).all(), name
        lines.append(f"{name} {blocks.tobytes().hex()} {values.tobytes().hex()}\n")
    Path(__file__).with_name("block_formats.txt").write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
