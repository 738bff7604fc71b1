"""Configuration of Keel-family models for transformers (loaded with trust_remote_code=True)."""
from transformers import PretrainedConfig


class KeelConfig(PretrainedConfig):
    """Llama's keys, the options of Mistral, Qwen2 and Qwen3, and `residual_wiring`: one row a sublayer
    (attention and feed-forward take turns) with the keys inner, outer ("none" or "rms"), a and b of

        u = N_inner(x),   x' = N_outer(a x + b F(u))
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
        final_norm=None,
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
        self.final_norm = final_norm
        self.residual_wiring = residual_wiring
        self.use_cache = use_cache
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)
