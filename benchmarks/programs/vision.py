"""Pictures: training with what timm has, contrast, style, segmentation, variational and adversarial models."""

import math

import torch
import torch.nn.functional as F
from programs import loader, program, weights
from torch import nn


@program()
def timm_recipe(seed, compile):
    """As timm's train.py: Mixup and CutMix, an average of the weights, a cosine schedule stepped by updates."""
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import AverageMeter, ModelEmaV2, accuracy

    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=2, num_classes=5
    )
    mixup, criterion = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=5), SoftTargetCrossEntropy()
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)
    schedule, average, updates = (
        CosineLRScheduler(optimizer, t_initial=30, warmup_t=3, t_in_epochs=False),
        ModelEmaV2(model, 0.9),
        [0],
    )

    def step(epoch):
        losses, top = AverageMeter(), AverageMeter()
        model.train()
        for _ in range(2):
            x, y = mixup(torch.rand(4, 3, 32, 32), torch.randint(5, (4,)))
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            average.update(model)
            updates[0] += 1
            schedule.step_update(updates[0])
            losses.update(loss.item(), 4)
        average.module.eval()
        with torch.no_grad():
            top.update(accuracy(average.module(torch.rand(4, 3, 32, 32)), torch.randint(5, (4,)))[0].item(), 4)
        return losses.avg, top.avg, optimizer.param_groups[0]["lr"]

    return step, lambda: weights(model, average.module, optimizer)


@program()
def simclr(seed, compile):
    """Two views of each picture by torchvision's transforms, one loss over all pairs of a batch."""
    from torchvision.transforms import v2

    views = v2.Compose([v2.RandomResizedCrop(12, antialias=True), v2.RandomHorizontalFlip(), v2.GaussianBlur(3)])
    body = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8)
    )
    optimizer = torch.optim.Adam(body.parameters(), 1e-3)

    def step(i):
        pictures = torch.rand(6, 3, 16, 16)
        both = torch.cat([torch.stack([views(each) for each in pictures]) for _ in range(2)])
        z = F.normalize(body(both), dim=1)
        near = (z @ z.T / 0.5).masked_fill(torch.eye(12, dtype=torch.bool), float("-inf"))
        loss = F.cross_entropy(near, (torch.arange(12) + 6) % 12)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, lambda: weights(body, optimizer)


@program()
def style_of_a_picture(seed, compile):
    """The pixels are what is trained, through features that hooks collect; clamped in place."""
    body, found = (
        nn.Sequential(
            *(layer for at in range(3) for layer in (nn.Conv2d(3 if not at else 8, 8, 3, padding=1), nn.ReLU()))
        ),
        [],
    )
    body.requires_grad_(False)
    for layer in body[1::2]:
        layer.register_forward_hook(lambda module, args, out: found.append(out))

    def grams(picture):
        found.clear()
        body(picture)
        return [f.flatten(2) @ f.flatten(2).transpose(1, 2) / f.numel() for f in found]

    style = [gram.detach() for gram in grams(torch.rand(1, 3, 12, 12))]
    picture = torch.rand(1, 3, 12, 12, requires_grad=True)
    optimizer = torch.optim.Adam([picture], 0.05)

    def step(i):
        with torch.no_grad():
            picture.clamp_(0, 1)
        loss = sum(F.mse_loss(a, b) for a, b in zip(grams(picture), style, strict=True)) * 1e3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, lambda: weights(picture, optimizer)


@program()
def segmentation(seed, compile):
    """Pictures of several sizes, an auxiliary head, a confusion matrix, polynomial decay."""
    body, head, other = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 1)
    parts = nn.ModuleList([body, head, other])
    optimizer = torch.optim.SGD(parts.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: (1 - at / 100) ** 0.9)

    def forward(x):
        features = body(x).relu()
        return {
            name: F.interpolate(part(features), size=x.shape[-2:], mode="bilinear", align_corners=False)
            for name, part in (("out", head), ("aux", other))
        }

    def step(i):
        x, y = torch.rand(2, 3, 16 + 4 * (i % 3), 20), torch.randint(0, 5, (2, 16 + 4 * (i % 3), 20))
        y[y == 4] = 255
        found = forward(x)
        losses = {name: F.cross_entropy(each, y, ignore_index=255) for name, each in found.items()}
        loss = losses["out"] + 0.5 * losses["aux"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.inference_mode():
            guess, true = forward(x)["out"].argmax(1).flatten(), y.flatten()
            valid = (true >= 0) & (true < 4)
            matrix = torch.bincount(4 * true[valid] + guess[valid], minlength=16).reshape(4, 4).float()
            score = torch.diag(matrix) / (matrix.sum(1) + matrix.sum(0) - torch.diag(matrix))
        return loss.item(), score.nan_to_num().mean().item()

    return step, lambda: weights(parts, optimizer)


@program()
def variational_autoencoder(seed, compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = (
                nn.Linear(16, 24),
                nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 16)),
            )
            self.mean, self.spread = nn.Linear(24, 4), nn.Linear(24, 4)

        def forward(self, x):
            hidden = F.relu(self.encoder(x.view(-1, 16)))
            mean, spread = self.mean(hidden), self.spread(hidden)
            return torch.sigmoid(self.decoder(mean + torch.randn_like(mean) * torch.exp(0.5 * spread))), mean, spread

    model = Model()
    optimizer, data = torch.optim.Adam(model.parameters(), 1e-3), loader(torch.rand(30, 4, 4), batch=8)

    def step(epoch):
        model.train()
        total, weight = 0.0, min(1.0, (epoch + 1) / 10)
        for (x,) in data:
            found, mean, spread = model(x)
            loss = F.binary_cross_entropy(found, x.view(-1, 16), reduction="sum")
            loss = loss - weight * 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
            optimizer.zero_grad()
            loss.backward()
            total += loss.item()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            return total / 30, model.decoder(torch.randn(2, 4))

    return step, lambda: weights(model, optimizer)


@program()
def wasserstein_with_a_penalty(seed, compile):
    """Gradients of gradients, a critic that is trained more often than what it judges."""
    maker = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2))
    critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    for_maker, for_critic = (torch.optim.Adam(part.parameters(), 1e-3, betas=(0.0, 0.9)) for part in (maker, critic))

    def penalty(real, fake):
        share = torch.rand(real.size(0), 1)
        between = (share * real + (1 - share) * fake).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return ((slope.norm(2, dim=1) - 1) ** 2).mean()

    def step(i):
        for _ in range(3):
            angle = torch.rand(12) * 2 * math.pi
            real, fake = torch.stack([angle.cos(), angle.sin()], 1), maker(torch.randn(12, 4)).detach()
            judged = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
            for_critic.zero_grad()
            judged.backward()
            for_critic.step()
        made = -critic(maker(torch.randn(12, 4))).mean()
        for_maker.zero_grad()
        made.backward()
        for_maker.step()
        return judged.item(), made.item()

    return step, lambda: weights(maker, critic, for_maker, for_critic)
