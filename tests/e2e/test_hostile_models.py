"""Damaged and hostile model folders: exit 3 soon, one line that names the tensor or key, no memory by their word."""
import copy
import json
import os
import random
import resource
import shutil
import struct
import time

from keel_files import write_megatron
from keel_tools import ToolTest, run, tool
from model_folders import header_and_data, llama_config, random_tensors, safetensors_bytes, write_model, write_weights

MEMORY = 2 << 30


def reference_seconds():
    """Of processor time, for a fixed amount of work: how slow the machine is just now."""
    start = time.process_time()
    sum(i * i for i in range(1 << 20))
    return time.process_time() - start


def seconds_allowed():
    """Of processor time, about a second on a machine of today; what waits for ever meets run_limited's timeout."""
    return 40 * reference_seconds() * (5 if is_sanitized() else 1)


def is_sanitized():
    with open(tool("keel-convert"), "rb") as f:
        return b"__asan_init" in f.read()


def seconds_used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def limit_memory():
    if not is_sanitized():  # whose shadow is larger than any limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class HostileTest(ToolTest):
    def setUp(self):
        super().setUp()
        self.folder = write_model(self.dir / "good")
        self.count = 0

    def fresh(self):
        self.count += 1
        folder = self.dir / f"bad-{self.count}"
        shutil.copytree(self.folder, folder)
        return folder

    def refuse(self, folder, names, code=3, tool_name="keel-convert", arguments=("--info",)):
        """One line with every one of `names`, in time, whatever the folder says about sizes."""
        codes = code if isinstance(code, tuple) else (code,)
        start = seconds_used()
        with self.subTest(tool=tool_name, names=names):
            result = self.check_one_of(tool_name, *(folder if a == "MODEL" else a for a in ("MODEL", *arguments)), codes=codes)
            self.assertLess(seconds_used() - start, seconds_allowed(), result.stderr[:300])
            self.assertLess(len(result.stderr), 4000)
            errors = [line for line in result.stderr.splitlines() if ": error: " in line]
            for name in names if isinstance(names, (list, tuple)) else [names]:
                self.assertIn(name, errors[0])

    def check_one_of(self, name, *arguments, codes):
        result = self.run_limited(name, *arguments)
        self.assertIn(result.returncode, codes, f"{name} {arguments}\n{result.stdout[:500]}\n{result.stderr[:2000]}")
        errors = [line for line in result.stderr.splitlines() if ": error: " in line]
        self.assertEqual(len(errors), 1, result.stderr[:2000])
        self.assertTrue(errors[0].isprintable(), errors[0])
        return result

    def run_limited(self, name, *arguments):
        return run(name, *arguments, preexec_fn=limit_memory, timeout=60)


class Weights(HostileTest):
    def bad_file(self, header, data, names, **keywords):
        folder = self.fresh()
        (folder / "model.safetensors").write_bytes(safetensors_bytes(header, data))
        self.refuse(folder, names, **keywords)

    def edited(self, name, **changes):
        header, data = header_and_data(random_tensors(llama_config()))
        header[name].update(changes)
        return header, data

    def test_header_lengths(self):
        good = (self.folder / "model.safetensors").read_bytes()
        for length in (0, 1, len(good), len(good) - 7, 1 << 63, (1 << 64) - 1, 100_000_001):
            folder = self.fresh()
            (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + good[8:])
            self.refuse(folder, "model.safetensors")
        for size in (0, 1, 7, 8, 9, len(good) // 2, len(good) - 1):
            folder = self.fresh()
            (folder / "model.safetensors").write_bytes(good[:size])
            self.refuse(folder, "model.safetensors")
        folder = self.fresh()
        (folder / "model.safetensors").write_bytes(good + b"\0")
        self.refuse(folder, "trailing")

    def test_headers_that_are_no_headers(self):
        for text in (b"[]", b"null", b"{", b"}", b'{"a"', b"{}x", b"\xff{}", b" {}", b"{" * 5_000_000, b'{"a":' * 1_000_000,
                     b'{"a":' + b"[" * 5_000_000, b'{"a":"' + b"x" * 1000, b'{"a":{"dtype":"F32"}}', b'{"\xff\xfe":{}}',
                     b'{"__metadata__":{"a":{}}}', b'{"a":{"dtype":"F32","shape":[1e3],"data_offsets":[0,4]}}',
                     b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}'):
            self.bad_file(text, b"", "model.safetensors")

    def test_entries(self):
        name = "model.norm.weight"
        for change, reason in (({"dtype": "F31"}, "dtype"), ({"dtype": 3}, "out of place"), ({"shape": [-8]}, "out of place"),
                               ({"shape": [8.0]}, "out of place"), ({"shape": "8"}, "out of place"), ({"shape": [[8]]}, ""),
                               ({"shape": [1 << 62, 4]}, "overflow"), ({"shape": [1 << 63]}, "overflow"),
                               ({"shape": [9]}, "mismatch"), ({"shape": [1] * 100_000}, "mismatch"), ({"shape": [0]}, "mismatch"),
                               ({"data_offsets": [8, 0]}, "range"), ({"data_offsets": [0]}, "range"),
                               ({"data_offsets": [-1, 4]}, "out of place"), ({"data_offsets": [0, 1 << 63]}, "range"),
                               ({"data_offsets": None}, "out of place"), ({"more": 1}, "unknown field")):
            self.bad_file(*self.edited(name, **change), [name, reason])

    def test_ranges_must_cover_the_data(self):
        header, data = header_and_data(random_tensors(llama_config()))
        name = "model.norm.weight"  # the last one
        begin, end = header[name]["data_offsets"]
        self.bad_file(*self.edited(name, data_offsets=[begin - 4, end - 4]), [name, "overlap"])
        self.bad_file(*self.edited(name, data_offsets=[begin + 4, end + 4]), [name, "hole"])
        self.bad_file(*self.edited(name, data_offsets=[0, 32]), ["overlap"])
        self.bad_file(header, data[:-1], "truncated")
        text = json.dumps(header).encode()
        twice = text[:-1] + b',"' + name.encode() + text[text.index(name.encode()) + len(name):]
        self.bad_file(twice, data, [name, "duplicate"])

    def test_a_large_header_is_read_without_a_tree(self):
        many = b",".join(b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(150_000))
        self.bad_file(b"{" + many + b"}", b"", "missing")

    def test_names_cannot_forge_lines(self):
        tensors = random_tensors(llama_config())
        tensors["a\nkeel-convert: error: b\x1b[2J\0"] = ("F32", [1], b"\0" * 4)
        self.bad_file(*header_and_data(tensors), "not part of this model")

    def test_tensors_that_do_not_fit_the_config(self):
        tensors = random_tensors(llama_config())
        name = "model.layers.1.mlp.up_proj.weight"
        without = {key: value for key, value in tensors.items() if key != name}
        self.bad_file(*header_and_data(without), [name, "missing"])
        self.bad_file(*header_and_data({**tensors, "model.layers.2.mlp.up_proj.weight": tensors[name]}), ["layers.2", "not part"])
        self.bad_file(*header_and_data({**tensors, name: ("F32", [8, 12], tensors[name][2])}), [name, "[8, 12]", "[12, 8]"])
        self.bad_file(*header_and_data({**tensors, name: ("I32", [12, 8], tensors[name][2])}), [name, "I32"])
        self.bad_file(*header_and_data({}), "missing")

    def test_index(self):
        folder = self.dir / "shards"
        write_model(folder, shards=2)
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        name = "model.norm.weight"
        outside = self.dir / "x.safetensors"
        shutil.copy(folder / index["weight_map"][name], outside)

        def bad(value, names, code=3):
            path.write_text(value if isinstance(value, str) else json.dumps(value))
            self.refuse(folder, names, code)

        for file in ("../x.safetensors", str(outside), "", ".", "..", "a/b.safetensors", "x\0y"):
            changed = copy.deepcopy(index)
            changed["weight_map"][name] = file
            bad(changed, name, (3, 4))
        changed["weight_map"][name] = "none.safetensors"
        bad(changed, [name, "none.safetensors"], (3, 4))
        changed["weight_map"][name] = next(f for f in set(index["weight_map"].values()) if f != index["weight_map"][name])
        bad(changed, name)
        del changed["weight_map"][name]
        bad(changed, name)
        bad({**index, "weight_map": {**index["weight_map"], "more": index["weight_map"][name]}}, "more")
        for text in ("", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', '{"weight_map": {}}', "[" * 1_000_000,
                     '{"weight_map": {"a": "b", "a": "c"}}'):
            bad(text, "")
        changed["weight_map"][name] = "model.safetensors.index.json"
        bad(changed, "index.json")

    def test_the_same_tensor_in_two_shards(self):
        folder = self.dir / "twice"
        write_model(folder, shards=2)
        weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
        files = sorted(set(weight_map.values()))
        tensors = random_tensors(llama_config())
        part = {name: tensors[name] for name in tensors if weight_map[name] == files[0] or name == list(tensors)[1]}
        (folder / files[0]).write_bytes(safetensors_bytes(*header_and_data(part)))
        self.refuse(folder, list(tensors)[1])


class Configs(HostileTest):
    def bad(self, names, text=None, code=3, **changes):
        folder = self.fresh()
        (folder / "config.json").write_text(text if text is not None else json.dumps(llama_config(**changes)))
        self.refuse(folder, names, code)

    def test_sizes_are_not_believed(self):
        for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                    "num_key_value_heads", "head_dim"):
            for value in (0, -1, 1 << 31, 1 << 40, 10**9, (1 << 63) - 1, 1 << 63, 10**400, 2.5, 8.0, "8", [8], True, {}):
                # What is just large is told by the tensors, what no double holds by its place.
                told = "model.embed_tokens.weight" if (key, value) == ("vocab_size", 10**9) else key
                self.bad("config.json" if value == 10**400 else told, **{key: value})
        self.bad("missing", num_hidden_layers=100_000)
        self.bad("model.embed_tokens.weight", vocab_size=(1 << 31) - 1)
        self.bad("model.embed_tokens.weight", hidden_size=1 << 24, head_dim=1 << 22)
        self.bad("num_key_value_heads", num_attention_heads=3, num_key_value_heads=2)

    def test_wrong_types(self):
        for key, values in {"model_type": [None, 3, "gpt2", "x" * 100_000, "a\nb"], "rms_norm_eps": [0, -1, "1e-5", 10**400],
                            "rope_theta": [0, -1, "x", 10**400], "tie_word_embeddings": [1, "true"], "hidden_act": ["gelu", 3],
                            "attention_bias": [1], "mlp_bias": ["no"], "max_position_embeddings": [-1, 1.5, "x", 1 << 31, 1 << 50],
                            "rope_scaling": [3, [], {"type": "yarn"}, {"type": "linear"}, {"type": "linear", "factor": 0},
                                             {"rope_type": {"a": 1}}, {"rope_type": "llama3", "factor": 8}],
                            "layer_types": [3, "x", ["full_attention"], ["full_attention"] * 3, [1, 2], [["x"], {}],
                                            ["full_attention"] * 200_000]}.items():
            for value in values:
                self.bad([] if value == 10**400 or key == "rope_scaling" else [key], **{key: value})

    def test_texts_that_are_no_config(self):
        for text in ("", "x", "[]", "3", "null", "{", '{"model_type": "llama"', "{}", '{"model_type": "llama", "model_type": "llama"}',
                     '{"model_type": "llama", "rope_theta": NaN}', '{"model_type": "llama", "rope_theta": 1e999}', "[" * 1_000_000,
                     '{"a":' * 1_000_000, "\0" * 1000, '{"model_type": "llama\\ud800"}', '{"model_type": "llama",}'):
            self.bad("config.json", text=text)

    def test_large_files(self):
        folder = self.fresh()
        with open(folder / "config.json", "wb") as f:
            f.truncate(300 << 20)
        self.refuse(folder, "config.json")
        (folder / "config.json").write_text('{"x": "' + "y" * (60 << 20) + '"}')
        self.refuse(folder, "model_type")

    def test_every_tool_refuses(self):
        write_megatron(self.dir / "data", [[i % 300 for i in range(200)]] * 4)
        (self.dir / "train.json").write_text(json.dumps({"data": {"sequence_length": 16}, "train": {"steps": 1, "batch_sequences": 1},
                                                       "optimizer": {"learning_rate": 0.1}}))
        (self.dir / "text.txt").write_text("some text")
        folder = self.fresh()
        header, data = header_and_data(random_tensors(llama_config()))
        header["model.norm.weight"]["shape"] = [9]
        (folder / "model.safetensors").write_bytes(safetensors_bytes(header, data))
        deep = self.fresh()
        (deep / "config.json").write_text("[" * 100_000)
        wide = self.fresh()
        (wide / "config.json").write_text(json.dumps(llama_config(num_hidden_layers=100_000)))
        train = ["--config", self.dir / "train.json", "--data", self.dir / "data", "--out", self.dir / "run"]
        for bad, name in ((folder, "model.norm.weight"), (deep, "config.json"), (wide, "")):
            self.refuse(bad, name)
            self.refuse(bad, name, tool_name="keel-convert", arguments=(self.dir / "out", "--to", "hf"))
            self.refuse(bad, name, tool_name="keel-eval", arguments=("--text", self.dir / "text.txt"))
            self.refuse(bad, name, tool_name="keel-generate", arguments=("--prompt", "a", "--max-tokens", "2"))
            self.assertIn(name, self.check_one_of("keel-train", *train, "--init", bad, codes=(3,)).stderr)
        self.assertFalse((self.dir / "out").exists())


class ResidualSchemes(HostileTest):
    """Keel-family folders whose scheme, options and tensors contradict each other."""

    def keel(self, tensors=None, **keys):
        self.count += 1
        folder = self.dir / f"keel-{self.count}"
        folder.mkdir()
        config = llama_config(model_type="keel", architectures=["KeelForCausalLM"], **{"residual_scheme": "pre", **keys})
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        write_weights(folder, self.tensors("pre") if tensors is None else tensors)
        return folder

    def tensors(self, scheme):
        """Of pre as Llama has them; of admin with outer LayerNorms and skip vectors in place of its norms."""
        tensors = random_tensors(llama_config())
        if scheme == "pre":
            return tensors
        wanted = {name: tensor for name, tensor in tensors.items() if "norm" not in name}
        vector = tensors["model.norm.weight"]
        for sublayer in ("attention", "feedforward"):
            for block in range(2):
                layer = f"model.layers.{block}."
                wanted.update({layer + f"{sublayer}_skip_scale": vector, layer + f"outer_{sublayer}_layernorm.weight": vector,
                               layer + f"outer_{sublayer}_layernorm.bias": vector})
        return wanted

    def test_the_folders_are_otherwise_good(self):
        self.check("keel-convert", self.keel(), "--info")
        self.check("keel-convert", self.keel(mix_fraction=7, admin_frozen=True, residual_alpha=None), "--info")
        for frozen in (False, True):
            admin = self.keel(self.tensors("admin"), residual_scheme="admin", admin_frozen=frozen)
            self.check("keel-convert", admin, "--info")
            shutil.copy(self.folder / "tokenizer.json", admin)
            self.check("keel-generate", admin, "--max-tokens", "2")

    def test_options(self):
        for names, keys in (
                (["residual_scheme 'kel'", "did you mean 'keel'"], dict(residual_scheme="kel")),
                (["residual_scheme ''"], dict(residual_scheme="")),
                (["residual_scheme"], dict(residual_scheme=3)),
                (["residual_alpha 2", "'pre'", "deepnorm"], dict(residual_alpha=2)),
                (["residual_alpha", "above 0", "-1"], dict(residual_scheme="keel", residual_alpha=-1)),
                (["residual_alpha", "above 0"], dict(residual_scheme="keel", residual_alpha=0)),
                (["residual_alpha", "number"], dict(residual_scheme="keel", residual_alpha="x")),
                (["learnable_alpha", "'olmo2'"], dict(residual_scheme="olmo2", learnable_alpha=True)),
                (["learnable_alpha", "true or false"], dict(residual_scheme="keel", learnable_alpha=1)),
                (["mix_fraction", "0 to 1", "1.5"], dict(residual_scheme="mix", mix_fraction=1.5)),
                (["mix_fraction", "0 to 1", "-0.25"], dict(residual_scheme="mix", mix_fraction=-0.25)),
                (["mix_fraction", "number"], dict(residual_scheme="mix", mix_fraction=[0.5])),
                (["norm_type 'foo'", "rms", "ln"], dict(norm_type="foo")),
                (["norm_type 'none'"], dict(norm_type="none")),
                (["norm_type"], dict(norm_type=False)),
                (["admin_frozen"], dict(residual_scheme="admin", admin_frozen="yes")),
                (["final_norm"], dict(final_norm=1)),
                (["qk_norm", "'hybrid'"], dict(residual_scheme="hybrid", qk_norm=True))):
            folder = self.keel(**keys)
            self.refuse(folder, ["config.json", *names])
            self.refuse(folder, ["config.json", *names], tool_name="keel-convert", arguments=(self.dir / "out", "--to", "hf"))
        self.assertFalse((self.dir / "out").exists())

    def test_tensors(self):
        admin, layer = self.tensors("admin"), "model.layers.1."
        for name in (layer + "attention_skip_scale", layer + "outer_feedforward_layernorm.bias"):
            for frozen in (False, True):
                without = {key: tensor for key, tensor in admin.items() if key != name}
                self.refuse(self.keel(without, residual_scheme="admin", admin_frozen=frozen), [name, "missing", "model.safetensors"])
        narrow = {**admin, layer + "attention_skip_scale": ("F32", [1], b"\0" * 4)}
        self.refuse(self.keel(narrow, residual_scheme="admin"), [layer + "attention_skip_scale", "[1]", "[8]"])
        pre, vector = self.tensors("pre"), self.tensors("pre")["model.norm.weight"]
        for name in ("outer_attention_layernorm.weight", "attention_skip_scale", "attention_skip_exponent", "residual_scale",
                     "input_layernorm.bias", "self_attn.v_norm.weight"):
            self.refuse(self.keel({**pre, layer + name: vector}), [layer + name, "not part of this model", "model.safetensors"])
        self.refuse(self.keel(final_norm=False), ["model.norm.weight", "not part"])
        self.refuse(self.keel(norm_type="ln"), [layer + "input_layernorm.bias", "missing"])
        self.refuse(self.keel(residual_scheme="keel"), ["outer_attention_layernorm.weight", "missing"])
        self.refuse(self.keel(residual_scheme="rezero"), "model.layers.0.residual_scale")

    def test_the_same_in_a_config_for_training(self):
        write_megatron(self.dir / "data", [[i % 61 for i in range(200)]])
        for names, settings in ((["kel", "keel"], ["residual_scheme=kel"]), (["residual_alpha", "pre"], ["residual_scheme=pre", "residual_alpha=2"]),
                                (["learnable_alpha", "mix"], ["residual_scheme=mix", "learnable_alpha=true"]),
                                (["mix_fraction", "1.5"], ["residual_scheme=mix", "mix_fraction=1.5"]),
                                (["mix_fraction", "keel"], ["mix_fraction=0.5"]), (["norm_type", "foo"], ["norm_type=foo"]),
                                (["admin_frozen", "keel"], ["admin_frozen=true"]),
                                (["qk_norm", "olmo2"], ["residual_scheme=olmo2", "qk_norm=true"])):
            sizes = ["vocab_size=61", "hidden_size=16", "intermediate_size=24", "num_hidden_layers=2", "num_attention_heads=2"]
            arguments = [part for setting in sizes + settings for part in ("--set", "model." + setting)]
            said = self.check("keel-train", "--plan", "--data", self.dir / "data", "--set", "data.sequence_length=8", *arguments,
                              code=2).stderr
            for name in names:
                self.assertIn(name, said)


class OtherFiles(HostileTest):
    def generate(self, folder, names, code=3):
        self.refuse(folder, names, code, "keel-generate", ("--prompt", "some text", "--max-tokens", "2"))

    def test_generation_config(self):
        for text in ("", "[]", "{", '{"eos_token_id": -1}', '{"eos_token_id": 1e9}', '{"eos_token_id": "2"}',
                     '{"eos_token_id": [2, [3]]}', '{"eos_token_id": 99999999999}', "[" * 1_000_000):
            folder = self.fresh()
            (folder / "generation_config.json").write_text(text)
            self.generate(folder, "generation_config.json")

    def tokenizer(self):
        return json.loads((self.folder / "tokenizer.json").read_text())

    def bad_tokenizer(self, value, names="tokenizer.json", code=3):
        folder = self.fresh()
        text = value if isinstance(value, (str, bytes)) else json.dumps(value)
        (folder / "tokenizer.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        self.generate(folder, names, code)

    def test_tokenizers(self):
        for text in ("", "[]", "{}", "{", "null", "[" * 1_000_000, '{"a":' * 1_000_000, b"\xff\xfe", '{"model": {"type": "BPE"}}'):
            self.bad_tokenizer(text)

    def test_vocabularies(self):
        def with_entry(**entries):
            tokenizer = self.tokenizer()
            tokenizer["model"]["vocab"].update(entries)
            return tokenizer

        for id in (-1, 10**9, (1 << 31), (1 << 63), 2.5, "3", None, 5, 400):
            self.bad_tokenizer(with_entry(zzz=id))
        tokenizer = self.tokenizer()
        tokenizer["model"]["vocab"] = {}
        self.bad_tokenizer(tokenizer)
        for id in (-1, 10**9, 1 << 63, "3", None):
            tokenizer = self.tokenizer()
            tokenizer["added_tokens"][0]["id"] = id
            self.bad_tokenizer(tokenizer)

    def test_merges(self):
        for merges in (["ab"], ["a b c"], ["nope nope"], [["a"]], [["a", 3]], 3, {"a": "b"}, ["a b"] * 3_000_00, [["a", "b"]] * 200_000):
            tokenizer = self.tokenizer()
            tokenizer["model"]["merges"] = merges
            self.bad_tokenizer(tokenizer)

    def test_steps_that_are_not_known(self):
        for key, value in (("normalizer", {"type": "Evil"}), ("pre_tokenizer", {"type": "Evil"}), ("decoder", {"type": "Evil"}),
                           ("model", {"type": "WordPiece"})):
            tokenizer = self.tokenizer()
            tokenizer[key] = value
            self.bad_tokenizer(tokenizer, "", (2, 3))
        nested = {"type": "Sequence", "pretokenizers": []}
        for _ in range(40):
            nested = {"type": "Sequence", "pretokenizers": [nested, nested] if _ < 3 else [nested]}
        tokenizer = self.tokenizer()
        tokenizer["pre_tokenizer"] = nested
        self.bad_tokenizer(tokenizer, "", (2, 3))

    def test_patterns_that_never_end(self):
        for pattern in ("(a+)+$", "(a|aa)+$", "(a*)*b", "(", "a{1,99999999}", "(?R)", "((a{1,100}){1,100}){1,100}"):
            tokenizer = self.tokenizer()
            tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
            folder = self.fresh()
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
            text = self.dir / "long.txt"
            text.write_text("a" * 60 + "c")
            start = seconds_used()
            result = self.run_limited("keel-eval", folder, "--text", text)
            self.assertIn(result.returncode, (0, 2, 3), pattern + result.stderr)
            self.assertLess(seconds_used() - start, seconds_allowed(), pattern)

    def test_normalizers_that_blow_up(self):
        tokenizer = self.tokenizer()
        tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 64}] * 6}
        folder = self.fresh()
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.refuse(folder, "tokenizer's rules", 3, "keel-generate", ("--prompt", "aaaa", "--max-tokens", "2"))

    def test_things_that_are_no_files(self):
        for name in ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "model.safetensors.index.json"):
            for kind in ("folder", "fifo", "zero", "loop", "nowhere"):
                folder = self.fresh()
                path = folder / name
                if path.exists():
                    path.unlink()
                if kind == "folder":
                    path.mkdir()
                elif kind == "fifo":
                    os.mkfifo(path)
                else:
                    path.symlink_to({"zero": "/dev/zero", "loop": path.name, "nowhere": "/nonexistent/x"}[kind])
                self.generate(folder, "", (2, 3, 4))

    def test_unreadable_files(self):
        if os.geteuid() == 0:
            self.skipTest("root reads everything")
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            folder = self.fresh()
            (folder / name).chmod(0)
            self.generate(folder, name, 4)


class Mutations(HostileTest):
    def test_random_changes_end_in_order(self):
        """Bits, cuts and repeats in every file of a folder: the tool reads it or says in one line why not."""
        rng = random.Random(11)
        texts = {name: (self.folder / name).read_bytes() for name in ("config.json", "model.safetensors", "tokenizer.json")}
        folder = self.fresh()
        for round in range(60):
            name = list(texts)[round % 3]
            data = bytearray(texts[name])
            reach = min(len(data), 2500)  # of the weights the header counts
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(reach)
                kind = rng.randrange(4)
                if kind == 0:
                    data[at] ^= 1 << rng.randrange(8)
                elif kind == 1:
                    del data[at:at + rng.randrange(1, 9)]
                elif kind == 2:
                    data[at:at] = data[at:at + rng.randrange(1, 30)]
                else:
                    data[at:at + 1] = rng.choice([b"9" * 20, b"-1", b"[" * 200, b"\0", b"\xff"])
            (folder / name).write_bytes(data)
            result = self.run_limited("keel-generate", folder, "--prompt", "ab", "--max-tokens", "2")
            self.assertIn(result.returncode, (0, 2, 3, 4), f"round {round}\n{result.stderr[:2000]}")
            self.assertEqual(result.stderr.count(": error: "), 0 if result.returncode == 0 else 1, result.stderr[:2000])
            (folder / name).write_bytes(texts[name])
