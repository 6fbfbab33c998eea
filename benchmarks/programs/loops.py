"""Loops that people write by hand: schedules, averages, folds, resumed and searched runs."""

import copy
import io
import itertools
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from programs import loader, program, weights
from torch import nn


def perceptron(*sizes):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@program()
def cosine_by_hand(seed, compile):
    """Warm-up and cosine of a step number, momentum that follows, a bar's text of the last loss."""
    model, peak = perceptron(8, 24, 3), 0.1
    optimizer = torch.optim.SGD(model.parameters(), peak, momentum=0.9)
    data, now = loader(torch.randn(24, 8), torch.randint(3, (24,))), {"step": 0, "text": ""}

    def step(epoch):
        for x, y in data:
            now["step"] += 1
            part = min(1.0, now["step"] / 5) if now["step"] < 5 else 0.5 * (1 + math.cos(math.pi * now["step"] / 80))
            for group in optimizer.param_groups:
                group["lr"], group["momentum"] = peak * part, 0.85 + 0.1 * (1 - part)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            now["text"] = f"epoch {epoch} step {now['step']:4d} lr {group['lr']:.5f} loss {loss.item():.4f}"
        return now["text"], loss

    return step, lambda: weights(model, optimizer)


@program()
def averaged_weights(seed, compile):
    """Stochastic weight averaging, with batch norm brought up to date for the average."""
    from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    average, schedule = AveragedModel(model), SWALR(optimizer, swa_lr=0.01, anneal_epochs=4)
    data = loader(torch.randn(20, 6), torch.randn(20, 1), batch=5)

    def step(epoch):
        model.train()
        for x, y in data:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        if epoch >= 2:
            average.update_parameters(model)
            schedule.step()
            update_bn(data, average)
        average.eval()
        with torch.no_grad():
            return average(torch.ones(3, 6)), optimizer.param_groups[0]["lr"]

    return step, lambda: weights(model, average, optimizer)


@program()
def resumed_from_checkpoints(seed, compile):
    """After each second epoch all is saved, made anew and loaded."""
    data, world = loader(torch.randn(20, 5), torch.randn(20, 2), batch=5), {}

    def build():
        model = perceptron(5, 12, 2)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=200)
        world.update(model=model, optimizer=optimizer, schedule=schedule)

    build()

    def step(epoch):
        losses = []
        for x, y in data:
            world["optimizer"].zero_grad(set_to_none=epoch % 2 == 0)
            loss = F.huber_loss(world["model"](x), y)
            loss.backward()
            world["optimizer"].step()
            world["schedule"].step()
            losses.append(loss.item())
        if epoch % 2:
            file = io.BytesIO()
            torch.save({name: part.state_dict() for name, part in world.items()}, file)
            file.seek(0)
            saved = torch.load(file)
            build()
            for name, part in world.items():
                part.load_state_dict(saved[name])
        return losses, world["schedule"].get_last_lr()

    return step, lambda: weights(*world.values())


@program()
def folds(seed, compile):
    """Cross validation: a model made anew for each fold, the best kept."""
    x, y = torch.randn(30, 4), torch.randint(2, (30,))
    best = {"score": -1.0, "weights": None}

    def step(fold):
        held = torch.arange(30) % 5 == fold % 5
        model = perceptron(4, 8, 2)
        optimizer = torch.optim.RMSprop(model.parameters(), 1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[~held]), y[~held])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            score = (model(x[held]).argmax(1) == y[held]).float().mean().item()
        if score > best["score"]:
            best.update(score=score, weights=copy.deepcopy(model.state_dict()))
        return score, loss

    return step, lambda: weights(best["weights"])


@program()
def searched_settings(seed, compile):
    """A random search: width, activation, optimizer and learning rate are drawn, each trial is trained for a little."""
    x, y, tried = torch.randn(32, 6), torch.randn(32, 1), []
    kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}

    def step(i):
        width, kind = random.choice([8, 16, 32]), random.choice(list(kinds))
        rate, slope = 10 ** random.uniform(-3, -1), random.choice([nn.ReLU, nn.Tanh, nn.SiLU])
        model = nn.Sequential(nn.Linear(6, width), slope(), nn.Linear(width, 1))
        optimizer = kinds[kind](model.parameters(), lr=rate)
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        tried.append((loss.item(), width, kind, rate))
        return min(tried)

    return step, lambda: tried


@program()
def closures_of_lbfgs(seed, compile):
    model = perceptron(3, 10, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, history_size=4, line_search_fn="strong_wolfe")
    x, y = torch.randn(24, 3), torch.randn(24, 1)

    def step(i):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y) + 1e-3 * sum(p.square().sum() for p in model.parameters())
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step, lambda: weights(model)


@program()
def thawed_layer_by_layer(seed, compile):
    """Fine-tuning: layers are frozen at first, thawed one after the other, each with a learning rate of its own."""
    model = perceptron(6, 16, 16, 16, 3)
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in layers[:-1]:
        layer.requires_grad_(False)
    optimizer = torch.optim.AdamW(layers[-1].parameters(), 1e-2)
    data = loader(torch.randn(18, 6), torch.randint(3, (18,)), batch=6)

    def step(epoch):
        if epoch in (1, 2, 3):
            layers[-1 - epoch].requires_grad_(True)
            optimizer.add_param_group({"params": layers[-1 - epoch].parameters(), "lr": 1e-2 * 0.5**epoch})
        for x, y in data:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            optimizer.step()
        return loss, norm

    return step, lambda: weights(model, optimizer)


@program()
def workers_of_a_loader(seed, compile):
    """Two processes read samples, an own function puts them together, new processes in each epoch."""
    from torch.utils.data import DataLoader, Dataset

    class Curves(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, at):
            length = 4 + at % 3
            return torch.linspace(0, at, length).sin() * 2, at % 2

    def together(samples):
        curves = nn.utils.rnn.pad_sequence([curve for curve, _ in samples], batch_first=True)
        mask = torch.arange(curves.size(1)) < torch.tensor([len(curve) for curve, _ in samples])[:, None]
        return curves, mask, torch.tensor([label for _, label in samples])

    model = nn.GRU(1, 8, batch_first=True)
    head = nn.Linear(8, 2)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 1e-2)
    data = DataLoader(Curves(), batch_size=4, shuffle=True, num_workers=2, collate_fn=together)

    def step(epoch):
        losses = []
        for curves, mask, labels in data:
            found, _ = model(curves[..., None])
            pooled = (found * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            loss = F.cross_entropy(head(pooled), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return step, lambda: weights(model, head, optimizer)


@program()
def taught_by_another(seed, compile):
    """Distillation: a frozen teacher, temperatures, losses weighed by the epoch, features taken by hooks."""
    teacher, student = perceptron(8, 32, 4).eval(), perceptron(8, 8, 4)
    seen = {}
    teacher[0].register_forward_hook(lambda module, args, out: seen.__setitem__("teacher", out.mean(1)))
    student[0].register_forward_hook(lambda module, args, out: seen.__setitem__("student", out.mean(1)))
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)
    data = loader(torch.randn(24, 8), torch.randint(4, (24,)))

    def step(epoch):
        share, total = max(0.1, 0.9 - 0.05 * epoch), 0.0
        for x, y in data:
            with torch.no_grad():
                wanted = teacher(x)
            given = student(x)
            soft = F.kl_div(F.log_softmax(given / 2, -1), F.softmax(wanted / 2, -1), reduction="batchmean") * 4
            loss = (
                share * soft
                + (1 - share) * F.cross_entropy(given, y)
                + 0.1 * F.mse_loss(seen["student"], seen["teacher"])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    return step, lambda: weights(student, optimizer)


@program()
def mixed_by_numpy(seed, compile):
    """Mixup with a share that NumPy draws, cut-out boxes of random integers, metrics kept in a dictionary of lists."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    optimizer, history = torch.optim.SGD(model.parameters(), 0.05), {"loss": [], "share": []}
    images, labels = torch.rand(16, 1, 10, 10), torch.randint(3, (16,))

    def step(i):
        for start in range(0, 16, 8):
            x, y = images[start : start + 8].clone(), labels[start : start + 8]
            share, order = np.random.beta(0.4, 0.4), torch.randperm(8)
            x = share * x + (1 - share) * x[order]
            top, left = np.random.randint(0, 6, size=2)
            x[:, :, top : top + 4, left : left + 4] = 0.0
            out = model(x)
            loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history["loss"].append(loss.item())
            history["share"].append(float(share))
        return {name: float(np.mean(values[-4:])) for name, values in history.items()}

    return step, lambda: weights(model, history)
