"""keel-tokenize encode from the outside: what it writes."""
import gzip
import hashlib
import json

from tokenize_tools import MODEL, Tokenize


class Encode(Tokenize):
    def test_first_document_empty(self):
        source = self.write("a.jsonl", '{"text":""}\n{"text":"the cat"}\n{"text":""}\n')
        _, results = self.encode(source)
        self.assertEqual((self.dir / "out/train-00000.bin").read_bytes().hex(), "1b0119010200")
        self.assertEqual(self.ids(), [[283, 281, 2]])
        self.assertEqual((results["documents_in"], results["documents_written"], results["tokens"]), (3, 1, 3))
        self.assertEqual(results["documents_skipped"], {"empty": 2})

    def test_bos_and_eod_are_independent(self):
        source = self.write("a.jsonl", '{"text":"the cat"}')
        wanted = {(): [283, 281, 2], ("--no-append-eod",): [283, 281], ("--prepend-bos",): [1, 283, 281, 2],
                  ("--prepend-bos", "--no-append-eod"): [1, 283, 281]}
        for options, ids in wanted.items():
            self.encode(source, *options, "--force")
            self.assertEqual(self.ids(), [ids])

    def test_what_a_data_directory_holds(self):
        source = self.write("a.jsonl", '{"text":"the cat"}\n{"text":"at"}\n')
        done, results = self.encode(source)
        names = sorted(path.name for path in (self.dir / "out").iterdir())
        self.assertEqual(names, ["manifest.json", "report.json", "tokenizer.model", "train-00000.bin", "train-00000.idx"])
        manifest = json.loads((self.dir / "out/manifest.json").read_text())
        self.assertEqual(manifest["tokenizer"]["sha256"], hashlib.sha256(MODEL.read_bytes()).hexdigest())
        self.assertEqual((manifest["tokenizer"]["vocab_size"], manifest["tokenizer"]["eod_id"]), (330, 2))
        self.assertEqual(manifest["sources"][0]["path"], str(source))
        file = results["files"][0]
        self.assertEqual(file["sha256"], hashlib.sha256((self.dir / "out/train-00000.bin").read_bytes()).hexdigest())
        self.assertEqual((file["documents"], file["tokens"], results["bytes_in"]), (2, 5, 9))
        self.assertIn("2 documents, 5 tokens", done.stdout)

    def test_strange_numbers_in_other_fields(self):
        lines = ['{"id":18446744073709551616,"text":"ok"}', '{"text":"ok","id":99999999999999999999}',
                 '{"id":123456789012345678901234567890,"text":"ok"}', '{"id":1e400,"text":"ok"}', '{"id":NaN,"text":"ok"}']
        self.encode(self.write("a.jsonl", "\n".join(lines)))
        self.assertEqual(self.ids(), [[312, 317, 110, 2]] * 5)

    def test_half_surrogate_pairs(self):
        lines = ["\\ud83d\\ude80", "\\ud83d", "\\udc00", "\\ude80\\ud83d", "\\ud83dx", "ok"]
        source = self.write("a.jsonl", "".join('{"text":"%s"}\n' % line for line in lines))
        done, _ = self.encode(source, code=3)
        self.assertIn("a.jsonl:2", done.stderr)
        _, results = self.encode(source, "--invalid-utf8", "replace")
        self.assertEqual((results["documents_written"], results["replaced_surrogates"]), (6, 5))
        self.assertEqual(self.ids()[:2], [[312, 243, 162, 157, 131, 2], [312, 242, 194, 192, 2]])

    def test_every_frame_and_member_is_read(self):
        a = bytes.fromhex("28b52ffd240d6900007b2274657874223a2261227d0aaea9718c")
        b = bytes.fromhex("28b52ffd240d6900007b2274657874223a2262227d0a3f650b73")
        empty, skippable = bytes.fromhex("28b52ffd240001000099e9d851"), bytes.fromhex("502a4d180400000041424344")
        x, y = gzip.compress(b'{"text":"a"}\n'), gzip.compress(b'{"text":"b"}\n')
        for content in (a + b, a + empty + b, skippable + a + b, x + y, x + gzip.compress(b"") + y + bytes(512)):
            self.encode(self.write("a.jsonl", content), "--force")
            self.assertEqual(self.ids(), [[272, 2], [312, 326, 2]])

    def test_wrong_names_do_not_matter(self):
        line = b'{"text":"the cat"}\n'
        for name, content in (("plain.jsonl.gz", line), ("a.txt", line), ("b.jsonl", gzip.compress(line)), ("noname", line)):
            self.encode(self.write(name, content), "--force")
            self.assertEqual(self.ids(), [[283, 281, 2]], name)

    def test_text_files(self):
        source = self.write("a.txt", "the cat\nat\n")
        self.encode(source)
        self.assertEqual(len(self.ids()), 1)
        self.encode(source, "--documents", "line", "--force")
        self.assertEqual(self.ids(), [[283, 281, 2], [273, 2]])
        self.encode(self.write("b.txt", "the cat\n%%\nat\n%%\n"), "--documents", "%%", "--force")
        self.assertEqual(self.ids(), [[283, 281, 2], [273, 2]])
        self.encode(self.write("c.txt", b"the\xff cat"), code=3, out="out2")
        self.encode(self.write("c.txt", b"the\xff cat"), "--invalid-utf8", "replace", out="out2")

    def test_folders_patterns_and_stdin(self):
        self.write("in/b.jsonl", '{"text":"the"}\n')
        self.write("in/a/x.txt", "cat")
        self.write("in/README.md", "left out")
        done, _ = self.encode(self.dir / "in")
        self.assertEqual(self.ids(), [[281, 2], [283, 2]])
        self.assertIn("README.md", done.stderr)
        self.encode(f"{self.dir}/in/*.jsonl", "--force")
        self.assertEqual(self.ids(), [[283, 2]])
        self.encode("-", "--force", input='{"text":"at"}\n')
        self.assertEqual(self.ids(), [[273, 2]])
        self.encode(f"{self.dir}/in/*.nothing", code=4, out="out2")
        self.encode(self.dir / "missing.jsonl", code=4, out="out2")

    def test_selection_of_records(self):
        lines = [{"meta": {"body": f"cat {i}", "lang": "en" if i % 2 else "de"}, "score": i / 10} for i in range(20)]
        source = self.write("a.jsonl", "\n".join(map(json.dumps, lines)))
        _, results = self.encode(source, "--text-field", "meta.body", "--where", "score>=1", "--where", "meta.lang==en")
        self.assertEqual((results["documents_written"], results["documents_skipped"]), (5, {"filtered": 15}))

    def test_output_does_not_depend_on_workers_or_parts(self):
        lines = "".join('{"text":"the cat sat %d"}\n' % (i * i % 1000) for i in range(30000))
        sources = [self.write("a.jsonl", lines), self.write("b.jsonl.gz", gzip.compress(lines.encode()))]
        options = ["--val-fraction", "0.02", "--shard-tokens", "100k"]
        wanted = None
        for workers in (1, 2, 5):
            self.encode(*sources, *options, "--workers", workers, out=f"out{workers}")
            files = {p.name: p.read_bytes() for p in (self.dir / f"out{workers}").iterdir() if p.name != "report.json"}
            wanted = wanted or files
            self.assertEqual(files, wanted)
        self.assertGreater(len(wanted), 6)
        self.encode(*sources, out="whole")
        together = []
        for part in (1, 2, 3):
            self.encode(*sources, "--part", f"{part}/3", out=f"part{part}")
            together += self.ids(f"part{part}")
        self.assertEqual(together, self.ids("whole"))
