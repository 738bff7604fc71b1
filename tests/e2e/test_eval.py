"""keel-eval as its users meet it: benchmarks and texts on a small model, files, misuse, damaged data."""
import hashlib
import json
import os
import signal
import subprocess
import time

from keel_files import read_lines
from keel_tools import ToolTest, run, tool
from tokenize_tools import MODEL

NAME = "keel-eval"


def sciq(question, support="", answer="light"):
    return {"question": question, "distractor3": "heat", "distractor1": "the sound", "distractor2": "cold", "correct_answer": answer,
            "support": support}


class EvalTest(ToolTest):
    def setUp(self):
        super().setUp()
        (self.dir / "corpus.txt").write_text("What is it? It is the light of the sun.\n\n" * 40)
        self.check("keel-tokenize", "encode", self.dir / "corpus.txt", "--tokenizer", MODEL, "--out", self.dir / "data")
        config = {"model": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
                  "data": {"sequence_length": 64}, "train": {"steps": 3, "batch_sequences": 2}, "optimizer": {"learning_rate": 0.01}}
        (self.dir / "train.json").write_text(json.dumps(config))
        self.check("keel-train", "--config", self.dir / "train.json", "--data", self.dir / "data", "--out", self.dir / "run",
                   "--progress", "none")
        self.write_rows("sciq/test.jsonl", [sciq(f"What is number {i}?", "The sun is hot. " * i) for i in range(9)])
        self.write_rows("sciq/train.jsonl", [sciq(f"Which one is {i}?") for i in range(9)])
        self.write_rows("lambada/lambada_test.jsonl", [{"text": f"It is the light of the {word}"} for word in ("sun", "moon", "it")])

    def write_rows(self, name, rows):
        path = self.dir / "bench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def arguments(self, *extra):
        return [self.dir / "run", "--tasks", "sciq,lambada_openai", "--data", self.dir / "bench", "--progress", "none", *extra]


class Benchmarks(EvalTest):
    def test_table_files_and_report(self):
        done = self.check(NAME, *self.arguments("--out", self.dir / "out", "--log-samples", "--report", self.dir / "r.json"))
        for text in ("sciq", "lambada_openai", "acc_norm", "perplexity", "↓", "rows: sciq 9, lambada_openai 3", "softmax fp32"):
            self.assertIn(text, done.stdout)
        (folder,) = (self.dir / "out").iterdir()
        self.assertEqual(folder.name, str(self.dir / "run").replace("/", "__"))
        names = sorted(path.name.split("_20")[0] for path in folder.iterdir())
        self.assertEqual(names, ["results", "samples_lambada_openai", "samples_sciq"])
        result = json.loads(next(folder.glob("results*")).read_text())
        report = json.loads((self.dir / "r.json").read_text())
        self.assertEqual(report["results"], result)
        self.assertEqual(report["schema"], "keel.eval/1")
        data = (self.dir / "bench/sciq/test.jsonl").read_bytes()
        self.assertEqual(result["keel"]["files"]["sciq"][0]["sha256"], hashlib.sha256(data).hexdigest())
        self.assertLess(result["keel"]["tokens_run"], result["keel"]["tokens_without_sharing"])
        self.assertIn("hot", done.stderr + next(folder.glob("samples_sciq*")).read_text())
        # The aggregate is the mean of the rows, and a row's accuracy that of its log-likelihoods.
        samples = read_lines(next(folder.glob("samples_sciq*")))
        self.assertEqual(sum(s["acc"] for s in samples) / 9, result["results"]["sciq"]["acc,none"])
        for sample in samples:
            scores = [float(score) for score, _ in sample["filtered_resps"]]
            self.assertEqual(sample["acc"], float(scores.index(max(scores)) == 3))

    def test_scores_do_not_depend_on_batch_or_threads(self):
        outputs = []
        for extra in (["--threads", "1"], ["--threads", "3", "--batch-tokens", "1"], ["--batch-tokens", "100000"]):
            done = self.check(NAME, *self.arguments("--json", "--num-fewshot", 3, *extra))
            outputs.append(json.loads(done.stdout)["results"])
        for output in outputs[1:]:
            for task, values in output.items():
                for key, value in values.items():
                    if isinstance(value, float):
                        self.assertAlmostEqual(value / (outputs[0][task][key] or 1), 1 if outputs[0][task][key] else 0, delta=1e-4)
        again = self.check(NAME, *self.arguments("--json", "--num-fewshot", 3, "--threads", "1"))
        self.assertEqual(json.loads(again.stdout)["results"], outputs[0])

    def test_examples_depend_on_the_last_seed_alone(self):
        def hashes(*extra):
            out = self.dir / ("out" + "-".join(map(str, extra)))
            self.check(NAME, self.dir / "run", "--tasks", "sciq", "--data", self.dir / "bench", "--num-fewshot", 2, "--out", out,
                       "--log-samples", *extra)
            return [sample["prompt_hash"] for sample in read_lines(next(out.glob("*/samples*")))]
        first = hashes()
        self.assertEqual(hashes("--seed", "5,6,7,1234"), first)
        self.assertNotEqual(hashes("--seed", "5"), first)
        self.assertEqual(hashes("--seed", "0,0,0,5"), hashes("--seed", "5,5,5,5"))

    def test_rows_named(self):
        done = self.check(NAME, *self.arguments("--json", "--samples", '{"sciq": [7, 2, 7], "lambada_openai": [1]}'))
        samples = json.loads(done.stdout)["n-samples"]
        self.assertEqual(samples["sciq"], {"original": 9, "effective": 2})
        done = self.check(NAME, *self.arguments("--json", "--limit", "0.5"))
        self.assertEqual(json.loads(done.stdout)["n-samples"]["sciq"]["effective"], 5)

    def test_a_json_file_as_output(self):
        self.check(NAME, *self.arguments("--out", self.dir / "scores.json", "--limit", 2))
        (file,) = self.dir.glob("scores_*.json")
        self.assertEqual(json.loads(file.read_text())["config"]["limit"], 2.0)

    def test_one_row_has_no_standard_error(self):
        done = self.check(NAME, *self.arguments("--limit", "1"))
        self.assertIn("N/A", done.stdout)

    def test_long_prompts_lose_their_beginning_and_it_is_said(self):
        done = self.check(NAME, *self.arguments("--max-length", "16"))
        self.assertIn("sciq: 9 of 9 rows are longer than 16 tokens", done.stderr)

    def test_lists_and_descriptions(self):
        self.assertIn("arc_easy", self.check(NAME, "--list-tasks").stdout)
        self.assertEqual({task["task"] for task in json.loads(self.check(NAME, "--list-tasks", "--json").stdout)},
                         {"arc_easy", "hellaswag", "lambada_openai", "sciq"})
        done = self.check(NAME, "--describe", "sciq", "--data", self.dir / "bench")
        for text in ("examples from the train split", "Question: What is number 0?", "| the sound", "train.json"):
            self.assertIn(text, done.stdout)


class Texts(EvalTest):
    def test_perplexity_and_report(self):
        done = self.check(NAME, self.dir / "run", "--text", self.dir / "corpus.txt", "--out", self.dir / "ppl.json")
        report = json.loads((self.dir / "ppl.json").read_text())
        results = report["results"]
        self.assertEqual(results["bytes"], 41 * 40)
        self.assertIn(f"{results['nats_per_token']:.6f}", done.stdout)
        alone = json.loads(self.check(NAME, self.dir / "run", "--text", self.dir / "corpus.txt", "--json", "--threads", 1,
                                      "--batch-tokens", 7).stdout)
        self.check(NAME, self.dir / "run", "--text", self.dir / "corpus.txt", "--batch-tokens", 10**9)  # room for the text only
        self.assertAlmostEqual(alone["nats_per_token"], results["nats_per_token"], places=6)
        self.check(NAME, self.dir / "run", "--text", self.dir / "corpus.txt", "--out", self.dir / "ppl.json", code=2)
        self.check(NAME, self.dir / "run", "--text", self.dir / "corpus.txt", "--out", self.dir / "corpus.txt", "--force", code=2)

    def test_windows_and_bos(self):
        def nats(*extra):
            done = self.check(NAME, self.dir / "run", "--text", self.dir / "corpus.txt", "--json", "--window", 16, *extra)
            results = json.loads(done.stdout)
            return results["tokens"], results["nats_per_token"]
        tokens, plain = nats()
        self.assertEqual(nats("--stride", 15), (tokens, plain))
        self.assertEqual(nats("--stride", 4)[0], tokens)
        self.assertNotEqual(nats("--stride", 4)[1], plain)
        self.assertLess(nats("--compat-bos", "off")[0], tokens)
        self.assertEqual(nats("--compat-bos", "on"), (tokens, plain))

    def test_numbers_beyond_all_bounds_are_shown(self):
        (self.dir / "long.txt").write_text("x" * 4000)  # one word: its perplexity is no double
        done = self.check(NAME, self.dir / "run", "--text", self.dir / "long.txt")
        self.assertIn(" inf ", done.stdout)

    def test_texts_that_are_none(self):
        (self.dir / "empty.txt").write_text("")
        self.assertIn("no token to predict", self.check(NAME, self.dir / "run", "--text", self.dir / "empty.txt", code=3).stderr)
        (self.dir / "bytes.txt").write_bytes(b"abc\xff")
        self.assertIn("not UTF-8 at byte 3", self.check(NAME, self.dir / "run", "--text", self.dir / "bytes.txt", code=3).stderr)
        self.check(NAME, self.dir / "run", "--text", self.dir / "absent.txt", code=4)


class Init(EvalTest):
    def test_data_of_another_tokenizer_is_warned_of(self):
        command = ["keel-train", "--config", self.dir / "train.json", "--data", self.dir / "data", "--progress", "none"]
        same = self.check(*command, "--init", self.dir / "run", "--out", self.dir / "same")
        self.assertNotIn("another file", same.stderr)
        self.check("keel-convert", self.dir / "run", self.dir / "hf", "--to", "hf")
        model = self.dir / "hf" / "tokenizer.model"
        model.write_bytes(model.read_bytes() + b"\x1a\x00")  # an empty field more: the same words in another file
        other = self.check(*command, "--init", self.dir / "hf", "--out", self.dir / "other")
        self.assertIn("the data was tokenised with another file than", other.stderr)


class Misuse(EvalTest):
    def fails(self, code, message, *arguments):
        self.assertIn(message, self.check(NAME, *arguments, code=code).stderr)

    def test_what_cannot_be_asked(self):
        model, bench = self.dir / "run", self.dir / "bench"
        self.fails(2, "MODEL must be given", "--tasks", "sciq", "--data", bench)
        self.fails(2, "nothing to score", model)
        self.fails(2, "two evaluations", model, "--tasks", "sciq", "--text", self.dir / "corpus.txt")
        self.fails(2, "--tasks needs --data", model, "--tasks", "sciq")
        self.fails(2, "did you mean 'sciq'?", model, "--tasks", "siq", "--data", bench)
        self.fails(2, "name a folder with --out", *self.arguments("--log-samples"))
        self.fails(2, "one number or four", *self.arguments("--seed", "1,2"))
        self.fails(2, "give one", *self.arguments("--limit", "2", "--samples", '{"sciq": [1]}'))
        self.fails(2, "not among --tasks", *self.arguments("--samples", '{"arc_easy": [1]}'))
        self.fails(2, "sciq has no row 9: it has 9", *self.arguments("--samples", '{"sciq": [9]}'))
        self.fails(2, "lists of row numbers", *self.arguments("--samples", '{"sciq": [-1]}'))
        self.fails(2, "10 examples of sciq need 10 rows", *self.arguments("--num-fewshot", 10))
        self.fails(4, "cannot read", model, "--tasks", "sciq", "--data", self.dir / "nothing")
        self.fails(4, "no file holds the validation split of hellaswag", model, "--tasks", "hellaswag", "--data", bench)

    def test_options_of_the_other_mode(self):
        texts = [self.dir / "run", "--text", self.dir / "corpus.txt"]
        for extra in (["--limit", 2], ["--data", "x"], ["--num-fewshot", 1], ["--log-samples"], ["--max-length", 9],
                      ["--seed", 3], ["--softmax-dtype", "bf16"], ["--bootstrap-iters", 3]):
            self.fails(2, f"{extra[0]} has no effect with --text", *texts, *extra)
        self.fails(2, "--window has no effect with --tasks", *self.arguments("--window", 9))
        self.fails(2, "--text has no effect beside --list-tasks", "--list-tasks", "--text", "x")
        self.fails(2, "--limit has no effect beside --describe", "--describe", "sciq", "--limit", 3)

    def test_outputs_are_tried_before_scoring(self):
        (self.dir / "file").write_text("")
        done = self.check(NAME, *self.arguments("--out", self.dir / "file"), code=4)
        self.assertNotIn("score", done.stderr)
        done = self.check(NAME, *self.arguments("--device", "cuda"), code=6)
        self.assertNotIn("score", done.stderr)
        self.fails(2, "--out -", *self.arguments("--out", "-"))
        self.fails(2, "none of them empty", *self.arguments("--samples", '{"sciq": []}'))
        self.fails(2, "1.5 rows", *self.arguments("--limit", "1.5"))

    def test_damaged_rows_are_named(self):
        with open(self.dir / "bench/sciq/test.jsonl", "a") as file:
            file.write('{"question": "half a')
        self.fails(3, "sciq/test.jsonl:10", *self.arguments())
        self.write_rows("sciq/test.jsonl", [sciq("x"), {**sciq("y"), "support": 3}])
        self.fails(3, "sciq: row 1", *self.arguments())

    def test_a_full_disk_leaves_nothing(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        self.fails(4, "/dev/full", *self.arguments("--report", "/dev/full"))

    def test_a_model_that_gives_nan(self):
        checkpoint = sorted((self.dir / "run/checkpoints").iterdir())[-1]
        self.check("keel-convert", checkpoint, self.dir / "hf", "--to", "hf")
        weights = self.dir / "hf/model.safetensors"
        content = bytearray(weights.read_bytes())
        start = 8 + int.from_bytes(content[:8], "little")
        content[start:] = b"\xff\xff\xff\x7f" * ((len(content) - start) // 4)
        weights.write_bytes(content)
        done = run(NAME, self.dir / "hf", "--tasks", "sciq", "--data", self.dir / "bench", "--report", self.dir / "nan.json")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("sciq: 36 log-likelihoods are NaN", done.stderr)
        self.assertIn("error: sciq", run(NAME, self.dir / "hf", "--tasks", "sciq", "--data", self.dir / "bench", "--quiet").stderr)
        text = run(NAME, self.dir / "hf", "--text", self.dir / "corpus.txt", "--quiet")
        self.assertEqual((text.returncode, "error: the model gives NaN" in text.stderr), (5, True), text.stderr)
        self.assertEqual(json.loads((self.dir / "nan.json").read_text())["results"]["keel"]["nan_requests"]["sciq"], 36)

    def test_a_stop_signal_ends_it(self):
        self.write_rows("lambada/lambada_test.jsonl", [{"text": f"It is the light of the {i}"} for i in range(3000)])
        command = [tool(NAME), self.dir / "run", "--tasks", "lambada_openai", "--data", self.dir / "bench", "--progress", "plain",
                   "--bootstrap-iters", "10000000", "--out", self.dir / "out"]  # more than a minute of drawing
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if "3000/3000" in line:
                break
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assertLess(time.monotonic() - start, 5)
        self.assertFalse((self.dir / "out").exists())
