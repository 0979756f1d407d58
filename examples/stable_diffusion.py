"""Draws an image with a pipeline of Hugging Face's diffusers: Stable Diffusion, or SDXL.

    pip install diffusers transformers
    python examples/stable_diffusion.py    a small pipeline, from random numbers: no picture
    python examples/stable_diffusion.py --xl           the same of SDXL
    python examples/stable_diffusion.py --model DIR --prompt "a lighthouse" --out image.png

The pipeline is theirs, unchanged: it looks for torch_xla and puts a barrier behind each step. The
first image compiles the parts of the pipeline, the second only runs them, as long as its size is
the same.
"""

import argparse
import time

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DiffusionPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)

import torch_xla
import torch_xla.debug.metrics as metrics

WIDTH = 16


def small_pipeline(is_xl: bool) -> DiffusionPipeline:
    """One without text encoders: prompts are random embeddings."""
    down, up = "DownBlock2D", "UpBlock2D"
    more = {}
    if is_xl:  # six sizes of the image and a pooled prompt are embedded beside the time
        more = {
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 6 * 8 + WIDTH,
        }
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=(down, "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", up),
        cross_attention_dim=WIDTH,
        attention_head_dim=8,
        norm_num_groups=8,
        **more,
    )
    vae = AutoencoderKL(
        block_out_channels=(16, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=16,
    )
    scheduler = DDIMScheduler(steps_offset=1, clip_sample=False)
    parts = {"unet": unet, "vae": vae, "scheduler": scheduler}
    parts |= {"text_encoder": None, "tokenizer": None, "feature_extractor": None}
    if is_xl:
        parts |= {"text_encoder_2": None, "tokenizer_2": None}
        return StableDiffusionXLPipeline(**parts, add_watermarker=False)
    return StableDiffusionPipeline(**parts, safety_checker=None, requires_safety_checker=False)


def random_prompt(is_xl: bool, device: torch.device) -> dict[str, torch.Tensor]:
    names = {"prompt_embeds": (1, 7, WIDTH), "negative_prompt_embeds": (1, 7, WIDTH)}
    if is_xl:
        names |= {"pooled_prompt_embeds": (1, WIDTH), "negative_pooled_prompt_embeds": (1, WIDTH)}
    return {name: torch.randn(sizes).to(device) for name, sizes in names.items()}


def main(arguments: list[str] | None = None) -> tuple[list[int], torch.Tensor]:
    """Draws twice; how many programs each image compiled, and the second image."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder")
    parser.add_argument("--prompt", default="a lighthouse in a storm")
    parser.add_argument("--xl", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", help="a file for the image")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    device = torch_xla.device()
    if options.model:
        pipeline = DiffusionPipeline.from_pretrained(options.model).to(device)
        prompt = {"prompt": options.prompt}
    else:
        pipeline = small_pipeline(options.xl).to(device)
        prompt = random_prompt(options.xl, device)
    pipeline.set_progress_bar_config(disable=True)
    counts = []
    for _ in range(2):
        before = metrics.counter_value("UncachedCompile") or 0
        start = time.perf_counter()
        images = pipeline(**prompt, num_inference_steps=options.steps, output_type="pt").images
        image = images[0].cpu()
        counts.append((metrics.counter_value("UncachedCompile") or 0) - before)
        seconds = time.perf_counter() - start
        print(f"{tuple(image.shape)} in {seconds:.1f} s, {counts[-1]} programs compiled")
    if options.out:
        pipeline.image_processor.postprocess(images, do_denormalize=[False])[0].save(options.out)
    return counts, image


if __name__ == "__main__":
    main()
