"""keel-tokenize on real corpora, against Megatron-LM."""
import hashlib
import json

from tokenize_tools import NAME, Tokenize


class Golden(Tokenize):
    def check_megatron(self, name, source, *options):
        wanted = json.loads(self.data("golden", "tokens", "megatron", "checksums.json").read_text())[name]
        model = self.data("data", "tokenizers", "sentencepiece", "llama2")
        _, results = self.encode(self.data("data", "corpus", "c4", source), "--keep-empty", *options, model=model)
        self.assertEqual(results["tokens"], wanted["tokens"])
        for kind in ("bin", "idx"):
            content = (self.dir / f"out/train-00000.{kind}").read_bytes()
            self.assertEqual(hashlib.sha256(content).hexdigest(), wanted[f"{kind}_sha256"], kind)

    def test_bytes_equal_megatrons(self):
        self.check_megatron("c4-sample.01-llama2-eod", "c4-sample.01.json.gz")

    def names(self):
        return json.loads(self.data("golden", "tokens", "megatron", "checksums.json").read_text())

    def test_bytes_equal_megatrons_of_the_larger_sample(self):
        found = 0
        for name, entry in self.names().items():
            if "llama2" in name and entry.get("inputs", []) == ["shared/data/corpus/c4/c4-sample.00000-of-00001.json.gz"]:
                self.check_megatron(name, "c4-sample.00000-of-00001.json.gz", "--force",
                                    *([] if entry["eod"] is not None else ["--no-append-eod"]))
                found += 1
        self.assertEqual(found, 2)

    def test_real_corpora(self):
        model = self.data("data", "tokenizers", "sentencepiece", "llama2")
        corpus = self.data("data", "corpus")
        _, gz = self.encode(corpus / "dolma-cc/cc_en_head-0091.jsonl.gz", model=model)
        _, zst = self.encode(corpus / "dolma-cc/cc_en_head-0091.jsonl.zst", model=model, out="out2")
        self.assertEqual(gz["files"][0]["sha256"], zst["files"][0]["sha256"])
        book = corpus / "tinyshakespeare/input.txt"
        self.encode(book, model=model, out="out3")
        self.assertEqual(self.check(NAME, "decode", self.dir / "out3").stdout, book.read_text())
