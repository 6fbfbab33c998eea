"""Scripts around libraries, written without a look at how any front end does on them, and run as they were."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from programs import program, weights
from torch import nn


@program()
def retina_detector(seed, compile):
    """torchvision's RetinaNet: anchors of two levels, focal loss, pictures of other sizes, boxes counted by class."""
    from collections import Counter

    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    sys.modules["torchvision.extension"]._has_ops = lambda: True  # nms is there, declared by the runner

    class Levels(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.down, self.out_channels = nn.Conv2d(3, 8, 3, 4, 1), nn.Conv2d(8, 8, 3, 2, 1), 8

        def forward(self, x):
            fine = self.stem(x).relu()
            return {"fine": fine, "coarse": self.down(fine)}

    anchors = AnchorGenerator(((8,), (16,)), ((0.5, 1.0, 2.0),) * 2)
    model = RetinaNet(Levels(), 4, anchor_generator=anchors, min_size=32, max_size=64, score_thresh=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def boxes(count):
        corner = torch.rand(count, 2) * 16
        return {
            "boxes": torch.cat([corner, corner + 4 + torch.rand(count, 2) * 10], 1),
            "labels": torch.randint(1, 4, (count,)),
        }

    def step(i):
        pictures = [torch.rand(3, 32, 32 + 8 * (i % 3)), torch.rand(3, 40, 32)]
        model.train()
        losses = model(pictures, [boxes(1 + i % 3), boxes(2)])
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        model.eval()
        with torch.no_grad():
            found = model(pictures)
        kinds = Counter(int(label) for each in found for label in each["labels"])
        return {name: value.item() for name, value in losses.items()}, found[0]["scores"][:5], sorted(kinds.items())

    return step, lambda: weights(model, optimizer)


@program()
def sampled_stories(seed, compile):
    """GPT-2 writes: temperature, top-k and nucleus, a processor and a criterion of our own, prompts padded left."""
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LogitsProcessor,
        LogitsProcessorList,
        StoppingCriteria,
        StoppingCriteriaList,
    )

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=80,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    ).eval()

    class Fade(LogitsProcessor):
        """Words that were said lately become less likely, the more so the later it is."""

        def __init__(self, window):
            self.window, self.calls = window, 0

        def __call__(self, input_ids, scores):
            self.calls += 1
            lately = input_ids[:, -self.window :]
            return scores.scatter(1, lately, scores.gather(1, lately) - 0.2 * self.calls)

    class FullStop(StoppingCriteria):
        def __call__(self, input_ids, scores, **others):
            return (input_ids[:, -1] % 10 == 7) & (input_ids.shape[1] > 8)

    def step(i):
        lengths = [3 + i % 4, 5]
        longest = max(lengths)
        prompts = [torch.randint(3, 80, (length,)) for length in lengths]
        tokens = torch.stack([F.pad(prompt, (longest - len(prompt), 0)) for prompt in prompts])
        told = model.generate(
            tokens,
            attention_mask=(tokens != 0).long(),
            do_sample=True,
            temperature=0.7 + 0.1 * (i % 5),
            top_k=20,
            top_p=0.9,
            max_new_tokens=10,
            num_return_sequences=2,
            logits_processor=LogitsProcessorList([Fade(3)]),
            stopping_criteria=StoppingCriteriaList([FullStop()]),
        )
        words = [" ".join(f"w{token}" for token in row if token > 2) for row in told[:, longest:].tolist()]
        return told, max(words, key=len)

    return step, lambda: weights(model)


@program()
def short_titles(seed, compile):
    """T5 is taught with Adafactor, smoothed labels, two batches an update; greedy titles are scored in Python."""
    from transformers import Adafactor, T5Config, T5ForConditionalGeneration
    from transformers.trainer_pt_utils import LabelSmoother

    settings = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}
    model = T5ForConditionalGeneration(T5Config(**settings, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))
    optimizer = Adafactor(model.parameters(), scale_parameter=True, relative_step=True, warmup_init=True, lr=None)
    smooth = LabelSmoother(epsilon=0.1)

    def collate(texts):
        sides = {}
        for side, fill in (("input_ids", 0), ("labels", -100)):
            sides[side] = nn.utils.rnn.pad_sequence(
                [text[side] for text in texts], batch_first=True, padding_value=fill
            )
        sides["attention_mask"] = (sides["input_ids"] != 0).long()
        return sides

    def text():
        words = torch.randint(3, 60, (int(torch.randint(6, 12, ())),))
        return {"input_ids": words, "labels": torch.cat([words[::3], torch.tensor([1])])}

    def overlap(guess, wanted):
        common = len(set(guess) & set(wanted))
        return 2 * common / max(1, len(set(guess)) + len(set(wanted)))

    def step(i):
        model.train()
        total = 0.0
        for _ in range(2):
            batch = collate([text() for _ in range(4)])
            out = model(**batch)
            loss = smooth(out, batch["labels"]) / 2
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        told = model.generate(
            batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=5, do_sample=False
        )
        wanted = batch["labels"].tolist()
        scores = [
            overlap([w for w in row if w > 1], [w for w in want if w > 1])
            for row, want in zip(told.tolist(), wanted, strict=True)
        ]
        return total, told, sum(scores) / len(scores)

    return step, lambda: weights(model, optimizer)


@program()
def rates_by_layer(seed, compile):
    """ViT is fine-tuned: a rate for each layer, no decay for norms, checkpointed layers, stochastic depth."""
    from transformers import ViTConfig, ViTForImageClassification, get_linear_schedule_with_warmup

    model = ViTForImageClassification(
        ViTConfig(
            hidden_size=24,
            num_hidden_layers=3,
            num_attention_heads=3,
            intermediate_size=48,
            image_size=16,
            patch_size=4,
            num_labels=5,
        )
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    groups = {}
    for name, parameter in model.named_parameters():
        found = [int(part) for part in name.split(".") if part.isdigit()]
        depth = 3 if "classifier" in name else found[0] if found else 0
        decay = 0.0 if parameter.ndim == 1 else 0.05
        group = groups.setdefault(
            (depth, decay), {"params": [], "lr": 2e-3 * 0.65 ** (3 - depth), "weight_decay": decay}
        )
        group["params"].append(parameter)
    optimizer = torch.optim.AdamW(list(groups.values()))
    schedule = get_linear_schedule_with_warmup(optimizer, 3, 40)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def step(i):
        model.train()
        pixels, labels = torch.rand(4, 3, 16, 16), torch.randint(5, (4,))
        with torch.autocast("cpu", torch.bfloat16):
            out = model(pixel_values=pixels, labels=labels, output_hidden_states=i % 4 == 3)
        scaler.scale(out.loss).backward()
        norms = {str(key): nn.utils.clip_grad_norm_(group["params"], 0.5).item() for key, group in groups.items()}
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        hidden = [h.float().norm().item() for h in out.hidden_states] if out.hidden_states else []
        return out.loss, norms, hidden, schedule.get_last_lr()[0]

    return step, lambda: weights(model, optimizer)


@program()
def words_and_pictures(seed, compile):
    """CLIP: two towers, a temperature that is learned and clamped, negatives out of a queue, recall."""
    from collections import deque

    from transformers import CLIPConfig, CLIPModel

    tower = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
        "projection_dim": 16,
    }
    text = {
        **tower,
        "vocab_size": 50,
        "max_position_embeddings": 12,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    model = CLIPModel(
        CLIPConfig(text_config=text, vision_config={**tower, "image_size": 16, "patch_size": 8}, projection_dim=16)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.98), eps=1e-6)
    queue = deque(maxlen=4)

    def step(i):
        model.train()
        tokens = torch.randint(3, 50, (4, 7))
        tokens[:, -1] = 2
        out = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), pixel_values=torch.rand(4, 3, 16, 16))
        others = torch.cat([out.text_embeds, *queue])
        logits = model.logit_scale.exp() * out.image_embeds @ others.T
        labels = torch.arange(4)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(out.logits_per_text, labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6052)
        queue.append(out.text_embeds.detach())
        ranks = (logits.argsort(1, descending=True) == labels[:, None]).nonzero()[:, 1]
        recall = {f"recall@{k}": (ranks < k).float().mean().item() for k in (1, 5)}
        return loss.item(), recall, model.logit_scale.item(), len(queue)

    return step, lambda: weights(model, optimizer)


@program()
def answers_in_texts(seed, compile):
    """DistilBERT finds answers: long texts in windows that overlap, the best spans put together in Python."""
    from transformers import DistilBertConfig, DistilBertForQuestionAnswering

    model = DistilBertForQuestionAnswering(
        DistilBertConfig(vocab_size=90, dim=24, hidden_dim=48, n_layers=2, n_heads=3, max_position_embeddings=32)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)

    def windows(question, text, size=24, stride=8):
        room = size - len(question) - 2
        for start in range(0, max(1, len(text) - stride), room - stride):
            part = text[start : start + room]
            tokens = [1, *question, 2, *part]
            yield {
                "tokens": tokens + [0] * (size - len(tokens)),
                "offset": start - len(question) - 2,
                "length": len(tokens),
            }

    def best_spans(features, starts, ends, count=3, longest=5):
        spans = {}
        for feature, start, end in zip(features, starts.tolist(), ends.tolist(), strict=True):
            first = max(0, -feature["offset"])
            for a in sorted(range(first, feature["length"]), key=lambda at: -start[at])[:count]:
                for b in range(a, min(a + longest, feature["length"])):
                    span = (a + feature["offset"], b + feature["offset"])
                    spans[span] = max(spans.get(span, -1e9), start[a] + end[b])
        return sorted(spans.items(), key=lambda item: -item[1])[:count]

    def step(i):
        question, text = torch.randint(3, 90, (4 + i % 2,)).tolist(), torch.randint(3, 90, (30 + 7 * (i % 4),)).tolist()
        answer = (len(text) // 2, len(text) // 2 + 2)
        features = list(windows(question, text))
        tokens = torch.tensor([feature["tokens"] for feature in features])
        places = torch.tensor([[at - feature["offset"] for at in answer] for feature in features]).clamp(-1, 24)
        places[(places < 0).any(1) | (places >= tokens.shape[1]).any(1)] = 0
        model.train()
        out = model(
            input_ids=tokens,
            attention_mask=(tokens != 0).long(),
            start_positions=places[:, 0],
            end_positions=places[:, 1],
        )
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        model.eval()
        with torch.inference_mode():
            out = model(input_ids=tokens, attention_mask=(tokens != 0).long())
        spans = best_spans(features, out.start_logits, out.end_logits)
        return out.start_logits, spans, spans[0][0] == answer

    return step, lambda: weights(model, optimizer)


@program()
def filled_holes(seed, compile):
    """diffusers: a picture is noised and drawn anew inside a mask, guided by a text and away from another."""
    from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
    from diffusers.image_processor import VaeImageProcessor

    blocks = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        cross_attention_dim=12,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        **blocks,
    ).eval()
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        **blocks,
    ).eval()
    sampler, pictures = DDIMScheduler(50, clip_sample=False), VaeImageProcessor(vae_scale_factor=2)

    @torch.no_grad()
    def fill(image, mask, words, steps, strength, guidance):
        sampler.set_timesteps(steps)
        times = sampler.timesteps[steps - int(steps * strength) :]
        original = vae.encode(pictures.preprocess(image)).latent_dist.sample() * vae.config.scaling_factor
        noise = torch.randn_like(original)
        x = sampler.add_noise(original, noise, times[:1])
        hole = F.interpolate(mask, size=x.shape[-2:])
        for at, t in enumerate(times):
            away, toward = unet(torch.cat([x] * 2), t, encoder_hidden_states=words).sample.chunk(2)
            x = sampler.step(away + guidance * (toward - away), t, x, eta=0.3).prev_sample
            kept = original if at == len(times) - 1 else sampler.add_noise(original, noise, times[at + 1 : at + 2])
            x = (1 - hole) * kept + hole * x
        return pictures.postprocess(vae.decode(x / vae.config.scaling_factor).sample, output_type="np")

    def step(i):
        mask = torch.zeros(1, 1, 16, 16)
        mask[..., 4 : 9 + i % 3, 4:12] = 1.0
        return fill(torch.rand(1, 3, 16, 16), mask, torch.randn(2, 5, 12), 6, 0.5 + 0.25 * (i % 2), 2.0 + i)

    return step, lambda: weights(unet, vae)


@program()
def pictures_laid_over(seed, compile):
    """kornia: a homography is found by gradients over a pyramid, with edges, blurs and a structural measure."""
    import kornia as K

    def step(i):
        target = K.filters.gaussian_blur2d(torch.rand(1, 1, 24, 24), (5, 5), (1.5, 1.5))
        turned = K.geometry.rotate(target, torch.tensor([4.0 + i]))
        matrix = nn.Parameter(torch.eye(3)[None])
        optimizer, losses = torch.optim.Adam([matrix], 5e-3), []
        levels = list(zip(K.geometry.build_pyramid(turned, 2), K.geometry.build_pyramid(target, 2), strict=True))
        for low, high in reversed(levels):
            for _ in range(4):
                optimizer.zero_grad()
                whole = matrix / matrix[..., 2:, 2:]
                laid = K.geometry.homography_warp(low, whole, low.shape[-2:])
                edges = F.l1_loss(K.filters.sobel(laid), K.filters.sobel(high))
                loss = F.l1_loss(laid, high) + 0.5 * edges + 0.1 * K.losses.ssim_loss(laid, high, 5)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        points = torch.tensor([[[0.0, 0.0], [0.5, -0.5], [1.0, 1.0]]])
        return losses, K.geometry.transform_points(matrix.detach(), points), K.metrics.psnr(laid, high, 1.0).item()

    return step, list


@program()
def molecules(seed, compile):
    """torch_geometric: graphs of any size in batches, GIN and attention layers, pooled twice."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GATv2Conv, GINConv, global_add_pool, global_max_pool
    from torch_geometric.utils import to_undirected
    from torchmetrics.classification import MulticlassF1Score

    def molecule():
        atoms = int(torch.randint(4, 12, ()))
        edges = to_undirected(torch.randint(atoms, (2, 2 * atoms)))
        return Data(x=torch.randn(atoms, 6), edge_index=edges, y=torch.randint(3, (1,)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gin = GINConv(
                nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16)), train_eps=True
            )
            self.attention, self.head = GATv2Conv(16, 8, heads=2, dropout=0.1), nn.Linear(32, 3)

        def forward(self, data):
            x = self.gin(data.x, data.edge_index).relu()
            x = F.elu(self.attention(x, data.edge_index))
            return self.head(torch.cat([global_add_pool(x, data.batch), global_max_pool(x, data.batch)], 1))

    net, metric = Net(), MulticlassF1Score(3, average="macro")
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    train, test = [molecule() for _ in range(14)], [molecule() for _ in range(5)]
    shuffled = DataLoader(train, batch_size=4, shuffle=True)

    def step(epoch):
        net.train()
        total = 0.0
        for batch in shuffled:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(batch), batch.y)
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.num_graphs
        net.eval()
        metric.reset()
        with torch.no_grad():
            for batch in DataLoader(test, batch_size=3):
                metric.update(net(batch), batch.y)
        return total / len(train), metric.compute().item()

    return step, lambda: weights(net, optimizer)


@program()
def soft_actor(seed, compile):
    """stable-baselines3's SAC on the pendulum, with a callback that writes down what happens."""
    from stable_baselines3 import SAC
    from stable_baselines3.common.callbacks import BaseCallback

    class Diary(BaseCallback):
        def __init__(self):
            super().__init__()
            self.rewards = []

        def _on_step(self):
            self.rewards.append(float(self.locals["rewards"][0]))
            return True

    agent = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_starts=20,
        batch_size=16,
        buffer_size=500,
        seed=seed,
        device="cpu",
        policy_kwargs={"net_arch": [16]},
    )
    agent.learn(24)

    def step(i):
        diary = Diary()
        agent.learn(6, callback=diary, reset_num_timesteps=False)
        action, _ = agent.predict(np.array([1.0, 0.0, 0.1 * i], dtype=np.float32), deterministic=True)
        return diary.rewards, action

    return step, lambda: weights(agent.policy, agent.log_ent_coef.detach())


@program()
def deep_kernel(seed, compile):
    """gpytorch: a network before a variational process with inducing points, two kinds of gradients in turn."""
    import gpytorch
    from gpytorch.variational import NaturalVariationalDistribution, VariationalStrategy

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            strategy = VariationalStrategy(self, points, NaturalVariationalDistribution(points.size(0)))
            super().__init__(strategy)
            self.mean_module = gpytorch.means.LinearMean(2)
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    features = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    process, likelihood = Process(torch.randn(8, 2)), gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, process, num_data=32)
    natural = gpytorch.optim.NGD(process.variational_parameters(), num_data=32, lr=0.05)
    ordinary = torch.optim.Adam([*features.parameters(), *process.hyperparameters(), *likelihood.parameters()], 1e-2)
    x = torch.randn(32, 4)
    y = torch.sin(x[:, 0] * 2) + 0.1 * torch.randn(32)

    def step(epoch):
        features.train(), process.train(), likelihood.train()
        losses = []
        for places in torch.randperm(32).split(16):
            natural.zero_grad(), ordinary.zero_grad()
            loss = -objective(process(features(x[places])), y[places])
            loss.backward()
            natural.step(), ordinary.step()
            losses.append(loss.item())
        features.eval(), process.eval(), likelihood.eval()
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(4):
            found = likelihood(process(features(x[:6])))
            low, high = found.confidence_region()
        inside = ((y[:6] > low) & (y[:6] < high)).float().mean()
        return losses, found.mean, inside.item()

    return step, lambda: weights(features, process, likelihood, ordinary)
