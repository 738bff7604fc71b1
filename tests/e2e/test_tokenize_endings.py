"""How keel-tokenize ends: signals, full disks, closed pipes."""
import os
import resource
import signal
import subprocess
import time

from keel_tools import tool
from tokenize_tools import MODEL, NAME, Tokenize


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
