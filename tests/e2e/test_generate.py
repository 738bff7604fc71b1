"""keel-generate: prompts, drawing, ends, streams, errors."""
import array
import fcntl
import json
import os
import signal
import subprocess
import termios
import time

from chain_model import write_chain_model
from keel_schemas import load_schema, problems_of_report
from keel_tools import ToolTest, tool
from tokenize_tools import MODEL, ROOT

import jsonschema

THE, CAT, AT, A, EOS = 283, 281, 273, 272, 2
BYTES = {byte: byte + 3 for byte in range(256)}
# the cat -> e-acute, a Chinese character (both by bytes), " at", " a", the end of the document
CHAIN = [CAT, *(BYTES[b] for b in "\u00e9\u65e5".encode()), AT, A, EOS]
FOLLOWS = dict(zip(CHAIN, CHAIN[1:]))
TEXT = "\u00e9\u65e5 at a"


class Generate(ToolTest):
    def setUp(self):
        super().setUp()
        self.model = self.chain("model")

    def chain(self, name, follows=FOLLOWS, tokenizer=MODEL, **options):
        return write_chain_model(self.dir / name, follows, tokenizer, **options)

    def generate(self, *arguments, model=None, code=0, **keywords):
        return self.check("keel-generate", model or self.model, *arguments, code=code, **keywords)

    def json(self, *arguments, **keywords):
        lines = [json.loads(line) for line in self.generate(*arguments, "--json", **keywords).stdout.splitlines()]
        for line in lines:
            jsonschema.validate(line, load_schema("continuations.json"), jsonschema.Draft202012Validator)
        return lines

    def greedy(self, *arguments, **keywords):
        return self.json("--prompt", " the cat", "--temperature", "0", *arguments, **keywords)[0]


class Text(Generate):
    def test_until_the_end_of_the_document(self):
        result = self.generate("--prompt", " the cat", "--temperature", "0")
        self.assertEqual(result.stdout, TEXT + "\n")
        line = self.greedy()
        self.assertEqual(line, {"index": 0, "prompt": " the cat", "prompt_tokens": line["prompt_tokens"], "text": TEXT, "tokens": CHAIN[1:], "finish_reason": "stop_id"})
        self.assertEqual(self.greedy("--max-tokens", "7")["finish_reason"], "max_tokens")
        self.assertEqual(len(self.greedy("--ignore-eos", "--max-tokens", "20")["tokens"]), 20)

    def test_characters_are_never_cut(self):
        shown = [self.greedy("--max-tokens", str(n))["text"] for n in range(1, 7)]
        self.assertEqual(shown, ["\ufffd", "\u00e9", "\u00e9\ufffd", "\u00e9\ufffd", "\u00e9\u65e5", "\u00e9\u65e5 at"])
        # As it comes: whatever has reached the reader is whole characters.
        read, write = os.pipe()
        process = subprocess.Popen([tool("keel-generate"), self.model, "--prompt", " the cat", "--temperature", "0"], stdout=write, stderr=subprocess.DEVNULL)
        os.close(write)
        seen = b""
        while part := os.read(read, 1):
            seen += part + os.read(read, 1 << 16) if part[0] >= 0x80 else part
            seen.decode()
        os.close(read)
        self.assertEqual((process.wait(60), seen.decode()), (0, TEXT + "\n"))

    def test_stop_texts(self):
        for stops, text, reason in ((["\u65e5 a"], "\u00e9", "stop"), (["t a"], "\u00e9\u65e5 a", "stop"), (["x", " a", "t"], "\u00e9\u65e5", "stop"),
                                    (["t ab"], TEXT, "stop_id"), (["\u00e9"], "", "stop")):
            with self.subTest(stops=stops):
                arguments = [a for stop in stops for a in ("--stop", stop)]
                line = self.greedy(*arguments)
                self.assertEqual((line["text"], line["finish_reason"]), (text, reason))
                self.assertEqual(self.generate("--prompt", " the cat", "--temperature", "0", *arguments).stdout, text + "\n")
        self.generate("--stop", "", code=2)

    def test_equal_logits_give_the_lowest_id(self):
        line = self.json("--prompt", " a", "--prompt", "", "--temperature", "0", "--max-tokens", "1", model=self.chain("none", {}))
        self.assertEqual([l["tokens"] for l in line], [[0], [0]])

    def test_padding_of_the_vocabulary_is_never_drawn(self):
        padded = self.chain("padded", {CAT: 345, **{t: 340 for t in range(300)}}, vocab_size=350)
        for line in self.json("--prompt", " the cat", "--num", "8", "--max-tokens", "40", "--ignore-eos", model=padded):
            self.assertLess(max(line["tokens"]), 330)
        self.assertEqual(self.greedy("--max-tokens", "1", model=padded)["tokens"], [0])
        small = self.chain("small", {}, vocab_size=320)
        self.assertIn("tokenizer", self.generate(model=small, code=3).stderr)

    def test_context(self):
        short = self.chain("short", {CAT: AT, AT: A, A: AT}, context=9)
        result = self.generate("--prompt", " the cat", "--temperature", "0", "--json", model=short)
        line = json.loads(result.stdout)
        self.assertEqual(line["finish_reason"], "context")
        self.assertEqual(len(line["tokens"]), 9 - line["prompt_tokens"] + 1)  # the last one needs no position
        self.assertIn("warning: 1 of 1 continuations ended where the model's context of 9 tokens is full", result.stderr)
        result = self.generate("--prompt", " a", "--prompt", " a" * 9, "--num", "3", model=short, code=2)
        self.assertRegex(result.stderr, r"\d+ tokens leave no room in a context of 9 \(prompt 2\)")

    def test_bos_as_the_tokenizer_says(self):
        marks = ROOT / "tokenizer" / "testdata" / "tiny_marks.json"
        model = self.chain("marks", {}, tokenizer=marks)
        plain = self.json("--prompt", "the", "--max-tokens", "1", "--bos", "off", model=model)[0]["prompt_tokens"]
        for adds, extra in ((True, 1), (False, 0)):
            (model / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": adds, "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>"}))
            self.assertEqual(self.json("--prompt", "the", "--max-tokens", "1", model=model)[0]["prompt_tokens"], plain + extra)
            ids = self.check("keel-tokenize", "ids", "--tokenizer", model, "the", "--add-special").stdout.split()
            self.assertEqual(len(ids), plain + extra + 1)  # EOS behind, as the file says
        self.assertEqual(self.json("--prompt", "the", "--max-tokens", "1", "--bos", "on", model=model)[0]["prompt_tokens"], plain + 1)
        # The file of a sentencepiece model says nothing.
        plain = len(self.check("keel-tokenize", "ids", "--tokenizer", MODEL, " the").stdout.split())
        for arguments, count in (((), plain), (("--bos", "on"), plain + 1), (("--bos", "off"), plain)):
            self.assertEqual(self.json("--prompt", " the", "--max-tokens", "1", *arguments)[0]["prompt_tokens"], count)


class Drawing(Generate):
    def drawn(self, *arguments):
        return [line["text"] for line in self.json("--prompt", " the cat", "--prompt", " a", "--num", "3", "--temperature", "20", "--max-tokens", "20", *arguments)]

    def test_seeds(self):
        first = self.drawn("--seed", "5")
        self.assertEqual(len(set(first)), 6)
        for same in (("--batch-sequences", "1"), ("--batch-sequences", "4", "--threads", "2"), ("--threads", "1")):
            self.assertEqual(self.drawn("--seed", "5", *same), first)
        self.assertNotEqual(self.drawn("--seed", "6"), first)
        self.assertEqual(self.drawn(), self.drawn("--seed", "0"))

    def test_top_k_and_top_p(self):
        for one in (("--top-k", "1"), ("--top-p", "1e-9")):
            self.assertEqual(self.json("--prompt", " the cat", *one)[0]["text"], TEXT)
        for bad in (("--top-p", "0"), ("--top-p", "1.1"), ("--top-k", "-1"), ("--temperature", "-1"), ("--temperature", "nan"), ("--max-tokens", "0")):
            self.generate(*bad, code=2)


class Prompts(Generate):
    def file(self, content):
        path = self.dir / "prompts.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def prompts(self, *arguments, **keywords):
        return [line["prompt"] for line in self.json("--max-tokens", "1", *arguments, **keywords)]

    def test_sources(self):
        file = self.file("the\r\n\n a cat\r")
        self.assertEqual(self.prompts("--prompts", file), ["the", "", " a cat"])
        self.assertEqual(self.prompts("--prompts", "-", input="one\ntwo\n"), ["one", "two"])
        self.assertEqual(self.prompts("-", input="one\ntwo\n"), ["one", "two"])
        self.assertEqual(self.prompts("-", "--whole", input="one\ntwo\n"), ["one\ntwo\n"])
        self.assertEqual(self.prompts("--prompts", file, "--whole"), ["the\r\n\n a cat\r"])
        self.assertEqual(self.prompts("--prompt", "a", "--prompt", ""), ["a", ""])
        self.assertEqual(self.prompts(), [""])
        for wrong in (("-", "--prompt", "x"), ("--prompts", file, "--prompt", "x"), ("-", "--prompts", file), ("--whole",), ("text",)):
            self.generate(*wrong, code=2, input="")
        self.assertIn("no prompts (stdin)", self.generate("-", code=3, input="").stderr)
        self.generate("--prompts", self.dir / "missing", code=4)

    def test_control_tokens_in_a_prompt(self):
        count = lambda *extra: json.loads(self.generate("--prompt", "a</s>b", "--max-tokens", 1, "--json", *extra).stdout)["prompt_tokens"]
        parsed, plain = count(), count("--special-in-text", "plain")
        self.assertEqual(count("--special-in-text", "parse"), parsed)
        self.assertGreater(plain, parsed)

    def test_a_signal_ends_the_wait_for_prompts(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen([tool("keel-generate"), str(self.model), "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdin.write(b"the\n")
            process.stdin.flush()
            unread = array.array("i", [1])
            while unread[0] > 0:  # until it has taken the first line and waits for the next
                time.sleep(0.01)
                fcntl.ioctl(process.stdin, termios.FIONREAD, unread)
            process.send_signal(number)
            start = time.monotonic()
            process.wait(timeout=60)
            self.assertLess(time.monotonic() - start, 5)
            self.assertEqual(process.returncode, code)
            process.stdin.close()
            process.stderr.close()

    def test_one_after_the_other_on_stdout(self):
        arguments = ["--prompts", self.file(" the cat\nthe at\n"), "--temperature", "0"]
        self.assertEqual(self.generate(*arguments).stdout, f"{TEXT}\n---\n a\n")
        self.assertEqual(self.generate(*arguments, "--echo", "--batch-sequences", "1").stdout, f" the cat{TEXT}\n---\nthe at a\n")
        self.assertEqual(self.generate(*arguments, "--quiet").stderr, "")
        self.assertIn("--echo", self.generate(*arguments, "--json", "--echo", code=2).stderr)  # each line has its prompt

    def test_text_that_is_not_utf8(self):
        result = subprocess.run([tool("keel-generate"), self.model, "--prompts", self.file(b"fine\nb\xffd\n")], capture_output=True)
        self.assertEqual(result.returncode, 3)
        self.assertIn(b"invalid UTF-8 byte 0xFF at byte 1 (" + bytes(self.dir) + b"/prompts.txt:2)", result.stderr)
        result = subprocess.run([tool("keel-generate"), self.model, "--prompt", b"caf\xe9"], capture_output=True)
        self.assertEqual(result.returncode, 3)
        self.assertIn(b"invalid UTF-8 byte 0xE9 at byte 3 (prompt 1)", result.stderr)


class Ends(Generate):
    ENDLESS = ["--prompt", " the cat", "--num", "5000", "--ignore-eos", "--max-tokens", "60", "--threads", "1"]

    def test_weights_that_are_not_finite(self):
        broken = self.chain("broken", broken=True)
        result = self.generate("--prompt", " the cat", model=broken, code=5)
        self.assertIn("logits are not finite", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_full_disk_and_closed_pipe(self):
        with open("/dev/full", "w") as full:
            process = subprocess.run([tool("keel-generate"), str(self.model), "--prompt", " the cat"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.returncode, 4, process.stderr)
        for extra in ([], ["--json"]):
            process = subprocess.Popen([tool("keel-generate"), self.model, *self.ENDLESS, *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.read(1)
            process.stdout.close()
            self.assertEqual(process.wait(60), 141)
            self.assertNotIn(b"error", process.stderr.read())
            process.stderr.close()

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([tool("keel-generate"), self.model, *self.ENDLESS, "--num", "20000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            process.stdout.read(1)
            process.send_signal(number)
            start = time.monotonic()
            process.stdout.read()
            self.assertEqual(process.wait(60), 128 + number)
            process.stdout.close()
            self.assertLess(time.monotonic() - start, 2)

    def test_report(self):
        report = self.dir / "report.json"
        self.generate("--prompt", " the cat", "--temperature", "0", "--report", report, "--num", "2")
        self.assertEqual(problems_of_report(report.read_text()), [])
        results = json.loads(report.read_text())["results"]
        self.assertEqual((results["continuations"], results["tokens"], results["finish_reasons"]), (2, 2 * len(CHAIN[1:]), {"stop_id": 2}))
        before = report.read_text()
        # Asked before anything is read or loaded.
        self.assertIn("report.json", self.generate("--report", report, model=self.dir / "missing", code=2).stderr)
        self.assertEqual(report.read_text(), before)
        self.generate("--report", report, "--force")
        self.generate("--report", self.model / "config.json", "--force", code=2)
        self.generate("--report", "-", code=2)
        self.generate("--report", self.dir / "missing" / "r.json", code=4)


class Golden(Generate):
    def test_tinystories(self):
        model = self.data("data", "models", "TinyStories-656K")
        arguments = ["--prompt", "Once upon a time", "--temperature", "0"]
        text = ", a little girl named Lily lived in a small house with her mom, dad, and her dog, Spot"
        for bos in ("auto", "on"):
            self.assertEqual(self.generate(*arguments, "--bos", bos, model=model).stdout[:len(text)], text)
        prompts = self.dir / "p.txt"
        prompts.write_text("".join(f"{word} {name}\n" for word in ("Once upon a time", "One day", "The little") for name in ("Tom", "a dog", "the big red ball went")))
        made = [[line["tokens"] for line in self.json("--prompts", prompts, "--temperature", "0", "--batch-sequences", n, model=model)] for n in ("1", "4", "16")]
        self.assertEqual(made[0], made[1])
        self.assertEqual(made[0], made[2])
