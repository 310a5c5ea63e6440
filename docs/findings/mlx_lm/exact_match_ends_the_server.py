"""mlx-lm 0.32.2: a prompt that the prompt cache has completely ends the server's generation thread.

    python exact_match_ends_the_server.py

It ends with exit code 1 where the fault shows. It serves a tiny model on a local port.
It needs no GPU.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32,
}


def save_model(folder):
    """A random model whose words are w0 to w30."""
    mx.random.seed(0)
    weights = dict(tree_flatten(Model(ModelArgs(**CONFIG)).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"eos_token_id": 31}))
    vocabulary = {f"w{n}": n for n in range(31)} | {"<eos>": 31}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<eos>"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<eos>", unk_token="<eos>"
    )
    tokenizer.save_pretrained(folder)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def complete(port, prompt):
    """The text that the server completes a prompt with."""
    body = json.dumps({"prompt": prompt, "max_tokens": 4, "temperature": 0}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["text"]


def wait_for(port):
    for _ in range(120):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise AssertionError("the server did not start")


with tempfile.TemporaryDirectory() as folder:
    save_model(Path(folder))
    port = free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", folder, "--port", str(port)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    faulty = False
    try:
        wait_for(port)
        prompt = "w1 w2 w3"
        text = complete(port, prompt)
        print(f"{prompt!r} is completed with {text!r}")
        for each in (f"{prompt} {text}", "w7 w8"):
            try:
                print(f"{each!r} is completed with {complete(port, each)!r}")
            except OSError as error:
                faulty = True
                print(f"{each!r}: {type(error).__name__}: {error}")
    finally:
        server.terminate()
        server.wait()
sys.exit(faulty)
