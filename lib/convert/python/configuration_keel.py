"""Configuration of Keel-family models for transformers (loaded with trust_remote_code=True)."""
from typing import NamedTuple

from transformers import PretrainedConfig


class Wiring(NamedTuple):
    """How one residual sublayer with the branch F (attention or feed-forward network) is wired:

        u = ns * in_scale * N_inner(x),   z = (a * skip_scale) x + (b * branch_scale) N_branch(F(u)),   x' = N_outer(z)
    """

    inner: str = "none"  # norms: none, rms, ln
    branch: str = "none"
    outer: str = "none"
    a: float = 1.0
    b: float = 1.0
    ns: float = 1.0
    qkv: str = "none"  # RMS norms in attention: none, qk_head, qkv_head (each head), qk_full (all heads as one)
    in_scale: str = "none"  # learned scales: none, vector, block (a scalar that the block's sublayers share),
    skip_scale: str = "none"  # exponential (exp of a scalar)
    branch_scale: str = "none"


class KeelConfig(PretrainedConfig):
    """Llama's keys, the options of Mistral, Qwen2 and Qwen3, a residual scheme and its options, and what the scheme
    comes to: `residual_wiring`, one Wiring a sublayer (attention and feed-forward take turns) without the fields that
    have their defaults, and `final_norm_type`. The model follows these two; keel's own programs follow the scheme.
    """

    model_type = "keel"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        head_dim=None,
        max_position_embeddings=2048,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        initializer_range=0.02,
        attention_bias=False,
        qkv_bias=False,
        mlp_bias=False,
        qk_norm=False,
        sliding_window=None,
        layer_types=None,
        residual_scheme="keel",
        residual_alpha=None,
        learnable_alpha=False,
        mix_fraction=None,
        norm_type=None,
        admin_frozen=False,
        final_norm=None,
        final_norm_type="rms",
        residual_wiring=None,
        use_cache=True,
        tie_word_embeddings=False,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads or num_attention_heads
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.hidden_act = hidden_act
        self.rms_norm_eps = rms_norm_eps
        self.rope_theta = rope_theta
        if rope_scaling is not None or not hasattr(self, "rope_parameters"):
            self.rope_scaling = rope_scaling
        self.initializer_range = initializer_range
        self.attention_bias = attention_bias
        self.qkv_bias = qkv_bias
        self.mlp_bias = mlp_bias
        self.qk_norm = qk_norm
        self.sliding_window = sliding_window
        self.layer_types = layer_types
        self.residual_scheme = residual_scheme
        self.residual_alpha = residual_alpha
        self.learnable_alpha = learnable_alpha
        self.mix_fraction = mix_fraction
        self.norm_type = norm_type
        self.admin_frozen = admin_frozen
        self.final_norm = final_norm
        self.final_norm_type = final_norm_type
        self.residual_wiring = residual_wiring
        self.use_cache = use_cache
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)

    def wiring_table(self):
        """The Wiring of every sublayer."""
        rows = self.residual_wiring or []
        if len(rows) != 2 * self.num_hidden_layers:
            raise ValueError(
                f"residual_wiring has {len(rows)} rows for the {2 * self.num_hidden_layers} sublayers of "
                f"{self.num_hidden_layers} blocks: keel-convert --to hf writes them"
            )
        return [Wiring(**row) for row in rows]
