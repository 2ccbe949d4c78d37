"""What tools/convergence.py measured, as a picture and a document, and what is wrong with it."""

from itertools import product
from statistics import mean, stdev
from textwrap import fill
from xml.sax.saxutils import escape

from convergence_training import BATCH, LENGTH, MODELS, SHAPE, STEPS, Result, Run

TYPES = {"float32": "FP32", "bfloat16": "BF16"}
WIDTH, PANEL_WIDTH, PANEL_HEIGHT, MARGIN = 960, 400, 250, 56
SMOOTH = 10  # steps that a point of a curve is the mean of
FAR = 8  # spacings between two logits, beyond which rounding does not explain that the other token is likelier
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
    return found + gemma_problems(gemma or {})


def gemma_problems(gemma: dict) -> list[str]:
    found = []
    for dtype, m in gemma.items():
        name = f"Gemma 3 270M, {TYPES[dtype]}"
        ours, theirs = m["norm_error"]
        if ours > theirs * 1.001:
            found.append(f"{name}: the norms' error is {ours:.3e}, theirs {theirs:.3e}")
        if dtype == "float32" and m["other"]:
            found.append(f"{name}: not all next tokens are the same")
        far = [other for other in m["other"] if abs(other["gaps"]["reference"]) > FAR]
        if far:
            found.append(f"{name}: {len(far)} next tokens differ that rounding would not change")
        worst = max(error for who, error in m["logit_error"].items() if who != "ours")
        if m["logit_error"]["ours"] > worst * 1.1:
            found.append(f"{name}: the logits' error is {m['logit_error']['ours']:.3e}, others' up to {worst:.3e}")
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
    names = {"theirs": "transformers'", "ours": "truenorm's", "FP64": "in FP64, rounded once"}
    rows = []
    for dtype, m in gemma.items():
        norm_error = dict(zip(("ours", "theirs"), m["norm_error"]))
        for who, error in m["logit_error"].items():
            rows.append(
                [
                    f"{TYPES[dtype]}, {names.get(who) or f'in FP64, times 1 {who[0]} {who[1:]}·2^-24'}",
                    f"{norm_error[who]:.3e}" if who in norm_error else "",
                    f"{error:.3e}",
                    str(m["as_reference"][who]),
                    str(m["as_theirs"][who]),
                ]
            )
    first = next(iter(gemma.values()))
    header = ["norms", "their error", "logits' error", "next tokens as the reference's", "as with transformers' norms"]
    same = ", ".join(f"{m['same_generated']} of {m['generated']} ({TYPES[dtype]})" for dtype, m in gemma.items())
    parts = [
        "## Gemma 3 270M",
        "The real model, loaded from its GGUF file (PyPI packages, `tools/requirements-models.txt`) by transformers, run "
        f"with its own norms and with its {first['norms']} norms patched, on {first['positions']} tokens of the text. The "
        "norms' error is relative L2 against FP64 on the same inputs, over all norms; the logits' is against the reference: "
        "the same weights in FP32 with norms in FP64. A next token is the likeliest after a position. Of the tokens "
        f"generated greedily after four of the prompts, those with truenorm's norms are the same in {same}; "
        "once a token is another, all after it may be.",
        table(header, rows),
    ]
    return parts + (gemma_chance(gemma["bfloat16"]) if "bfloat16" in gemma else [])


def gemma_chance(m: dict) -> list[str]:
    """What of BF16's differences is chance: the figures, and each position where the next token differs."""
    errors = m["logit_error"]
    changed = [who for who in errors if who not in ("ours", "theirs", "FP64")]
    gaps = [other["gaps"] for other in m["other"]]
    if not changed or not gaps:
        return []
    moved = [m["positions"] - m["as_theirs"][who] for who in changed]
    largest = max(abs(gap["reference"]) for gap in gaps)
    ties = sum(gap["ours"] == 0 or gap["theirs"] == 0 for gap in gaps)
    with_theirs = sum(gap["reference"] > 0 for gap in gaps)
    low, high = (f(errors[who] for who in changed) for f in (min, max))
    runs = ("reference", "theirs", "ours", "FP64")
    rows = [
        [f"prompt {other['prompt']}, {other['after']} tokens", *(f"{other['gaps'][who]:+.1f}" for who in runs)]
        for other in m["other"]
    ]
    return [
        f"In BF16, {len(gaps)} of {m['positions']} next tokens differ between the two. Each is a near tie: in the "
        f"reference, the two logits are at most {largest:.1f} spacings of BF16 apart, and in {ties} they are equal in one "
        f"of the two runs, where the lower token wins. In the reference, the token of transformers' norms is the likelier "
        f"in {with_theirs}, and that of truenorm's in {len(gaps) - with_theirs}. Norms in FP64 that are changed by one or "
        f"two parts in 2^24, less than BF16 can hold, move {min(moved)} to {max(moved)} next tokens, and give the logits "
        f"an error of {low:.3e} to {high:.3e}: what differs comes from the roundings of BF16 everywhere, and not from "
        "whose norms.",
        "How far the logit of transformers' token lies above that of truenorm's, in spacings of BF16:",
        table(["next token after", "reference", "transformers' norms", "truenorm's", "norms in FP64"], rows),
    ]
