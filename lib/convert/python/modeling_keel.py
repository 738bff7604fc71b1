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


class KeelNorm(nn.Module):
    """g v / sqrt(mean(v^2) + eps), of an "ln" with v less its mean and a bias added."""

    def __init__(self, kind, size, eps):
        super().__init__()
        if kind not in ("rms", "ln"):
            raise ValueError(f"norm '{kind}' is not known here")
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if kind == "ln" else None
        self.eps = eps

    def forward(self, x):
        v = widened(x)
        if self.bias is not None:
            v = v - v.mean(-1, keepdim=True)
        y = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
        return (y if self.bias is None else y + self.bias).to(x.dtype)


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


# Which of q, k and v a Wiring's qkv norms.
NORMED = {"none": "", "qk_head": "qk", "qk_full": "qk", "qkv_head": "qkv"}


class KeelAttention(nn.Module):
    def __init__(self, config, block, qkv):
        super().__init__()
        self.block, self.config = block, config
        d, eps = config.head_dim, config.rms_norm_eps
        widths = {"q": config.num_attention_heads * d, "k": config.num_key_value_heads * d, "v": config.num_key_value_heads * d}
        for name, width in widths.items():
            projection = nn.Linear(config.hidden_size, width, bias=config.attention_bias or config.qkv_bias)
            setattr(self, f"{name}_proj", projection)
        self.o_proj = nn.Linear(widths["q"], config.hidden_size, bias=config.attention_bias)
        for name in NORMED[qkv]:
            setattr(self, f"{name}_norm", KeelNorm("rms", widths[name] if qkv == "qk_full" else d, eps))

    def heads(self, name, u):
        """q, k or v of every head, [batch, heads, length, head_dim]. A norm is as wide as its gain."""
        x = getattr(self, f"{name}_proj")(u)
        norm = getattr(self, f"{name}_norm", None)
        if norm is not None:
            x = norm(x.unflatten(-1, (-1, norm.weight.numel()))).flatten(-2)
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def window(self):
        c = self.config
        if not c.sliding_window or (c.layer_types and c.layer_types[self.block] != "sliding_attention"):
            return None
        return c.sliding_window

    def forward(self, u, cos, sin, padding, cache):
        c = self.config
        batch, length = u.shape[:2]
        q, k, v = rotate(self.heads("q", u), cos, sin), rotate(self.heads("k", u), cos, sin), self.heads("v", u)
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


def part_names(sublayer, wiring):
    """What a block calls the parts of its "attention" or "feedforward" sublayer. As in the architectures that have
    them, post_attention_layernorm is a norm of attention's output or else of the feed-forward network's input."""
    if sublayer == "attention":
        inner = "input_layernorm"
    else:
        inner = "post_attention_layernorm" if wiring.branch == "none" else "pre_feedforward_layernorm"
    return {
        "inner": inner,
        "branch": f"post_{sublayer}_layernorm",
        "outer": f"outer_{sublayer}_layernorm",
        "in_scale": f"{sublayer}_input_scale",
        "skip_scale": f"{sublayer}_skip_exponent" if wiring.skip_scale == "exponential" else f"{sublayer}_skip_scale",
        "branch_scale": "residual_scale" if wiring.branch_scale == "block" else f"{sublayer}_branch_scale",
    }


class KeelBlock(nn.Module):
    """Two sublayers with the norms and scales that their wiring gives them: a wide stream, branches in `dtype`."""

    def __init__(self, config, block, attention, feedforward):
        super().__init__()
        self.wiring = {"attention": attention, "feedforward": feedforward}
        self.names = {}
        self.self_attn = KeelAttention(config, block, attention.qkv)
        self.mlp = KeelMLP(config)
        for sublayer, wiring in self.wiring.items():
            names = part_names(sublayer, wiring)
            self.names[sublayer] = {part: name for part, name in names.items() if getattr(wiring, part) != "none"}
            for part, name in self.names[sublayer].items():
                self.add_part(config, part, name, getattr(wiring, part))

    def add_part(self, config, part, name, kind):
        if part in ("inner", "branch", "outer"):
            setattr(self, name, KeelNorm(kind, config.hidden_size, config.rms_norm_eps))
            return
        if kind not in ("vector", "block", "exponential"):
            raise ValueError(f"scale '{kind}' is not known here")
        scale = torch.full((config.hidden_size if kind == "vector" else 1,), scale_start(name))
        if part == "skip_scale" and config.admin_frozen:
            self.register_buffer(name, scale)
        else:
            setattr(self, name, nn.Parameter(scale))

    def part(self, sublayer, part):
        name = self.names[sublayer].get(part)
        return None if name is None else getattr(self, name)

    def normed(self, sublayer, part, x):
        norm = self.part(sublayer, part)
        return x if norm is None else norm(x)

    def scaled(self, sublayer, part, x):
        scale = self.part(sublayer, part)
        if scale is None:
            return x
        return (widened(scale).exp() if getattr(self.wiring[sublayer], part) == "exponential" else scale) * x

    def step(self, sublayer, x, dtype, branch):
        """The equations of Wiring."""
        wiring = self.wiring[sublayer]
        u = wiring.ns * self.scaled(sublayer, "in_scale", self.normed(sublayer, "inner", x))
        f = self.normed(sublayer, "branch", widened(branch(u.to(dtype))))
        z = wiring.a * self.scaled(sublayer, "skip_scale", x) + wiring.b * self.scaled(sublayer, "branch_scale", f)
        return self.normed(sublayer, "outer", z)

    def forward(self, x, dtype, *attention_inputs):
        x = self.step("attention", x, dtype, lambda u: self.self_attn(u, *attention_inputs))
        return self.step("feedforward", x, dtype, self.mlp)


def scale_start(name):
    """Learned scales start without an effect; what a scheme starts them at is in the weights."""
    return 0.0 if name.endswith("_exponent") else 1.0


class KeelPreTrainedModel(PreTrainedModel):
    config_class = KeelConfig
    base_model_prefix = "model"
    _no_split_modules = ["KeelBlock"]
    _supports_sdpa = True

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, 0.0, self.config.initializer_range)
        elif isinstance(module, KeelNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, KeelBlock):
            for name, scale in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
                nn.init.constant_(scale, scale_start(name))
        if isinstance(module, (nn.Linear, KeelNorm)) and module.bias is not None:
            nn.init.zeros_(module.bias)


class KeelModel(KeelPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        rows = config.wiring_table()
        self.layers = nn.ModuleList(
            KeelBlock(config, block, *rows[2 * block:2 * block + 2]) for block in range(config.num_hidden_layers)
        )
        if config.final_norm:
            self.norm = KeelNorm(config.final_norm_type, config.hidden_size, config.rms_norm_eps)
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
