"""What the tests of keel-tokenize share."""
import array
import json
import pathlib
import struct

from keel_tools import ToolTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tokenizer" / "testdata" / "m.model"
NAME = "keel-tokenize"


def read_shard(prefix):
    """Documents of a Megatron data set as lists of ids, read by its written layout alone."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0"
    version, code, sequences, entries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1 and len(index) == 34 + 12 * sequences + 8 * entries
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    pointers = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
    bounds = struct.unpack_from(f"<{entries}q", index, 34 + 12 * sequences)
    data = pathlib.Path(f"{prefix}.bin").read_bytes()
    size = {8: 2, 4: 4}[code]
    tokens = array.array({8: "H", 4: "i"}[code], data)
    assert sum(lengths) * size == len(data)
    assert list(pointers) == [sum(lengths[:i]) * size for i in range(sequences)] or sequences > 2000
    flat = [list(tokens[p // size:p // size + n]) for p, n in zip(pointers, lengths)]
    return [sum(flat[a:b], []) for a, b in zip(bounds, bounds[1:])]


class Tokenize(ToolTest):
    def write(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def encode(self, *arguments, code=0, out="out", model=MODEL, **keywords):
        """(CompletedProcess, report results)"""
        done = self.check(NAME, "encode", *arguments, "--tokenizer", model, "--out", self.dir / out, code=code, **keywords)
        report = self.dir / out / "report.json"
        return done, json.loads(report.read_text())["results"] if code == 0 else None

    def ids(self, out="out", shard="train-00000"):
        return read_shard(self.dir / out / shard)

    def expect_nothing_left(self):
        left = [path.name for path in self.dir.iterdir() if "out" in path.name]
        self.assertEqual(left, [])
