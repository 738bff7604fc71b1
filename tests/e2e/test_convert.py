"""keel-convert as its users meet it: round trips, dtypes, shards, --verify, --info, misuse, full disks, kills."""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

from keel_files import write_megatron
from keel_tools import ToolTest, tool
from model_folders import llama_config, random_tensors, read_tensors, write_model, write_weights

FAMILIES = {
    "llama": llama_config(attention_bias=True, mlp_bias=True, rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                                            "high_freq_factor": 4.0, "original_max_position_embeddings": 16}),
    "mistral": llama_config(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=5),
    "qwen2": llama_config(model_type="qwen2", architectures=["Qwen2ForCausalLM"], use_sliding_window=True, sliding_window=6,
                          max_window_layers=1, tie_word_embeddings=True),
    "qwen3": llama_config(model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=6, tie_word_embeddings=True),
    "olmo2": llama_config(model_type="olmo2", architectures=["Olmo2ForCausalLM"], attention_bias=True),
}
# Options of schemes, as keel-train's config and a folder's config.json have them, and the family that they export as.
SCHEMES = [
    ("keel", dict(residual_scheme="keel", residual_alpha=2.5, learnable_alpha=True)), ("keel", dict(residual_scheme="keel_v1", norm_type="ln")),
    ("keel", dict(residual_scheme="keel_attempt1")), ("keel", dict(residual_scheme="keel_attempt2", learnable_alpha=True)),
    ("keel", dict(residual_scheme="keel_attempt3")), ("llama", dict(residual_scheme="pre", norm_type="rms")),
    ("keel", dict(residual_scheme="pre", norm_type="ln")), ("keel", dict(residual_scheme="post", final_norm=True)),
    ("keel", dict(residual_scheme="deepnorm", norm_type="rms", learnable_alpha=True)), ("keel", dict(residual_scheme="hybrid")),
    ("keel", dict(residual_scheme="hybrid_star", norm_type="ln")), ("keel", dict(residual_scheme="mix", mix_fraction=0.5)),
    ("keel", dict(residual_scheme="admin")), ("keel", dict(residual_scheme="admin", admin_frozen=True)),
    ("keel", dict(residual_scheme="lns")), ("keel", dict(residual_scheme="sandwich")), ("olmo2", dict(residual_scheme="olmo2")),
    ("keel", dict(residual_scheme="olmo2", final_norm=False)), ("keel", dict(residual_scheme="rezero")),
    ("keel", dict(residual_scheme="layerscale", final_norm=False)),
]


class ConvertTest(ToolTest):
    def convert(self, source, destination, *extra, code=0, **keywords):
        return self.check("keel-convert", source, self.dir / destination, "--progress", "none", *extra, code=code, **keywords)

    def config(self, name):
        return json.loads((self.dir / name / "config.json").read_text())

    def trained(self, **model):
        """A run of a few steps and its newest checkpoint."""
        write_megatron(self.dir / "data", [[(7 * i) % 61 for i in range(50)]] * 20)
        config = {"model": {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                            "num_attention_heads": 2, **model},
                  "data": {"sequence_length": 16}, "train": {"steps": 3, "batch_sequences": 4},
                  "optimizer": {"learning_rate": 0.01}, "schedule": {"name": "constant"}}
        (self.dir / "train.json").write_text(json.dumps(config))
        self.check("keel-train", "--config", self.dir / "train.json", "--data", self.dir / "data", "--out", self.dir / "run",
                   "--progress", "none")
        return self.dir / "run" / "checkpoints" / "step-00000003"

    def left_behind(self):
        return [path.name for path in self.dir.iterdir() if ".tmp." in path.name]


class RoundTrips(ConvertTest):
    def test_families_through_keel_and_back(self):
        for number, (family, config) in enumerate(FAMILIES.items()):
            dtype, shards = ("F32", "BF16", "F16")[number % 3], 1 + number % 2
            with self.subTest(family=family, dtype=dtype, shards=shards):
                source = write_model(self.dir / family, {**config, "custom": {"kept": [1]}}, dtype, shards)
                self.convert(source, f"{family}-keel", "--to", "keel", "--verify")
                self.convert(self.dir / f"{family}-keel", f"{family}-hf", "--to", "hf", "--verify", "--max-shard-size", "1KB")
                before = read_tensors(source)
                self.assertEqual(read_tensors(self.dir / f"{family}-keel"), before)
                self.assertEqual(read_tensors(self.dir / f"{family}-hf"), before)
                after = self.config(f"{family}-hf")
                self.assertEqual((after["model_type"], after["architectures"]), (family, config["architectures"]))
                self.assertEqual(after["custom"], {"kept": [1]})
                self.assertEqual(self.config(f"{family}-keel")["model_type"], "keel")
                self.assertEqual((self.dir / f"{family}-hf" / "tokenizer.json").read_bytes(), (source / "tokenizer.json").read_bytes())
                for key in ("num_key_value_heads", "rope_theta", "rms_norm_eps", "eos_token_id", "max_position_embeddings"):
                    self.assertEqual(after[key], config[key], key)

    def test_shards_hold_whole_tensors_up_to_the_limit(self):
        source = write_model(self.dir / "source")
        self.convert(source, "out", "--to", "hf", "--max-shard-size", "2KB")
        index = json.loads((self.dir / "out" / "model.safetensors.index.json").read_text())
        tensors = read_tensors(source)
        self.assertEqual(set(index["weight_map"]), set(tensors))
        self.assertEqual(index["metadata"]["total_size"], sum(len(raw) for _, _, raw in tensors.values()))
        sizes = {}
        for name, file in index["weight_map"].items():
            sizes.setdefault(file, []).append(len(tensors[name][2]))
        self.assertGreater(len(sizes), 3)
        for file, parts in sizes.items():
            self.assertTrue(sum(parts) <= 2000 or len(parts) == 1, (file, parts))
        self.assertFalse((self.dir / "out" / "model.safetensors").exists())

    def test_runs_and_checkpoints(self):
        checkpoint = self.trained(residual_scheme="pre")
        self.convert(self.dir / "run", "hf", "--to", "hf", "--verify")
        self.convert(checkpoint, "hf2", "--to", "hf")
        self.assertEqual(self.config("hf")["architectures"], ["LlamaForCausalLM"])
        self.assertEqual(read_tensors(self.dir / "hf"), read_tensors(checkpoint))
        self.convert(self.dir / "hf", "keel", "--to", "keel")
        self.assertEqual(read_tensors(self.dir / "keel"), read_tensors(checkpoint))
        self.assertEqual((self.dir / "hf2" / "config.json").read_bytes(), (self.dir / "hf" / "config.json").read_bytes())

    def test_keel_models_carry_their_code(self):
        self.trained()
        self.convert(self.dir / "run", "hf", "--to", "hf")
        self.assertEqual(self.config("hf")["architectures"], ["KeelForCausalLM"])
        self.assertEqual(len(self.config("hf")["residual_wiring"]), 4)
        for file in ("configuration_keel.py", "modeling_keel.py"):
            subprocess.run([sys.executable, "-m", "py_compile", self.dir / "hf" / file], check=True)
        self.convert(self.dir / "hf", "back", "--to", "keel")
        self.assertEqual(read_tensors(self.dir / "back"), read_tensors(self.dir / "run" / "checkpoints" / "step-00000003"))
        self.assertNotIn("auto_map", self.config("back"))

    def test_every_scheme_and_option(self):
        listed = json.loads(self.check("keel-analyze", "wiring", "--list-schemes", "--json").stdout)
        self.assertEqual({scheme["name"] for scheme in listed}, {model["residual_scheme"] for _, model in SCHEMES})
        for family, model in SCHEMES:
            with self.subTest(**model):
                for name in ("run", "hf", "keel"):
                    shutil.rmtree(self.dir / name, ignore_errors=True)
                checkpoint = self.trained(**model)
                self.convert(checkpoint, "hf", "--to", "hf", "--verify")
                self.convert(self.dir / "hf", "keel", "--to", "keel", "--verify")
                before = read_tensors(checkpoint)
                self.assertEqual(read_tensors(self.dir / "hf"), before)
                self.assertEqual(read_tensors(self.dir / "keel"), before)
                self.assertEqual(self.config("hf")["model_type"], family)
                told = json.loads(self.check("keel-convert", checkpoint, "--info", "--json").stdout)
                self.assertEqual(told["exports_as"], family)
                said = self.check("keel-convert", checkpoint, "--info").stdout
                for key, value in model.items():
                    self.assertEqual(told["config"][key], value)
                    shown = {True: "", False: " false"}.get(value, f" {value}")
                    self.assertIn("residual scheme" + shown if key == "residual_scheme" else key + shown, said)
                if family != "keel":
                    continue
                for key, value in model.items():
                    self.assertEqual(self.config("hf")[key], value)
                    self.assertEqual(self.config("keel")[key], value)

    def test_options_of_other_schemes_stay_in_keel_folders(self):
        config = llama_config(model_type="keel", architectures=["KeelForCausalLM"], residual_scheme="pre", mix_fraction=0.75,
                              admin_frozen=True, learnable_alpha=False, norm_type=None)
        source = write_model(self.dir / "source", config)
        self.convert(source, "keel", "--to", "keel")
        for key in ("mix_fraction", "admin_frozen", "learnable_alpha", "norm_type"):
            self.assertEqual(self.config("keel")[key], config[key])
        self.convert(source, "hf", "--to", "hf")
        self.assertEqual(self.config("hf")["model_type"], "llama")
        self.assertEqual({"mix_fraction", "admin_frozen", "learnable_alpha", "norm_type", "residual_scheme"} & set(self.config("hf")), set())

    def test_dtypes_round_to_nearest_even(self):
        config = llama_config()
        tensors = random_tensors(config)
        name = "model.norm.weight"
        values = (1.00390625, 1.01171875, -0.0, 1e-40, 65504.0, 0.1, -4.2617e-06, 2.0)
        tensors[name] = ("F32", [8], struct.pack("<8f", *values))
        source = write_model(self.dir / "source", config)
        write_weights(source, tensors)
        self.convert(source, "bf16", "--to", "hf", "--dtype", "bf16", "--verify")
        self.assertEqual(struct.unpack("<8H", read_tensors(self.dir / "bf16")[name][2])[:4], (0x3F80, 0x3F82, 0x8000, 0x0001))
        self.assertEqual(self.config("bf16")["torch_dtype"], "bfloat16")
        self.convert(source, "f16", "--to", "keel", "--dtype", "f16", "--verify")
        self.assertEqual(read_tensors(self.dir / "f16")[name][2], struct.pack("<8e", *values))
        self.convert(self.dir / "f16", "f32", "--to", "keel", "--dtype", "f32", "--verify")
        self.assertEqual(struct.unpack("<8f", read_tensors(self.dir / "f32")[name][2]), struct.unpack("<8e", struct.pack("<8e", *values)))
        tensors[name] = ("F32", [8], struct.pack("<8f", *([70000.0] * 8)))
        write_weights(source, tensors)
        said = self.convert(source, "over", "--to", "keel", "--dtype", "f16", code=3).stderr
        self.assertIn(name, said)
        self.assertIn("70000", said)
        self.assertFalse((self.dir / "over").exists())

    def test_tied_matrices_are_stored_once(self):
        config = llama_config(tie_word_embeddings=True)
        tensors = random_tensors(config)
        embedding = "model.embed_tokens.weight"
        for stored in ((embedding,), ("lm_head.weight",), (embedding, "lm_head.weight")):
            source = write_model(self.dir / ("source-" + str(len(self.left_behind())) + "-".join(stored)), config)
            write_weights(source, {**{k: v for k, v in tensors.items() if k != embedding}, **{k: tensors[embedding] for k in stored}})
            shutil.rmtree(self.dir / "out", ignore_errors=True)
            self.convert(source, "out", "--to", "hf", "--verify")
            self.assertEqual(read_tensors(self.dir / "out"), tensors)


class Verify(ConvertTest):
    def test_the_loss_of_a_text(self):
        source = write_model(self.dir / "source")
        text = self.dir / "text.txt"
        text.write_text("Once upon a time there was a keel.\n" * 9)
        said = self.convert(source, "same", "--to", "keel", "--verify", "--text", text, "--report", self.dir / "r.json").stdout
        self.assertIn("loss on", said)
        losses = json.loads((self.dir / "r.json").read_text())["results"]["text"]
        self.assertEqual(losses["source"], losses["result"])
        scored = json.loads(self.check("keel-eval", source, "--text", text, "--json").stdout)
        self.assertAlmostEqual(scored["nats_per_token"], losses["source"], places=9)
        self.convert(source, "rounded", "--to", "keel", "--dtype", "bf16", "--verify", "--text", text)
        losses = json.loads((self.dir / "rounded" / "report.json").read_text())["results"]["text"]
        self.assertNotEqual(losses["source"], losses["result"])
        self.assertAlmostEqual(losses["source"], losses["result"], places=2)
        self.convert(self.dir / "rounded", "wide", "--to", "keel", "--dtype", "f32", "--verify", "--text", text)
        again = json.loads((self.dir / "wide" / "report.json").read_text())
        self.assertEqual(again["results"]["text"]["result"], losses["result"])
        self.assertTrue(all(file["xxh3"] for file in again["inputs"] if file["path"].endswith(".safetensors")))

    def test_a_text_needs_a_tokenizer_and_verify(self):
        source = write_model(self.dir / "source", tokenizer=False)
        text = self.dir / "text.txt"
        text.write_text("some text")
        self.convert(source, "a", "--to", "keel", "--text", text, code=2)
        self.convert(source, "b", "--to", "keel", "--verify", "--text", text, code=3)
        self.convert(source, "c", "--to", "keel", "--verify", "--text", self.dir / "none", code=4)
        self.assertEqual([p.name for p in self.dir.iterdir() if p.is_dir()], ["source"])


class Info(ConvertTest):
    def info(self, path):
        return json.loads(self.check("keel-convert", path, "--info", "--json").stdout)

    def test_every_kind_of_folder(self):
        for family, config in FAMILIES.items():
            info = self.info(write_model(self.dir / family, config, "BF16"))
            self.assertEqual((info["model_type"], info["exports_as"], info["dtypes"]), (family, family, {"BF16": info["tensors"]}))
            self.assertEqual(info["bytes"], 2 * info["parameters"])
            self.assertTrue(info["tokenizer"].endswith("tokenizer.json"))
        checkpoint = self.trained()
        self.assertEqual(self.info(self.dir / "run")["path"], str(checkpoint))
        self.assertEqual(self.info(checkpoint)["residual_scheme"], "keel")
        said = self.check("keel-convert", checkpoint, "--info", "--report", self.dir / "info.json").stdout
        for word in ("architecture", "parameters", "keel", "F32"):
            self.assertIn(word, said)
        self.assertEqual(json.loads((self.dir / "info.json").read_text())["schema"], "keel.convert.info/1")


class Misuse(ConvertTest):
    def setUp(self):
        super().setUp()
        self.source = write_model(self.dir / "source")

    def test_options(self):
        self.convert(self.source, "out", code=2)
        self.convert(self.source, "out", "--to", "gguf", code=2)
        self.convert(self.source, "out", "--to", "llmc", code=2)
        self.check("keel-convert", "tokens", self.source, self.dir / "out", "--to", "llmc", code=2)
        self.check("keel-convert", self.source, "--to", "hf", code=2)
        self.check("keel-convert", self.source, "--json", code=2)
        self.convert(self.source, "out", "--to", "hf", "--json", code=2)
        self.convert(self.source, "out", "--info", code=2)
        for extra in (["--verify"], ["--dtype", "f32"], ["--max-shard-size", "5GB"], ["--to", "hf"], ["--text", self.source / "config.json"],
                      ["--force"]):
            self.assertIn(extra[0], self.check("keel-convert", self.source, "--info", *extra, code=2).stderr)
        for _ in range(2):
            self.check("keel-convert", self.source, "--info", "--force", "--report", self.dir / "info.json")
        self.convert(self.source, "out", "--to", "hf", "--max-shard-size", "0", code=2)
        self.convert(self.dir / "none", "out", "--to", "hf", code=4)
        (self.dir / "empty").mkdir()
        self.convert(self.dir / "empty", "out", "--to", "hf", code=3)
        self.assertFalse((self.dir / "out").exists())

    def test_what_a_killed_run_left_is_removed(self):
        (self.dir / "text.txt").write_text("some text")
        for destination in ("out", "more/"):
            stale = self.dir / f".{destination.rstrip('/')}.tmp.999999999.0"
            stale.mkdir()
            self.check("keel-convert", self.source, f"{self.dir}/{destination}", "--to", "hf", "--progress", "none")
            self.assertFalse(stale.exists())
            stale.mkdir()
            self.check("keel-tokenize", "encode", self.dir / "text.txt", "--tokenizer", self.source, "--out",
                       f"{self.dir}/data-{destination}", "--progress", "none")
            self.assertFalse(stale.exists())

    def test_output_that_exists(self):
        (self.dir / "out").mkdir()
        self.convert(self.source, "out", "--to", "hf")
        before = (self.dir / "out" / "config.json").read_bytes()
        self.convert(self.source, "out", "--to", "keel", code=2)
        self.assertEqual((self.dir / "out" / "config.json").read_bytes(), before)
        (self.dir / "out" / "more").write_text("x")
        self.convert(self.source, "out", "--to", "keel", "--force")
        self.assertEqual(self.config("out")["model_type"], "keel")
        self.assertFalse((self.dir / "out" / "more").exists())
        (self.dir / "file").write_text("mine")
        self.convert(self.source, "file", "--to", "keel", code=2)
        self.assertEqual((self.dir / "file").read_text(), "mine")

    def test_the_source_is_never_touched(self):
        before = {path.name: path.read_bytes() for path in self.source.iterdir()}
        (self.dir / "link").symlink_to(self.source)
        for destination in ("source", "link", "source/", "source/inside", "link/inside", "."):
            self.convert(self.source, destination, "--to", "keel", "--force", code=2)
        self.convert(self.dir / "link", "source", "--to", "keel", "--force", code=2)
        self.convert(self.source, "out", "--to", "keel", "--report", self.source / "config.json", "--force", code=2)
        self.convert(self.source, "out", "--to", "keel", "--report", self.dir / "out" / "config.json", code=2)
        text = self.dir / "old" / "text.txt"
        text.parent.mkdir()
        text.write_text("some text")
        self.convert(self.source, "old", "--to", "keel", "--verify", "--text", text, "--force", code=2)
        self.convert(self.source, "out", "--to", "keel", "--verify", "--text", text, "--report", text, "--force", code=2)
        self.assertEqual(text.read_text(), "some text")
        self.assertEqual({path.name: path.read_bytes() for path in self.source.iterdir()}, before)
        self.assertFalse((self.dir / "out").exists())

    def test_a_run_keeps_its_checkpoints(self):
        self.trained()
        self.convert(self.dir / "run", "run", "--to", "hf", "--force", code=2)
        self.convert(self.dir / "run" / "checkpoints" / "step-00000003", "run", "--to", "hf", "--force", code=2)
        self.convert(self.dir / "run", "run/hf", "--to", "hf")
        self.assertTrue((self.dir / "run" / "hf" / "config.json").exists())

    def test_a_report_is_not_written_over(self):
        (self.dir / "r.json").write_text("mine")
        self.convert(self.source, "out", "--to", "hf", "--report", self.dir / "r.json", code=2)
        self.assertEqual((self.dir / "r.json").read_text(), "mine")
        self.convert(self.source, "out", "--to", "hf", "--report", self.dir / "none" / "r.json", code=4)
        self.assertFalse((self.dir / "out").exists())
        report = json.loads(self.convert(self.source, "out", "--to", "hf", "--report", "-").stdout)
        self.assertEqual(report["schema"], "keel.convert/1")


class Endings(ConvertTest):
    def test_a_file_that_cannot_grow(self):
        source = write_model(self.dir / "source")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        said = self.convert(source, "out", "--to", "hf", code=4, preexec_fn=limit).stderr
        self.assertIn("File too large", said)
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()), ["source"])

    def test_kills_leave_nothing_under_the_name(self):
        source = write_model(self.dir / "source", llama_config(vocab_size=30_000, hidden_size=64, head_dim=32), tokenizer=False)
        for delay in (0.0, 0.01, 0.03, 0.06):
            for number, codes in ((signal.SIGKILL, (-9, 0)), (signal.SIGTERM, (143, -15, 0))):
                process = subprocess.Popen([tool("keel-convert"), source, self.dir / "out", "--to", "hf", "--progress", "none"],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.addCleanup(process.kill)
                time.sleep(delay)
                process.send_signal(number)
                self.assertIn(process.wait(), codes)
                if (self.dir / "out").exists():
                    self.assertEqual(read_tensors(self.dir / "out"), read_tensors(source))
                    shutil.rmtree(self.dir / "out")
        self.convert(source, "out", "--to", "hf")
        self.assertEqual(self.left_behind(), [])
