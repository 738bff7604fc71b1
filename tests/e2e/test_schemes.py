"""Every residual scheme through keel-train: whole runs, stops, recomputation, starts, configs that contradict themselves."""
import json
import math

from keel_files import read_safetensors
from keel_tools import schemes
from test_train import TrainTest, config


def scheme_config(scheme, **changes):
    c = config(**{"model__num_hidden_layers": 3, "model__residual_scheme": scheme, "train__steps": 6, "checkpoint__every_steps": 3, **changes})
    del c["validate"]
    return c


class Runs(TrainTest):
    def test_resume_gives_the_bits_of_a_run_without_a_stop(self):
        for scheme in schemes():
            with self.subTest(scheme=scheme):
                learnable = {"model__learnable_alpha": True} if scheme.startswith("keel") or scheme == "deepnorm" else {}
                self.write_config(scheme_config(scheme, **learnable))
                self.train("whole", ["--force"])
                self.train("stopped", ["--force"])
                (self.dir / "stopped" / "report.json").unlink()
                last = self.dir / "stopped" / "checkpoints" / "step-00000006"
                for path in last.iterdir():
                    path.unlink()
                last.rmdir()
                resumed = self.train("stopped", ["--resume"])
                self.assertIn("resumed from step 3", resumed.stderr)
                self.assertEqual(self.metrics("stopped"), self.metrics("whole"))
                self.assertEqual(self.weights("stopped", 6), self.weights("whole", 6))
                losses = [line["loss"] for line in self.metrics("whole") if "loss" in line]
                self.assertLess(losses[-1], losses[0])

    def test_recomputation_changes_no_bit(self):
        for scheme in schemes():
            self.write_config(scheme_config(scheme))
            self.train("none", ["--force"])
            for mode in ("branch", "block", "every:2", "every:100"):
                with self.subTest(scheme=scheme, mode=mode):
                    self.train("again", ["--force", "--set", f"train.recompute={mode}"])
                    self.assertEqual(self.metrics("again"), self.metrics("none"))
                    self.assertEqual(self.weights("again", 6), self.weights("none", 6))

    def test_activations_in_bf16(self):
        """The first loss is that of fp32 to the bit, the run comes as far, and recomputation still changes no bit."""
        for scheme in schemes():
            with self.subTest(scheme=scheme):
                self.write_config(scheme_config(scheme))
                self.train("exact", ["--force"])
                self.train("rounded", ["--force", "--set", "train.activations=bf16"])
                exact, rounded = ([line["loss"] for line in self.metrics(run) if "loss" in line] for run in ("exact", "rounded"))
                self.assertEqual(rounded[0], exact[0])
                self.assertNotEqual(rounded, exact)
                # Gradients are off by about 1 %; AdamW's first steps, which are little more than signs, by some more.
                for a, b in zip(rounded, exact):
                    self.assertLessEqual(abs(a / b - 1), 2e-3)
                for mode in ("branch", "block", "every:2"):
                    self.train("again", ["--force", "--set", "train.activations=bf16", "--set", f"train.recompute={mode}"])
                    self.assertEqual(self.metrics("again"), self.metrics("rounded"), mode)
                    self.assertEqual(self.weights("again", 6), self.weights("rounded", 6), mode)

    def test_activations_in_bf16_train_as_far(self):
        for scheme in ("keel", "pre", "post"):
            with self.subTest(scheme=scheme):
                self.write_config(scheme_config(scheme, train__steps=60, checkpoint__every_steps=60))
                found = []
                for activations in ("fp32", "bf16"):
                    self.train(activations, ["--force", "--set", f"train.activations={activations}"])
                    found.append([line["loss"] for line in self.metrics(activations) if "loss" in line])
                exact, rounded = found
                self.assertLess(exact[-1], exact[0] / 2)
                self.assertLessEqual(abs(rounded[-1] - exact[-1]), 0.01 * (exact[0] - exact[-1]))

    def test_a_run_keeps_its_type_of_activations(self):
        self.write_config(scheme_config("keel"))
        self.train("run", ["--set", "train.activations=bf16", "--steps", "3", "--set", "schedule.name=constant"])
        self.train("run", ["--resume", "--steps", "6"])
        self.train("whole", ["--set", "train.activations=bf16", "--set", "schedule.name=constant"])
        self.assertEqual(self.metrics("run"), self.metrics("whole"))
        for arguments in (["--set", "train.activations=fp32"], ["--override", "train.activations=fp32"]):
            said = self.train("run", ["--resume", "--steps", "9", *arguments], code=2).stderr
            self.assertIn("can't change within a run", said)

    def test_automatic_recomputation_changes_no_bit(self):
        changes = {"model__num_hidden_layers": 8, "data__sequence_length": 64, "train__micro_batch_sequences": 4, "checkpoint__every_steps": 6}
        self.write_config(scheme_config("keel", **changes))
        self.train("none")
        self.check("keel-train", *self.arguments("none"), "--plan", "--report", self.dir / "plan.json", "--force")
        needed = json.loads((self.dir / "plan.json").read_text())["results"]["memory"]
        limit = needed["total_bytes"] - needed["activations_bytes"] // 3
        said = self.train("auto", ["--set", "train.recompute=auto", "--set", f"train.memory_limit={limit}"]).stderr
        chosen = [json.loads((self.dir / "auto" / name).read_text())[part]["recompute"] for name, part in (("run.json", "resolved"), ("report.json", "results"))]
        self.assertRegex(chosen[0], r"^every:[2-7]$")
        self.assertEqual(chosen[1], chosen[0])
        self.assertIn(f"train.recompute=auto is {chosen[0]}", said)
        self.assertEqual(self.metrics("auto"), self.metrics("none"))
        self.assertEqual(self.weights("auto", 6), self.weights("none", 6))

    def test_recomputation_can_begin_in_the_middle_of_a_run(self):
        self.write_config(scheme_config("keel"))
        self.train("none")
        self.train("again", ["--steps", "3", "--set", "schedule.name=constant"])
        said = self.train("again", ["--resume", "--steps", "6", "--set", "train.recompute=block"], code=2).stderr
        self.assertIn("use --override train.recompute=", said)
        self.train("again", ["--resume", "--steps", "6", "--override", "train.recompute=block"])
        self.assertEqual(self.metrics("again"), self.metrics("none"))
        self.assertEqual(self.weights("again", 6), self.weights("none", 6))

    def test_documents_and_accumulation_in_every_scheme(self):
        """Micro-batches of one and of all sequences, of documents that do not see each other."""
        for scheme in schemes():
            with self.subTest(scheme=scheme):
                changes = {"data__document_mask": True, "train__steps": 2, "checkpoint__every_steps": 2}
                found, start = [], []
                if scheme == "admin":  # its start depends on the micro-batch
                    self.write_config(scheme_config(scheme))
                    self.train("start", ["--force"])
                    start = ["--init", self.dir / "start"]
                for micro in (1, 4):
                    self.write_config(scheme_config(scheme, train__micro_batch_sequences=micro, **changes))
                    self.train(f"micro-{micro}", ["--force", *start])
                    found.append([(line["loss"], line["grad_norm"]) for line in self.metrics(f"micro-{micro}") if "loss" in line])
                for one, all_at_once in zip(*found):
                    for a, b in zip(one, all_at_once):
                        self.assertLessEqual(abs(a / b - 1), 1e-5)


class Starts(TrainTest):
    def start_of(self, scheme, *extra, **changes):
        """Weights of a run whose only step changes nothing."""
        self.write_config(scheme_config(scheme, train__steps=1, checkpoint__every_steps=1, optimizer__learning_rate=0, **changes))
        self.train("start", ["--force", "--set", "schedule.final_learning_rate=0", *extra])
        return read_safetensors(self.dir / "start" / "checkpoints" / "step-00000001" / "model.safetensors")

    def deviation(self, tensors, name):
        values = tensors[f"model.layers.1.{name}.weight"][1]
        return math.sqrt(math.fsum(v * v for v in values) / len(values))

    def test_factors_of_the_schemes(self):
        beta, hybrid = (8 * 3) ** -0.25, (2 * 3) ** -0.5
        factors = {"deepnorm": {"self_attn.v_proj": beta, "self_attn.o_proj": beta, "mlp.gate_proj": beta, "mlp.up_proj": beta,
                                "mlp.down_proj": beta, "self_attn.q_proj": 1},
                   "hybrid": {"self_attn.o_proj": hybrid, "mlp.down_proj": hybrid, "mlp.up_proj": 1, "self_attn.v_proj": 1}}
        plain = self.start_of("keel")
        for scheme, names in factors.items():
            own, without = self.start_of(scheme), self.start_of(scheme, "--set", "model.init=plain")
            for name, factor in names.items():
                with self.subTest(scheme=scheme, name=name):
                    self.assertAlmostEqual(self.deviation(own, name) / self.deviation(plain, name), factor, delta=1e-6)
                    self.assertEqual(self.deviation(without, name), self.deviation(plain, name))

    def test_learned_scales(self):
        self.assertEqual(list(self.start_of("rezero")["model.layers.2.residual_scale"][1]), [0])
        self.assertEqual(set(self.start_of("keel_attempt3")["model.layers.1.feedforward_input_scale"][1]), {1})
        exponent = self.start_of("keel", model__learnable_alpha=True)["model.layers.1.attention_skip_exponent"][1]
        self.assertEqual(list(exponent), [0])
        lambdas = self.start_of("layerscale", "--set", "model.layerscale_init=0.25")["model.layers.1.attention_branch_scale"][1]
        self.assertEqual(set(lambdas), {0.25})

    def test_admin_starts_from_a_batch(self):
        omegas = []
        tensors = self.start_of("admin")
        for block in range(3):
            for branch in ("attention", "feedforward"):
                values = set(tensors[f"model.layers.{block}.{branch}_skip_scale"][1])
                self.assertEqual(len(values), 1)
                omegas.append(values.pop())
        self.assertEqual(omegas[0], 1)
        # The embedding's standard deviation is 0.02, and the first branches are much smaller.
        self.assertEqual(len(set(omegas)), 6)
        for omega in omegas[1:]:
            self.assertAlmostEqual(omega, 0.02, delta=0.003)
        frozen = scheme_config("admin", model__admin_frozen=True)
        self.write_config(frozen)
        self.train("frozen", ["--force"])
        for block in range(3):
            name = f"model.layers.{block}.attention_skip_scale"
            first, last = (read_safetensors(self.dir / "frozen" / "checkpoints" / f"step-0000000{n}" / "model.safetensors")[name][1] for n in (3, 6))
            self.assertEqual(first, last)


class Contradictions(TrainTest):
    def test_are_refused_by_name_and_value(self):
        cases = [(["residual_scheme=kel"], "residual_scheme 'kel'", "did you mean 'keel'"),
                 (["residual_scheme=pre", "residual_alpha=2.5"], "residual_alpha 2.5", "scheme 'pre'"),
                 (["residual_alpha=0"], "residual_alpha must be a number above 0", "found 0"),
                 (["residual_scheme=lns", "learnable_alpha=true"], "learnable_alpha true", "scheme 'lns'"),
                 (["mix_fraction=0.5"], "mix_fraction 0.5", "scheme 'keel'"),
                 (["residual_scheme=mix", "mix_fraction=1.5"], "mix_fraction must be a number from 0 to 1", "found 1.5"),
                 (["residual_scheme=mix", "mix_fraction=-0.1"], "mix_fraction must be a number from 0 to 1", "found -0.1"),
                 (["admin_frozen=true"], "admin_frozen true", "scheme 'keel'"),
                 (["residual_scheme=olmo2", "qk_norm=true"], "qk_norm true", "scheme 'olmo2'"),
                 (["layerscale_init=0.1"], "layerscale_init 0.1", "scheme 'keel'"),
                 (["norm_type=layer"], "norm_type", "rms, ln"),
                 (["hidden_size=18", "num_attention_heads=4"], "hidden_size 18", "num_attention_heads 4"),
                 (["num_key_value_heads=3", "num_attention_heads=4"], "num_attention_heads 4", "num_key_value_heads 3"),
                 (["head_dim=7"], "head_dim 7", "odd")]
        for settings, *words in cases:
            with self.subTest(settings=settings):
                said = self.train("refused", [word for s in settings for word in ("--set", f"model.{s}")], code=2).stderr
                for word in words:
                    self.assertIn(word, said)
                self.assertFalse((self.dir / "refused").exists())

    def test_types_and_recomputation(self):
        for scheme in ("keel", "keel_v1", "post", "deepnorm", "hybrid", "mix", "admin"):
            said = self.train("refused", ["--set", f"model.residual_scheme={scheme}", "--set", "train.stream_dtype=bf16"], code=2).stderr
            self.assertIn(f"train.stream_dtype bf16 with scheme '{scheme}'", said)
        for mode in ("every:0", "every:", "every:-1", "every:2x", "all", "Block"):
            said = self.train("refused", ["--set", f"train.recompute={mode}"], code=2).stderr
            self.assertIn(f"train.recompute '{mode}'", said)
            self.assertIn("none, branch, block, every:K", said)
