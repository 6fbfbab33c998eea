"""Further kinds of scripts: speech, routing, mining, tagging, rounding, asking, matching, an engine of one's own."""

import copy
import itertools
import math
import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from programs import loader, program, weights
from torch import nn


@program()
def speech_to_letters(seed, compile):
    """wav2vec 2.0 learns to spell tones of any length, with spans of time masked, and its letters are scored."""
    from torchmetrics.text import CharErrorRate
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC, get_inverse_sqrt_schedule

    letters = "_ abcdefgh"
    model = Wav2Vec2ForCTC(
        Wav2Vec2Config(
            vocab_size=len(letters),
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            conv_dim=(16, 16, 16),
            conv_kernel=(10, 3, 2),
            conv_stride=(5, 4, 2),
            feat_extract_norm="layer",
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
            mask_time_prob=0.2,
            mask_time_length=3,
            layerdrop=0.2,
            ctc_zero_infinity=True,
            ctc_loss_reduction="mean",
            pad_token_id=0,
        )
    )
    model.freeze_feature_encoder()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 3e-3)
    schedule = get_inverse_sqrt_schedule(optimizer, num_warmup_steps=4)
    rate = CharErrorRate()

    def spoken(word):
        times = torch.arange(240) / 240
        tones = [torch.sin(2 * math.pi * (8 + 5 * letters.index(letter)) * times) for letter in word]
        sound = torch.cat(tones) + 0.05 * torch.randn(240 * len(word))
        return (sound - sound.mean()) / (sound.std() + 1e-5)

    def collate(words):
        sounds = [spoken(word) for word in words]
        longest = max(map(len, sounds))
        values, heard = torch.zeros(len(words), longest), torch.zeros(len(words), longest, dtype=torch.long)
        for row, sound in enumerate(sounds):
            values[row, : len(sound)], heard[row, : len(sound)] = sound, 1
        labels = [torch.tensor([letters.index(letter) for letter in word]) for word in words]
        labels = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        return {"input_values": values, "attention_mask": heard, "labels": labels}

    def spelled(logits):
        rows = logits.argmax(-1).tolist()
        return ["".join(letters[at] for at, _ in itertools.groupby(row) if at) for row in rows]

    def step(i):
        words = ["".join(random.choices(letters[2:], k=random.randint(2, 5))) for _ in range(3)]
        model.train()
        loss = model(**collate(words)).loss
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        told = []
        if i % 2:
            model.eval()
            rate.reset()
            with torch.no_grad():
                told = spelled(model(**collate(words[:2])).logits)
            rate.update(told, words[:2])
        return loss.item(), norm.item(), told, rate.compute().item() if told else None

    return step, lambda: weights(model, optimizer, schedule)


@program()
def routed_experts(seed, compile):
    """A language model whose words go to two experts of four, with room for so many each, and a loss for balance."""

    class Experts(nn.Module):
        def __init__(self, size, count=4, chosen=2, room=1.25):
            super().__init__()
            self.gate, self.noise = nn.Linear(size, count, bias=False), nn.Linear(size, count, bias=False)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)) for _ in range(count)
            )
            self.chosen, self.room, self.dropped, self.balance = chosen, room, 0, None

        def forward(self, x):
            flat = x.reshape(-1, x.size(-1))
            logits = self.gate(flat)
            if self.training:
                logits = logits + torch.randn_like(logits) * F.softplus(self.noise(flat))
            odds = logits.softmax(-1)
            shares, places = odds.topk(self.chosen, dim=-1)
            shares = shares / shares.sum(-1, keepdim=True)
            capacity = int(self.room * self.chosen * len(flat) / len(self.experts))
            out, self.dropped = torch.zeros_like(flat), 0
            for at, expert in enumerate(self.experts):
                rows, ranks = torch.where(places == at)
                if rows.numel() == 0:
                    continue
                if rows.numel() > capacity:
                    self.dropped += rows.numel() - capacity
                    rows, ranks = rows[:capacity], ranks[:capacity]
                out.index_add_(0, rows, shares[rows, ranks, None] * expert(flat[rows]))
            load = F.one_hot(places[:, 0], len(self.experts)).float().mean(0)
            self.balance = len(self.experts) * (load * odds.mean(0)).sum()
            self.load = load.detach()
            return out.view_as(x)

    class Layer(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
            self.mix, self.experts = nn.GRU(size, size, batch_first=True), Experts(size)

        def forward(self, x):
            x = x + self.mix(self.first(x))[0]
            return x + self.experts(self.second(x))

    text = "the quick brown fox jumps over the lazy dog while many other animals look on and wonder why. " * 4
    known = {letter: at for at, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([known[letter] for letter in text])
    words, layers, out = (
        nn.Embedding(len(known), 16),
        nn.ModuleList(Layer(16) for _ in range(2)),
        nn.Linear(16, len(known)),
    )
    parts = nn.ModuleList([words, layers, out])
    optimizer, loads = torch.optim.AdamW(parts.parameters(), 3e-3), Counter()

    def batch(count, length):
        starts = torch.randint(len(data) - length - 1, (count,))
        rows = torch.stack([data[start : start + length + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    def forward(x):
        x = words(x)
        for layer in layers:
            x = layer(x)
        return out(x)

    def step(i):
        parts.train()
        for _ in range(2):
            x, y = batch(4, 12 + 4 * (i % 2))
            loss = F.cross_entropy(forward(x).flatten(0, 1), y.flatten())
            balance = torch.stack([layer.experts.balance for layer in layers]).mean()
            optimizer.zero_grad(set_to_none=True)
            (loss + 0.01 * balance).backward()
            optimizer.step()
            for number, layer in enumerate(layers):
                loads[f"layer {number} expert {int(layer.experts.load.argmax())}"] += 1
        log = {"loss": loss.item(), "balance": balance.item(), "dropped": [layer.experts.dropped for layer in layers]}
        if i % 3 == 2:
            parts.eval()
            with torch.inference_mode():
                x, y = batch(2, 16)
                log["perplexity"] = F.cross_entropy(forward(x).flatten(0, 1), y.flatten()).exp().item()
        return log, loads.most_common(3)

    return step, lambda: weights(parts, optimizer, dict(loads))


@program()
def bandit_of_an_ensemble(seed, compile):
    """A bandit asks one of six networks at a time, all of them trained at once by vmap and an Adam without classes."""
    from torch.func import functional_call, grad_and_value, stack_module_state, vmap

    class Moments(NamedTuple):
        count: int
        first: dict
        second: dict

    def adam(values, slopes, moments, rate=1e-2, betas=(0.9, 0.999), eps=1e-8):
        count = moments.count + 1
        first = {k: betas[0] * moments.first[k] + (1 - betas[0]) * slope for k, slope in slopes.items()}
        second = {k: betas[1] * moments.second[k] + (1 - betas[1]) * slope**2 for k, slope in slopes.items()}
        size = rate * math.sqrt(1 - betas[1] ** count) / (1 - betas[0] ** count)
        values = {k: value - size * first[k] / (second[k].sqrt() + eps) for k, value in values.items()}
        return values, Moments(count, first, second)

    arms, members = 4, 6
    networks = [nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, arms)) for _ in range(members)]
    values, buffers = stack_module_state(networks)
    values = {k: value.detach() for k, value in values.items()}
    base = copy.deepcopy(networks[0]).to("meta")
    moments = Moments(0, *({k: torch.zeros_like(v) for k, v in values.items()} for _ in range(2)))
    truth, memory, now = torch.randn(5, arms), deque(maxlen=128), {"values": values, "moments": moments, "regret": 0.0}

    def predict(values, buffers, x):
        return functional_call(base, (values, buffers), (x,))

    def loss(values, buffers, x, arm, reward, mask):
        found = predict(values, buffers, x).gather(1, arm[:, None]).squeeze(1)
        return (mask * (found - reward) ** 2).sum() / mask.sum().clamp(min=1.0)

    slopes_of_all = vmap(grad_and_value(loss), in_dims=(0, 0, None, None, None, 0))

    def step(day):
        pulls = Counter()
        for _ in range(6):
            seen = torch.randn(5)
            with torch.no_grad():
                expected = vmap(predict, in_dims=(0, 0, None))(now["values"], buffers, seen[None])[:, 0]
            arm = int(expected[random.randrange(members)].argmax())
            gains = torch.sigmoid(seen @ truth)
            reward = float(torch.bernoulli(gains[arm]))
            now["regret"] += float(gains.max() - gains[arm])
            memory.append((seen, arm, reward, torch.poisson(torch.ones(members))))
            pulls[arm] += 1
        errors = None
        for _ in range(3):
            x, arm, reward, mask = zip(*random.sample(list(memory), min(16, len(memory))), strict=True)
            slopes, errors = slopes_of_all(
                now["values"], buffers, torch.stack(x), torch.tensor(arm), torch.tensor(reward), torch.stack(mask, 1)
            )
            now["values"], now["moments"] = adam(now["values"], slopes, now["moments"])
        return sorted(pulls.items()), now["regret"], errors, expected.std(0)

    return step, lambda: weights(now["values"], list(now["moments"]))


@program()
def anchors_and_strangers(seed, compile):
    """Triplets with the hardest pair of each batch, batches of so many classes, neighbours asked by scikit-learn."""
    from sklearn.neighbors import KNeighborsClassifier
    from torch.utils.data import DataLoader, Dataset, Sampler

    class Signatures(Dataset):
        def __init__(self, people, each):
            centers = torch.rand(people, 1, 12, 12)
            self.labels = [person for person in range(people) for _ in range(each)]
            self.pictures = [centers[person] + 0.2 * torch.randn(1, 12, 12) for person in self.labels]

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, at):
            picture = self.pictures[at]
            return (picture.flip(-1) if random.random() < 0.5 else picture), self.labels[at]

    class ClassesByShots(Sampler):
        """Batches of `classes` classes with `shots` samples of each."""

        def __init__(self, labels, classes, shots, batches):
            self.classes, self.shots, self.batches, self.places = classes, shots, batches, defaultdict(list)
            for at, label in enumerate(labels):
                self.places[label].append(at)

        def __len__(self):
            return self.batches

        def __iter__(self):
            for _ in range(self.batches):
                chosen = random.sample(sorted(self.places), self.classes)
                yield [at for label in chosen for at in random.sample(self.places[label], self.shots)]

    class Embedder(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(1, 8, 3, 2), nn.PReLU(), nn.Conv2d(8, 8, 3), nn.PReLU(), nn.Flatten(), nn.Linear(72, 8)
            )

        def forward(self, x):
            return F.normalize(self.body(x), dim=-1)

    def hardest(vectors, labels, margin):
        apart, same = torch.cdist(vectors, vectors), labels[:, None] == labels[None]
        far = (apart * same.float()).max(1).values
        near = apart.masked_fill(same, float("inf")).min(1).values
        losses = F.relu(far - near + margin)
        return losses.mean(), (losses > 0).float().mean()

    train, held, model = Signatures(8, 5), Signatures(5, 4), Embedder()
    data = DataLoader(train, batch_sampler=ClassesByShots(train.labels, 4, 3, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=4, mode="triangular2")

    def step(epoch):
        model.train()
        history = defaultdict(list)
        for pictures, labels in data:
            loss, active = hardest(model(pictures), labels, 0.2 + 0.02 * min(epoch, 5))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            history["loss"].append(loss.item())
            history["active"].append(active.item())
        model.eval()
        with torch.no_grad():
            vectors = model(torch.stack([held[at][0] for at in range(len(held))])).numpy()
        labels = np.array(held.labels)
        judge = KNeighborsClassifier(3).fit(vectors[::2], labels[::2])
        score = judge.score(vectors[1::2], labels[1::2])
        return {name: sum(values) / len(values) for name, values in history.items()}, score, schedule.get_last_lr()

    return step, lambda: weights(model, optimizer)


@program()
def tags_of_a_chain(seed, compile):
    """Tags by a recurrent network and a chain of tags: packed sentences in buckets, longer ones as it goes, Viterbi."""
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

    class Chain(nn.Module):
        def __init__(self, tags):
            super().__init__()
            self.start, self.end = nn.Parameter(torch.randn(tags) * 0.1), nn.Parameter(torch.randn(tags) * 0.1)
            self.move = nn.Parameter(torch.randn(tags, tags) * 0.1)

        def total(self, scores, mask):
            now = self.start + scores[:, 0]
            for at in range(1, scores.size(1)):
                then = torch.logsumexp(now[:, :, None] + self.move + scores[:, at, None], 1)
                now = torch.where(mask[:, at, None], then, now)
            return torch.logsumexp(now + self.end, 1)

        def of_path(self, scores, tags, mask):
            each = scores.gather(2, tags[..., None]).squeeze(2) * mask
            moves = self.move[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
            last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
            return self.start[tags[:, 0]] + each.sum(1) + moves.sum(1) + self.end[last]

        def best(self, scores, length):
            now, backs = self.start + scores[0], []
            for at in range(1, length):
                value, back = (now[:, None] + self.move + scores[at]).max(0)
                now = value
                backs.append(back.tolist())
            path = [int((now + self.end).argmax())]
            for back in reversed(backs):
                path.append(back[path[-1]])
            return path[::-1]

    class Tagger(nn.Module):
        def __init__(self, words, tags):
            super().__init__()
            self.words, self.drop = nn.Embedding(words, 12, padding_idx=0), nn.Dropout(0.1)
            self.rnn = nn.LSTM(12, 10, bidirectional=True, batch_first=True)
            self.out, self.chain = nn.Linear(20, tags), Chain(tags)

        def forward(self, tokens, lengths):
            packed = pack_padded_sequence(
                self.drop(self.words(tokens)), lengths, batch_first=True, enforce_sorted=False
            )
            found, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
            return self.out(found)

    def sentence():
        tokens = torch.randint(1, 30, (random.randint(3, 12),))
        return tokens, (tokens + torch.cat([tokens[:1], tokens[:-1]])) % 4

    def buckets(sentences, size):
        ordered = sorted(sentences, key=lambda each: len(each[0]))
        batches = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        random.shuffle(batches)
        for batch in batches:
            lengths = torch.tensor([len(tokens) for tokens, _ in batch])
            tokens, tags = (pad_sequence(list(side), batch_first=True) for side in zip(*batch, strict=True))
            yield tokens, tags, lengths

    model, sentences = Tagger(30, 4), [sentence() for _ in range(24)]
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def step(epoch):
        longest, losses = 5 + 2 * min(epoch, 4), []
        easy = [each for each in sentences if len(each[0]) <= longest][:8]
        model.train()
        for tokens, tags, lengths in buckets(easy, 4):
            scores = model(tokens, lengths)
            mask = torch.arange(tokens.size(1)) < lengths[:, None]
            loss = (model.chain.total(scores, mask) - model.chain.of_path(scores, tags, mask)).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            losses.append(round(loss.item(), 5))
        model.eval()
        right = seen = 0
        with torch.no_grad():
            for tokens, tags in sentences[-3:]:
                length = len(tokens)
                path = model.chain.best(model(tokens[None], torch.tensor([length]))[0], length)
                right += sum(guess == tag for guess, tag in zip(path, tags.tolist(), strict=True))
                seen += length
        return longest, losses, right / seen

    return step, lambda: weights(model, optimizer)


@program()
def rounded_weights(seed, compile):
    """Training that knows it will be rounded to eight bits, by parametrizations and observers, and then really is."""
    from torch.nn.utils import parametrize

    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, zero, low, high):
            whole = torch.round(x / scale) + zero
            ctx.save_for_backward((whole >= low) & (whole <= high))
            return (whole.clamp(low, high) - zero) * scale

        @staticmethod
        def backward(ctx, slope):
            (inside,) = ctx.saved_tensors
            return slope * inside, None, None, None, None

    class RoundedRows(nn.Module):
        def forward(self, weight):
            scale = weight.detach().flatten(1).abs().amax(1).clamp(min=1e-8) / 127
            return Round.apply(weight, scale.view(-1, *[1] * (weight.ndim - 1)), 0, -127, 127)

    class Observed(nn.Module):
        """Rounds what passes to the range that it has seen of late, until that is frozen."""

        def __init__(self, momentum=0.1):
            super().__init__()
            self.momentum, self.frozen = momentum, False
            self.register_buffer("low", torch.zeros(()))
            self.register_buffer("high", torch.zeros(()))
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))

        def settings(self):
            scale = ((self.high - self.low) / 255).clamp(min=1e-8)
            return scale, torch.round(-self.low / scale)

        def forward(self, x):
            if self.training and not self.frozen:
                low, high = x.detach().amin().clamp(max=0), x.detach().amax().clamp(min=0)
                if self.seen == 0:
                    self.low.copy_(low)
                    self.high.copy_(high)
                else:
                    self.low.lerp_(low, self.momentum)
                    self.high.lerp_(high, self.momentum)
                self.seen += 1
            return Round.apply(x, *self.settings(), 0, 255)

    model = nn.Sequential(
        Observed(), nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), Observed(), nn.Linear(54, 4)
    )
    for layer in list(model):
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            parametrize.register_parametrization(layer, "weight", RoundedRows())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    images, labels = torch.rand(24, 1, 8, 8), torch.randint(4, (24,))
    data = loader(images, labels, batch=8)

    def in_integers(x):
        """The last layer as a machine without fractions would do it."""
        observer, layer = model[5], model[6]
        scale, zero = observer.settings()
        hidden = model[:5](x)
        whole = (torch.round(hidden / scale) + zero).clamp(0, 255).to(torch.int32)
        weight = layer.parametrizations.weight.original
        by_row = weight.abs().amax(1).clamp(min=1e-8) / 127
        table = torch.round(weight / by_row[:, None]).to(torch.int8)
        sums = (whole - zero.to(torch.int32))[:, None, :].mul(table.to(torch.int32)).sum(-1)
        return sums * (scale * by_row) + layer.bias

    def step(epoch):
        model.train()
        if epoch == 7:
            for part in model.modules():
                if isinstance(part, Observed):
                    part.frozen = True
        losses = []
        for x, y in data:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad(), parametrize.cached():
            faked, real = model(images[:8]), in_integers(images[:8])
        ranges = {
            name: (part.low.item(), part.high.item())
            for name, part in model.named_children()
            if isinstance(part, Observed)
        }
        return losses, ranges, (faked - real).abs().max().item() < 1e-3, (faked.argmax(1) == real.argmax(1)).sum()

    return step, lambda: weights(model, optimizer)


@program()
def asked_for_labels(seed, compile):
    """Active learning: what the model with dropout disagrees on is labelled next, and it is trained anew each round."""
    from sklearn.datasets import make_classification
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.preprocessing import StandardScaler
    from torch.utils.data import DataLoader, Subset, TensorDataset

    x, y = make_classification(140, 8, n_informative=5, n_classes=2, random_state=seed)
    x = StandardScaler().fit_transform(x).astype(np.float32)
    pool = TensorDataset(torch.from_numpy(x[:100]), torch.from_numpy(y[:100]))
    test_x, test_y = torch.from_numpy(x[100:]), y[100:]
    known, diary = list(range(10)), []

    def fresh():
        model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 2))
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
        return model

    def fit(model, epochs):
        optimizer = torch.optim.Adam(model.parameters(), 2e-2, weight_decay=1e-4)
        model.train()
        for _ in range(epochs):
            for inputs, labels in DataLoader(Subset(pool, known), batch_size=16, shuffle=True):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
        return loss.item()

    @torch.no_grad()
    def doubts(model, inputs, draws=8):
        model.train()  # dropout stays on
        odds = torch.stack([model(inputs).softmax(-1) for _ in range(draws)])
        mean = odds.mean(0)
        entropy = -(mean * mean.clamp(min=1e-9).log()).sum(-1)
        return entropy + (odds * odds.clamp(min=1e-9).log()).sum(-1).mean(0)

    last = {"model": fresh()}

    def step(turn):
        if len(known) == len(pool):  # nothing is left to ask: once more from the start
            del known[10:], diary[:]
        model = last["model"] = fresh()
        loss = fit(model, 3)
        others = [at for at in range(len(pool)) if at not in set(known)]
        scores = doubts(model, pool.tensors[0][others])
        if turn % 4 == 3:  # now and then at random, not to see one corner alone
            picked = random.sample(others, min(4, len(others)))
        else:
            picked = [others[at] for at in scores.topk(min(4, len(others))).indices.tolist()]
        known.extend(picked)
        model.eval()
        with torch.inference_mode():
            odds = model(test_x).softmax(-1)[:, 1].double().numpy()
        diary.append({"labelled": len(known), "auc": float(roc_auc_score(test_y, odds)), "loss": loss})
        return picked, diary[-1], float(log_loss(test_y, odds)), max(diary, key=lambda entry: entry["auc"])["labelled"]

    return step, lambda: weights(last["model"], known, diary)


@program()
def engine_of_events(seed, compile):
    """A small engine with events, as ignite has: handlers, several metrics, an average of the weights, safetensors."""
    import safetensors.torch
    from torchmetrics import MeanMetric, MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError, MulticlassConfusionMatrix

    @dataclass
    class State:
        epoch: int = 0
        iteration: int = 0
        output: dict = field(default_factory=dict)
        metrics: dict = field(default_factory=dict)

    class Engine:
        def __init__(self, update):
            self.update, self.state, self.handlers = update, State(), defaultdict(list)

        def on(self, event, every=1):
            def register(handler):
                self.handlers[event].append((every, handler))
                return handler

            return register

        def fire(self, event, count):
            for every, handler in self.handlers[event]:
                if count % every == 0:
                    handler(self)

        def run(self, data):
            self.state.epoch += 1
            self.fire("epoch started", self.state.epoch)
            for batch in data:
                self.state.iteration += 1
                self.state.output = self.update(self, batch)
                self.fire("iteration completed", self.state.iteration)
            self.fire("epoch completed", self.state.epoch)
            return self.state

    model = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.SiLU(), nn.Linear(24, 3))
    average = copy.deepcopy(model).requires_grad_(False).eval()
    optimizer = torch.optim.NAdam(model.parameters(), 5e-3)
    inputs = torch.randn(40, 6)
    labels = (inputs[:, :3] + 0.3 * torch.randn(40, 3)).argmax(1)
    train, test = loader(inputs[:28], labels[:28], batch=7), loader(inputs[28:], labels[28:], batch=6, shuffle=False)
    metrics = MetricCollection(
        {
            "top": MulticlassAccuracy(3, average="micro"),
            "by class": MulticlassAccuracy(3, average=None),
            "calibration": MulticlassCalibrationError(3, n_bins=5),
            "confusion": MulticlassConfusionMatrix(3),
        }
    )
    running, kept, logged = MeanMetric(), deque(maxlen=2), deque(maxlen=5)

    def update(engine, batch):
        model.train()
        x, y = batch
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if engine.state.iteration % 2 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return {"loss": 2 * loss.item(), "count": len(y)}

    def judge(engine, batch):
        x, y = batch
        with torch.no_grad():
            metrics.update(average(x).softmax(-1), y)
        return {"count": len(y)}

    trainer, evaluator = Engine(update), Engine(judge)

    @trainer.on("iteration completed", every=2)
    @torch.no_grad()
    def follow(engine):
        decay = min(0.95, (1 + engine.state.iteration) / (10 + engine.state.iteration))
        for own, other in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
            if own.dtype.is_floating_point:
                own.lerp_(other, 1 - decay)
            else:
                own.copy_(other)

    @trainer.on("iteration completed")
    def count(engine):
        running.update(engine.state.output["loss"], weight=engine.state.output["count"])

    @trainer.on("epoch completed")
    def evaluate(engine):
        metrics.reset()
        evaluator.run(test)
        engine.state.metrics = {name: value.tolist() for name, value in metrics.compute().items()}
        logged.append(f"epoch {engine.state.epoch}: loss {running.compute():.4f} top {engine.state.metrics['top']:.3f}")
        running.reset()

    @trainer.on("epoch completed", every=3)
    def keep(engine):
        kept.append((engine.state.metrics["top"], safetensors.torch.save(average.state_dict())))
        if len(kept) == 2 and kept[0][0] > kept[1][0]:  # worse than before: back to what was kept
            model.load_state_dict(safetensors.torch.load(kept[0][1]))

    def step(i):
        state = trainer.run(train)
        return state.iteration, state.output, state.metrics, logged[-1]

    return step, lambda: weights(model, average, optimizer, list(logged))


@program()
def matched_sets(seed, compile):
    """Boxes as a set: queries of a decoder, matched to what is in the picture by SciPy's assignment."""
    from scipy.optimize import linear_sum_assignment
    from torchvision.ops import box_convert, generalized_box_iou

    class Detector(nn.Module):
        def __init__(self, size=16, queries=6, kinds=3):
            super().__init__()
            self.stem = nn.Sequential(
                nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, size, 3, 4, 1)
            )
            self.queries = nn.Embedding(queries, size)
            self.rows, self.columns = (nn.Parameter(torch.rand(8, size // 2)) for _ in range(2))
            layer = nn.TransformerDecoderLayer(size, 2, 32, dropout=0.0, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, 2)
            self.kind, self.box = (
                nn.Linear(size, kinds + 1),
                nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 4)),
            )

        def forward(self, pictures):
            features = self.stem(pictures)
            count, _, high, wide = features.shape
            places = torch.cat(
                [self.columns[:wide].expand(high, -1, -1), self.rows[:high, None].expand(-1, wide, -1)], dim=-1
            ).flatten(0, 1)
            x, each = self.queries.weight.expand(count, -1, -1), []
            for layer in self.decoder.layers:
                x = layer(x, features.flatten(2).mT + places)
                each.append({"logits": self.kind(x), "boxes": self.box(x).sigmoid()})
            return {**each[-1], "others": each[:-1]}

    def corners(boxes):
        return box_convert(boxes, "cxcywh", "xyxy")

    @torch.no_grad()
    def match(found, targets):
        pairs = []
        for logits, boxes, target in zip(found["logits"], found["boxes"], targets, strict=True):
            cost = 5 * torch.cdist(boxes, target["boxes"], p=1) - logits.softmax(-1)[:, target["labels"]]
            cost = cost - 2 * generalized_box_iou(corners(boxes), corners(target["boxes"]))
            pairs.append(tuple(torch.as_tensor(side) for side in linear_sum_assignment(cost.numpy())))
        return pairs

    def losses_of(found, targets, rare):
        pairs = match(found, targets)
        wanted = torch.full(found["logits"].shape[:2], 3)
        for row, ((own, other), target) in enumerate(zip(pairs, targets, strict=True)):
            wanted[row, own] = target["labels"][other]
        guessed = torch.cat([found["boxes"][row, own] for row, (own, _) in enumerate(pairs)])
        true = torch.cat([target["boxes"][other] for (_, other), target in zip(pairs, targets, strict=True)])
        overlap = torch.diag(generalized_box_iou(corners(guessed), corners(true)))
        return {
            "kind": F.cross_entropy(found["logits"].transpose(1, 2), wanted, rare),
            "box": 5 * F.l1_loss(guessed, true, reduction="sum") / max(1, len(true)),
            "overlap": 2 * (1 - overlap).sum() / max(1, len(true)),
        }

    model, rare = Detector(), torch.tensor([1.0, 1.0, 1.0, 0.1])
    stem = [p for name, p in model.named_parameters() if name.startswith("stem")]
    rest = [p for name, p in model.named_parameters() if not name.startswith("stem")]
    optimizer = torch.optim.AdamW([{"params": stem, "lr": 1e-4}, {"params": rest, "lr": 1e-3}], weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [6, 9], gamma=0.3)

    def target():
        count = random.randint(1, 3)
        return {
            "boxes": torch.cat([0.3 + 0.4 * torch.rand(count, 2), 0.1 + 0.4 * torch.rand(count, 2)], 1),
            "labels": torch.randint(3, (count,)),
        }

    def step(i):
        model.train()
        pictures, targets = torch.rand(2, 3, 32 + 8 * (i % 2), 40), [target() for _ in range(2)]
        found = model(pictures)
        losses = losses_of(found, targets, rare)
        for number, other in enumerate(found["others"]):
            losses.update({f"{name} {number}": value for name, value in losses_of(other, targets, rare).items()})
        optimizer.zero_grad()
        sum(losses.values()).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            out = model(pictures)
            scores, kinds = out["logits"].softmax(-1)[..., :-1].max(-1)
            sure = [
                {"boxes": corners(boxes[each > 0.3]), "kinds": kind[each > 0.3].tolist()}
                for boxes, each, kind in zip(out["boxes"], scores, kinds, strict=True)
            ]
        return {name: value.item() for name, value in losses.items()}, norm, sure

    return step, lambda: weights(model, optimizer)


@program()
def links_of_kinds(seed, compile):
    """torch_geometric: readers, books and shelves in one graph, links that are held out, negatives drawn anew."""
    from sklearn.metrics import average_precision_score, roc_auc_score
    from torch_geometric.data import HeteroData
    from torch_geometric.nn import HeteroConv, SAGEConv
    from torch_geometric.transforms import ToUndirected
    from torch_geometric.utils import dropout_edge, negative_sampling

    data = HeteroData()
    for kind, count in (("reader", 16), ("book", 24), ("shelf", 5)):
        data[kind].x = torch.randn(count, 8)
    pairs = torch.unique(torch.stack([torch.randint(16, (90,)), torch.randint(24, (90,))]), dim=1)
    pairs = pairs[:, torch.randperm(pairs.size(1))]
    data["reader", "read", "book"].edge_index = pairs[:, 15:]
    data["book", "on", "shelf"].edge_index = torch.stack([torch.arange(24), torch.randint(5, (24,))])
    data, held = ToUndirected()(data), pairs[:, :15]

    class Net(nn.Module):
        def __init__(self, size=12):
            super().__init__()
            self.layers = nn.ModuleList(
                HeteroConv({kind: SAGEConv((a, a), size) for kind in data.edge_types}, aggr="sum") for a in (8, size)
            )
            self.norms = nn.ModuleDict({kind: nn.LayerNorm(size) for kind in data.node_types})
            self.head = nn.Bilinear(size, size, 1)

        def forward(self, x_dict, edge_index_dict):
            for at, layer in enumerate(self.layers):
                x_dict = layer(x_dict, edge_index_dict)
                if at + 1 < len(self.layers):
                    x_dict = {kind: F.leaky_relu(self.norms[kind](x), 0.1) for kind, x in x_dict.items()}
            return x_dict

        def score(self, x_dict, links):
            return self.head(x_dict["reader"][links[0]], x_dict["book"][links[1]]).squeeze(-1)

    net, known = Net(), data["reader", "read", "book"].edge_index
    optimizer = torch.optim.RAdam(net.parameters(), 1e-2)
    schedule, best = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=1), {"auc": 0.0, "at": -1}

    def strangers(links, count):
        return negative_sampling(links, num_nodes=(16, 24), num_neg_samples=count)

    def step(epoch):
        net.train()
        edges = {
            kind: dropout_edge(index, p=0.1, training="shelf" not in kind)[0]
            for kind, index in data.edge_index_dict.items()
        }
        hidden = net(data.x_dict, edges)
        links = torch.cat([known, strangers(known, known.size(1))], 1)
        true = torch.cat([torch.ones(known.size(1)), torch.zeros(links.size(1) - known.size(1))])
        loss = F.binary_cross_entropy_with_logits(net.score(hidden, links), true)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            hidden = net(data.x_dict, data.edge_index_dict)
            others = strangers(pairs, held.size(1))
            odds = net.score(hidden, torch.cat([held, others], 1)).sigmoid().numpy()
            answer = np.r_[np.ones(held.size(1)), np.zeros(others.size(1))]
            reader = epoch % 16
            scores = net.score(hidden, torch.stack([torch.full((24,), reader), torch.arange(24)]))
            scores[known[1, known[0] == reader]] = -torch.inf  # what was read is not offered again
        auc = float(roc_auc_score(answer, odds))
        schedule.step(auc)
        if auc > best["auc"]:
            best.update(auc=auc, at=epoch)
        offered = scores.topk(3).indices.tolist()
        return loss.item(), auc, float(average_precision_score(answer, odds)), offered, dict(best)

    return step, lambda: weights(net, optimizer, schedule)
