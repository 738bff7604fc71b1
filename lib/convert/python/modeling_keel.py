"""Keel-family decoders for transformers (loaded with trust_remote_code=True)."""
import math

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_keel import KeelConfig


# The name that this version of transformers gives a cache in outputs and arguments.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"

# Arguments of other models that would change the result and are not done here.
REFUSED = ("output_attentions", "head_mask", "num_logits_to_keep", "output_router_logits")


def widened(x):
    """fp32 at least: the residual stream and what norms compute."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class KeelRMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        wide = widened(x)
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def rope_frequencies(config):
    """Radians a position, one for each pair (i, i + head_dim / 2)."""
    # transformers 5 turns rope_scaling into rope_parameters.
    scaling = getattr(config, "rope_parameters", None) or config.rope_scaling or {}
    d = config.head_dim
    kind = scaling.get("rope_type", "default")
    frequencies = []
    for i in range(d // 2):
        f = config.rope_theta ** (-2 * i / d)
        if kind == "linear":
            f /= scaling["factor"]
        elif kind == "llama3":
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            turns = scaling["original_max_position_embeddings"] * f / (2 * math.pi)
            s = min(1.0, max(0.0, (turns - low) / (high - low)))
            f *= (1 - s) / scaling["factor"] + s
        frequencies.append(f)
    return frequencies


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class KeelAttention(nn.Module):
    def __init__(self, config, block):
        super().__init__()
        self.block, self.config = block, config
        heads, kv_heads, d = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        qkv_bias = config.attention_bias or config.qkv_bias
        self.q_proj = nn.Linear(config.hidden_size, heads * d, bias=qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_heads * d, bias=qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_heads * d, bias=qkv_bias)
        self.o_proj = nn.Linear(heads * d, config.hidden_size, bias=config.attention_bias)
        if config.qk_norm:
            self.q_norm = KeelRMSNorm(d, config.rms_norm_eps)
            self.k_norm = KeelRMSNorm(d, config.rms_norm_eps)

    def window(self):
        c = self.config
        if not c.sliding_window or (c.layer_types and c.layer_types[self.block] != "sliding_attention"):
            return None
        return c.sliding_window

    def forward(self, u, cos, sin, padding, cache):
        c = self.config
        batch, length = u.shape[:2]
        q = self.q_proj(u).view(batch, length, c.num_attention_heads, c.head_dim)
        k = self.k_proj(u).view(batch, length, c.num_key_value_heads, c.head_dim)
        v = self.v_proj(u).view(batch, length, c.num_key_value_heads, c.head_dim).transpose(1, 2)
        if c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q.transpose(1, 2), cos, sin), rotate(k.transpose(1, 2), cos, sin)
        if cache is not None:
            k, v = cache.update(k, v, self.block)
        total = k.shape[2]
        keys = torch.arange(total, device=u.device)
        queries = torch.arange(total - length, total, device=u.device)[:, None]
        allowed = keys <= queries
        if self.window() is not None:
            allowed = allowed & (keys > queries - self.window())
        allowed = allowed[None, None]
        if padding is not None:
            seen = allowed & padding[:, None, None, :total].bool()
            allowed = seen | torch.eye(total, device=u.device, dtype=torch.bool)[total - length:][None, None]
        groups = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class KeelMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, hidden = config.intermediate_size, config.hidden_size
        self.gate_proj = nn.Linear(hidden, width, bias=config.mlp_bias)
        self.up_proj = nn.Linear(hidden, width, bias=config.mlp_bias)
        self.down_proj = nn.Linear(width, hidden, bias=config.mlp_bias)

    def forward(self, u):
        return self.down_proj(F.silu(self.gate_proj(u)) * self.up_proj(u))


class KeelBlock(nn.Module):
    """Two sublayers and the norms that the wiring gives them: a wide stream, branches in `dtype`."""

    def __init__(self, config, block):
        super().__init__()
        self.attention_row, self.feedforward_row = config.residual_wiring[2 * block:2 * block + 2]
        self.self_attn = KeelAttention(config, block)
        self.mlp = KeelMLP(config)
        for name, row, key in (
            ("input_layernorm", self.attention_row, "inner"),
            ("outer_attention_layernorm", self.attention_row, "outer"),
            ("post_attention_layernorm", self.feedforward_row, "inner"),
            ("outer_feedforward_layernorm", self.feedforward_row, "outer"),
        ):
            if row[key] == "rms":
                setattr(self, name, KeelRMSNorm(config.hidden_size, config.rms_norm_eps))
            elif row[key] != "none":
                raise ValueError(f"norm '{row[key]}' is not known here")

    def norm(self, name, x):
        return getattr(self, name)(x) if hasattr(self, name) else x

    def forward(self, x, dtype, *attention_inputs):
        row = self.attention_row
        branch = self.self_attn(self.norm("input_layernorm", x).to(dtype), *attention_inputs)
        x = self.norm("outer_attention_layernorm", row["a"] * x + row["b"] * widened(branch))
        row = self.feedforward_row
        branch = self.mlp(self.norm("post_attention_layernorm", x).to(dtype))
        return self.norm("outer_feedforward_layernorm", row["a"] * x + row["b"] * widened(branch))


class KeelPreTrainedModel(PreTrainedModel):
    config_class = KeelConfig
    base_model_prefix = "model"
    _no_split_modules = ["KeelBlock"]
    _supports_sdpa = True

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(0.0, self.config.initializer_range)
            if getattr(module, "bias", None) is not None:
                module.bias.data.zero_()
        elif isinstance(module, KeelRMSNorm):
            module.weight.data.fill_(1.0)


class KeelModel(KeelPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(KeelBlock(config, block) for block in range(config.num_hidden_layers))
        if config.final_norm:
            self.norm = KeelRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    def get_input_embeddings(self):
        return self.embed_tokens

    def set_input_embeddings(self, value):
        self.embed_tokens = value

    def forward(self, input_ids=None, inputs_embeds=None, attention_mask=None, position_ids=None, cache=None, states=None):
        """`states`, if a list, gets the stream before each block, and the result."""
        embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        x, dtype = widened(embeddings), embeddings.dtype
        before = cache.get_seq_length() if cache is not None else 0
        if position_ids is None:
            position_ids = torch.arange(before, before + x.shape[1], device=x.device)[None]
        frequencies = torch.tensor(rope_frequencies(self.config), dtype=torch.float64, device=x.device)
        angles = position_ids[:, None, :, None].double() * frequencies
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        for layer in self.layers:
            if states is not None:
                states.append(x)
            x = layer(x, dtype, cos, sin, attention_mask, cache)
        hidden = (self.norm(x) if self.config.final_norm else x).to(dtype)
        if states is not None:
            states.append(hidden)
        return hidden


class KeelForCausalLM(KeelPreTrainedModel, GenerationMixin):
    _tied_weights_keys = (
        {"lm_head.weight": "model.embed_tokens.weight"}
        if int(transformers.__version__.split(".")[0]) >= 5
        else ["lm_head.weight"]
    )

    def __init__(self, config):
        super().__init__(config)
        self.model = KeelModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def set_input_embeddings(self, value):
        self.model.embed_tokens = value

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, value):
        self.lm_head = value

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        cache=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        output_hidden_states=None,
        return_dict=None,
        logits_to_keep=0,
        num_items_in_batch=None,
        **kwargs,
    ):
        for name in REFUSED:
            if kwargs.get(name) is not None and kwargs[name] is not False:
                raise ValueError(f"{name} is not supported by Keel models")
        if labels is not None and not (isinstance(logits_to_keep, int) and logits_to_keep == 0):
            raise ValueError("logits_to_keep cannot be given with labels: the loss takes all logits")
        if output_hidden_states is None:
            output_hidden_states = getattr(self.config, "output_hidden_states", False)
        return_dict = getattr(self.config, "return_dict", True) if return_dict is None else return_dict
        use_cache = self.config.use_cache if use_cache is None else use_cache
        cache = past_key_values if cache is None else cache
        if use_cache and cache is None and not self.training:
            cache = DynamicCache()
        states = [] if output_hidden_states else None
        hidden = self.model(input_ids, inputs_embeds, attention_mask, position_ids, cache, states)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden[:, kept])
        loss = None
        if labels is not None:
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), reduction=reduction)
            loss = loss if num_items_in_batch is None else loss / num_items_in_batch
        output = CausalLMOutputWithPast(
            loss=loss, logits=logits, hidden_states=tuple(states) if output_hidden_states else None, **{CACHE: cache}
        )
        return output if return_dict else output.to_tuple()
