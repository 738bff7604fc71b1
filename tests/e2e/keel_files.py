"""Reads and writes the files that tests hand to the tools: safetensors, Megatron data sets, JSON lines. Standard library only."""
import array
import json
import struct

_CODES = {"F32": "f", "F64": "d", "I32": "i", "U8": "B"}


def read_safetensors(path):
    """name -> (shape, values)"""
    with open(path, "rb") as f:
        blob = f.read()
    (n,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8:8 + n])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["shape"], array.array(_CODES[entry["dtype"]], blob[8 + n + begin:8 + n + end]))
    return tensors


def write_safetensors(path, tensors):
    """tensors: name -> (shape, float values)"""
    header, data = {}, b""
    for name in sorted(tensors):
        shape, values = tensors[name]
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_megatron(prefix, documents, mask=None):
    """documents: lists of ids, stored as int32. mask: one 0/1 a token."""
    tokens = array.array("i", [t for document in documents for t in document])
    with open(f"{prefix}.bin", "wb") as f:
        f.write(tokens.tobytes())
    lengths = [len(document) for document in documents]
    pointers, at = [], 0
    for length in lengths:
        pointers.append(at * 4)
        at += length
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(lengths), len(lengths) + 1))
        f.write(array.array("i", lengths).tobytes() + array.array("q", pointers).tobytes())
        f.write(array.array("q", range(len(lengths) + 1)).tobytes())
    if mask is not None:
        with open(f"{prefix}.mask", "wb") as f:
            f.write(bytes(mask))


def read_lines(path):
    """The objects of a JSON lines file."""
    with open(path) as f:
        return [json.loads(line) for line in f]
