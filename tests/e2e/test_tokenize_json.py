"""keel-tokenize with Hugging Face tokenizer files."""
import json
import pathlib
import shutil
import time

from keel_tools import ToolTest
from tokenize_tools import read_shard

TINY = pathlib.Path(__file__).resolve().parents[2] / "tokenizer" / "testdata"
NAME = "keel-tokenize"


class TokenizeJson(ToolTest):
    def folder(self, name, **config):
        """A folder with a tiny tokenizer.json, and a tokenizer_config.json if one is given."""
        folder = self.dir / name
        folder.mkdir()
        shutil.copy(TINY / f"tiny_{name}.json", folder / "tokenizer.json")
        if config:
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    def golden(self, name):
        """(text, ids) pairs of the unchanged tokenizer."""
        lines = (TINY / "json_cases.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
        case = next(case for case in map(json.loads, lines[1:]) if case["base"] == name and not case["changes"])
        return [(text, result["ids"]) for text, result in zip(json.loads(lines[0]), case["results"])]

    def test_ids_of_texts(self):
        for name in ("bytes", "marks"):
            for text, ids in self.golden(name)[1:40]:
                done = self.check(NAME, "ids", "--tokenizer", TINY / f"tiny_{name}.json", "--", text)
                self.assertEqual(list(map(int, done.stdout.split())), ids, text)

    def test_documents_there_and_back(self):
        for name in ("bytes", "marks"):
            folder = self.folder(name, eos_token="</s>", bos_token="<s>", add_bos_token=True)
            pairs = [(text, ids) for text, ids in self.golden(name) if text]
            source = self.dir / "a.jsonl"
            source.write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in pairs))
            out = self.dir / f"out-{name}"
            self.check(NAME, "encode", source, "--tokenizer", folder, "--out", out)
            self.assertEqual(read_shard(out / "train-00000"), [ids + [2] for _, ids in pairs])
            manifest = json.loads((out / "manifest.json").read_text())["tokenizer"]
            self.assertEqual((manifest["file"], manifest["eod_id"], manifest["bos_id"]), ("tokenizer.json", 2, 1))
            self.assertEqual((out / "tokenizer_config.json").read_bytes(), (folder / "tokenizer_config.json").read_bytes())
            shutil.rmtree(folder)
            done = self.check(NAME, "decode", out, "--json")
            texts = [json.loads(line)["text"] for line in done.stdout.rstrip("\n").split("\n")]
            if name == "bytes":
                self.assertEqual(texts, [text for text, _ in pairs])
            else:  # U+2581 is read as a space
                self.assertEqual(texts, [text.replace("\u2581", " ") for text, _ in pairs])
            self.assertEqual(json.loads(self.check(NAME, "info", out, "--verify").stdout)["results"]["documents"], len(pairs))
            self.check(NAME, "encode", source, "--tokenizer", out, "--out", self.dir / f"again-{name}")
            self.assertEqual((self.dir / f"again-{name}/train-00000.bin").read_bytes(), (out / "train-00000.bin").read_bytes())

    def test_force_replaces_all_files_of_the_tokenizer(self):
        folder = self.folder("bytes", eos_token="</s>")
        source = self.dir / "a.txt"
        source.write_text("the cat")
        out = self.dir / "out"
        self.check(NAME, "encode", source, "--tokenizer", folder, "--out", out)
        done = self.check(NAME, "encode", source, "--tokenizer", TINY / "m.model", "--out", out, "--force")
        self.assertNotIn("did not write", done.stderr)
        self.assertFalse((out / "tokenizer_config.json").exists() or (out / "tokenizer.json").exists())

    def test_text_never_becomes_a_control_token(self):
        folder = self.folder("bytes", eos_token="</s>")
        ids = lambda *options: self.check(NAME, "ids", "--tokenizer", folder, *options, "--", "a</s>").stdout.split()
        self.assertNotIn("2", ids())
        self.assertEqual(ids("--special-in-text", "parse")[-1], "2")
        self.assertEqual(ids("--add-special"), ids())  # the file asks for none
        asking = {"eos_token": "</s>", "bos_token": "<s>", "add_bos_token": True, "add_eos_token": True}
        (folder / "tokenizer_config.json").write_text(json.dumps(asking))
        self.assertEqual(ids("--add-special"), ["1", *ids(), "2"])

    def test_what_is_refused(self):
        base = json.loads((TINY / "tiny_bytes.json").read_text(encoding="utf-8"))

        def refused(text, code, message):
            path = self.dir / "tokenizer.json"
            path.write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
            start = time.monotonic()
            done = self.check(NAME, "ids", "--tokenizer", path, "--", "the", code=code)
            self.assertIn(message, done.stderr)
            self.assertLess(time.monotonic() - start, 5)

        refused({**base, "normalizer": {"type": "BertNormalizer"}}, 2, "normalizer")
        refused({**base, "model": {**base["model"], "type": "WordPiece"}}, 2, "WordPiece")
        refused({**base, "model": {**base["model"], "merges": [["a", "nowhere"]]}}, 3, "model.merges[0]")
        whole = json.dumps(base).encode()
        refused(whole[:1000], 3, "damaged JSON")
        refused(whole.replace(b'"at": 259', b'"at": 99999999999999999999'), 3, "damaged JSON")
        refused(b'{"model": ' * 100000, 3, "damaged JSON")
        refused({}, 3, "model")
