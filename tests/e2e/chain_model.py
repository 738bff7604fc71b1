"""A model that a test writes: each token is followed by the one that the test says, and every other token is equally likely."""
import json
import shutil

from keel_files import write_safetensors

SCALE = 4.0


def write_chain_model(folder, follows, tokenizer, vocab_size=330, context=64, broken=False):
    """follows: id -> the id that comes after it (none: all logits are 0). Attention and feed-forward add nothing: the
    stream is the embedding, a unit vector for each token, and a row of the head picks out the token before its own."""
    folder.mkdir()
    size = (vocab_size + 3) // 4 * 4
    unit = lambda hot: [1.0 if i == hot else 0.0 for i in range(size)]
    before = {}
    for a, b in follows.items():
        before.setdefault(b, []).append(a)
    head = []
    for t in range(vocab_size):
        row = [0.0] * size
        for a in before.get(t, ()):
            row[a] = float("nan") if broken else SCALE
        head += row
    zeros = lambda rows, columns: ((rows, columns), [0.0] * (rows * columns))
    inner = 4
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": ((vocab_size, size), sum((unit(t) for t in range(vocab_size)), [])),
               "lm_head.weight": ((vocab_size, size), head),
               "model.norm.weight": ((size,), [1.0] * size),
               layer + "input_layernorm.weight": ((size,), [1.0] * size),
               layer + "post_attention_layernorm.weight": ((size,), [1.0] * size),
               layer + "mlp.gate_proj.weight": zeros(inner, size), layer + "mlp.up_proj.weight": zeros(inner, size),
               layer + "mlp.down_proj.weight": zeros(size, inner)}
    for name, rows, columns in (("q", 4, size), ("k", 4, size), ("v", 4, size), ("o", size, 4)):
        tensors[f"{layer}self_attn.{name}_proj.weight"] = zeros(rows, columns)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab_size, "hidden_size": size, "intermediate_size": inner,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4, "max_position_embeddings": context,
        "rms_norm_eps": 1e-5, "hidden_act": "silu"}))
    shutil.copy(tokenizer, folder / ("tokenizer.json" if tokenizer.suffix == ".json" else "tokenizer.model"))
    return folder
