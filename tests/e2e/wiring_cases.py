"""The golden wiring cases (golden/wiring of the test data) and the model folders that they start from."""
import json

from keel_files import read_safetensors, write_safetensors


def wiring_cases(folder):
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text())
        if "train" in case:
            yield case


def model_config(config, length):
    return {"model_type": "keel", "architectures": ["KeelForCausalLM"], "vocab_size": config["vocab"], "hidden_size": config["width"],
            "intermediate_size": config["ffn"], "num_hidden_layers": config["blocks"], "num_attention_heads": config["heads"],
            "num_key_value_heads": config["kv_heads"], "max_position_embeddings": length, "rms_norm_eps": config["eps"],
            "rope_theta": config["theta"], "tie_word_embeddings": config["tied"], "residual_scheme": config["scheme"],
            "residual_alpha": config["alpha"], "mix_fraction": config["mix_fraction"], "final_norm": config["final_norm"],
            "admin_frozen": config["admin_frozen"], "hidden_act": "silu", "attention_bias": False}


def write_case(golden, case, folder, length):
    """The case's start as a model folder."""
    folder.mkdir()
    matrices, small = (read_safetensors(golden / case["files"][kind]) for kind in ("matrices", "small"))
    write_safetensors(folder / "model.safetensors", {n: small.get(n) or matrices[n] for n in case["parameters"]})
    (folder / "config.json").write_text(json.dumps(model_config(case["config"], length)))
