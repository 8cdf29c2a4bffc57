"""load(): what it takes, and one clear sentence for everything else."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmserve_lab import LLM, load
from llmserve_lab.models.load import BUNDLED, ModelNotFoundError, bundled_path
from tests.conftest import character_tokenizer, tiny_llama

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path):
    """A whole model in Hugging Face format."""
    tiny_llama().save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def offline(monkeypatch):
    """Any attempt to reach the hub fails the test."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def refuse(*args, **options):
        raise AssertionError("the network was tried")

    monkeypatch.setattr("socket.create_connection", refuse)


def one_sentence(error, *words):
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


@pytest.mark.parametrize("as_text", [False, True])
def test_a_folder(folder, as_text):
    loaded = load(str(folder) if as_text else folder, dtype="float32", device="cpu")
    assert loaded.name == str(folder)
    assert loaded.why_dtype == "as asked for"
    assert not loaded.model.training
    assert loaded.num_parameters == sum(p.numel() for p in tiny_llama().parameters())
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded.model(tokens).logits, tiny_llama()(tokens).logits)


def test_a_folder_below_the_home(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    assert load(f"~/{folder.name}", device="cpu").name == f"~/{folder.name}"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", torch.bfloat16])
def test_a_dtype(folder, dtype):
    model = load(folder, dtype=dtype, device="cpu").model
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    assert {parameter.dtype for parameter in model.parameters()} == {wanted}


def test_the_engine_takes_what_load_takes(folder):
    llm = LLM(folder, dtype="float32", device="cpu", num_blocks=4)
    assert len(llm.generate("abc")) == 1
    with pytest.raises(ValueError, match=r"give dtype, device or tensor_parallel to load\(\)"):
        LLM(load(folder, device="cpu"), dtype="float16")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int64", "foo", 5, None, torch.int8])
def test_bad_dtypes(folder, dtype):
    with pytest.raises(ValueError, match="dtype must be") as error:
        load(folder, dtype=dtype)
    one_sentence(error, repr(dtype))


@pytest.mark.parametrize("device", ["foo", "gpu", None, 2.5])
def test_bad_devices(folder, device):
    with pytest.raises(ValueError, match="device must be") as error:
        load(folder, device=device)
    one_sentence(error, repr(device))


def test_a_gpu_that_is_not_there(folder):
    with pytest.raises(ValueError, match=r'no device cuda:99 here; use device="cpu"'):
        load(folder, device="cuda:99")


@pytest.mark.parametrize("name", ["nothing", "lab_target", "a/b/c", "./x", "/no/where", "", 5])
def test_unknown_names(offline, name):
    with pytest.raises(ModelNotFoundError) as error:
        load(name)
    one_sentence(error, *BUNDLED, "config.json", str(name))


def test_a_folder_that_is_no_model(offline, tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"holds no config\.json") as error:
        load(tmp_path)
    one_sentence(error, str(tmp_path))


def test_a_hub_name_offline(offline):
    with pytest.raises(ModelNotFoundError) as error:
        load("nobody/no-such-model")
    one_sentence(error, "nobody/no-such-model", "cannot be reached", *BUNDLED)


def test_a_hub_that_does_not_answer(monkeypatch):
    """An address that nothing listens on stands for a network that is down."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelNotFoundError, match="cannot be reached"):
        load("nobody/no-such-model")


def without_a_tensor(folder):
    tensors = load_file(folder / WEIGHTS)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def with_a_wrong_shape(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 3)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def cut_short(folder):
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1000])


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


DAMAGES = {
    "truncated": (cut_short, "weights"),
    "overwritten": (write(WEIGHTS, b"x" * 5000), "weights"),
    "empty": (write(WEIGHTS, b""), "weights"),
    "a download page": (write(WEIGHTS, b"<html>not found</html>"), "weights"),
    "a tensor missing": (without_a_tensor, "layers.1.mlp.up_proj"),
    "a tensor of another shape": (with_a_wrong_shape, "layers.1.mlp.up_proj"),
    "tokenizer cut short": (write("tokenizer.json", b"{"), "tokenizer"),
    "tokenizer of nothing": (write("tokenizer.json", b"{}"), "tokenizer"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files(folder, offline, damage):
    spoil, word = DAMAGES[damage]
    spoil(folder)
    with pytest.raises(ValueError, match="fetch it again") as error:
        load(folder, device="cpu")
    one_sentence(error, str(folder), word)


def test_missing_weights(folder, offline):
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelNotFoundError, match="could not be loaded") as error:
        load(folder)
    one_sentence(error, WEIGHTS)


def test_a_config_that_is_no_json(folder, offline):
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelNotFoundError, match="not a valid JSON file") as error:
        load(folder)
    one_sentence(error, str(folder))


def test_an_unknown_architecture(folder, offline):
    (folder / "config.json").write_text(json.dumps({"model_type": "abacus"}))
    with pytest.raises(ValueError, match="abacus") as error:
        load(folder)
    one_sentence(error, str(folder))


def test_bundled_names():
    assert bundled_path("lab-draft").name == "lab-draft"
    with pytest.raises(ModelNotFoundError, match="lab-target and lab-draft"):
        bundled_path("lab-other")


def test_spreading_a_model_needs_accelerate(folder, monkeypatch):
    monkeypatch.setattr("llmserve_lab.models.load.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install accelerate"):
        load(folder, device="map")


def test_a_model_on_several_devices_is_refused_by_the_engine(folder):
    loaded = load(folder, dtype="float32", device="cpu")
    loaded.model.model.layers[0].to("meta")
    with pytest.raises(ValueError, match="spread over cpu, meta"):
        LLM(loaded, num_blocks=4)
