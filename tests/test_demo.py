"""The demo's input: real sentences, enough of them, none made by a template."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

FILE = Path(__file__).parent.parent / "demo" / "sentences.txt"
SENTENCES = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_there_are_a_few_hundred() -> None:
    assert 300 <= len(SENTENCES) == len(set(SENTENCES))


def test_their_lengths_vary() -> None:
    words = [len(sentence.split()) for sentence in SENTENCES]
    assert min(words) == 3
    assert 40 < max(words) <= 60
    assert len(set(words)) > 25


def test_they_are_sentences() -> None:
    for sentence in SENTENCES:
        assert sentence[0].isupper()
        assert sentence[-1] in ".!?"
        assert sentence == " ".join(sentence.split())


def test_no_template_made_them() -> None:
    openings = Counter(" ".join(sentence.split()[:3]).lower() for sentence in SENTENCES)
    assert max(openings.values()) <= 3
