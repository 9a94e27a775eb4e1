"""llama.cpp through its C interface, as the wheel of `xllamacpp` carries it.

The wheel exports the C functions of the llama.cpp inside it. Structures that are passed by value
are handed over as buffers longer than any version of them, and the few fields set here are found
by the defaults that stand in them.
"""

from __future__ import annotations

import ctypes
import struct
from importlib.metadata import version
from pathlib import Path

import numpy as np
import xllamacpp

_CONTEXT_SIZE, _BATCH_SIZE = 0, 4
_UBATCH_SIZE, _THREADS, _BATCH_THREADS = 8, 28, 32
_POOLING_TYPE, _ATTENTION_TYPE, _FLASH_ATTENTION, _TYPE_K, _TYPE_V = 44, 48, 52, 104, 108
_F16 = 1
_MEAN = 1


class _Params(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 512),)

    def set(self, offset: int, expected: int, value: int) -> None:
        """Sets a 32-bit field after checking that its default is the expected one."""
        found = struct.unpack_from("<i", self.bytes, offset)[0]
        if found != expected:
            message = f"field at {offset} has default {found}, not {expected}: another llama.cpp"
            raise RuntimeError(message)
        struct.pack_into("<i", self.bytes, offset, value)


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


def _library() -> ctypes.CDLL:
    shared_object = next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))
    lib = ctypes.CDLL(str(shared_object))
    pointer, i32 = ctypes.c_void_p, ctypes.c_int32
    signatures = {
        "llama_model_default_params": (_Params, []),
        "llama_context_default_params": (_Params, []),
        "llama_model_load_from_file": (pointer, [ctypes.c_char_p, _Params]),
        "llama_init_from_model": (pointer, [pointer, _Params]),
        "llama_model_get_vocab": (pointer, [pointer]),
        "llama_vocab_n_tokens": (i32, [pointer]),
        "llama_tokenize": (
            i32,
            [pointer, ctypes.c_char_p, i32, ctypes.POINTER(i32), i32, ctypes.c_bool, ctypes.c_bool],
        ),
        "llama_batch_init": (_Batch, [i32, i32, i32]),
        "llama_decode": (i32, [pointer, _Batch]),
        "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [pointer, i32]),
        "llama_set_embeddings": (None, [pointer, ctypes.c_bool]),
        "llama_get_embeddings_seq": (ctypes.POINTER(ctypes.c_float), [pointer, i32]),
        "llama_model_n_embd": (i32, [pointer]),
        "llama_free": (None, [pointer]),
        "llama_model_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    lib.llama_log_set(_SILENT, None)
    return lib


LIB = _library()


def description() -> dict[str, str]:
    """What a golden file says of its source."""
    return {
        "engine": f"llama.cpp in xllamacpp {version('xllamacpp')}",
        "system": xllamacpp.get_system_info().strip(" |"),
        "settings": "no flash attention, F16 cache, 2 threads, at most 256 tokens a batch",
    }


class Model:
    """A model with one sequence."""

    def __init__(self, path: Path, context_size: int = 4096) -> None:
        self._model = LIB.llama_model_load_from_file(
            str(path).encode(), LIB.llama_model_default_params()
        )
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self._vocab = LIB.llama_model_get_vocab(self._model)
        self.vocab_size = LIB.llama_vocab_n_tokens(self._vocab)
        self._batch = LIB.llama_batch_init(256, 0, 1)
        self._context_size = context_size
        self._context = None
        self.reset()

    def reset(self, *, is_pooled: bool = False) -> None:
        """Starts an empty sequence. Pooled, it gives the mean of states in place of logits."""
        if self._context:
            LIB.llama_free(self._context)
        params = LIB.llama_context_default_params()
        params.set(_CONTEXT_SIZE, 512, self._context_size)
        params.set(_BATCH_SIZE, 2048, 256)
        params.set(_UBATCH_SIZE, 512, 256)
        params.set(_THREADS, 4, 2)
        params.set(_BATCH_THREADS, 4, 2)
        params.set(_ATTENTION_TYPE, -1, -1)
        params.set(_POOLING_TYPE, -1, _MEAN if is_pooled else -1)
        params.set(_FLASH_ATTENTION, -1, 0)
        params.set(_TYPE_K, _F16, _F16)
        params.set(_TYPE_V, _F16, _F16)
        self._context = LIB.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError("llama.cpp makes no context")
        LIB.llama_set_embeddings(self._context, is_pooled)
        self._length = 0

    def tokenize(self, text: str) -> list[int]:
        """Token ids, with the model's first token where its file asks for it."""
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 8))()
        count = LIB.llama_tokenize(self._vocab, raw, len(raw), ids, len(ids), True, True)
        if count < 0:
            raise RuntimeError("llama.cpp does not tokenize")
        return list(ids[:count])

    def extend(self, ids: list[int]) -> np.ndarray:
        """Appends up to 256 tokens. Returns the logits behind each. (len(ids), vocab_size)"""
        self._decode(ids)
        return np.stack(
            [
                np.ctypeslib.as_array(
                    LIB.llama_get_logits_ith(self._context, index), (self.vocab_size,)
                )
                for index in range(len(ids))
            ]
        ).copy()

    def embedding(self, ids: list[int]) -> np.ndarray:
        """Mean of the states of up to 256 tokens. (hidden_size)"""
        self.reset(is_pooled=True)
        self._decode(ids)
        size = LIB.llama_model_n_embd(self._model)
        states = LIB.llama_get_embeddings_seq(self._context, 0)
        return np.ctypeslib.as_array(states, (size,)).copy()

    def _decode(self, ids: list[int]) -> None:
        batch = self._batch
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index] = token
            batch.pos[index] = self._length + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = 1
        if LIB.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama.cpp does not decode")
        self._length += len(ids)

    def extend_all(self, ids: list[int]):
        """Appends any number of tokens. Yields the logits behind each. (vocab_size)"""
        for start in range(0, len(ids), 256):
            yield from self.extend(ids[start : start + 256])

    def close(self) -> None:
        """Frees the model."""
        LIB.llama_free(self._context)
        LIB.llama_model_free(self._model)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities in f64."""
    x = logits.astype(np.float64)
    x -= x.max()
    return x - np.log(np.exp(x).sum())
