"""keel-tokenize ids, decode and info."""
import json
import subprocess

from keel_tools import tool
from tokenize_tools import MODEL, NAME, Tokenize


class IdsDecodeInfo(Tokenize):
    def ids_of(self, *arguments, **keywords):
        return self.check(NAME, "ids", "--tokenizer", MODEL, *arguments, **keywords).stdout

    def test_ids(self):
        self.assertEqual(self.ids_of("the cat"), "283 281\n")
        self.assertEqual(self.ids_of(" the cat", "--add-special"), "1 312 283 281\n")
        self.assertEqual(self.ids_of("the cat", "--pieces"), "\u2581the \u2581cat\n")
        self.assertEqual(self.ids_of("the</s>"), "283 63 50 318 65\n")
        self.assertEqual(self.ids_of("the</s>", "--special-in-text", "parse"), "283 2\n")
        self.assertEqual(self.ids_of("-", input="the\n\nat\r\ncat"), "283\n\n273\n281\n")
        self.assertEqual(self.ids_of(input="the\n"), "283\n")
        self.assertEqual(self.ids_of("--whole", input="the\n"), "283 13\n")
        self.assertEqual(self.ids_of(""), "\n")
        command = [tool(NAME), "ids", "--tokenizer", MODEL]
        done = subprocess.run(command, input=b"the\n\xff\n", capture_output=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"standard input:2", done.stderr)

    def test_decode_gives_the_text_back(self):
        texts = ["the cat", " two\nlines\twith \U0001F680 and e\u0301", "x" * 1000, "\u0000nul", "last\n"]
        source = self.write("a.jsonl", "\n".join(json.dumps({"text": text}) for text in texts))
        self.encode(source, "--shard-tokens", "50")
        self.assertGreater(len(list((self.dir / "out").glob("*.bin"))), 1)
        for k, text in enumerate(texts):
            self.assertEqual(self.check(NAME, "decode", self.dir / "out", "--doc", k).stdout, text)
        lines = self.check(NAME, "decode", self.dir / "out", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["text"] for line in lines], texts)
        whole = self.check(NAME, "decode", self.dir / "out/train-00000", "--tokenizer", MODEL).stdout
        self.assertTrue(whole.startswith("the cat"))
        self.check(NAME, "decode", self.dir / "out", "--doc", 5, code=2)
        self.assertIn("ends before it begins", self.check(NAME, "decode", self.dir / "out", "--doc", "1:0", code=2).stderr)
        self.check(NAME, "decode", self.dir / "nothing", code=4)

    def test_info(self):
        source = self.write("a.jsonl", '{"text":"the cat"}\n{"text":"at"}\n')
        self.encode(source)
        for path in (self.dir / "out", self.dir / "out/train-00000", self.dir / "out/train-00000.idx"):
            report = json.loads(self.check(NAME, "info", path, "--verify").stdout)
            self.assertEqual((report["results"]["documents"], report["results"]["tokens"]), (2, 5))
            self.write("info.json", json.dumps(report))  # checked against its schema at the end
        table = self.check(NAME, "info", self.dir / "out", "--out", self.dir / "info2.json").stdout
        self.assertIn("train-00000", table)
        shard = self.dir / "out/train-00000.bin"
        shard.write_bytes(b"\xff" + shard.read_bytes()[1:])
        self.check(NAME, "info", self.dir / "out")
        self.assertIn("train-00000.bin", self.check(NAME, "info", self.dir / "out", "--verify", code=3).stderr)
        shard.write_bytes(shard.read_bytes()[:-1])
        self.assertIn("train-00000", self.check(NAME, "info", self.dir / "out", code=3).stderr)

    def test_separators(self):
        self.encode(self.write("a.jsonl", '{"text":"the\\ncat\\n"}\n{"text":"at"}\n'))
        decode = lambda *arguments, **keywords: self.check(NAME, "decode", self.dir / "out", *arguments, **keywords).stdout
        self.assertEqual(decode(), "the\ncat\n\nat\n")
        self.assertEqual(decode("--separator", "\\n--\\n"), "the\ncat\n\n--\nat\n--\n")
        self.assertEqual(decode("--separator", "\\0", "--doc", 1), "at\0")
        self.assertEqual(decode("--separator", "", "--doc", "0:2"), "the\ncat\nat")
        self.check(NAME, "decode", self.dir / "out", "--separator", "\\x", code=2)
        self.check(NAME, "decode", self.dir / "out", "--separator", "x", "--json", code=2)

    def test_a_manifest_is_believed_in_nothing(self):
        self.encode(self.write("a.jsonl", '{"text":"the cat"}\n{"text":"at"}\n'))
        path = self.dir / "out/manifest.json"
        good = path.read_text()

        def lie(change, message, *arguments):
            manifest = json.loads(good)
            change(manifest)
            path.write_text(json.dumps(manifest))
            done = self.check(NAME, "info", self.dir / "out", *arguments, code=3)
            self.assertIn(message, done.stderr)
            path.write_text(good)

        shard = lambda manifest: manifest["shards"][0]
        lie(lambda m: m.update(dtype="int32"), "uint16 tokens, the manifest says int32")
        lie(lambda m: m.update(tokens=6), "6 tokens where the shards have 5")
        lie(lambda m: m.update(documents=1), "1 documents where the shards have 2")
        lie(lambda m: (m.update(tokens=6), shard(m).update(tokens=6)), "5 tokens, the manifest says 6")
        lie(lambda m: shard(m).update(sequences=3), "2 sequences, the manifest says 3")
        lie(lambda m: shard(m)["bin"].update(bytes=12), "10 bytes, the manifest says 12")
        lie(lambda m: shard(m)["idx"].update(bytes=80), "82 bytes, the manifest says 80")
        for kind in ("bin", "idx"):
            for name, digits in (("xxh3", 16), ("sha256", 64)):
                lie(lambda m: shard(m)[kind].update({name: "0" * digits}), f"train-00000.{kind}", "--verify")
        tokenizer = lambda name, value: lambda m: m["tokenizer"].update({name: value})
        lie(tokenizer("vocab_size", 400), "its vocab_size is 330, the manifest says 400", "--verify")
        lie(tokenizer("sha256", "0" * 64), "SHA-256", "--verify")
        lie(tokenizer("eod_id", 3), "its eod_id is 2, the manifest says 3", "--verify")
        lie(tokenizer("bos_id", None), "its bos_id is 1, the manifest says none", "--verify")
        lie(tokenizer("eod_id", 330), "outside the vocabulary of 330")
        self.write("out/train-00007.bin", "x")
        done = self.check(NAME, "info", self.dir / "out", "--verify")
        self.assertIn("train-00007.bin is not in the manifest", done.stderr)
        self.assertIn("not in the manifest", json.loads(done.stdout)["warnings"][0])
