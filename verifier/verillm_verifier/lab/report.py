"""`docs/detection.md` from one document of figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verillm_verifier.calibrate_tail import RARE
from verillm_verifier.lab.pooled import (
    LEAST_QUIET,
    MOST_TOKENS,
    PLAIN,
    QUIET_TOKENS,
    ROUGH,
    RUNS,
)
from verillm_verifier.lab.trials import FEW, MANY

Json = Mapping[str, Any]

PAGE = Path(__file__).parent / "page.md"

REFUSED = (
    ("output cut short without an end token", "refund `length`"),
    ("output padded past its end token", "refund `after_end`"),
    ("a trace over other tokens than the output", "refund `output_mismatch`"),
    ("another prompt or sampling in the inferencer's task", "refund `task_mismatch_inferencer`"),
    ("openings withheld", "slash `withheld`"),
    ("a state that is not finite", "slash `non_finite`"),
    ("a random root, states that are not under the sealed one", "inconclusive `evidence_missing`"),
    ("a verifier's commitment copied from another", "accept; the copier is a suspect"),
    ("a verifier that opens nothing", "accept; the verifier is a suspect"),
)


def write(found: Json) -> str:
    """Return the page."""
    rows = found["rows"]
    page = PAGE.read_text("utf-8").format(
        about=_about(found),
        certificate=_certificate(found.get("certificate")),
        tail=_tail(found.get("tail")),
        positions=(found.get("certificate") or {}).get("positions", MANY),
        workers=RUNS,
        quiet_tokens=f"{QUIET_TOKENS:,}".replace(",", " "),
        least_quiet=LEAST_QUIET,
        most_tokens=f"{MOST_TOKENS:,}".replace(",", " "),
        honest=_honest(rows),
        inferencers=_inferencers(rows),
        over_many=found.get("overMany", found["machine"]),
        reach=_reach(found),
        verifiers=_verifiers(rows),
        sequential=_sequential(found),
        refused=_table(("deviation", "verdict"), REFUSED),
        **found["freedom"],
    )
    return "\n".join([page.rstrip("\n") + "\n", *map(_other, found.get("others", ()))])


def _about(found: Json) -> str:
    model, profile = found["model"], found["profile"]
    millionths = {key: value / 1e6 for key, value in profile.items() if isinstance(value, int)}
    return (
        f"Model `{model['name']}` (weights root `{model['weights'][:16]}…`), profile "
        f"`{profile['hash'][:16]}…`. States: refund at a mean over {millionths['meanRefund']:.2f} "
        f"honest medians or more than {profile['overRefund']} positions over a cap, slash at "
        f"{millionths['meanSlash']:.2f} or {profile['overSlash']}; from {profile['manyPositions']} "
        f"positions a request on means of {millionths['meanRefundMany']:.2f} and "
        f"{millionths['meanSlashMany']:.2f}.\nTokens: mean margin "
        f"{millionths['marginMean']:.3f}, largest {millionths['marginMaxRefund']:.2f} (refund), "
        f"{millionths['marginMaxSlash']:.2f} (slash) logits. {found['draws']} draws per job and "
        f"setting.\n\nMeasured on {found['machine']}."
    )


def _tail(seen: Json | None) -> str:
    """What the calibration took from the first units, and which thresholds lie above it."""
    if seen is None:
        return "No thresholds were taken from such jobs."
    return (
        f"The first {seen['units']} units, {seen['jobs']} jobs, do not count: they are where the "
        f"calibration sees what honest work is at its rarest (`verillm_verifier.calibrate_tail`). "
        f"Now and then a text lets rounding grow along it: at most a draw was "
        f"{seen['meanOfManyMax'] / 1e6:.2f} honest medians off, {seen['over']['max']} of {MANY} "
        f"positions were beyond a cap, and a token {seen['marginMax'] / 1e6:.2f} logits behind "
        f"({seen['marginAboveMax'] / 1e6:.2f} behind one whose logit was clearly larger).\n**What "
        f"takes a stake, and what one token may lose, lie above all of that by a quarter; the "
        f"count and the mean margin that refund lie above all but one of these jobs** in {RARE} "
        f"({seen['over']['allButRare']} positions, a mean margin of "
        f"{seen['marginMean']['allButRare'] / 1e6:.3f} logits): a refund tier above such texts "
        f"would let cut contexts and other temperatures pass."
    )


def _certificate(stated: Json | None) -> str:
    """The bounds, and what came of each setup and each committee."""
    if stated is None:
        return "Not run for this profile."
    long, everything = stated["long"], stated["all"]
    lines = [
        (
            what,
            each["jobs"],
            each["newTokens"],
            each["rejected"],
            each["slashed"],
            each["undecided"],
            f"≤ {each['boundRejected']:.2e}",
            f"≤ {each['boundSlashed']:.2e}",
            f"{each['nearest']['q99']:.2f}, {each['nearest']['max']:.2f}",
        )
        for what, each in (
            (f"{stated['tokens']} new tokens", long),
            ("of any length", everything),
        )
    ]
    head = ("jobs", "count", "new tokens", "refused", "of them slashed", "undecided",
            "refused, 95 %", "slashed, 95 %", "nearest: 99 %, largest of all draws")  # fmt: skip
    by = [
        (name, each["jobs"], each["rejected"], each["undecided"], f"{each['nearest']['max']:.2f}")
        for part in ("byWorker", "byVerifiers")
        for name, each in stated[part].items()
    ]
    heads = ("worker's setup, or verifiers' kinds", "jobs", "refused", "undecided", "nearest")
    return (
        f"{stated['machine']}.\n\n{_table(head, lines)}\n"
        f"The bounds are one-sided (Clopper-Pearson), of the larger of these counts and of the "
        f"further draws' mean, and over seeds, parameters and setups, on the "
        f"{everything['prompts']} prompts that ship. Jobs of one prompt are alike: "
        f"{100 * stated['betweenPrompts']:.0f} % of the distances' variance lies between prompts, "
        f"and counted by prompts the same jobs prove no more than "
        f"≤ {100 * everything['boundPrompts']:.1f} %.\nFurther looks: of "
        f"{stated['draws'] * everything['jobs']} draws ({stated['draws']} a job, any length) "
        f"{100 * everything['rejectedOfDraws']:.3f} % are refused, "
        f"{100 * everything['undecidedOfDraws']:.3f} % undecided.\n\n{_table(heads, by)}"
    )


def _honest(rows: Sequence[Json]) -> str:
    lines = []
    for row in _of(rows, "nobody"):
        few, wide = row["results"][0], row["results"][-1]
        lines.append(
            (
                row["title"],
                row["jobs"],
                row["tokens"],
                wide["draws"],
                _count(few, "refund", "slash", "inconclusive"),
                _count(wide, "refund", "slash"),
                _count(wide, "inconclusive"),
                f"≤ {100 * wide['high']:.1f} %",
                f"{wide['nearest']:.2f}",
            )
        )
    head = (
        "setup, sampling",
        "jobs",
        "tokens",
        "draws",
        f"not accepted at {FEW}",
        "rejected",
        "undecided",
        "not accepted, 95 %",
        "nearest",
    )
    return _table(head, lines)


def _count(result: Json, *outcomes: str) -> int:
    verdicts: dict[str, int] = result["verdicts"]
    return sum(count for name, count in verdicts.items() if name.startswith(outcomes))


def _inferencers(rows: Sequence[Json]) -> str:
    chosen = _of(rows, "inferencer")
    settings = [result["setting"] for result in chosen[0]["results"]]
    lines = [
        (
            row["title"],
            *(_share(result) for result in row["results"]),
            _main_verdict(row["results"][1]),
            f"{row['results'][0]['nearest']:.2f}",
            _needs(row),
            row["jobs"],
        )
        for row in chosen
    ]
    head = ("attack", *settings, f"verdict ({settings[1]})", f"nearest ({FEW})", "needs", "jobs")
    return _table(head, lines)


def _reach(found: Json) -> str:
    titles = {row["name"]: row["title"] for row in found["rows"]}
    reached: Sequence[Json] = found.get("reach", ())
    counts = sorted({each["positions"] for each in reached})
    noisiest = {each["positions"]: each["honest"] / 1e6 for each in reached}
    lines: list[tuple[object, ...]] = [
        ("noisiest honest draw", "", "", *(f"{noisiest[count]:.2f}" for count in counts))
    ]
    for cheat, kind in dict.fromkeys((each["cheat"], each["kind"]) for each in reached):
        of = {e["positions"]: e for e in reached if (e["cheat"], e["kind"]) == (cheat, kind)}
        shares = (f"{100 * of[count]['beyond']:.1f} %" for count in counts)
        lines.append((titles[cheat], kind, of[counts[0]]["jobs"], *shares))
    return _table(("cheat", "verifier", "jobs", *map(str, counts)), lines)


def _verifiers(rows: Sequence[Json]) -> str:
    lines = [
        (
            row["title"],
            *(_share(result) for result in row["results"]),
            f"{100 * _accepted(row['results'][-1]):.1f} %",
            row["jobs"],
        )
        for row in _of(rows, "verifier")
    ]
    return _table(("the liar", f"named, {FEW}", f"named, {MANY}", "job accepted", "jobs"), lines)


def _sequential(found: Json) -> str:
    titles = {row["name"]: row["title"] for row in found["rows"]}
    ended = {(each["cheat"], each["clique"], each["states"]): each for each in found["alarms"]}
    lines = []
    for cheat, clique in dict.fromkeys((name, clique) for name, clique, _ in ended):
        plain, rough = (ended[cheat, clique, states] for states in (PLAIN, ROUGH))
        known = (titles.get(cheat, cheat), clique, _tokens(plain), _tokens(rough), plain["tokens"])
        lines.append(known)
    head = ("cheat", "verifiers", f"states {PLAIN}", ROUGH, "tokens at hand")
    return _table(head, lines) + "\n" + _quiet(found["quiet"])


def _tokens(alarm: Json) -> str:
    return f"{alarm['median'] or '-'}, {alarm['ninth'] or '-'}"


def _quiet(quiet: Sequence[Json]) -> str:
    lines = []
    for setup in dict.fromkeys(each["setup"] for each in quiet):
        of = [each for each in quiet if each["setup"] == setup]
        whole = next(each for each in of if not each["verifiers"])
        worst = max(of, key=lambda each: float(each["highest"]))
        lines.append(
            (
                setup,
                whole["jobs"],
                f"{whole['highest']:.3g}",
                f"{worst['highest']:.3g} ({worst['verifiers'] or 'any'}, {worst['jobs']} jobs)",
                f"{whole['once']:.3g} ({whole['at_hand']} tokens)",
            )
        )
    head = ("honest setup", "jobs at hand", "highest odds", "before the worst kinds of verifiers",
            "each job once")  # fmt: skip
    return _table(head, lines)


def _other(other: Json) -> str:
    """A second model, in short: that nothing above is tuned to the first."""
    lines = [
        (row["title"], row["jobs"], _share(row["results"][0]), _share(row["results"][1]),
         _main_verdict(row["results"][1]), f"{row['results'][0]['nearest']:.2f}")
        for row in other["rows"]
        if row["role"] != "verifier"
    ]  # fmt: skip
    head = ("what", "jobs", f"not accepted, {FEW}", f"not accepted, {MANY}", f"verdict ({MANY})",
            f"nearest ({FEW})")  # fmt: skip
    return (
        f"## Another architecture: {other['model']['name']}\n\n{other['model']['about']}\n\n"
        + _table(head, lines)
    )


def _of(rows: Iterable[Json], role: str) -> list[Json]:
    return [row for row in rows if row["role"] == role]


def _needs(row: Json) -> str:
    if row["positionsNeeded"]:
        return f"{row['positionsNeeded']} positions"
    return f"{row['tokensNeeded']} tokens" if row["tokensNeeded"] else "-"


def _share(result: Json) -> str:
    return f"{100 * result['value']:.1f} % ({100 * result['low']:.0f}-{100 * result['high']:.0f})"


def _accepted(result: Json) -> float:
    verdicts: dict[str, int] = result["verdicts"]
    accepted = sum(count for name, count in verdicts.items() if name.startswith("accept"))
    return accepted / sum(verdicts.values())


def _main_verdict(result: Json) -> str:
    """The commonest verdict but accept, and how common it is among those."""
    others = {v: n for v, n in result["verdicts"].items() if not v.startswith("accept")}
    if not others:
        return "accept"
    verdict = max(others, key=lambda each: others[each])
    outcome, _, reason = verdict.partition(" ")
    return f"{outcome} `{reason}` {100 * others[verdict] / sum(others.values()):.0f} %"


def _table(head: Sequence[object], lines: Iterable[Sequence[object]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows) + "\n"
