"""Small model folders in the Hugging Face layout, as tests write them."""
import array
import json
import pathlib
import random
import shutil
import struct

TESTDATA = pathlib.Path(__file__).resolve().parents[2] / "tokenizer" / "testdata"
VOCABULARY = 316  # of tiny_bytes.json


def llama_config(**changes):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 8,
            "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32", "bos_token_id": 1,
            "eos_token_id": 2, **changes}


def shapes(c):
    """name -> shape of the tensors that this config wants."""
    d, f, h, k = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
    hd = c.get("head_dim") or d // h
    family = c["model_type"]
    qkv_bias, o_bias, mlp_bias = c.get("attention_bias") or family == "qwen2", c.get("attention_bias"), c.get("mlp_bias")
    inner, branch = ("input_layernorm", "post_attention_layernorm"), ("post_attention_layernorm", "post_feedforward_layernorm")
    wanted = {"model.embed_tokens.weight": [c["vocab_size"], d], "model.norm.weight": [d]}
    if not c.get("tie_word_embeddings"):
        wanted["lm_head.weight"] = [c["vocab_size"], d]
    for i in range(c["num_hidden_layers"]):
        layer = {name + ".weight": [d] for name in (branch if family == "olmo2" else inner)}
        for name, rows, columns, bias in (("self_attn.q_proj", h * hd, d, qkv_bias), ("self_attn.k_proj", k * hd, d, qkv_bias),
                                          ("self_attn.v_proj", k * hd, d, qkv_bias), ("self_attn.o_proj", d, h * hd, o_bias),
                                          ("mlp.gate_proj", f, d, mlp_bias), ("mlp.up_proj", f, d, mlp_bias),
                                          ("mlp.down_proj", d, f, mlp_bias)):
            layer[name + ".weight"] = [rows, columns]
            if bias:
                layer[name + ".bias"] = [rows]
        if family == "qwen3":
            layer["self_attn.q_norm.weight"] = layer["self_attn.k_norm.weight"] = [hd]
        if family == "olmo2":
            layer.update({"self_attn.q_norm.weight": [h * hd], "self_attn.k_norm.weight": [k * hd]})
        wanted.update({f"model.layers.{i}.{name}": shape for name, shape in layer.items()})
    return wanted


def tensor_bytes(values, dtype):
    if dtype == "F32":
        return array.array("f", values).tobytes()
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    raw = array.array("f", values).tobytes()  # BF16: the upper half, cut
    return b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))


def random_tensors(config, dtype="F32", seed=1):
    """name -> (dtype, shape, bytes)"""
    rng = random.Random(seed)
    tensors = {}
    for name, shape in sorted(shapes(config).items()):
        count = 1
        for extent in shape:
            count *= extent
        values = [rng.gauss(1, 0.2) if "norm" in name else rng.gauss(0, 0.3) for _ in range(count)]
        tensors[name] = (dtype, shape, tensor_bytes(values, dtype))
    return tensors


def safetensors_bytes(header, data):
    """header: the JSON object, or its text as bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def header_and_data(tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return header, data


def read_tensors(folder):
    """name -> (dtype, shape, bytes) of a folder's weights, from one file or shards."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("model*.safetensors")):
        blob = path.read_bytes()
        (n,) = struct.unpack_from("<Q", blob)
        for name, entry in json.loads(blob[8:8 + n]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = (entry["dtype"], entry["shape"], blob[8 + n + begin:8 + n + end])
    return tensors


def write_weights(folder, tensors, shards=1):
    """model.safetensors, or shards that take turns and their index."""
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors_bytes(*header_and_data(tensors)))
        return
    weight_map = {}
    for i in range(shards):
        part = {name: tensors[name] for name in list(tensors)[i::shards]}
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        (folder / file).write_bytes(safetensors_bytes(*header_and_data(part)))
        weight_map.update({name: file for name in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def write_model(folder, config=None, dtype="F32", shards=1, tokenizer=True, seed=1, tensors=None):
    """tensors: random ones unless given."""
    config = config or llama_config()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_weights(folder, random_tensors(config, dtype, seed) if tensors is None else tensors, shards)
    if tokenizer:
        shutil.copy(TESTDATA / "tiny_bytes.json", folder / "tokenizer.json")
    return folder
