"""Golden wiring cases through keel-train --init alone: 20 training steps and the first step's gradients.

A golden sequence has T inputs and T targets and shares no token with its neighbours, while keel-train cuts sequences from
one stream. So each one becomes T + 1 tokens of the stream, read as a sequence of T + 1 whose last target, the first token
of the next, is masked out."""
import json
import math
import re

from keel_files import read_lines, read_safetensors, write_megatron
from keel_tools import ToolTest
from wiring_cases import wiring_cases, write_case


def stream(data, packed, masked):
    """(documents, mask) of all golden sequences one after the other, and one token more."""
    (batches, size, length), tokens = data["tokens"][0], data["tokens"][1]
    loss_mask = data["loss_mask"][1]
    flat, mask = [], []
    for i in range(batches * size):
        row = tokens[i * length:(i + 1) * length]
        flat += row
        mask += [0] + [loss_mask[i * (length - 1) + t] if masked else 1 for t in range(length - 1)]
    flat, mask = flat + [0], mask + [0]
    documents = [[]]
    for token in flat:
        documents[-1].append(token)
        if packed and token == 0:
            documents.append([])
    return [d for d in documents if d], mask


def norm(values):
    return math.sqrt(math.fsum(v * v for v in values))


def probe(values):
    return math.fsum(v * math.cos(i) for i, v in enumerate(values))


class GoldenWiring(ToolTest):
    def cases(self):
        folder = self.data("golden", "wiring")
        return [(folder, case) for case in wiring_cases(folder)]

    def prepare(self, folder, case, options):
        """Writes data, model folder and config; returns keel-train's arguments."""
        work = self.dir / case["case"]
        data = read_safetensors(folder / case["files"]["data"])
        length = data["tokens"][0][2]
        batch = data["tokens"][0][1]
        write_case(folder, case, work, length)
        documents, mask = stream(data, case["options"]["packed"], case["options"]["masked"])
        write_megatron(work / "data", documents, mask)
        optimizer = case["optimizer"]
        accumulate = case["options"]["accumulate"]
        deep = case["options"].get("deep", False)
        settings = json.loads((folder / "set.json").read_text())
        config = {
            "data": {"sequence_length": length, "shuffle": False, "document_mask": case["options"]["packed"]},
            "train": {"steps": len(optimizer["lr"]), "batch_sequences": batch * accumulate, "micro_batch_sequences": options.get("micro", batch)},
            "optimizer": {"learning_rate": settings["deep_peak_lr" if deep else "peak_lr"], "betas": optimizer["betas"], "eps": optimizer["eps"],
                          "weight_decay": optimizer["weight_decay"], "decay_on": optimizer["decayed"],
                          "clip": "off" if optimizer["clip"] is None else optimizer["clip"]},
            "schedule": {"name": "cosine", "warmup_steps": settings["warmup"], "final_learning_rate": settings["min_lr"]},
            "checkpoint": {"at": [1]},
        }
        (work / "train.json").write_text(json.dumps(config))
        return work, ["--config", work / "train.json", "--data", work / "data", "--init", work, "--out", work / "run", "--progress", "none", "--threads", "1"]

    def check_training(self, work, case):
        keel_deep = case["case"] == "keel_deep"
        deep = case["options"].get("deep", False)
        lines = [line for line in read_lines(work / "run" / "metrics.jsonl") if "loss" in line]
        self.assertEqual([line["step"] for line in lines], list(range(1, 21)))
        for line, loss, grad_norm, rate in zip(lines, case["train"]["loss"], case["train"]["grad_norm"], case["optimizer"]["lr"]):
            self.assertLessEqual(abs(line["loss"] / loss - 1), 2e-6, line)
            self.assertLessEqual(abs(line["grad_norm"] / grad_norm - 1), 2e-3 if deep else 1e-5, line)
            self.assertLessEqual(abs(line["learning_rate"] - rate), 4e-16 * rate, line)
        self.assertLessEqual(abs(lines[0]["loss"] - case["step0"]["loss"]), 2e-6)
        self.assertLessEqual(abs(lines[0]["grad_norm"] / case["step0"]["grad_norm"] - 1), 5e-5 if keel_deep else 1e-6)
        final = read_safetensors(work / "run" / "checkpoints" / "step-00000020" / "model.safetensors")
        self.assertEqual(set(final), set(case["parameters"]))
        for name, pinned in case["train"]["final_weights"].items():
            values = final[name][1]
            self.assertEqual(final[name][0], case["parameters"][name]["shape"])
            self.assertLessEqual(abs(norm(values) - pinned["norm"]), 5e-5 * pinned["norm"], name)
            self.assertLessEqual(abs(probe(values) - pinned["probe"]), 5e-5 * pinned["norm"] * math.sqrt(len(values)), name)

    def check_gradients(self, folder, work, case):
        """AdamW's first average after one step is (1 - beta1) times the clipped gradient."""
        optimizer, pinned = case["optimizer"], case["step0"]
        scale = 1.0 if optimizer["clip"] is None else min(1.0, optimizer["clip"] / (pinned["grad_norm"] + 1e-6))
        scale *= 1 - optimizer["betas"][0]
        tolerance = 3e-4 if case["case"] == "keel_deep" else 1e-5
        state = read_safetensors(work / "run" / "checkpoints" / "step-00000001" / "optimizer-00000.safetensors")
        expected = read_safetensors(folder / case["files"]["expect"])
        for name, g in pinned["grads"].items():
            values = [v / scale for v in state["exp_avg." + name][1]]
            self.assertLessEqual(abs(norm(values) - g["norm"]), tolerance * g["norm"], name)
            self.assertLessEqual(abs(probe(values) - g["probe"]), tolerance * g["norm"] * math.sqrt(len(values)), name)
            if "grad." + name in expected:
                difference = [a - b for a, b in zip(values, expected["grad." + name][1])]
                self.assertLessEqual(norm(difference), tolerance * g["norm"], name)

    def test_every_case(self):
        count = 0
        for folder, case in self.cases():
            with self.subTest(case=case["case"]):
                work, arguments = self.prepare(folder, case, {})
                self.check("keel-train", *arguments)
                self.check_training(work, case)
                self.check_gradients(folder, work, case)
            count += 1
        self.assertGreaterEqual(count, 36)

    def test_one_sequence_at_a_time(self):
        """Accumulating over single sequences is the same mean over target tokens."""
        for folder, case in self.cases():
            if case["case"] not in ("keel_sft_accum2", "pre_packed", "keel_tied"):
                continue
            with self.subTest(case=case["case"]):
                work, arguments = self.prepare(folder, case, {"micro": 1})
                self.check("keel-train", *arguments)
                self.check_training(work, case)

    def check_profile(self, results, case):
        """Gradients of streams and tensors. The masked last position of each sequence has no part in them."""
        tolerance = 3e-4 if case["case"] == "keel_deep" else 1e-5
        found = [s["stream_gradient_norm"] for s in [*results["sublayers"], results["last_stream"]]]
        expected = case["step0"]["stream_grad_norm"]
        self.assertEqual(len(found), len(expected))
        if case["options"]["accumulate"] == 1:  # else they are of the first micro-batch alone
            for l, value in enumerate(found):
                self.assertLessEqual(abs(value / expected[l] - 1), tolerance, l)
        for name, pinned in case["step0"]["grads"].items():
            place = re.fullmatch(r"model\.layers\.(\d+)\.(?:self_attn\.|mlp\.)?(.+?)(?:\.weight)?", name)
            if not place:
                continue
            block, kind = int(place[1]), place[2]
            owners = [s for s in results["sublayers"][2 * block:2 * block + 2] if kind in s["weight_gradient_norm"]]
            self.assertEqual(len(owners), 1, name)
            self.assertLessEqual(abs(owners[0]["weight_gradient_norm"][kind] / pinned["norm"] - 1), tolerance, name)

    def test_gradient_profiles(self):
        count = 0
        for folder, case in self.cases():
            with self.subTest(case=case["case"]):
                work, arguments = self.prepare(folder, case, {})
                report = self.check("keel-analyze", "gradients", work, *arguments[:4], "--threads", "1", "--progress", "none").stdout
                self.check_profile(json.loads(report)["results"], case)
            count += 1
        self.assertGreaterEqual(count, 36)
