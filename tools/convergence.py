"""Evidence that models train the same with truenorm's norms: what `make test-convergence` runs.

    python tools/convergence.py             trains, writes docs/convergence.md and docs/convergence.svg, and checks
    python tools/convergence.py --gemma     also runs Gemma 3 270M (from .data/gemma3.gguf, fetched where it is missing)
    python tools/convergence.py --report    writes the documents anew from build/convergence.json
    python tools/convergence.py --report --gemma    the same, with Gemma 3 270M measured anew

A Llama-shaped and a Gemma-3-shaped model train in FP32 and BF16, with the norms of transformers and with truenorm's, each
on the text in several orders, and truenorm's once more. Exits with 1 where a repeated training has other bits, or final
losses with and without truenorm differ by more than those of different orders do.

Needs truenorm, torch and transformers; --gemma also gguf and accelerate, without which transformers loads no GGUF file.
"""

import argparse
import concurrent.futures
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import convergence_report
from convergence_training import MODELS, Result, Run, describe_text, train

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "convergence.json"
DTYPES = ("float32", "bfloat16")
ORDERS = (1, 2, 3)


def runs() -> list[Run]:
    """All trainings; of each model and type those with truenorm in the first order twice."""
    return [
        run
        for dtype in DTYPES
        for model in MODELS
        for run in (
            *(Run(model, dtype, patched, order) for order in ORDERS for patched in (False, True)),
            Run(model, dtype, True, ORDERS[0], repeat=1),
        )
    ]


def train_all(jobs: int, done_so_far) -> None:
    """Trains all; after each, `done_so_far` is given the results until then."""
    wanted, results, start = runs(), {}, time.monotonic()
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        pending = {pool.submit(train, run): run for run in wanted}
        for done in concurrent.futures.as_completed(pending):
            run = pending[done]
            results[run] = done.result()
            norms = "truenorm" if run.patched else "transformers"
            print(
                f"  {len(results):>2} of {len(wanted)}  {time.monotonic() - start:6.0f} s  {run.model}, {run.dtype}, "
                f"{norms}, order {run.order}: final loss {results[run].final:.4f}",
                flush=True,
            )
            done_so_far(results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gemma", action="store_true", help="also run Gemma 3 270M patched and unpatched")
    parser.add_argument("--report", action="store_true", help="train nothing, write the documents anew")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trainings at once (all cores)")
    arguments = parser.parse_args()
    missing = [name for name in ("gguf", "accelerate") if arguments.gemma and importlib.util.find_spec(name) is None]
    if missing:  # said now, not after half an hour of training
        print(f"convergence: --gemma needs {' and '.join(missing)}", file=sys.stderr)
        return 2
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not arguments.report:
        record["text"] = describe_text()
        record["versions"] = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}

        def save(results):
            record["runs"] = [[list(run), list(result)] for run, result in results.items()]
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(record))

        train_all(arguments.jobs, save)
    if arguments.gemma:
        import convergence_gemma

        record["gemma"] = convergence_gemma.measure(ROOT / ".data")
    if "runs" not in record:
        print("convergence: nothing has been measured yet; run it without --report", file=sys.stderr)
        return 1
    RESULTS.write_text(json.dumps(record))
    results = {Run(*run): Result(*result) for run, result in record["runs"]}
    (ROOT / "docs" / "convergence.svg").write_text(convergence_report.picture(results))
    (ROOT / "docs" / "convergence.md").write_text(convergence_report.document(results, record))
    problems = convergence_report.problems(results, record.get("gemma"))
    for problem in problems:
        print(f"convergence: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
