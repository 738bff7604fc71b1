"""Public trained models: losses, greedy text, against values from transformers and llama2.c."""
import array
import json
import struct

from keel_files import write_safetensors
from keel_tools import ToolTest


class TrainedModels(ToolTest):
    def setUp(self):
        super().setUp()
        self.golden = json.loads(self.data("golden", "models", "trained.json").read_text())
        text = self.data("data", "corpus", "tinystories", "tinystories_sample.txt").read_bytes()[:100000]
        self.text = self.dir / "text.txt"
        self.text.write_bytes(text)

    def stories260k(self):
        """llama2.c's file as a Hugging Face folder: rows of q and k are interleaved pairs there, halves here."""
        source = self.data("data", "models", "stories260K")
        content = (source / "stories260K.bin").read_bytes()
        d, f, layers, heads, kv_heads, vocab, positions = struct.unpack_from("<7i", content)
        values = array.array("f", content[28:])
        size, kv = d // heads, d // heads * kv_heads
        at = 0

        def take(*shape):
            nonlocal at
            count = 1
            for n in shape:
                count *= n
            at += count
            return values[at - count:at]

        def halves(matrix):
            rows = [matrix[i:i + d] for i in range(0, len(matrix), d)]
            out = array.array("f")
            for head in range(0, len(rows), size):
                for row in rows[head:head + size:2] + rows[head + 1:head + size:2]:
                    out += row
            return out

        tensors = {"model.embed_tokens.weight": ([vocab, d], take(vocab, d))}
        kinds = [("input_layernorm", (d,)), ("self_attn.q_proj", (d, d)), ("self_attn.k_proj", (kv, d)), ("self_attn.v_proj", (kv, d)),
                 ("self_attn.o_proj", (d, d)), ("post_attention_layernorm", (d,)), ("mlp.gate_proj", (f, d)), ("mlp.down_proj", (d, f)),
                 ("mlp.up_proj", (f, d))]
        for kind, shape in kinds:
            for layer in range(layers):
                tensor = take(*shape)
                if "q_proj" in kind or "k_proj" in kind:
                    tensor = halves(tensor)
                tensors[f"model.layers.{layer}.{kind}.weight"] = (list(shape), tensor)
        tensors["model.norm.weight"] = ([d], take(d))
        folder = self.dir / "stories260K"
        folder.mkdir()
        write_safetensors(folder / "model.safetensors", tensors)
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": d, "intermediate_size": f,
                  "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
                  "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.model").write_bytes((source / "tok512.model").read_bytes())
        return folder

    def check_loss(self, folder, golden):
        for bos, definition in (("on", "A"), ("off", "B")):
            done = self.check("keel-eval", folder, "--text", self.text, "--window", 512, "--compat-bos", bos, "--json")
            results = json.loads(done.stdout)
            self.assertEqual(results["tokens"], golden[f"tokens {definition}"])
            self.assertAlmostEqual(results["nats_per_token"], golden[f"loss {definition} f32"], delta=1e-5)

    def check_greedy(self, folder, golden, prompt, bos):
        wanted = golden["greedy"]["new_tokens"]
        done = self.check("keel-generate", folder, "--prompt", prompt, "--bos", bos, "--temperature", 0, "--max-tokens", len(wanted),
                          "--ignore-eos", "--json")
        line = json.loads(done.stdout)
        self.assertEqual(line["prompt_tokens"], len(golden["greedy"]["prompt"]))
        self.assertEqual(line["tokens"], wanted)

    def test_tinystories_656k(self):
        folder = self.data("data", "models", "TinyStories-656K")
        golden = self.golden["models"]["TinyStories-656K"]
        self.check_loss(folder, golden)
        self.check_greedy(folder, golden, "One day, a little girl named Lily found a ", "on")

    def test_stories260k(self):
        folder = self.stories260k()
        golden = self.golden["models"]["stories260K"]
        self.check_loss(folder, golden)
        self.check_greedy(folder, golden, "", "on")
        wanted = self.data("data", "models", "stories260K", "expected_greedy_200.txt").read_text()
        done = self.check("keel-generate", folder, "--temperature", 0, "--max-tokens", 200, "--ignore-eos")
        self.assertTrue(wanted.startswith(done.stdout[:400].rstrip("\n")), done.stdout)
