"""keel-tokenize encode from the outside: what it refuses, and how it says so."""
import gzip
import json

from tokenize_tools import MODEL, NAME, Tokenize


class Errors(Tokenize):
    def test_inputs_that_are_something_else(self):
        cases = [("wide.jsonl", '{"text":"a"}'.encode("utf-16"), 3, "UTF-16"), ("list.json", b'[{"text":"a"}]', 3, "JSON array"),
                 ("a.parquet", b"PAR1xxxxPAR1", 2, "parquet"), ("a.bz2", b"BZh91AY", 2, "bzip2"), ("e.jsonl", b"", 3, "0 bytes"),
                 ("mac.jsonl", b'{"text":"a"}\r{"text":"b"}\r', 3, "carriage return"),
                 ("none.jsonl", b'{"text":""}\n', 3, "no tokens"), ("other.jsonl", b'{"content":"a"}\n', 3, "content")]
        for name, content, code, message in cases:
            done, _ = self.encode(self.write(name, content), code=code)
            self.assertIn(message, done.stderr)
            self.expect_nothing_left()
        self.encode(self.write("e.jsonl", b""), self.write("f.jsonl", b'{"text":"the"}'))
        self.assertEqual(self.ids(), [[283, 2]])

    def test_limits(self):
        small, large = '{"text":"ok"}\n', '{"text":"%s"}\n' % ("x" * 2000000)
        source = self.write("a.jsonl", small + large + small)
        done, _ = self.encode(source, "--max-document-bytes", "1Mi", code=3)
        self.assertIn("a.jsonl:2", done.stderr)
        _, results = self.encode(source, "--max-document-bytes", "1Mi", "--on-error", "skip")
        self.assertEqual(results["documents_skipped"], {"too_long": 1})
        bad = self.write("b.jsonl", small * 9 + "{\n")
        self.encode(bad, "--on-error", "skip", "--max-errors", "5%", code=3, out="out2")
        self.encode(bad, "--on-error", "skip", "--max-errors", "10%", out="out2")

    def test_misuse(self):
        source = self.write("a.jsonl", '{"text":"the"}')
        for arguments, code, message in [
                (["--text-feild", "x"], 2, "--text-field"), (["--on-error", "ignore"], 2, "skip"), (["--part", "0/2"], 2, "from 1 to N"),
                (["--shard-tokens", "none"], 2, "--shard-tokens"), (["--where", "score"], 2, "--where"),
                (["--max-errors", "3"], 2, "--on-error skip"), (["--format", "parquet"], 2, "parquet"),
                (["--val-fraction", "2"], 2, "val-fraction"), (["--set", "text_feild=x"], 2, "text_field"),
                (["--config", self.dir / "missing.json"], 4, "missing.json"),
                (["--config", self.write("torn.json", '{"text_field": ')], 2, "torn.json:1")]:
            done, _ = self.encode(source, *arguments, code=code)
            self.assertIn(message, done.stderr)
            self.expect_nothing_left()
        for model, code, message in [(source, 3, 'has no "model"'), (self.dir / "missing", 4, "missing"), (__file__, 3, "not a sentencepiece"),
                                     (self.write("cut.model", MODEL.read_bytes()[:3000]), 3, "cut.model")]:
            done, _ = self.encode(source, model=model, code=code)
            self.assertIn(message, done.stderr)
        for command in ("merge", "train"):
            self.assertIn(f"'{command}' is not part of this version", self.check(NAME, command, "x", code=2).stderr)
        self.check(NAME, "encoed", code=2)
        self.check(NAME, code=2)

    def test_quiet_and_redirected_stderr(self):
        source = self.write("a.jsonl", '{"text":"the"}\n{"text":""}\n')
        done, _ = self.encode(source)
        self.assertNotIn("\r", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        done, _ = self.encode(source, "--force", "--quiet")
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        report = json.loads(self.encode(source, "--force", "--report", "-")[0].stdout)
        self.assertEqual(report["results"]["documents_written"], 1)
        self.assertEqual(len(report["warnings"]), 1)

    def test_truncated_and_damaged_files(self):
        text = "".join('{"text":"the cat %d"}\n' % i for i in range(5000)).encode()
        whole = gzip.compress(text)
        cut = self.write("cut.jsonl.gz", whole[:-20])
        crc = self.write("crc.jsonl.gz", whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
        zst = self.write("cut.jsonl.zst", bytes.fromhex("28b52ffd240d6900007b2274657874223a2261227d0aaea971"))
        good = self.write("good.jsonl", '{"text":"at"}\n')
        for path in (cut, crc, zst):
            done, _ = self.encode(good, path, code=3)
            self.assertIn(path.name, done.stderr)
            self.expect_nothing_left()
        _, results = self.encode(cut, good, crc, zst, good, "--on-error", "skip")
        self.assertEqual(self.ids(), [[273, 2]] * 2)
        self.assertEqual(results["files_damaged"], 3)
        self.assertEqual(results["documents_in"], 2 + sum(results["documents_skipped"].values()))

    def test_damage_stays_in_its_line(self):
        ok = '{"text":"ok"}\n'
        source = self.write("a.jsonl", ok * 3 + '{"text":"bad\n' + ok * 3)
        done, _ = self.encode(source, code=3)
        self.assertIn("a.jsonl:4, byte 42", done.stderr)
        self.expect_nothing_left()
        _, results = self.encode(source, "--on-error", "skip")
        self.assertEqual((results["documents_written"], results["documents_skipped"]), (6, {"bad_json": 1}))
        error = results["errors"][0]
        self.assertEqual((error["line"], error["byte_offset"], error["reason"]), (4, 42, "bad_json"))
        self.encode(self.write("b.jsonl", ok * 2 + '{"text":"unclosed'), code=3, out="out2")
        self.encode(self.write("c.jsonl", ok.encode() + b'{"text":"\xff"}\n'), code=3, out="out2")
        two = self.write("d.jsonl", ok + '{"text":"a"} {"text":"b"}\n')
        self.assertIn("two records on one line", self.encode(two, code=3, out="out2")[0].stderr)

    def test_where_needs_records_with_the_field(self):
        text, source = self.write("a.txt", "the cat"), self.write("a.jsonl", '{"text":"the","score":1}\n' * 3)
        for arguments in (["--format", "txt"], []):
            self.assertIn("txt", self.encode(text, "--where", "score>0", *arguments, code=2)[0].stderr)
        done, _ = self.encode(source, "--where", "scroe>0", code=3)
        self.assertIn("no field 'scroe' in the first 3 records", done.stderr)
        self.assertIn("fields seen: text, score", done.stderr)
        self.expect_nothing_left()
        _, results = self.encode(self.write("b.jsonl", '{"text":"the"}\n{"text":"at","score":1}\n'), "--where", "score>0")
        self.assertEqual((results["documents_written"], results["documents_skipped"]), (1, {"filtered": 1}))

    def test_empty_arguments(self):
        source = self.write("a.jsonl", '{"text":"the"}')
        for arguments in (["--text-field", ""], ["--id-field", ""], ["--documents", ""], ["--where", ""], ["--where", " =1"],
                          ["--where", "text="], ["--report", ""], ["--set", "text_field="], ["--part", ""], [""]):
            self.encode(source, *arguments, code=2)
            self.expect_nothing_left()
        self.encode(source, model="", code=2)
        self.check(NAME, "encode", source, "--tokenizer", MODEL, "--out", "", code=2)
        self.check(NAME, "info", "", code=2)
        self.check(NAME, "decode", "", code=2)

    def test_a_report_that_cannot_be_written_is_refused_before_the_work(self):
        bad = self.write("bad.jsonl", "{")  # an error of the work itself
        self.assertIn("missing", self.encode(bad, "--report", self.dir / "missing/r.json", code=4)[0].stderr)
        self.assertIn("directory", self.encode(bad, "--report", self.dir, code=4)[0].stderr)

    def test_damaged_files_are_counted(self):
        text = "".join('{"text":"the cat %d"}\n' % i for i in range(5000)).encode()
        cut = self.write("cut.jsonl.gz", gzip.compress(text)[:-500])
        good = self.write("good.jsonl", '{"text":"at"}\n')
        done, results = self.encode(cut, good, "--on-error", "skip")
        lost = results["documents_skipped"]["damaged_file"]
        self.assertGreater(lost, 3000)
        self.assertEqual(results["documents_in"], lost + 1)
        self.assertIn("2 files, 1 of them damaged and left out:", done.stderr)
        self.assertIn(f"{lost} dropped (damaged_file {lost})", done.stderr)
        done, _ = self.encode(cut, "--on-error", "skip", code=3, out="out2")
        self.assertIn("1 damaged file left out", done.stderr)

    def test_only_empty_documents(self):
        done, _ = self.encode(self.write("a.jsonl", '{"text":""}\n'), "--keep-empty", code=3)
        self.assertIn("all documents are empty", done.stderr)

    def test_numbers_agree_with_their_nouns(self):
        done, _ = self.encode(self.write("a.jsonl", '{"text":"the"}'))
        self.assertIn("1 file: 1 document read", done.stderr)
        self.assertIn("1 document, 2 tokens (uint16) in 1 shard,", done.stdout)
