"""keel-tokenize from the outside: what it writes, what it says, and how it ends."""
import array
import gzip
import hashlib
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import time
import unittest

from keel_tools import ToolTest, tool

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

    def test_every_frame_and_member_is_read(self):
        a = bytes.fromhex("28b52ffd240d6900007b2274657874223a2261227d0aaea9718c")
        b = bytes.fromhex("28b52ffd240d6900007b2274657874223a2262227d0a3f650b73")
        empty, skippable = bytes.fromhex("28b52ffd240001000099e9d851"), bytes.fromhex("502a4d180400000041424344")
        x, y = gzip.compress(b'{"text":"a"}\n'), gzip.compress(b'{"text":"b"}\n')
        for content in (a + b, a + empty + b, skippable + a + b, x + y, x + gzip.compress(b"") + y + bytes(512)):
            self.encode(self.write("a.jsonl", content), "--force")
            self.assertEqual(self.ids(), [[272, 2], [312, 326, 2]])

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

    def test_wrong_names_do_not_matter(self):
        line = b'{"text":"the cat"}\n'
        for name, content in (("plain.jsonl.gz", line), ("a.txt", line), ("b.jsonl", gzip.compress(line)), ("noname", line)):
            self.encode(self.write(name, content), "--force")
            self.assertEqual(self.ids(), [[283, 281, 2]], name)

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

    def test_existing_output(self):
        source = self.write("a.jsonl", '{"text":"the"}')
        self.encode(source)
        before = (self.dir / "out/report.json").read_bytes()
        done, _ = self.encode(source, code=2)
        self.assertIn("--force", done.stderr)
        self.encode(self.write("bad.jsonl", "{"), "--force", code=3)
        self.assertEqual((self.dir / "out/report.json").read_bytes(), before)
        self.encode(source, "--force")
        self.write("precious/thesis.tex", "x")
        done, _ = self.encode(source, "--force", code=2, out="precious")
        self.assertIn("not a data set", done.stderr)
        self.assertTrue((self.dir / "precious/thesis.tex").exists())

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
        for model, code, message in [(source, 2, "tokenizer.json"), (self.dir / "missing", 4, "missing"), (__file__, 3, "not a sentencepiece"),
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


class Endings(Tokenize):
    def start_endless(self):
        """A run that waits for more on stdin after having written some."""
        process = subprocess.Popen([tool(NAME), "encode", "-", "--tokenizer", MODEL, "--out", self.dir / "out"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        process.stdin.write('{"text":"the cat"}\n' * 100000)
        process.stdin.flush()
        deadline = time.time() + 60
        while not list(self.dir.glob(".out.tmp*/train-00000.bin")) and time.time() < deadline:
            time.sleep(0.01)
        return process

    def test_signals(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start_endless()
            process.send_signal(number)
            began = time.time()
            _, stderr = process.communicate(timeout=60)
            self.assertLess(time.time() - began, 10)
            self.assertEqual(process.returncode, code, stderr)
            self.assertIn("keel-tokenize: stopped by SIG", stderr)
            self.assertEqual(list(self.dir.iterdir()), [])

    def test_an_error_ends_a_run_that_waits_for_input(self):
        process = self.start_endless()
        process.stdin.write("{torn\n" + '{"text":"x"}\n' * 100000)
        process.stdin.flush()
        self.assertEqual(process.wait(timeout=60), 3)
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_killed_run_is_tidied_up_by_the_next(self):
        process = self.start_endless()
        process.kill()
        process.wait()
        self.assertEqual([path.name.startswith(".out.tmp") for path in self.dir.iterdir()], [True])
        self.encode(self.write("a.jsonl", '{"text":"the"}'))
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()), ["a.jsonl", "out"])

    def test_full_disk(self):
        source = self.write("a.jsonl", '{"text":"the cat"}\n' * 100000)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        done, _ = self.encode(source, code=4, preexec_fn=limit)
        self.assertIn(".bin", done.stderr)
        self.expect_nothing_left()

    def test_stdout_that_cannot_be_written(self):
        lines = "the cat\n" * 100000
        command = [tool(NAME), "ids", "--tokenizer", MODEL, "-"]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, input=lines, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 4, done.stderr)
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(command, input=lines, stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (141, ""))


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


if __name__ == "__main__":
    if "--bin" in sys.argv:
        at = sys.argv.index("--bin")
        os.environ["KEEL_BIN"] = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
