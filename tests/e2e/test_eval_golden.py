"""keel-eval against lm-evaluation-harness: prompts, log-likelihoods, greedy flags, scores, files."""
import glob
import json
import pathlib

from keel_tools import ToolTest

NAME = "keel-eval"


class Golden(ToolTest):
    def golden(self, name):
        lines = self.data("golden", "eval", name + ".jsonl").read_text().splitlines()
        return json.loads(lines[0]), [json.loads(line) for line in lines[1:]]

    def model(self, name):
        if name == "spm512":
            return self.data("golden", "models", "llama-spm512")
        return self.data("data", "models", "TinyStories-656K")

    def rows(self):
        """The benchmarks with the splits that the golden values were made from (golden/eval/README.md)."""
        folder = self.dir / "bench"
        if not folder.exists():
            folder.mkdir()
            rows, data = self.data("golden", "eval", "rows"), self.data("data", "eval")
            for name, source in {"ARC-Easy-Train.jsonl": data / "arc/ARC-Easy/ARC-Easy-Dev.jsonl",
                                 "ARC-Easy-Test.jsonl": data / "arc/ARC-Easy/ARC-Easy-Test.jsonl",
                                 "hellaswag_train.jsonl": rows / "hellaswag.train.jsonl",
                                 "hellaswag_val.jsonl": data / "hellaswag/hellaswag_val.jsonl",
                                 "sciq_test.json": data / "sciq/valid.json",
                                 "lambada_test.jsonl": data / "lambada/lambada_test.jsonl"}.items():
                (folder / name).symlink_to(source)
        return folder

    def evaluate(self, run, *options):
        """(result file, {doc_id: sample}) of a run with the options that the golden one had."""
        given = run["options"]
        arguments = [self.model(run["model"]), "--tasks", *run["tasks"], "--data", self.rows(), "--out", self.dir / "out",
                     "--log-samples", "--num-fewshot", given["num_fewshot"], "--progress", "none", *options]
        if "limit" in given:
            arguments += ["--limit", given["limit"]]
        if "samples" in given:
            (self.dir / "rows.json").write_text(json.dumps(given["samples"]))
            arguments += ["--samples", self.dir / "rows.json"]
        if run["model_args"].get("add_bos_token") is False:
            arguments += ["--compat-bos", "off"]
        if "max_length" in run["model_args"]:
            arguments += ["--max-length", run["model_args"]["max_length"]]
        self.check(NAME, *arguments)
        (result,) = glob.glob(f"{self.dir}/out/*/results_*.json")
        (samples,) = glob.glob(f"{self.dir}/out/*/samples_*.jsonl")
        with open(samples) as lines:
            samples = [json.loads(line) for line in lines]
        return json.loads(pathlib.Path(result).read_text()), {sample["doc_id"]: sample for sample in samples}

    def check_likelihood(self, found, wanted, where):
        self.assertTrue(abs(found - wanted) <= 1e-4 + 2e-6 * abs(wanted), f"{where}: {found} != {wanted}")

    def check_aggregates(self, run, result, flipped):
        """Scores follow from the rows: equal unless a row flipped, perplexities as near as their likelihoods."""
        for task, wanted in run["results"].items():
            found = result["results"][task]
            self.assertEqual(list(found), list(wanted))
            for key, value in wanted.items():
                if isinstance(value, float) and "perplexity" in key:
                    self.assertAlmostEqual(found[key] / value, 1, delta=2e-3 if "stderr" in key else 2e-4)
                elif isinstance(value, float) and not flipped:
                    self.assertAlmostEqual(found[key], value, delta=1e-12)
                elif not isinstance(value, float):
                    self.assertEqual(found[key], value)
            self.assertEqual(result["versions"][task], run["versions"][task])
            self.assertEqual(result["n-shot"][task], run["n-shot"][task])
            self.assertEqual(result["higher_is_better"][task], run["higher_is_better"][task])

    def flips(self, name, found, wanted, requests):
        """Whether a metric differs, which it may where the two best answers are nearer than the tolerance."""
        if found == wanted:
            return False
        best = sorted((score / (len(text) - 1 if name == "acc_norm" else 1) for text, score in requests), reverse=True)
        self.assertLess(best[0] - best[1], 3e-4, f"{name} {found} != {wanted}: {requests}")
        return True

    def check_file(self, name, *options):
        run, wanted = self.golden(name)
        result, samples = self.evaluate(run, *options)
        self.assertEqual(len(samples), len(wanted))
        flipped = False
        for document in wanted:
            sample = samples[document["doc_id"]]
            where = f"{name} row {document['doc_id']}"
            for key in ("prompt_hash", "target_hash"):
                self.assertEqual(sample[key], document[key], where)
            self.assertEqual(sample["target"], str(document["target"]))
            requests = list(sample["arguments"].values())
            self.assertEqual([r["arg_1"] for r in requests], [r[0] for r in document["requests"]], where)
            if "context" in document:
                self.assertEqual(requests[0]["arg_0"], document["context"])
            for (score, greedy), (_, likelihood, is_greedy) in zip(sample["filtered_resps"], document["requests"]):
                self.check_likelihood(float(score), likelihood, where)
                self.assertEqual(greedy, str(is_greedy), where)
            scores = [(text, score) for text, score, _ in document["requests"]]
            for metric in sample["metrics"]:
                if metric == "perplexity":
                    self.check_likelihood(sample[metric], document[metric], where)
                else:
                    self.assertEqual(type(sample[metric]), type(document[metric]))
                    flipped |= self.flips(metric, sample[metric], document[metric], scores)
        self.check_aggregates(run, result, flipped)

    def check_full(self, name):
        """The compact files: all rows of a benchmark."""
        run, wanted = self.golden(name)
        result, samples = self.evaluate(run)
        self.assertEqual(len(samples), len(wanted))
        flipped = False
        for doc_id, prompt_hash, likelihoods, *metrics in wanted:
            sample = samples[doc_id]
            where = f"{name} row {doc_id}"
            self.assertEqual(sample["prompt_hash"][:16], prompt_hash, where)
            self.assertEqual(len(sample["filtered_resps"]), len(likelihoods))
            for (score, _), likelihood in zip(sample["filtered_resps"], likelihoods):
                self.check_likelihood(float(score), likelihood, where)
            texts = [request["arg_1"] for request in sample["arguments"].values()]
            names = [metric for metric in sample["metrics"] if metric != "perplexity"]
            for metric, value in zip(names, metrics, strict=True):
                flipped |= self.flips(metric, sample[metric], value, list(zip(texts, likelihoods)))
        self.check_aggregates(run, result, flipped)

    def test_arc_easy(self):
        self.check_file("arc_easy.0shot")

    def test_arc_easy_with_examples(self):
        self.check_file("arc_easy.25shot")

    def test_arc_easy_of_another_model(self):
        self.check_file("arc_easy.25shot.spm512")

    def test_arc_easy_cut_on_the_left(self):
        self.check_file("arc_easy.2shot.maxlen64")

    def test_hellaswag(self):
        self.check_file("hellaswag.0shot")

    def test_hellaswag_with_examples_that_hold_the_row(self):
        self.check_file("hellaswag.10shot")

    def test_lambada(self):
        self.check_file("lambada_openai.0shot")

    def test_lambada_without_bos(self):
        self.check_file("lambada_openai.0shot.nobos")

    def test_sciq(self):
        self.check_file("sciq.0shot")

    def test_all_rows_of_hellaswag(self):
        self.check_full("full.hellaswag.0shot")

    def test_all_rows_of_sciq(self):
        self.check_full("full.sciq.0shot")

    def test_many_rows_of_lambada(self):
        self.check_full("full.lambada_openai.0shot.first500")

    def test_files_are_laid_out_as_the_harnesss(self):
        folder = self.data("golden", "eval", "stock-output")
        (stock,) = [json.loads(path.read_text()) for path in folder.glob("results_*57-12*.json")]
        run = {"model": "ts656k", "tasks": ["arc_easy"], "model_args": {}, "options": {"num_fewshot": 3, "limit": 6}}
        result, samples = self.evaluate(run)
        keys = [key for key in stock if key != "groups"]  # no group was run
        self.assertEqual([key for key in result if key not in ("start_time", "end_time", "keel")], keys)
        self.assertEqual(list(result["config"]), list(stock["config"]))
        for section in ("results", "configs"):
            self.assertEqual(list(result[section]["arc_easy"]), list(stock[section]["arc_easy"]))
        config, wanted = result["configs"]["arc_easy"], stock["configs"]["arc_easy"]
        self.assertEqual({**config, "metadata": None}, {**wanted, "metadata": None})
        self.assertEqual(list(config), list(wanted))
        self.assertEqual(result["n-samples"]["arc_easy"], stock["n-samples"]["arc_easy"])
        self.assertEqual(result["task_hashes"]["arc_easy"], stock["task_hashes"]["arc_easy"])
        for key in ("tokenizer_pad_token", "tokenizer_eos_token", "tokenizer_bos_token", "eot_token_id", "max_length",
                    "lm_eval_version"):
            self.assertEqual(result[key], stock[key], key)
        lines = next(folder.glob("samples_arc_easy_*")).read_text().splitlines()
        for line in map(json.loads, lines):
            sample = samples[line["doc_id"]]
            self.assertEqual(list(sample), list(line))
            for key in ("doc", "doc_hash", "prompt_hash", "target_hash", "arguments", "target", "filter", "metrics"):
                self.assertEqual(sample[key], line[key], key)
            for (score, greedy), (wanted, is_greedy) in zip(sample["filtered_resps"], line["filtered_resps"]):
                self.check_likelihood(float(score), float(wanted), line["doc_id"])
                self.assertEqual(greedy, is_greedy)

    def test_rows_whose_answer_has_no_token(self):
        wanted = json.loads(self.data("golden", "eval", "empty_continuations.ts656k.json").read_text())
        first = min(map(int, wanted["lambada_openai"]["empty continuation"]))
        arguments = (self.model("ts656k"), "--tasks", "lambada_openai", "--data", self.rows(), "--limit", first + 1)
        error = self.check(NAME, *arguments, code=3).stderr
        self.assertIn(f"lambada_openai: row {first}, request 0", error)
        self.assertIn("--empty-continuation alone", error)
        self.check(NAME, *arguments, "--empty-continuation", "alone")
