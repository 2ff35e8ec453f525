"""Pipelines of diffusers with a few thousand random weights each, built without downloads."""

import diffusers
import torch
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

WIDTH = 8  # of prompt embeddings
TOKENS = 5


def _vae(channels=4, **changes):
    return diffusers.AutoencoderKL(
        **{
            "block_out_channels": (4, 4),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "latent_channels": channels,
            "norm_num_groups": 2,
            **changes,
        }
    )


def _unet(**changes):
    return diffusers.UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(4, 8),
        layers_per_block=1,
        norm_num_groups=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=2,
        **changes,
    )


def _text_config(width=WIDTH):
    return CLIPTextConfig(
        hidden_size=width,
        projection_dim=width,
        intermediate_size=width,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=64,
        max_position_embeddings=16,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )


def _tokenizer():
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(letter + "</w>" for letter in letters)]
    vocabulary = {word: index for index, word in enumerate(words)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=16)


def stable_diffusion():
    """SD 1.x, with a text encoder."""
    return diffusers.StableDiffusionPipeline(
        vae=_vae(),
        text_encoder=CLIPTextModel(_text_config()),
        tokenizer=_tokenizer(),
        unet=_unet(),
        scheduler=ddim(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_xl():
    """SDXL, with its two text encoders."""
    unet = _unet(
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 1),
        projection_class_embeddings_input_dim=6 * 8 + WIDTH // 2,
    )
    return diffusers.StableDiffusionXLPipeline(
        vae=_vae(),
        text_encoder=CLIPTextModel(_text_config(WIDTH // 2)),
        text_encoder_2=CLIPTextModelWithProjection(_text_config(WIDTH // 2)),
        tokenizer=_tokenizer(),
        tokenizer_2=_tokenizer(),
        unet=unet,
        scheduler=euler(),
        add_watermarker=False,
    )


def stable_diffusion_3():
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8,
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        attention_head_dim=4,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        caption_projection_dim=8,
        pooled_projection_dim=WIDTH,
    )
    absent = dict.fromkeys(
        [
            "text_encoder",
            "text_encoder_2",
            "text_encoder_3",
            "tokenizer",
            "tokenizer_2",
            "tokenizer_3",
        ]
    )
    return diffusers.StableDiffusion3Pipeline(
        transformer=transformer, scheduler=flow(), vae=_vae(shift_factor=0.0), **absent
    )


def pixart(kind=diffusers.PixArtAlphaPipeline):
    transformer = diffusers.PixArtTransformer2DModel(
        sample_size=8,
        num_layers=1,
        patch_size=2,
        attention_head_dim=4,
        num_attention_heads=2,
        caption_channels=WIDTH,
        in_channels=4,
        cross_attention_dim=8,
        out_channels=8,
        use_additional_conditions=False,
    )
    return kind(
        tokenizer=None, text_encoder=None, vae=_vae(), transformer=transformer, scheduler=ddim()
    )


def dit():
    transformer = diffusers.DiTTransformer2DModel(
        sample_size=8,
        num_layers=1,
        patch_size=2,
        attention_head_dim=4,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        attention_bias=True,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_zero",
        norm_elementwise_affine=False,
    )
    return diffusers.DiTPipeline(transformer=transformer, vae=_vae(), scheduler=ddim())


def flux():
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        axes_dims_rope=[4, 4, 8],
    )
    absent = dict.fromkeys(["text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"])
    vae = _vae(1, shift_factor=0.0, use_quant_conv=False, use_post_quant_conv=False)
    return diffusers.FluxPipeline(transformer=transformer, scheduler=flow(), vae=vae, **absent)


def wan():
    vae = diffusers.AutoencoderKLWan(
        base_dim=3,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
    )
    transformer = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=16,
        out_channels=16,
        text_dim=WIDTH,
        freq_dim=16,
        ffn_dim=8,
        num_layers=1,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )
    return diffusers.WanPipeline(
        tokenizer=None, text_encoder=None, vae=vae, transformer=transformer, scheduler=flow()
    )


def lumina():
    transformer = diffusers.LuminaNextDiT2DModel(
        sample_size=4,
        patch_size=2,
        in_channels=4,
        hidden_size=4,
        num_layers=2,
        num_attention_heads=1,
        num_kv_heads=1,
        multiple_of=16,
        ffn_dim_multiplier=None,
        norm_eps=1e-5,
        learn_sigma=True,
        qk_norm=True,
        cross_attention_dim=WIDTH,
        scaling_factor=1.0,
    )
    return diffusers.LuminaPipeline(
        transformer=transformer, scheduler=flow(), vae=_vae(), text_encoder=None, tokenizer=None
    )


_BETAS = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "timestep_spacing": "trailing",
}


def ddim(**changes):
    return diffusers.DDIMScheduler(
        **_BETAS, clip_sample=False, set_alpha_to_one=False, steps_offset=1, **changes
    )


def euler(**changes):
    return diffusers.EulerDiscreteScheduler(**_BETAS, **changes)


def noisy():
    """A sampler that adds noise at every step."""
    return diffusers.EulerAncestralDiscreteScheduler(**_BETAS)


def flow():
    return diffusers.FlowMatchEulerDiscreteScheduler()


_UNSPACED = {key: value for key, value in _BETAS.items() if key != "timestep_spacing"}
OTHERS = {
    "pndm": lambda: diffusers.PNDMScheduler(**_BETAS, skip_prk_steps=True, steps_offset=1),
    "unipc": lambda: diffusers.UniPCMultistepScheduler(**_BETAS),
    "heun": lambda: diffusers.HeunDiscreteScheduler(**_BETAS),
    "dpm": lambda: diffusers.DPMSolverMultistepScheduler(**_BETAS),
    "dpm-single": lambda: diffusers.DPMSolverSinglestepScheduler(
        **_UNSPACED, lower_order_final=True
    ),
}
"""Schedulers that keep copies of latents, or several model outputs."""


def embeddings(count, seed=0, tokens=TOKENS):
    """Random prompt embeddings: sequences of tokens, or a vector each where `tokens` is 0."""
    shape = (count, WIDTH)
    if tokens:
        shape = (count, tokens, WIDTH)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _sequences(count, seed):
    return {
        "prompt_embeds": embeddings(count, seed),
        "negative_prompt_embeds": embeddings(count, 99),
    }


def _pooled(count, seed):
    return {
        **_sequences(count, seed),
        "pooled_prompt_embeds": embeddings(count, seed + 1, 0),
        "negative_pooled_prompt_embeds": embeddings(count, 98, 0),
    }


def _masked(count, seed):
    mask = torch.ones(count, TOKENS)
    return {
        **_sequences(count, seed),
        "prompt_attention_mask": mask,
        "negative_prompt_attention_mask": mask,
    }


def arguments(name, count=3, seed=0):
    """Arguments of a call of a pipeline with `count` prompts."""
    if name == "sd3":
        return _pooled(count, seed)
    if name == "sdxl":
        options = _pooled(count, seed)
        # Only the second text encoder of SDXL gives pooled embeddings, of half the width.
        for key in ("pooled_prompt_embeds", "negative_pooled_prompt_embeds"):
            options[key] = options[key][:, : WIDTH // 2]
        return options
    if name == "lumina":
        return _masked(count, seed)
    if name.startswith("pixart"):
        return {
            "prompt": None,
            "negative_prompt": None,
            **_masked(count, seed),
            "use_resolution_binning": False,
        }
    if name == "flux":
        pooled = _pooled(count, seed)
        return {
            "prompt_embeds": pooled["prompt_embeds"],
            "pooled_prompt_embeds": pooled["pooled_prompt_embeds"],
            "height": 16,
            "width": 16,
        }
    if name == "wan":
        return {**_sequences(count, seed), "height": 16, "width": 16, "num_frames": 5}
    return _sequences(count, seed)


PIPELINES = {
    "sd": stable_diffusion,
    "sdxl": stable_diffusion_xl,
    "sd3": stable_diffusion_3,
    "flux": flux,
    "wan": wan,
    "pixart-alpha": pixart,
    "pixart-sigma": lambda: pixart(diffusers.PixArtSigmaPipeline),
}
CALLBACKS = ["sd", "sdxl", "sd3", "flux", "wan"]


def build(name):
    """Build the pipeline of this name, with the same weights each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pipe = {**PIPELINES, "lumina": lumina}[name]()
    pipe.set_progress_bar_config(disable=True)
    return pipe


def run(pipe, name, steps=4, seed=0, images=1, **options):
    """The latents at the end of a run, or images if `output_type` is given."""
    given = {**arguments(name), "output_type": "latent", **options}
    per_prompt = "num_images_per_prompt"
    if name == "wan":
        per_prompt = "num_videos_per_prompt"
    return pipe(
        **given,
        **{per_prompt: images},
        num_inference_steps=steps,
        generator=torch.Generator().manual_seed(seed),
        return_dict=False,
    )[0]
