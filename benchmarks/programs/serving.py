"""Models that answer: diffusion samplers, a server's requests, streams, pools of other libraries."""

import contextlib
import json

import torch
from programs import nanogpt, program, weights
from torch import nn


@program()
def diffusion_sampling(seed, compile):
    """diffusers: one network, three samplers with numbers of steps of their own, guidance."""
    from diffusers import DDIMScheduler, DDPMScheduler, EulerDiscreteScheduler, UNet2DModel

    unet = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    ).eval()
    samplers = [DDPMScheduler(40), DDIMScheduler(40), EulerDiscreteScheduler(40)]

    @torch.no_grad()
    def sample(sampler, count, strength):
        sampler.set_timesteps(count)
        x = torch.randn(2, 1, 8, 8) * sampler.init_noise_sigma
        for t in sampler.timesteps:
            given = sampler.scale_model_input(x, t)
            noise = unet(given, t).sample
            noise = noise + strength * (noise - unet(given.flip(-1), t).sample)
            x = sampler.step(noise, t, x).prev_sample
        return (x / 2 + 0.5).clamp(0, 1)

    def step(i):
        return [sample(sampler, 3 + at, 0.1 * at) for at, sampler in enumerate(samplers)]

    return step, lambda: weights(unet)


@program()
def requests(seed, compile):
    """A handler: text in, checked, a batch of what came, text out; errors are answers as well."""
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 3)).eval()
    labels = ["low", "middle", "high"]

    def handle(body):
        try:
            given = json.loads(body)
            x = torch.tensor(given["inputs"], dtype=torch.float32)
            if x.ndim != 2 or x.shape[1] != 4:
                raise ValueError(f"expected rows of 4 numbers, got {tuple(x.shape)}")
            with torch.inference_mode():
                odds = model(x).softmax(-1)
            found = [{"label": labels[row.argmax()], "score": round(row.max().item(), 4)} for row in odds]
            return json.dumps({"id": given["id"], "found": found})
        except (KeyError, ValueError) as error:
            return json.dumps({"error": str(error)})

    def step(i):
        bodies = [json.dumps({"id": 10 * i + n, "inputs": torch.randn(n % 3 + 1, 4).tolist()}) for n in range(4)]
        return [handle(body) for body in (*bodies, '{"id": 1}', '{"inputs": [[1, 2]], "id": 2}', "no json")]

    return step, lambda: weights(model)


@program()
def stream_of_tokens(seed, compile):
    """A generator that yields words as they come, to readers that stop when they have enough."""
    model = nanogpt().eval()

    def words(tokens, longest):
        with torch.no_grad():
            for _ in range(longest):
                logits, _ = model(tokens[:, -32:])
                token = torch.multinomial(logits[:, -1].softmax(-1), 1)
                tokens = torch.cat([tokens, token], 1)
                yield token.item()

    def step(i):
        heard = []
        with contextlib.closing(words(torch.randint(65, (1, 3)), 12)) as stream:
            for word in stream:
                heard.append(word)
                if word % 11 == 0 or len(heard) > 5 + i % 3:
                    break
        return heard

    return step, lambda: weights(model)


@program()
def calls_of_joblib(seed, compile):
    """joblib's threads: each has a slice of the data, results come back in order."""
    from joblib import Parallel, delayed

    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)).eval()

    @torch.no_grad()
    def score(part, scale):
        return (model(part) * scale).softmax(-1).max(-1).values

    def step(i):
        parts = torch.randn(20, 6).split(6)
        return torch.cat(Parallel(n_jobs=2, backend="threading")(delayed(score)(part, 1.0 + i) for part in parts))

    return step, lambda: weights(model)
