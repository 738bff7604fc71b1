"""Small random models of every family that keel reads, written and run by transformers, and keel's own exports opened
by it. Each folder gets the golden.json and golden.safetensors that golden_test compares keel's logits with.

    transformers_models.py import FOLDER [CASE...]    models as transformers and its users write them
    transformers_models.py export FOLDER              keel-train's models through keel-convert (programs in KEEL_BIN)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.modeling_outputs import CausalLMOutputWithPast

SIZES = dict(vocab_size=48, hidden_size=24, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32, rope_theta=10000.0)
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# The name that this version of transformers gives a cache.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
LENGTH, KEPT, NEW_TOKENS = 48, 24, 16  # positions run, positions whose logits are kept, tokens generated


# How people spell a config.json: each takes the keys that transformers 5 wrote and changes them in place.

def transformers_4(keys, type_key="rope_type"):
    """rope_theta and rope_scaling apart, torch_dtype."""
    rope = dict(keys.pop("rope_parameters"))
    keys["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    keys["rope_scaling"] = None if kind == "default" else {type_key: kind, **rope}
    keys["torch_dtype"] = keys.pop("dtype")
    keys["transformers_version"] = "4.44.0"


def transformers_3(keys):
    transformers_4(keys, "type")


def sparse(keys):
    """What equals the class's default is not there."""
    default = AutoConfig.for_model(keys["model_type"]).to_dict()
    for key in list(keys):
        if key != "model_type" and key in default and (default[key] == keys[key] or keys[key] is None):
            del keys[key]
    keys.pop("layer_types", None)


def without(*names):
    return lambda keys: [keys.pop(name, None) for name in names]


def with_keys(**more):
    return lambda keys: keys.update(more)


def both(*spellings):
    return lambda keys: [spelling(keys) for spelling in spellings]


def case(family, spelling=None, dtype="f32", shard=None, **config):
    return dict(family=family, spelling=spelling, dtype=dtype, shard=shard, config={**SIZES, **config})


def sliding(*layers):
    return ["sliding_attention" if layer else "full_attention" for layer in layers]


CASES = {
    "llama-plain": case("llama"),
    "llama-biases": case("llama", attention_bias=True, mlp_bias=True, shard="9KB"),
    "llama-attention-bias": case("llama", attention_bias=True, num_key_value_heads=4),
    "llama-mlp-bias": case("llama", mlp_bias=True, tie_word_embeddings=True),
    "llama-head-dim": case("llama", transformers_4, head_dim=12, num_key_value_heads=1),
    "llama-head-dim-null": case("llama", both(transformers_4, with_keys(head_dim=None, num_key_value_heads=None)),
                                num_key_value_heads=4),
    "llama-tied-f16": case("llama", transformers_4, "f16", tie_word_embeddings=True, rms_norm_eps=1e-3),
    "llama-bf16-shards": case("llama", None, "bf16", "6KB", rope_parameters=dict(rope_type="default", rope_theta=5e5)),
    "llama-linear": case("llama", rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=1e4)),
    "llama-linear-old": case("llama", transformers_3,
                             rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=3e4)),
    "llama-llama3": case("llama", rope_parameters=LLAMA3),
    "llama-llama3-old": case("llama", transformers_4, rope_parameters={**LLAMA3, "rope_theta": 5e5}, head_dim=16),
    "llama-llama3-type": case("llama", transformers_3, rope_parameters={**LLAMA3, "factor": 32.0}, dtype="bf16"),
    "llama-llama3-no-original": case(
        "llama", lambda keys: keys["rope_parameters"].pop("original_max_position_embeddings"),
        rope_parameters=LLAMA3, max_position_embeddings=40),
    "llama-llama3-outer-original": case("llama", both(transformers_4, with_keys(original_max_position_embeddings=24)),
                                        rope_parameters=LLAMA3),
    "llama-both-spellings": case(
        "llama", with_keys(rope_theta=777.0, rope_scaling={"rope_type": "linear", "factor": 2.0})),
    "llama-empty-rope": case("llama", with_keys(rope_parameters={}, rope_scaling={}, rope_theta=5000)),
    "llama-null-rope": case("llama", with_keys(rope_parameters=None, rope_scaling=None, rope_theta=5000.0)),
    "llama-rope-only-theta": case("llama", with_keys(rope_parameters={"rope_theta": 2500})),
    "llama-inner-theta-wins": case("llama", with_keys(rope_theta=9.0)),
    "llama-swish": case("llama", with_keys(hidden_act="swish")),
    "llama-sparse": case("llama", sparse, num_key_value_heads=4),
    "llama-sparse-tied": case("llama", sparse, "f16", tie_word_embeddings=True),
    "llama-old-7b": case("llama", both(transformers_4, without("num_key_value_heads", "attention_bias", "mlp_bias",
                                                               "head_dim", "rope_theta", "rope_scaling",
                                                               "tie_word_embeddings", "rms_norm_eps"),
                                       with_keys(pretraining_tp=1, max_sequence_length=2048)), num_key_value_heads=4),
    "mistral-plain": case("mistral", sliding_window=7),
    "mistral-null": case("mistral", transformers_4, sliding_window=None, tie_word_embeddings=True),
    "mistral-head-dim": case("mistral", None, "bf16", sliding_window=5, head_dim=10),
    "mistral-two": case("mistral", sliding_window=2),
    "mistral-long-window": case("mistral", sliding_window=48, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "mistral-sparse": case("mistral", sparse, hidden_size=64, num_attention_heads=8, num_key_value_heads=8,
                           sliding_window=4096),
    "mistral-layer-types": case("mistral", with_keys(layer_types=sliding(True, False, True)), sliding_window=6),
    "mistral-llama3": case("mistral", transformers_4, "f16", "7KB", sliding_window=20, rope_parameters=LLAMA3),
    "qwen2-plain": case("qwen2", shard="9KB"),
    "qwen2-tied": case("qwen2", transformers_4, "bf16", tie_word_embeddings=True),
    "qwen2-not-sliding": case("qwen2", both(transformers_4, with_keys(use_sliding_window=False, sliding_window=4,
                                                                      max_window_layers=0), without("layer_types"))),
    "qwen2-windows": case("qwen2", without("layer_types"), use_sliding_window=True, sliding_window=6,
                          max_window_layers=1),
    "qwen2-layer-types": case("qwen2", use_sliding_window=True, sliding_window=9,
                              layer_types=sliding(True, False, True)),
    "qwen2-window-default": case("qwen2", without("layer_types", "sliding_window"), use_sliding_window=True,
                                 max_window_layers=2),
    "qwen2-window-null": case("qwen2", both(without("layer_types"), with_keys(sliding_window=None)),
                              use_sliding_window=True, sliding_window=4, max_window_layers=0),
    "qwen2-head-dim": case("qwen2", head_dim=14),
    "qwen2-sparse": case("qwen2", sparse, hidden_size=128, num_attention_heads=32, num_key_value_heads=32),
    "qwen2-linear": case("qwen2", transformers_3, rope_parameters=dict(rope_type="linear", factor=8, rope_theta=1e6)),
    "qwen3-plain": case("qwen3", head_dim=8),
    "qwen3-bias": case("qwen3", transformers_4, "f16", head_dim=20, attention_bias=True),
    "qwen3-tied": case("qwen3", None, "bf16", "8KB", head_dim=24, tie_word_embeddings=True, rms_norm_eps=1e-5),
    "qwen3-windows": case("qwen3", both(transformers_4, without("layer_types")), head_dim=8, use_sliding_window=True,
                          sliding_window=6, max_window_layers=2),
    "qwen3-layer-types": case("qwen3", head_dim=8, use_sliding_window=True, sliding_window=3, attention_bias=True,
                              layer_types=sliding(False, True, True)),
    "qwen3-head-dim-absent": case("qwen3", without("head_dim"), head_dim=128),
    "olmo2-plain": case("olmo2", shard="9KB"),
    "olmo2-bias": case("olmo2", transformers_4, "bf16", attention_bias=True, num_key_value_heads=1),
    "olmo2-tied": case("olmo2", transformers_4, "f16", tie_word_embeddings=True, rms_norm_eps=1e-6, num_key_value_heads=4),
    "olmo2-sparse": case("olmo2", sparse, num_key_value_heads=4),
    "olmo2-llama3": case("olmo2", rope_parameters={**LLAMA3, "rope_theta": 5e5}),
    "olmo2-head-dim": case("olmo2", with_keys(head_dim=8), head_dim=8),
    "olmo2-foreign-keys": case("olmo2", with_keys(mlp_bias=True, qk_norm=True, norm_type="ln",
                                                  residual_scheme="post", final_norm=False)),
    "qwen3-llama3": case("qwen3", rope_parameters={**LLAMA3, "rope_theta": 1e6}, head_dim=16),
}


def randomise(model, seed):
    """Every parameter away from its initial value, so that one that is left out shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_gain = "norm" in name
            parameter.copy_(1 + 0.3 * noise if is_gain else 0.2 * noise)


def write_case(folder, name, seed):
    c = CASES[name]
    config = AutoConfig.for_model(c["family"], **c["config"])
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomise(model, seed)
    model.to(DTYPES[c["dtype"]]).save_pretrained(folder, **({"max_shard_size": c["shard"]} if c["shard"] else {}))
    if c["spelling"]:
        keys = json.loads((folder / "config.json").read_text())
        c["spelling"](keys)
        (folder / "config.json").write_text(json.dumps(keys, indent=2))


def greedy(model, prompt):
    """Tokens of cached generation, and the smallest gap between the best and the second logit."""
    ids, gap, past, new = torch.tensor([prompt]), float("inf"), None, []
    for _ in range(NEW_TOKENS):
        out = model(ids, use_cache=True, **{CACHE: past})
        past = getattr(out, CACHE)
        best = out.logits[0, -1].double().topk(2).values
        gap = min(gap, (best[0] - best[1]).item())
        new.append(int(out.logits[0, -1].argmax()))
        ids = torch.tensor([[new[-1]]])
    return new, gap


def write_golden(folder, **keywords):
    """What transformers makes of the folder, as it lies there; False where greedy tokens hang on rounding."""
    torch.manual_seed(len(folder.name))
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True, **keywords)
    left = {key: value for key, value in info.items() if value}
    if left:
        raise SystemExit(f"{folder}: transformers loads it with {left}")
    model.eval()
    vocabulary = model.config.vocab_size
    ids = torch.randint(vocabulary, (2, LENGTH), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits
        for first in range(LENGTH - 16):
            prompt = ids[0, first:first + 16].tolist()
            new, gap = greedy(model, prompt)
            if gap >= 1e-3:
                break
        whole = model(torch.tensor([prompt + new]), use_cache=False).logits[0, 15:-1].argmax(-1).tolist()
        start = torch.tensor([prompt])
        generated = model.generate(start, attention_mask=torch.ones_like(start), max_new_tokens=NEW_TOKENS, do_sample=False,
                                   eos_token_id=-1, pad_token_id=0)[0, 16:].tolist()
    if gap < 1e-3:
        return False
    if not new == whole == generated:
        raise SystemExit(f"{folder}: cached {new}, whole {whole}, generate() {generated}")
    log_probabilities = logits[:, :-1].double().log_softmax(-1)
    loss = -log_probabilities.gather(-1, ids[:, 1:, None]).mean().item()
    golden = {"input_ids": ids.tolist(), "mean_nll_nats_f64": loss,
              "greedy": {"prompt": prompt, "new_tokens": new, "smallest top-1 minus top-2": gap},
              "transformers": transformers.__version__, "torch": torch.__version__}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    save_file({"logits_f32": logits[:, -KEPT:].contiguous()}, folder / "golden.safetensors")
    return True


def import_models(out, names):
    for name in names or CASES:
        for seed in range(1, 20):
            write_case(out / name, name, seed)
            if write_golden(out / name):
                break
        else:
            raise SystemExit(f"{name}: no seed gives clear greedy tokens")
        print(name, flush=True)


# What keel-train makes: the class that transformers must open it with, the tokenizer, and the keys of the config's
# group "model" that differ from TRAINED.
TRAINED = dict(initializer_range=0.3, hidden_size=24, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4,
               num_key_value_heads=2)
EXPORTS = {
    "pre": ("LlamaForCausalLM", "bpe", dict(residual_scheme="pre")),
    "pre-options": ("LlamaForCausalLM", "spm", dict(residual_scheme="pre", attention_bias=True, mlp_bias=True, head_dim=10,
                                                    tie_word_embeddings=True, rope_theta=500.0, rms_norm_eps=1e-4)),
    "pre-window": ("MistralForCausalLM", "spm", dict(residual_scheme="pre", sliding_window=7)),
    "pre-qkv-bias": ("Qwen2ForCausalLM", "bpe", dict(residual_scheme="pre", qkv_bias=True, tie_word_embeddings=True)),
    "pre-qk-norm": ("Qwen3ForCausalLM", "bpe", dict(residual_scheme="pre", qk_norm=True, head_dim=8)),
    "pre-odd-heads": ("KeelForCausalLM", "bpe", dict(residual_scheme="pre", num_attention_heads=5, head_dim=6,
                                                     num_key_value_heads=1)),
    "pre-without-norm": ("KeelForCausalLM", "bpe", dict(residual_scheme="pre", final_norm=False)),
    "pre-norm-and-bias": ("KeelForCausalLM", "bpe", dict(residual_scheme="pre", qk_norm=True, qkv_bias=True)),
    "keel": ("KeelForCausalLM", "bpe", {}),
    "keel-alpha": ("KeelForCausalLM", "spm", dict(residual_alpha=2.5, tie_word_embeddings=True)),
    "keel-biases": ("KeelForCausalLM", "bpe", dict(attention_bias=True, mlp_bias=True)),
    "keel-options": ("KeelForCausalLM", "spm", dict(qk_norm=True, qkv_bias=True, head_dim=10, sliding_window=9,
                                                    rope_theta=300.0)),
    "keel-v1": ("KeelForCausalLM", "bpe", dict(residual_scheme="keel_v1")),
    "post": ("KeelForCausalLM", "spm", dict(residual_scheme="post", rms_norm_eps=1e-3)),
    "keel-final-norm": ("KeelForCausalLM", "bpe", dict(final_norm=True)),
    "keel-learned": ("KeelForCausalLM", "bpe", dict(residual_alpha=3.0, learnable_alpha=True)),
    "keel-ln": ("KeelForCausalLM", "spm", dict(norm_type="ln", final_norm=True)),
    "keel-v1-learned-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="keel_v1", learnable_alpha=True, norm_type="ln")),
    "attempt1": ("KeelForCausalLM", "bpe", dict(residual_scheme="keel_attempt1")),
    "attempt2-learned": ("KeelForCausalLM", "bpe", dict(residual_scheme="keel_attempt2", learnable_alpha=True)),
    "attempt3-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="keel_attempt3", norm_type="ln")),
    "post-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="post", norm_type="ln", qk_norm=True)),
    "pre-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="pre", norm_type="ln", attention_bias=True, mlp_bias=True)),
    "pre-rms": ("LlamaForCausalLM", "bpe", dict(residual_scheme="pre", norm_type="rms")),
    "deepnorm": ("KeelForCausalLM", "spm", dict(residual_scheme="deepnorm")),
    "deepnorm-learned-rms": ("KeelForCausalLM", "bpe", dict(residual_scheme="deepnorm", residual_alpha=2.0,
                                                            learnable_alpha=True, norm_type="rms")),
    "deepnorm-final-norm": ("KeelForCausalLM", "bpe", dict(residual_scheme="deepnorm", final_norm=True)),
    "hybrid": ("KeelForCausalLM", "bpe", dict(residual_scheme="hybrid", qkv_bias=True)),
    "hybrid-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="hybrid", norm_type="ln", head_dim=10)),
    "hybrid-star": ("KeelForCausalLM", "spm", dict(residual_scheme="hybrid_star", tie_word_embeddings=True)),
    "mix": ("KeelForCausalLM", "bpe", dict(residual_scheme="mix")),
    "mix-two-thirds-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="mix", mix_fraction=0.6, norm_type="ln")),
    "mix-none": ("KeelForCausalLM", "bpe", dict(residual_scheme="mix", mix_fraction=0.0)),
    "admin": ("KeelForCausalLM", "bpe", dict(residual_scheme="admin")),
    "admin-frozen-rms": ("KeelForCausalLM", "bpe", dict(residual_scheme="admin", admin_frozen=True, norm_type="rms")),
    "lns": ("KeelForCausalLM", "bpe", dict(residual_scheme="lns", sliding_window=6)),
    "lns-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="lns", norm_type="ln")),
    "sandwich": ("KeelForCausalLM", "bpe", dict(residual_scheme="sandwich", tie_word_embeddings=True)),
    "sandwich-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="sandwich", norm_type="ln", qk_norm=True)),
    "rezero": ("KeelForCausalLM", "spm", dict(residual_scheme="rezero")),
    "rezero-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="rezero", final_norm=True, norm_type="ln")),
    "layerscale": ("KeelForCausalLM", "bpe", dict(residual_scheme="layerscale")),
    "olmo2": ("Olmo2ForCausalLM", "bpe", dict(residual_scheme="olmo2")),
    "olmo2-options": ("Olmo2ForCausalLM", "spm", dict(residual_scheme="olmo2", attention_bias=True, num_key_value_heads=1,
                                                      tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=300.0)),
    "olmo2-ln": ("KeelForCausalLM", "bpe", dict(residual_scheme="olmo2", norm_type="ln")),
    "olmo2-wide-heads": ("KeelForCausalLM", "bpe", dict(residual_scheme="olmo2", head_dim=10)),
    "olmo2-window": ("KeelForCausalLM", "bpe", dict(residual_scheme="olmo2", sliding_window=6, qkv_bias=True)),
}
# Keys that a folder's config.json can have and a run's cannot.
EDITED = {
    "keel-llama3": dict(rope_scaling={key: LLAMA3[key] for key in LLAMA3 if key != "rope_theta"}),
    "keel-linear": dict(rope_scaling={"rope_type": "linear", "factor": 3.0}),
    "keel-layer-types": dict(sliding_window=5, layer_types=sliding(True, False, True)),
}
TEXTS = ["Once upon a  time\n", " leading", "trailing  ", "a\tb\r\nc", "日本語 é ①", "🤗 zero", "", "  ", "don't 12345 3.14"]


def keel(program, *arguments, **keywords):
    command = [str(pathlib.Path(os.environ["KEEL_BIN"]) / program), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, **keywords)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {result.returncode}\n{result.stderr}")
    return result.stdout


def write_tokenizers(work):
    """A byte-level tokenizer.json and a sentencepiece model, and data sets encoded with them."""
    root = pathlib.Path(__file__).resolve().parents[2]
    text = work / "text.txt"
    text.write_text("".join((root / name).read_text() for name in ("README.md", "CONTRIBUTING.md")) * 2)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train([str(text)], vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    (work / "bpe").mkdir()
    tokenizer.save(str(work / "bpe" / "tokenizer.json"))
    (work / "spm").mkdir()
    sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(work / "spm" / "tokenizer"), vocab_size=400,
                                             model_type="bpe", byte_fallback=True, minloglevel=2)
    for kind in ("bpe", "spm"):
        keel("keel-tokenize", "encode", text, "--documents", "line", "--tokenizer", work / kind, "--out", work / f"data-{kind}",
             "--progress", "none", *(["--prepend-bos"] if kind == "spm" else []))


def check_tokenizer(folder):
    theirs = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    for text in TEXTS:
        ours = keel("keel-tokenize", "ids", "--tokenizer", folder, "--whole", "-", input=text).split()
        if theirs(text, add_special_tokens=False).input_ids != [int(id) for id in ours]:
            raise SystemExit(f"{folder}: {text!r}: {theirs(text).input_ids} {ours}")
    config = json.loads((folder / "config.json").read_text())
    if theirs.eos_token_id is None or theirs.eos_token_id != config["eos_token_id"]:
        raise SystemExit(f"{folder}: eos {theirs.eos_token_id} {config['eos_token_id']}")
    if GenerationConfig.from_pretrained(folder).eos_token_id != config["eos_token_id"]:
        raise SystemExit(f"{folder}: generation_config.json has another eos")


def check_generation(folder, **keywords):
    """keel-generate continues texts with the tokens that transformers continues them with."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **keywords).eval()
    theirs = AutoTokenizer.from_pretrained(folder, **keywords)
    compared = 0
    for text in ("Once upon a time", "keel", "the wiring of", "a b c"):
        with torch.no_grad():
            new, gap = greedy(model, theirs(text).input_ids)
        if gap < 1e-3:
            continue
        ours = keel("keel-generate", folder, "--prompt", text, "--temperature", 0, "--max-tokens", NEW_TOKENS, "--ignore-eos",
                    "--json", "--progress", "none")
        expect(folder, json.loads(ours)["tokens"] == new, f"{text!r} goes on with {new}, keel-generate says {ours}")
        compared += 1
    expect(folder, compared > 0, "no text has clear greedy tokens")


def check_arguments(folder):
    """What the Keel classes honour of forward()'s arguments, and the stream's dtype in a bf16 model."""
    ids = torch.arange(12)[None] % 50
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=True).eval()
            whole = model(ids, output_hidden_states=True, use_cache=False)
            states = whole.hidden_states
            expect(folder, len(states) == model.config.num_hidden_layers + 1, "the number of hidden states")
            expect(folder, all(state.dtype == torch.float32 for state in states[:-1]), "a stream that is not fp32")
            expect(folder, torch.equal(model.lm_head(states[-1]), whole.logits), "the last hidden state")
            expect(folder, whole.logits.dtype == dtype, "the dtype of logits")
            kept = model(ids, logits_to_keep=2, use_cache=False).logits
            expect(folder, kept.shape[1] == 2 and torch.allclose(kept, whole.logits[:, -2:], atol=1e-5), "logits_to_keep")
            picked = model(ids, logits_to_keep=torch.tensor([3]), use_cache=False).logits
            expect(folder, torch.allclose(picked, whole.logits[:, 3:4], atol=1e-5), "logits_to_keep of indices")
            expect(folder, torch.equal(model(ids, return_dict=False, use_cache=False)[0], whole.logits), "return_dict=False")
            loss = model(ids, labels=ids).loss * 11
            expect(folder, torch.allclose(model(ids, labels=ids, num_items_in_batch=11).loss * 11, loss), "the sum of losses")
        for refused in (dict(output_attentions=True), dict(labels=ids, logits_to_keep=1)):
            try:
                model(ids, **refused)
            except ValueError:
                continue
            raise SystemExit(f"{folder}: {refused} is taken")


def expect(folder, is_so, what):
    if not is_so:
        raise SystemExit(f"{folder}: {what}")


def check_export(folder, wanted):
    config = json.loads((folder / "config.json").read_text())
    if config["architectures"] != [wanted]:
        raise SystemExit(f"{folder}: {config['architectures']}, wanted {wanted}")
    own = {} if wanted != "KeelForCausalLM" else {"trust_remote_code": True}
    if not write_golden(folder, **own):
        raise SystemExit(f"{folder}: greedy tokens hang on rounding")
    if own:
        check_arguments(folder)
    check_tokenizer(folder)
    check_generation(folder, **own)
    print(folder.name, flush=True)


def export_models(out, names):
    with tempfile.TemporaryDirectory(prefix="keel-peer-") as name:
        work = pathlib.Path(name)
        write_tokenizers(work)
        for name, (wanted, tokenizer, model) in EXPORTS.items():
            config = {"model": {**TRAINED, **model}, "data": {"path": str(work / f"data-{tokenizer}"), "sequence_length": 64},
                      "train": {"steps": 3, "batch_sequences": 4, "seed": 1}, "optimizer": {"learning_rate": 0.05},
                      "schedule": {"name": "constant"}}
            (work / "train.json").write_text(json.dumps(config))
            keel("keel-train", "--config", work / "train.json", "--out", work / name, "--progress", "none", "--threads", "1")
            keel("keel-convert", work / name, out / name, "--to", "hf", "--verify", "--max-shard-size",
                 "20KB" if name == "keel" else "5GB", "--progress", "none")
            check_export(out / name, wanted)
        for name, keys in EDITED.items():
            keel("keel-convert", work / "keel", work / name, "--to", "keel", "--progress", "none")
            path = work / name / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
            keel("keel-convert", work / name, out / name, "--to", "hf", "--progress", "none")
            check_export(out / name, "KeelForCausalLM")


def be_quiet():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def main():
    be_quiet()
    command, out, *names = sys.argv[1:]
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    {"import": import_models, "export": export_models}[command](out, names)


if __name__ == "__main__":
    main()
