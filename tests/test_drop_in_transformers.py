"""The Trainer and `generate` of transformers compile by torchdynamo after `torchdynamo.install()`, as they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import torchdynamo
from torchdynamo import drop_in
from torchdynamo.report.explain import collecting

transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
trainer = pytest.importorskip("transformers.trainer", exc_type=ImportError)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give each test an environment and an Accelerator of its own: both keep what a Trainer was asked for."""
    monkeypatch.setattr(drop_in, "_told", set(drop_in._holders(torch.compile)))
    with mock.patch.dict(os.environ):
        yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.Generator().manual_seed(index)
        return {"input_ids": torch.randint(0, 50, (8,), generator=words), "labels": torch.tensor(index % 2)}


def train(folder: Path, **settings: Any) -> tuple[list[float], dict[str, torch.Tensor], list[str]]:
    """The losses, the weights, and the files that the Trainer saves."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, hidden_dropout_prob=0.0, **small)
    model = transformers.BertForSequenceClassification(config)
    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **settings,
    )
    own = trainer.Trainer(model, arguments, train_dataset=Sentences())
    own.train()
    own.save_model(str(folder))
    losses = [row["loss"] for row in own.state.log_history if "loss" in row]
    return losses, {name: value.clone() for name, value in model.state_dict().items()}, sorted(os.listdir(folder))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_trainer(backend: str, tmp_path: Path) -> None:
    losses, weights, files = train(tmp_path / "eager")
    theirs = torch.compile
    with torchdynamo.install(), collecting() as events:
        compiled = train(tmp_path / "compiled", torch_compile=True, torch_compile_backend=backend)
    assert torch.compile is theirs
    assert {event.backend for event in events if event.graph is not None} == {backend}
    assert (compiled[0], compiled[2]) == (losses, files)
    assert compiled[1].keys() == weights.keys()
    assert all(torch.equal(compiled[1][name], value) for name, value in weights.items())


def test_accelerate_wraps_once() -> None:
    net = torch.nn.Linear(3, 2)
    with torchdynamo.install():
        own = accelerate.Accelerator(cpu=True, dynamo_plugin=accelerate.utils.TorchDynamoPlugin(backend="eager"))
        model = own.prepare(net)
        assert own.prepare(model) is model
    assert isinstance(model, torchdynamo.OptimizedModule)
    assert model._orig_mod is net
    unwrapped = own.unwrap_model(model)
    assert isinstance(unwrapped, torch.nn.Linear)
    assert list(unwrapped.state_dict()) == ["weight", "bias"]


def test_generate_with_a_static_cache() -> None:
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, pad_token_id=0, **small)).eval()
    prompt = torch.randint(1, 50, (2, 5))
    settings: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    wanted = model.generate(prompt, disable_compile=True, **settings)
    how = transformers.CompileConfig(backend="eager", mode="default")
    how._compile_all_devices = True  # else it compiles on a GPU only
    with torchdynamo.install(), collecting() as events:
        tokens = model.generate(prompt, compile_config=how, **settings)
    assert torch.equal(tokens, wanted)
    assert {event.backend for event in events if event.graph is not None} == {"eager"}
