"""Text: translation, tagging, retrieval, adapters, and decoding by hand."""

import math
import random

import torch
import torch.nn.functional as F
from programs import llama, program, weights
from torch import nn


@program()
def translation(seed, compile):
    """nn.Transformer over batches of several lengths, with the inverse square root of the step as a schedule."""
    words, size = 30, 16
    model = nn.Transformer(size, 2, 1, 1, 32, dropout=0.1, batch_first=True)
    source, target, out = (
        nn.Embedding(words, size, padding_idx=0),
        nn.Embedding(words, size, padding_idx=0),
        nn.Linear(size, words),
    )
    parts = nn.ModuleList([model, source, target, out])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda at: size**-0.5 * min((at + 1) ** -0.5, (at + 1) * 8**-1.5)
    )

    def sentences(count, longest):
        made = torch.randint(3, words, (count, longest))
        for row in range(count):
            made[row, longest - row % 3 :] = 0
        return made

    def step(i):
        parts.train()
        a, b = sentences(4, 5 + i % 4), sentences(4, 6 + (i * 2) % 3)
        mask = nn.Transformer.generate_square_subsequent_mask(b.size(1) - 1)
        found = model(
            source(a) * math.sqrt(size),
            target(b[:, :-1]) * math.sqrt(size),
            tgt_mask=mask,
            src_key_padding_mask=a == 0,
            tgt_key_padding_mask=b[:, :-1] == 0,
            tgt_is_causal=True,
        )
        loss = F.cross_entropy(out(found).flatten(0, 1), b[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(parts.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        return loss.item(), math.exp(min(loss.item(), 20)), schedule.get_last_lr()[0]

    return step, lambda: weights(parts, optimizer)


@program()
def teacher_forcing(seed, compile):
    """A recurrent decoder that is given the true word with a probability, and stops where all have ended."""
    encoder, cell, words, out = (
        nn.GRU(8, 12, batch_first=True),
        nn.GRUCell(8, 12),
        nn.Embedding(20, 8),
        nn.Linear(12, 20),
    )
    parts = nn.ModuleList([encoder, cell, words, out])
    optimizer = torch.optim.Adam(parts.parameters(), 1e-2)

    def step(i):
        a, b = torch.randint(2, 20, (3, 5)), torch.randint(0, 20, (3, 4 + i % 2))
        _, hidden = encoder(words(a))
        hidden, given, loss, ended = hidden[0], torch.ones(3, dtype=torch.long), 0.0, torch.zeros(3, dtype=torch.bool)
        for at in range(b.size(1)):
            hidden = cell(words(given), hidden)
            logits = out(hidden)
            loss = loss + F.cross_entropy(logits, b[:, at])
            given = b[:, at] if random.random() < 0.5 else logits.argmax(1)
            ended |= given == 0
            if ended.all():
                break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item() / (at + 1), at

    return step, lambda: weights(parts, optimizer)


@program()
def adapters(seed, compile):
    """peft: low-rank adapters are trained, switched off, merged and taken out again."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        llama(), LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])
    )
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 1e-2)

    def step(i):
        model.train()
        tokens = torch.randint(2, 60, (2, 10))
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            with model.disable_adapter():
                base = model(input_ids=tokens).logits
            model.merge_adapter()
            merged = model(input_ids=tokens).logits
            model.unmerge_adapter()
        return loss.item(), (base - merged).abs().max()

    return step, lambda: weights(optimizer)


@program()
def sentence_vectors(seed, compile):
    """sentence-transformers: a model made of its modules, trained with negatives of the batch, then asked."""
    from sentence_transformers import SentenceTransformer, util
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.models import Dense, Pooling

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(40, 12)

        def forward(self, features):
            return {**features, "token_embeddings": self.table(features["input_ids"])}

        def tokenize(self, texts, **more):
            rows = [[ord(letter) % 39 + 1 for letter in text] for text in texts]
            longest = max(map(len, rows))
            ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
            return {"input_ids": ids, "attention_mask": (ids > 0).long()}

        preprocess = tokenize

    model = SentenceTransformer(modules=[Words(), Pooling(12, "mean"), Dense(12, 8)], device="cpu")
    criterion, optimizer = MultipleNegativesRankingLoss(model), torch.optim.AdamW(model.parameters(), 1e-2)
    texts = ["a cat", "the dog runs", "rain in may", "old books", "two", "a red house"]

    def step(i):
        model.train()
        chosen = random.sample(texts, 4)
        batches = [model[0].tokenize(chosen), model[0].tokenize([text[::-1] for text in chosen])]
        loss = criterion(batches, torch.zeros(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        vectors = model.encode(texts, convert_to_tensor=True, show_progress_bar=False)
        return (
            loss.item(),
            util.cos_sim(vectors[:2], vectors),
            util.semantic_search(vectors[:1], vectors, top_k=2)[0][0]["corpus_id"],
        )

    return step, lambda: weights(model, optimizer)


@program()
def beams_by_hand(seed, compile):
    """Sampling with temperatures and nucleus, and a beam search in lists, over a cache of keys and values."""
    model = llama().eval()

    @torch.no_grad()
    def sample(tokens, count, temperature, share):
        past, given = None, tokens
        for _ in range(count):
            found = model(input_ids=given, past_key_values=past, use_cache=True)
            past, logits = found.past_key_values, found.logits[:, -1] / temperature
            ordered, order = logits.sort(descending=True)
            late = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1) > share
            logits = logits.masked_fill(late.scatter(1, order, late), float("-inf"))
            given = torch.multinomial(logits.softmax(-1), 1)
            tokens = torch.cat([tokens, given], 1)
            if (given == 63).all():
                break
        return tokens

    @torch.no_grad()
    def search(tokens, count, width):
        beams = [(0.0, tokens)]
        for _ in range(count):
            longer = []
            for score, each in beams:
                odds = model(input_ids=each).logits[0, -1].log_softmax(-1)
                values, places = odds.topk(width)
                longer += [
                    (score + value.item(), torch.cat([each, place.view(1, 1)], 1))
                    for value, place in zip(values, places, strict=True)
                ]
            beams = sorted(longer, key=lambda beam: -beam[0])[:width]
        return beams[0]

    def step(i):
        tokens = torch.randint(2, 60, (1, 4))
        return sample(tokens, 5, 0.7 + 0.05 * (i % 4), 0.9), search(tokens, 3, 2)

    return step, lambda: weights(model)
