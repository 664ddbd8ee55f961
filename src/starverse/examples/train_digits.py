"""Train a small network on handwritten digits with NumPy, never losing more than a few seconds of work.

Two dense layers, Adam, images shifted by up to one pixel at random. The same bytes come out however often
the run is stopped and resumed: one BLAS thread, one seed, and the checkpoint holds the weights, Adam's
moments, the state of the random generator and the epoch.

Settings: ``DIGITS_DIR`` (default /dataset/digits), ``DIGITS_EPOCHS``, ``DIGITS_EVERY`` (epochs from one
checkpoint to the next). Writes ``final_weights.bin`` into the folder that the job was submitted from.
"""

from __future__ import annotations

import os

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})

import hashlib
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from starverse.checkpoint import Checkpointer, LoadedArray

Floats = npt.NDArray[np.float32]

SEED = 20240229
HIDDEN = 1024
BATCH = 128
HELD_OUT = 450
RATE = 5e-4
DECAY = 1e-4
NAMES = ("w1", "b1", "w2", "b2")


class Digits:
    """The data set, split once and for all by the seed into training and held-out images."""

    def __init__(self, folder: Path) -> None:
        images = np.load(folder / "images.npy", allow_pickle=False).astype(np.float32) / np.float32(16)
        labels = np.load(folder / "labels.npy", allow_pickle=False).astype(np.int64)
        order = np.random.default_rng(SEED).permutation(len(images))
        self.images, self.labels = images[order[HELD_OUT:]], labels[order[HELD_OUT:]]
        self.held_out_images = images[order[:HELD_OUT]].reshape(HELD_OUT, -1)
        self.held_out_labels = labels[order[:HELD_OUT]]


class Training:
    """The whole state of a run: what :meth:`state` gives, :meth:`resume` takes back bit for bit."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED + 1)
        self.epoch = 0
        self.steps = 0
        self.weights = {
            "w1": self._new_layer(64, HIDDEN),
            "b1": np.zeros((1, HIDDEN), np.float32),
            "w2": self._new_layer(HIDDEN, 10),
            "b2": np.zeros((1, 10), np.float32),
        }
        self.mean = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.square = {name: np.zeros_like(value) for name, value in self.weights.items()}

    def state(self) -> dict[str, Floats | bytes]:
        """Everything that the rest of the run depends on, by name."""
        position = {"epoch": self.epoch, "steps": self.steps, "random": self.random.bit_generator.state}
        state: dict[str, Floats | bytes] = {"position": json.dumps(position).encode()}
        for name in NAMES:
            state[name] = self.weights[name]
            state[f"mean.{name}"] = self.mean[name]
            state[f"square.{name}"] = self.square[name]
        return state

    def resume(self, arrays: dict[str, LoadedArray]) -> None:
        """Go on from what :meth:`state` gave."""
        position = json.loads(bytes(arrays["position"]))
        self.epoch, self.steps = position["epoch"], position["steps"]
        self.random.bit_generator.state = position["random"]
        for name in NAMES:
            self.weights[name][:] = np.asarray(arrays[name])
            self.mean[name][:] = np.asarray(arrays[f"mean.{name}"])
            self.square[name][:] = np.asarray(arrays[f"square.{name}"])

    def run_epoch(self, digits: Digits) -> float:
        """One pass over the training images; returns the mean loss."""
        order = self.random.permutation(len(digits.images))
        losses = []
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            losses.append(self._step(self._shifted(digits.images[chosen]), digits.labels[chosen]))
        self.epoch += 1
        return float(np.mean(losses))

    def accuracy(self, images: Floats, labels: npt.NDArray[np.int64]) -> float:
        """The share of ``images`` that are read right."""
        hidden = np.maximum(images @ self.weights["w1"] + self.weights["b1"], 0)
        scores = hidden @ self.weights["w2"] + self.weights["b2"]
        return float(np.mean(np.argmax(scores, axis=1) == labels))

    def _new_layer(self, inputs: int, outputs: int) -> Floats:
        drawn = self.random.standard_normal((inputs, outputs), dtype=np.float32)
        drawn *= np.float32((2 / inputs) ** 0.5)
        return drawn

    def _shifted(self, images: Floats) -> Floats:
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
        down, right = self.random.integers(0, 3, size=(2, len(images)))
        rows = down[:, None, None] + np.arange(8)[None, :, None]
        columns = right[:, None, None] + np.arange(8)[None, None, :]
        shifted: Floats = padded[np.arange(len(images))[:, None, None], rows, columns]
        return shifted.reshape(len(images), -1)

    def _step(self, inputs: Floats, labels: npt.NDArray[np.int64]) -> float:
        """One step of Adam on the mean cross entropy of a batch; returns the loss."""
        hidden = np.maximum(inputs @ self.weights["w1"] + self.weights["b1"], 0)
        scores = hidden @ self.weights["w2"] + self.weights["b2"]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(chances[rows, labels] + np.float32(1e-12)).mean())
        chances[rows, labels] -= 1
        chances /= np.float32(len(labels))
        back = (chances @ self.weights["w2"].T) * (hidden > 0)
        self._descend(
            {
                "w1": inputs.T @ back,
                "b1": back.sum(axis=0, keepdims=True),
                "w2": hidden.T @ chances,
                "b2": chances.sum(axis=0, keepdims=True),
            }
        )
        return loss

    def _descend(self, slopes: dict[str, Floats]) -> None:
        self.steps += 1
        rate = np.float32(RATE * (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps))
        for name, slope in slopes.items():
            mean, square, weight = self.mean[name], self.square[name], self.weights[name]
            mean += np.float32(0.1) * (slope - mean)
            square += np.float32(0.001) * (slope * slope - square)
            weight -= rate * mean / (np.sqrt(square) + np.float32(1e-8)) + np.float32(RATE * DECAY) * weight


def train(digits: Digits, epochs: int, every: int) -> Training:
    """Train to the end, or leave for the queue when a notice comes; returns the finished run."""
    checkpointer = Checkpointer()
    training = Training()
    found = checkpointer.restore()
    if found is not None:
        training.resume(found[1])
        print(f"resumed from {found[0].path.name} at epoch {training.epoch}/{epochs}", flush=True)
    begun = said = time.monotonic()
    first = training.epoch
    while training.epoch < epochs:
        loss = training.run_epoch(digits)
        leaving = checkpointer.requested and training.epoch < epochs
        if training.epoch % every == 0 or leaving:
            checkpointer.save_async(training.epoch, training.state())
        if leaving:
            reason = checkpointer.notice.reason if checkpointer.notice else "unknown"
            checkpointer.wait()
            print(f"notice ({reason}): saved epoch {training.epoch}, leaving for the queue", flush=True)
            checkpointer.exit_for_requeue()
        now = time.monotonic()
        if now - said >= 1 or training.epoch == epochs:
            said = now
            left = (now - begun) / (training.epoch - first) * (epochs - training.epoch)
            accuracy = training.accuracy(digits.held_out_images, digits.held_out_labels)
            print(
                f"epoch {training.epoch}/{epochs} loss {loss:.4f} held-out {accuracy:.3f} eta {left:.0f}s",
                flush=True,
            )
    checkpointer.wait()
    return training


def write_weights(training: Training, folder: Path) -> str:
    """Write the final weights, little-endian float32 in a fixed order; returns their SHA-256."""
    content = b"".join(training.weights[name].astype("<f4").tobytes() for name in NAMES)
    (folder / "final_weights.bin").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Read the settings, train, and print what came out."""
    digits = Digits(Path(os.environ.get("DIGITS_DIR", "/dataset/digits")))
    training = train(
        digits, int(os.environ.get("DIGITS_EPOCHS", "1000")), int(os.environ.get("DIGITS_EVERY", "100"))
    )
    digest = write_weights(training, Path(os.environ.get("SLURM_SUBMIT_DIR", ".")))
    accuracy = training.accuracy(digits.held_out_images, digits.held_out_labels)
    print(f"final weights sha256 {digest}")
    print(f"held-out accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
