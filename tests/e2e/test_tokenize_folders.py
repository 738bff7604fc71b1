"""keel-tokenize encode where something is already: output that exists, links, pipes and devices."""
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import threading
import time

from keel_tools import tool
from tokenize_tools import MODEL, NAME, Tokenize


class Existing(Tokenize):
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

    def names(self):
        return sorted(str(path.relative_to(self.dir / "out")) for path in (self.dir / "out").rglob("*"))

    def test_force_removes_only_files_of_the_data_set(self):
        source = self.write("a.jsonl", '{"text":"the cat"}\n' * 3)
        self.encode(source, "--shard-tokens", 3)
        own = ["manifest.json", "report.json", "tokenizer.model", "train-00000.bin", "train-00000.idx"]
        self.assertIn("train-00002.bin", self.names())
        self.write("out/train-00000.mask", b"\1" * 3)
        self.write("out/sub/thesis.tex", "x")
        self.encode(self.write("bad.jsonl", "{"), "--force", code=3)
        self.assertIn("train-00002.bin", self.names())
        done, _ = self.encode(self.write("b.jsonl", '{"text":"at"}'), "--force")
        self.assertEqual(self.names(), sorted([*own, "train-00000.mask", "sub", "sub/thesis.tex"]))
        self.assertEqual(self.ids(), [[273, 2]])
        self.assertIn("2 other files", done.stderr)
        self.assertIn("loss masks", json.loads((self.dir / "out/report.json").read_text())["warnings"][0])
        self.assertEqual([path.name for path in self.dir.iterdir() if path.name.startswith(".")], [])

    def test_force_wants_a_manifest_of_its_own(self):
        source = self.write("a.jsonl", '{"text":"the cat"}')
        for content in ('{"name": "an extension of a browser"}', "[]", "{"):
            self.write("out/manifest.json", content)
            self.assertIn("not a data set", self.encode(source, "--force", code=2)[0].stderr)
            self.assertEqual((self.dir / "out/manifest.json").read_text(), content)
        self.encode(source, "--force", code=2, out="a.jsonl")


    def test_reports_replace_nothing_by_mistake(self):
        source = self.write("in/a.jsonl", '{"text":"the"}')
        model = self.write("m.model", MODEL.read_bytes())
        settings = self.write("encode.json", "{}")
        os.link(source, self.dir / "hard.jsonl")
        other = self.write("other.json", "{}")
        before = {path: path.read_bytes() for path in (source, model, settings, other)}
        for force in ([], ["--force"]):
            for report in (source, model, settings, self.dir / "hard.jsonl", self.dir / "out/report2.json", *([] if force else [other])):
                self.encode(self.dir / "in", "--config", settings, "--report", report, *force, model=model, code=2)
        self.expect_nothing_left()
        self.assertEqual({path: path.read_bytes() for path in before}, before)
        self.encode(source, "--report", other, "--force")
        self.assertEqual(json.loads(other.read_text())["schema"], "keel.tokenize.encode/1")
        self.encode(source, "--report", "/dev/null", "--force")
        manifest = self.dir / "out/manifest.json"
        text = manifest.read_text()
        self.check(NAME, "info", self.dir / "out", "--out", manifest, "--force", code=2)
        self.check(NAME, "info", self.dir / "out/train-00000", "--out", self.dir / "out/train-00000.bin", "--force", code=2)
        self.check(NAME, "info", self.dir / "out", "--out", other, code=2)
        self.check(NAME, "info", self.dir / "out", "--out", other, "--force")
        self.assertEqual(manifest.read_text(), text)

    def test_resume_of_what_is_complete(self):
        source = self.write("a.jsonl", '{"text":"the"}')
        self.encode(source, "--resume", "--seed", 3)
        before = (self.dir / "out/report.json").read_bytes()
        self.assertIn("nothing to do", self.encode(source, "--resume", "--workers", 1)[0].stderr)
        self.encode(source, "--resume", "--prepend-bos", code=2)
        self.encode(self.write("b.jsonl", '{"text":"the"}'), "--resume", code=2)
        self.write("a.jsonl", '{"text":"the cat"}')
        self.encode(source, "--resume", code=2)
        self.assertEqual((self.dir / "out/report.json").read_bytes(), before)
        self.encode(source, "--resume", "--force")

    def test_two_at_a_time_for_one_folder(self):
        command = [tool(NAME), "encode", "-", "--tokenizer", MODEL, "--out", self.dir / "out", "--progress", "none"]
        both = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
        while len(list(self.dir.glob(".out.tmp.*"))) < 2:  # both have seen that nothing is there
            self.assertEqual([process.poll() for process in both], [None, None])
            time.sleep(0.01)
        said = [process.communicate(b'{"text":"the"}\n')[1].decode() for process in both]
        self.assertEqual([process.returncode for process in both], [0, 2], said)
        self.assertIn("exists already", said[1])
        self.assertEqual([path.name for path in self.dir.iterdir()], ["out"])

    def test_more_shards_than_descriptors(self):
        source = self.write("a.jsonl", '{"text":"the"}\n' * 300)
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        _, results = self.encode(source, "--shard-tokens", 2, "--val-fraction", 0.3, preexec_fn=limit)
        self.assertEqual((len(results["files"]), results["documents_written"]), (300, 300))

    def test_names_that_json_cannot_hold(self):
        name = os.fsdecode(b"gr\xf6\xdfe")
        source = self.write("a.jsonl", '{"text":"the"}')
        other = self.write(f"{name}.jsonl", '{"text":"the"}')
        for path, out in ((other, "out"), (source, name)):
            done, _ = self.encode(path, code=2, out=out)
            self.assertIn("not UTF-8", done.stderr)
            self.expect_nothing_left()


class Special(Tokenize):
    def test_links_in_a_folder(self):
        self.write("in/a.jsonl", '{"text":"the"}\n')
        self.write("other/b.jsonl", '{"text":"at"}\n')
        for name, target in (("loop", "."), ("up", "../in"), ("self", "self"), ("gone.jsonl", "nowhere"), ("c", "../other")):
            (self.dir / "in" / name).symlink_to(target)
        os.mkfifo(self.dir / "in/pipe.jsonl")
        done, _ = self.encode(self.dir / "in")
        self.assertEqual(self.ids(), [[283, 2], [273, 2]])
        for name in ("in/loop, ", "in/up, ", "in/self, ", "in/gone.jsonl, ", "in/pipe.jsonl, "):
            self.assertIn(name, done.stderr)

    def test_models_and_shards_are_regular_files(self):
        source = self.write("a.jsonl", '{"text":"the cat"}')
        os.mkfifo(self.dir / "pipe")
        for path in (self.dir / "pipe", "/dev/zero"):
            self.assertIn("not a regular file", self.encode(source, model=path, code=4, timeout=20)[0].stderr)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.dir / "socket"))
            self.encode(self.dir / "socket", code=4, timeout=20)
        self.encode("/dev/zero", code=4, timeout=20)
        self.encode(source)
        for name in ("train-00000.bin", "train-00000.idx", "manifest.json", "tokenizer.model"):
            path = self.dir / "out" / name
            content = path.read_bytes()
            path.unlink()
            os.mkfifo(path)
            done = self.check(NAME, "info", self.dir / "out", "--verify", code=4, timeout=20)
            self.assertIn(f"{name}", done.stderr)
            self.check(NAME, "decode", self.dir / "out", code=4, timeout=20)
            path.unlink()
            path.write_bytes(content)
        (self.dir / "out/manifest.json").unlink()
        self.write("out/manifest.json/x", "")
        self.assertIn("manifest.json", self.check(NAME, "info", self.dir / "out", code=4).stderr)

    @staticmethod
    def catches_sigterm(process):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        return process.poll() is not None or caught >> (signal.SIGTERM - 1) & 1

    def test_pipes_are_read_and_do_not_hold_up_a_signal(self):
        pipe = self.dir / "pipe.jsonl"
        os.mkfifo(pipe)
        threading.Thread(target=lambda: pipe.write_text('{"text":"the cat"}'), daemon=True).start()
        self.encode(pipe, timeout=20)
        self.assertEqual(self.ids(), [[283, 281, 2]])
        for command in (["encode", pipe, "--tokenizer", MODEL, "--out", self.dir / "out2"], ["ids", "--tokenizer", MODEL, "-"]):
            process = subprocess.Popen([tool(NAME), *map(str, command)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(lambda process=process: (process.kill(), process.communicate()))
            while not self.catches_sigterm(process):
                time.sleep(0.05)
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=10), 143)
