"""Weights & Biases without its server: what it would send is read back from the file in which it keeps it."""

import csv
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

wandb = pytest.importorskip("wandb")

from diamond_attention.errors import Notice, UserError  # noqa: E402
from diamond_attention.runs.folder import open_run  # noqa: E402
from diamond_attention.runs.trackers.weights_and_biases import WeightsAndBiases, identity  # noqa: E402

SMALL = ["--policy.width", "8", "--ppo.envs", "4", "--ppo.batch", "4", "--ppo.epochs", "1", "--total-steps", "12"]
SMALL += ["--seeds", "0:2"]
BLOCK, HEADER = 32768, 7


def records(file: Path) -> list:
    """What W&B kept: records in blocks, as LevelDB writes its log, after a header of its own."""
    from wandb.proto import wandb_internal_pb2

    data, at, part, found = file.read_bytes(), HEADER, b"", []
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # what is left of a block is padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER])
        part += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(part)
            found.append(record)
            part = b""
    return found


def rows_of(file: Path) -> list[dict[str, float]]:
    return [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in records(file)
        if record.WhichOneof("record_type") == "history"
    ]


def diamond(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "diamond_attention", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=250,
        stdin=subprocess.DEVNULL,
    )


def test_every_row_of_every_seed_is_kept_to_be_sent(tmp_path):
    answer = diamond(tmp_path, "train", "xor", *SMALL, "--out", "run", "--track", "wandb", WANDB_MODE="offline")
    assert answer.returncode == 0, answer.stderr
    files = {file.stem: file for file in tmp_path.glob("wandb/offline-run-*/run-*.wandb")}
    assert len(files) == 2
    for seed in (0, 1):
        run = open_run(tmp_path / "run" / f"seed_{seed}")
        file = files[f"run-{identity(run)}"]
        kept, written = rows_of(file), list(csv.DictReader(run.metrics.open()))
        assert len(kept) == len(written) == 3
        for row, line in zip(kept, written, strict=True):
            assert {name: row[name] for name in line if line[name]} == {k: float(v) for k, v in line.items() if v}
        (begun,) = [each.run for each in records(file) if each.WhichOneof("record_type") == "run"][:1]
        settings = {item.key: json.loads(item.value_json) for item in begun.config.update}
        assert (begun.display_name, begun.run_group, begun.project) == (
            f"run/seed_{seed}",
            "run",
            "diamond-attention",
        )
        assert (settings["seed"], settings["policy"]["width"]) == (seed, 8)


def test_a_resumed_run_goes_on_as_the_same_and_an_overwritten_one_is_another(tmp_path, monkeypatch):
    words = ["train", "xor", *SMALL, "--out", "run"]
    assert diamond(tmp_path, *words).returncode == 0
    run = open_run(tmp_path / "run" / "seed_0")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for life, update in enumerate((1, 2)):
        follows = WeightsAndBiases(run, life)
        follows.append({"update": update, "step": 4 * update, "return": 0.5, "success": float("nan")})
        follows.close()
        with pytest.warns(Notice, match=r"W&B no longer follows .* the training goes on"):
            follows.append({"update": 9, "step": 36})
        follows.append({"update": 10, "step": 40})  # said once
    first = identity(run)
    lives = list(tmp_path.glob(f"wandb/offline-run-*{first}*/run-{first}.wandb"))
    assert len(lives) == 2
    kept = sorted((row for file in lives for row in rows_of(file)), key=lambda row: row["update"])
    assert [(row["update"], row["step"], row["return"], "success" in row) for row in kept] == [
        (1, 4, 0.5, False),
        (2, 8, 0.5, False),
    ]
    assert diamond(tmp_path, *words, "--overwrite").returncode == 0
    assert identity(open_run(tmp_path / "run" / "seed_0")) != first


def test_without_a_key_it_is_one_sentence_and_nothing_is_made(tmp_path):
    home = {"HOME": str(tmp_path), "WANDB_API_KEY": "", "WANDB_MODE": "online", "NETRC": str(tmp_path / "netrc")}
    answer = diamond(tmp_path, "train", "xor", *SMALL, "--out", "run", "--track", "wandb", **home)
    assert answer.returncode == 2
    assert "--track is wandb, and W&B has no API key here; run `wandb login` once" in answer.stderr
    assert not (tmp_path / "run").exists()


def test_a_server_that_cannot_be_reached_is_one_sentence(monkeypatch):
    def fail(**_):
        raise wandb.errors.CommError("no answer\nat all.")

    online = SimpleNamespace(settings=SimpleNamespace(mode="online"))  # W&B asks for its mode once a process
    monkeypatch.setattr(wandb, "setup", lambda: online)
    monkeypatch.setattr(wandb, "login", fail)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(UserError, match="--track is wandb, and no answer at all; or set WANDB_MODE=offline"):
        WeightsAndBiases.check()
