"""What tools/convergence.py measured, as a picture and a document, and what is wrong with it."""

from itertools import product
from statistics import mean, stdev
from textwrap import fill
from xml.sax.saxutils import escape

from convergence_training import BATCH, LENGTH, MODELS, SHAPE, STEPS, Result, Run

TYPES = {"float32": "FP32", "bfloat16": "BF16"}
WIDTH, PANEL_WIDTH, PANEL_HEIGHT, MARGIN = 960, 400, 250, 56
SMOOTH = 10  # steps that a point of a curve is the mean of
COLOURS = {"transformers": "#c0392b", "truenorm": "#1f6fb2"}


def groups(results: dict[Run, Result]):
    """Each model and type whose trainings are all there: (model, dtype, theirs by order, ours by order, ours repeated)."""
    for model in MODELS:
        for dtype in TYPES:
            mine = {run: result for run, result in results.items() if (run.model, run.dtype) == (model, dtype)}
            theirs = {run.order: result for run, result in mine.items() if not run.patched}
            ours = {run.order: result for run, result in mine.items() if run.patched and not run.repeat}
            repeated = next((result for run, result in mine.items() if run.repeat), None)
            if repeated is not None and len(theirs) == len(ours) > 1:
                yield model, dtype, dict(sorted(theirs.items())), dict(sorted(ours.items())), repeated


def comparison(theirs: dict, ours: dict) -> tuple[float, float]:
    """(the mean difference of final losses with and without truenorm, the noise that it is held against).

    The noise of one training is the spread of final losses over orders of the data; of the difference of two means over
    n orders it is sqrt(2 / n) of that.
    """
    noise = (stdev([r.final for r in theirs.values()]) + stdev([r.final for r in ours.values()])) / 2
    difference = mean(r.final for r in ours.values()) - mean(r.final for r in theirs.values())
    return difference, noise * (2 / len(theirs)) ** 0.5


def problems(results: dict[Run, Result], gemma: dict | None) -> list[str]:
    """One sentence for each thing that should not be."""
    found = []
    measured = [(model, dtype) for model, dtype, *_ in groups(results)]
    for model, dtype in product(MODELS, TYPES):
        if (model, dtype) not in measured:
            found.append(f"{model}, {TYPES[dtype]}: not all trainings are there")
    for model, dtype, theirs, ours, repeated in groups(results):
        name = f"{model}, {TYPES[dtype]}"
        first = next(iter(ours.values()))
        if (repeated.losses, repeated.bits) != (first.losses, first.bits):
            found.append(f"{name}: a repeated training has other bits")
        difference, noise = comparison(theirs, ours)
        if abs(difference) > 2 * noise:
            found.append(f"{name}: final losses differ by {difference:+.4f}; orders of the data by {noise:.4f}")
        if any(result.norms == 0 for result in ours.values()):
            found.append(f"{name}: no norm was replaced")
    for dtype, measured in (gemma or {}).items():
        ours, theirs = measured["norm_error"]
        if ours > theirs * 1.001:
            found.append(f"Gemma 3 270M, {TYPES[dtype]}: the norms' error is {ours:.3e}, theirs {theirs:.3e}")
        if dtype == "float32" and measured["same_next"] < measured["positions"]:
            found.append("Gemma 3 270M, FP32: not all next tokens are the same")
    return found


def smooth(losses: list) -> list:
    return [mean(losses[max(0, i - SMOOTH + 1) : i + 1]) for i in range(len(losses))]


def curve(losses: list, top: float, bottom: float, left: int, upper: int, style: str) -> str:
    points = " ".join(
        f"{left + i * PANEL_WIDTH / (len(losses) - 1):.1f},{upper + (top - loss) / (top - bottom) * PANEL_HEIGHT:.1f}"
        for i, loss in enumerate(losses)
    )
    return f'<polyline points="{points}" fill="none" {style}/>'


def label(x: float, y: float, what: str, size: int = 12, anchor: str = "middle", colour: str = "#333") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(what)}</text>'
    )


def panel(title: str, theirs: dict, ours: dict, left: int, upper: int) -> list[str]:
    curves = [(smooth(r.losses), "transformers") for r in theirs.values()]
    curves += [(smooth(r.losses), "truenorm") for r in ours.values()]
    top = max(losses[0] for losses, _ in curves)
    bottom = min(min(losses) for losses, _ in curves)
    parts = [label(left + PANEL_WIDTH / 2, upper - 10, title, 14)]
    for step in range(int(bottom) + 1, int(top) + 1):
        y = upper + (top - step) / (top - bottom) * PANEL_HEIGHT
        parts.append(f'<line x1="{left}" x2="{left + PANEL_WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(label(left - 8, y + 4, str(step), anchor="end"))
    for step in range(0, STEPS + 1, 50):
        parts.append(label(left + step / STEPS * PANEL_WIDTH, upper + PANEL_HEIGHT + 16, str(step)))
    for losses, who in curves:  # theirs broad and pale, ours thin over them: both are seen where they coincide
        style = f'stroke="{COLOURS[who]}" stroke-width="1"'
        if who == "transformers":
            style = f'stroke="{COLOURS[who]}" stroke-width="4" stroke-opacity="0.35"'
        parts.append(curve(losses, top, bottom, left, upper, style))
    return parts


def picture(results: dict[Run, Result]) -> str:
    """Four panels of loss over steps; every order of the data, with transformers' norms and truenorm's."""
    height = 2 * (PANEL_HEIGHT + 2 * MARGIN) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        label(MARGIN, 20, "training loss, nats a byte, over steps:", anchor="start"),
        label(MARGIN + 230, 20, "transformers' norms (broad)", anchor="start", colour=COLOURS["transformers"]),
        label(MARGIN + 420, 20, "truenorm's (thin)", anchor="start", colour=COLOURS["truenorm"]),
    ]
    for index, (model, dtype, theirs, ours, _) in enumerate(groups(results)):
        left = MARGIN + (index % 2) * (PANEL_WIDTH + MARGIN + 20)
        upper = 30 + MARGIN // 2 + (index // 2) * (PANEL_HEIGHT + 2 * MARGIN)
        parts += panel(f"{model}, {TYPES[dtype]}", theirs, ours, left, upper)
    return "\n".join([*parts, "</svg>", ""])


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def document(results: dict[Run, Result], record: dict) -> str:
    rows, orders = [], 0
    for model, dtype, theirs, ours, repeated in groups(results):
        difference, noise = comparison(theirs, ours)
        first = next(iter(ours.values()))
        same = (repeated.losses, repeated.bits) == (first.losses, first.bits)
        orders = len(theirs)
        rows.append(
            [
                f"{model}, {TYPES[dtype]}",
                ", ".join(f"{result.final:.4f}" for result in theirs.values()),
                ", ".join(f"{result.final:.4f}" for result in ours.values()),
                f"{difference:+.4f}",
                f"{noise:.4f}",
                "equal bits" if same else "OTHER BITS",
            ]
        )
    header = ["", "transformers' norms", "truenorm's", "difference of the means", "its noise", "truenorm's repeated"]
    versions = ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items())
    parts = [
        "# Models train the same with truenorm's norms",
        "Made by `make test-convergence` (`tools/convergence.py`); not to be edited by hand.",
        f"A Llama-shaped and a Gemma-3-shaped model of transformers' classes ({SHAPE['num_hidden_layers']} layers, hidden "
        f"size {SHAPE['hidden_size']}, random weights) learn bytes of {record['text']}: {STEPS} steps of {BATCH} x "
        f"{LENGTH} bytes, AdamW, on a CPU ({versions}); once with the models' own norms and once after "
        "`truenorm.integrations.transformers.patch(model)`, from the same initial weights. In BF16, parameters, activations "
        "and gradients are BF16, and the optimizer keeps an FP32 copy of the parameters.",
        "![Loss over steps](convergence.svg)",
        f"Final losses on held-out text, in {orders} orders of the training text:",
        table(header, rows),
        "The noise is the spread (standard deviation) of final losses over orders of the data, times sqrt(2 / n) for a "
        'difference of two means over n orders. "Repeated" trains once more in the first order: every step\'s loss and '
        "every final parameter must have the same bits.",
    ]
    if record.get("gemma"):
        parts += gemma_section(record["gemma"])
    return "\n\n".join(part if part[0] in "#!|" else fill(part, 120) for part in parts) + "\n"


def gemma_section(gemma: dict) -> list[str]:
    rows = []
    for dtype, m in gemma.items():
        rows.append(
            [
                TYPES[dtype],
                str(m["norms"]),
                f"{m['same_next']} of {m['positions']}",
                f"{m['same_generated']} of {m['generated']}",
                "{:.3e}, {:.3e}".format(*m["norm_error"]),
                "{:.3e}, {:.3e}".format(*m["logit_error"]),
            ]
        )
    header = ["", "norms", "same next tokens", "same generated tokens", "norms' error: ours, theirs"]
    return [
        "## Gemma 3 270M",
        "The real model, loaded from its GGUF file (PyPI packages, `tools/requirements-models.txt`) by transformers, run "
        "with its own norms and patched. Next tokens: the likeliest after each position of four prompts; generated: "
        "greedily after each prompt. The norms' error is relative L2 against FP64 on the same inputs, over all norms; the "
        "logits' against the same model with its norms in FP64.",
        table([*header, "logits' error: ours, theirs"], rows),
    ]
