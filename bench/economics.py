"""Tables and pictures of docs/economics.md, from simulated jobs and exact formulas.

    python bench/economics.py            rewrite the page's tables and docs/img/economics-*.svg
    python bench/economics.py --check    exit 1 if the page says something else

Seeded: the same versions give the same bytes. Amounts are in parts of the fee.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from verillm.economics import capture, lemmas
from verillm.economics.parameters import Situation, captured, cost_of_checking, reverifiers
from verillm.economics.recommend import recommend
from verillm.economics.rules import UnsafeParameters
from verillm.economics.simulation import deviation, simulate
from verillm.economics.world import Conduct, Costs, Tally, World, with_kappa
from verillm.settlement import BPS, Ending, Terms, Way, settle
from verillm.types import Outcome

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "economics.md"
IMAGES = ROOT / "docs" / "img"
JOBS = 10_000
FEE = 1_000_000
COSTS = Costs(
    inference=400_000,
    cheap=150_000,
    prefill=10_000,
    opening=2_000,
    challenge=20_000,
    scheduler=20_000,
    call=3_000,
)
TERMS = Terms(
    kappa_bps=20_000,
    inferencer_bps=7_500,
    committee_bps=1_500,
    scheduler_bps=1_000,
    caller_fee=4_500,
    claim_bond=100_000,
    challenge_bond=100_000,
)
ANSWER_FEE = 3_000
REVERIFY_BOND = 300_000
WORLD = World((2,) * 30, 3, TERMS, FEE, FEE, COSTS)
SITUATION = Situation(
    seats=WORLD.seats,
    honest_share=0.8,
    noise=0.01,
    detection=0.9,
    token_detection=0.95,
    costs=COSTS,
    max_fee=FEE,
    value=FEE,
)
COLOURS = {"accept": "#4c956c", "inconclusive": "#c9ada7", "refund": "#f2a65a", "slash": "#bc4749"}
Table = list[list[str]]


def per_fee(amount: float) -> str:
    """An amount in hundredths of the fee, signed."""
    shown = round(100 * amount / FEE, 1)
    return f"{shown:+.1f}" if shown else "0.0"


def percent(share: float) -> str:
    """A share in percent, as exact as a few thousand jobs make it."""
    return "-" if share == 0 else f"{100 * share:.1f}"


# ── Tables ──────────────────────────────────────────────────────────────────────────────────────
def conducts() -> Table:
    """What each conduct earns where everybody else is honest."""
    worth = replace(WORLD, value=3 * FEE)
    subtle = replace(worth, token_detection=0.0)
    cases = [
        ("honest", worth, Conduct.HONEST, 1),
        ("cheaper model, states 3 medians away", worth, Conduct.LAZY, 1),
        ("… 1.5 away, tokens not caught", replace(subtle, cheap_distance=1.5), Conduct.LAZY, 1),
        ("… 0.8 away, tokens not caught", replace(subtle, cheap_distance=0.8), Conduct.LAZY, 1),
        ("cheaper decode, true prefill; caught 95 %", token(worth, 0.95), Conduct.PREFILL, 1),
        ("… caught 20 %", token(worth, 0.2), Conduct.PREFILL, 1),
        ("… and half of it proven", replace(token(worth, 0.2), proofs=0.5), Conduct.PREFILL, 1),
        ("forged output, worth 3 fees", worth, Conduct.LYING, 1),
        ("forged tokens, true prefill; caught 95 %", token(worth, 0.95), Conduct.FORGING, 1),
        ("… and an ally claims acceptance first", bold(worth, 0.95), Conduct.FORGING, 1),
        ("forgery backed by 20 % of owners", worth, Conduct.COLLUDING, 6),
        ("… by 33 %", worth, Conduct.COLLUDING, 10),
        ("… by 20 %, not sealing when outvoted", replace(worth, abort=True), Conduct.COLLUDING, 6),
    ]
    head = ["inferencer", "accepted %", "inconclusive %", "refunded %", "slashed %"]
    rows = [[*head, "profit, % of fee", "pays"]]
    honest = deviation(worth, Conduct.HONEST, JOBS)[0].as_inferencer(Conduct.HONEST)
    for name, world, conduct, coalition in cases:
        tally = deviation(world, conduct, JOBS, coalition=coalition)[1]
        profit = tally.as_inferencer(conduct)
        shares = [tally.share(outcome, conduct) for outcome in ORDER]
        pays = "-" if conduct is Conduct.HONEST else ("**yes**" if profit > honest else "no")
        rows.append([name, *map(percent, shares), per_fee(profit), pays])
    return rows


ORDER = (Outcome.ACCEPT, Outcome.INCONCLUSIVE, Outcome.REFUND, Outcome.SLASH)


def token(world: World, detection: float) -> World:
    """The same world with another power of the token check."""
    return replace(world, token_detection=detection)


def bold(world: World, detection: float) -> World:
    """A world where a cheat's ally is the first to claim."""
    return replace(token(world, detection), corrupt=1.0)


def checking() -> Table:
    """What a verifier earns that skips its checks."""
    rows = [["rule", "jobs among check-like tasks", "honest", "skips", "skipping pays"]]
    mix = [*[Conduct.HONEST] * 29, Conduct.LAZY]
    for pay_all, name in ((False, "largest clique paid, as built"), (True, "all members paid")):
        for hidden in (0.0, 0.01, 0.05):
            world = replace(WORLD, hidden=hidden, pay_all=pay_all)
            tally = simulate(world, mix, 3 * JOBS)
            honest, lazy = map(tally.as_verifier, (Conduct.HONEST, Conduct.LAZY))
            pays = "**yes**" if lazy > honest else "no"
            rows.append([name, f"{hidden:.0%}", per_fee(honest), per_fee(lazy), pays])
    return rows


def claims() -> Table:
    """False claims of acceptance, against the chance that somebody looks."""
    head = ["cheat", "somebody looks", "accepted %", "cheat earns", "challenger earns"]
    rows = [head]
    for name, conduct in (("forged states", Conduct.LYING), ("forged tokens", Conduct.FORGING)):
        for watch in (1.0, 0.9, 0.5):
            world = replace(WORLD, value=3 * FEE, corrupt=1.0, watch=watch)
            tally = deviation(world, conduct, JOBS)[1]
            accepted = tally.share(Outcome.ACCEPT, conduct)
            earned = [per_fee(tally.as_inferencer(conduct)), _challengers(tally)]
            rows.append([name, f"{watch:.0%}", percent(accepted), *earned])
    return rows


def rounds() -> Table:
    """What forced rounds cost the honest, and what they leave of a false claim nobody looks at."""
    head = ["one forced round in", "inferencer", "a verifier", "scheduler"]
    rows = [[*head, "false claims accepted %", "cheat earns"]]
    for every in (0, 100, 10, 4, 1):
        world = replace(WORLD, forced=every)
        honest = simulate(world, [Conduct.HONEST] * 30, JOBS)
        corrupt = replace(world, value=3 * FEE, corrupt=1.0, watch=0.5)
        cheat = deviation(corrupt, Conduct.LYING, JOBS)[1]
        profits = honest.as_inferencer(Conduct.HONEST), honest.as_verifier(Conduct.HONEST)
        row = [str(every or "none"), *map(per_fee, profits), per_fee(honest.scheduler.mean())]
        accepted = cheat.share(Outcome.ACCEPT, Conduct.LYING)
        rows.append([*row, percent(accepted), per_fee(cheat.as_inferencer(Conduct.LYING))])
    return rows


def redress() -> Table:
    """A coalition's forgery against how often a captured committee's word is re-verified."""
    head = ["of owners", "re-verified", "accepted %", "profit, worth 30 fees"]
    rows = [[*head, "who asks earns", "kappa for 100 fees"]]
    for size in (6, 10):
        for chance in (0.0, 0.5, 0.9):
            world = replace(WORLD, value=30 * FEE, redress=chance, reverify_bond=REVERIFY_BOND)
            tally = deviation(world, Conduct.COLLUDING, JOBS, coalition=size)[1]
            accepted = tally.share(Outcome.ACCEPT, Conduct.COLLUDING)
            profit = per_fee(tally.as_inferencer(Conduct.COLLUDING))
            earned = _challengers(tally) if chance else "-"
            cells = [f"{size / 30:.0%}", f"{chance:.0%}", percent(accepted), profit, earned]
            rows.append([*cells, _kappa(1 - size / 30, chance)])
    return rows


def _kappa(honest_share: float, chance: float) -> str:
    situation = replace(SITUATION, honest_share=honest_share, redress=chance, value=100 * FEE)
    try:
        chosen = recommend(situation)
        return f"{chosen.kappa_bps / BPS:.2f} at m = {chosen.committee}"
    except UnsafeParameters:
        return "refused"


def _challengers(tally: Tally) -> str:
    """Mean profit of those who challenged; they do not where they would lose."""
    active = tally.challenger[tally.challenger != 0]
    return per_fee(float(active.mean())) if active.size > JOBS / 100 else "nobody dares"


def griefing() -> Table:
    """What each party loses to somebody who only wants harm, and what that costs."""
    honest = simulate(WORLD, [Conduct.HONEST] * 30, JOBS)
    base = honest.as_inferencer(Conduct.HONEST), honest.as_verifier(Conduct.HONEST)
    wrong = simulate(replace(WORLD, grief=1.0), [Conduct.HONEST] * 30, JOBS)
    mix = [*[Conduct.HONEST] * 29, Conduct.GRIEFING]
    garbage, shown = (simulate(replace(WORLD, grief=g), mix, 3 * JOBS) for g in (0.0, 1.0))
    rows = [["griefer", "inferencer loses", "honest verifier loses", "griefer loses"]]

    def row(name: str, tally: Tally, cost: float) -> None:
        hit = (tally.conducts[:, 1:] == Conduct.GRIEFING).any(axis=1)
        chosen = hit if hit.any() else np.ones(len(hit), dtype=np.bool_)
        first = tally.inferencer[chosen].mean()
        others = tally.verifiers[chosen][tally.conducts[chosen][:, 1:] == Conduct.HONEST].mean()
        rows.append([name, per_fee(base[0] - first), per_fee(base[1] - others), per_fee(cost)])

    row("challenges a right claim", wrong, -float(wrong.challenger.mean()))
    free = settle(TERMS, WORLD.stakes, Ending(Outcome.ACCEPT, Way.OPENED))
    opened = per_fee(COSTS.opening)
    rows.append(["claims a right job withheld", opened, opened, per_fee(-float(free.claimer))])
    row("commits to garbage, opens nothing", garbage, -garbage.as_verifier(Conduct.GRIEFING))
    row("… and the job is challenged", shown, -shown.as_verifier(Conduct.GRIEFING))
    fee = per_fee(COSTS.call - ANSWER_FEE)
    rows.append(["answers only when it is summoned", "0.0", "0.0", fee])
    silent = settle(TERMS, WORLD.stakes, Ending(Outcome.REFUND, Way.DISMISSED, frozenset({1})))
    other = base[1] + COSTS.prefill - silent.committee[1]
    lost = [per_fee(FEE * TERMS.inferencer_bps / BPS - silent.inferencer), per_fee(other)]
    rows.append(["… and not even then, to the end", *lost, per_fee(-float(silent.committee[0]))])
    return rows


def recommendations() -> Table:
    """What `verillm params` recommends, and where it refuses."""
    rows = [["honest share", "owners", "value, fees", "captured", "… the larger one", "m"]]
    rows[0] += ["kappa", "challenge bond", "checking, % of fee"]
    whale = (30, *(1,) * 30)
    spread = (2,) * 30
    for share, seats, name in (
        (0.9, spread, "30 of 2 seats"),
        (0.8, spread, "30 of 2 seats"),
        (0.8, whale, "30 of 1, one of 30"),
        (0.67, spread, "30 of 2 seats"),
    ):
        for value in (1, 10, 100, 1_000):
            situation = replace(SITUATION, honest_share=share, seats=seats, value=value * FEE)
            cells = [f"{share:.0%}", name, f"{value}"]
            try:
                chosen = recommend(situation)
            except UnsafeParameters as refused:
                names = ", ".join(sorted({f"`{each.parameter}`" for each in refused.findings}))
                second = f"{captured(situation, 7):.2g}"
                rows.append([*cells, second, second, f"refused: {names}", *[""] * 3])
                continue
            size = chosen.committee
            cells += [f"{captured(situation, n):.2g}" for n in (size, reverifiers(size))]
            cells += [str(size), f"{chosen.kappa_bps / BPS:.2f}"]
            cost = 100 * cost_of_checking(situation, chosen) / FEE
            rows.append([*cells, f"{chosen.challenge_bond / FEE:.2f}", f"{cost:.1f}"])
    return rows


def published() -> Table:
    """The paper's sizes of a re-verification, and the noise at which they hold."""
    rows = [["r", "xi", "published m'", "mu = 0", "mu = .0185", "mu = .0192", "mu = .03"]]
    for share, shown, error, size in ((0.8, ".8", 1e-2, 29), (2 / 3, "2/3", 1e-3, 146)):
        sizes = [lemmas.reverification_size(share, mu, error) for mu in (0, 0.0185, 0.0192, 0.03)]
        rows.append([shown, f"{error:g}", str(size), *map(str, sizes)])
    return rows


def batches() -> Table:
    """The chance to catch a batch that is cheated in part."""
    rows = [["checked of 4096", "1 % cheated", "10 % cheated", "all cheated"]]
    for checked in (1, 4, 8, 16):
        parts = [lemmas.caught(4096, bad, checked, 0.9) for bad in (41, 410, 4096)]
        rows.append([str(checked), *(f"{100 * part:.1f} %" for part in parts)])
    return rows


TABLES = {
    "conducts": conducts,
    "checking": checking,
    "claims": claims,
    "rounds": rounds,
    "redress": redress,
    "griefing": griefing,
    "recommendations": recommendations,
    "published": published,
    "batches": batches,
}


# ── Pictures ────────────────────────────────────────────────────────────────────────────────────
def draw_detection(outcomes: Axes, profits: Axes) -> None:
    """A cheaper model against the distance of its states."""
    distances = np.linspace(0.2, 3.0, 15)
    worlds = [replace(WORLD, token_detection=0.0, cheap_distance=d) for d in distances]
    tallies = [deviation(world, Conduct.LAZY, JOBS)[1] for world in worlds]
    names = ("accept", "inconclusive", "refund", "slash")
    shares = [[t.share(outcome, Conduct.LAZY) for t in tallies] for outcome in ORDER]
    outcomes.stackplot(distances, shares, labels=names, colors=[COLOURS[n] for n in names])
    outcomes.set(title="A cheaper model: outcomes", ylabel="share of jobs", ylim=(0, 1))
    honest = deviation(WORLD, Conduct.HONEST, JOBS)[0].as_inferencer(Conduct.HONEST) / FEE
    for kappa, style in ((1.0, ":"), (2.0, "-"), (6.0, "--")):
        gains = [
            deviation(with_kappa(world, kappa), Conduct.LAZY, JOBS)[1].as_inferencer(Conduct.LAZY)
            for world in worlds
        ]
        profits.plot(distances, np.array(gains) / FEE, style, label=f"kappa = {kappa:g}", color="k")
    profits.axhline(honest, color=COLOURS["accept"], label="honest")
    profits.set(title="… and its profit", ylabel="fees per job", ylim=(-3, 0.8))
    for axes in (outcomes, profits):
        axes.set_xlabel("distance of its states, honest medians")
        axes.legend(loc="lower left", fontsize="small")


def draw_collusion(chances: Axes, profits: Axes) -> None:
    """Coalitions: how often they own the draw, and what value that makes worth a try."""
    owners, sizes = 60, range(1, 31)
    for members, colour in ((3, "#1d3557"), (5, "#457b9d"), (7, "#a8dadc")):
        exact = [capture.capture((1,) * (owners - 1), range(k - 1), members) for k in sizes]
        shares = [k / owners for k in sizes]
        chances.semilogy(shares, exact, color=colour, label=f"m = {members}")
        seen = list(simulated_capture(owners, members, (9, 18, 27)))
        chances.plot([k / owners for k in (9, 18, 27)], seen, "o", color=colour, ms=4)
    chances.set(title="A coalition has the majority", ylim=(1e-5, 1), ylabel="chance per job")
    values = np.geomspace(1, 1_000, 16)
    for size, style in ((3, ":"), (6, "-"), (10, "--")):
        gains = [coalition_profit(size, value) / FEE for value in values]
        profits.semilogx(values, gains, style, color="k", label=f"{size / 30:.0%} of owners")
        profits.axvline(break_even(size), color="#bc4749", lw=0.8, ls=style)
    profits.axhline(0.35, color=COLOURS["accept"], label="honest")
    profits.set(title="… and its profit, m = 3, kappa = 2", ylabel="fees per job", ylim=(-2.5, 4))
    chances.set_xlabel("share of owners; dots: jobs with real draws")
    profits.set_xlabel("value of a forged output, fees; red: formula")
    chances.legend(loc="lower right", fontsize="small")
    profits.legend(loc="upper left", fontsize="small")


def simulated_capture(owners: int, members: int, sizes: Sequence[int]) -> Iterator[float]:
    """How often the draw of simulated jobs is captured."""
    world = replace(WORLD, seats=(1,) * owners, members=members)
    for size in sizes:
        tally = deviation(world, Conduct.COLLUDING, JOBS, coalition=size)[1]
        yield tally.share(Outcome.ACCEPT, Conduct.COLLUDING)


def coalition_profit(size: int, value: float) -> float:
    """Profit of a forged job, of `value` fees, backed by `size` of 30 owners."""
    world = replace(WORLD, value=value * FEE)
    tally = deviation(world, Conduct.COLLUDING, JOBS, coalition=size)[1]
    return tally.as_inferencer(Conduct.COLLUDING)


def break_even(size: int) -> float:
    """The value, in fees, over which a forgery earns more than an honest job, by the formula."""
    chance = capture.capture(WORLD.seats[1:], range(size - 1), WORLD.members)
    pay = TERMS.inferencer_bps / BPS
    honest = pay - COSTS.inference / FEE
    lost = (1 - chance) * WORLD.stakes.lock / FEE
    return (honest + COSTS.cheap / FEE + lost) / chance - pay


def pictures() -> dict[str, bytes]:
    """Both pictures, as SVG."""
    matplotlib.use("svg")
    plt.rcParams |= {"svg.hashsalt": "verillm", "svg.fonttype": "none", "font.size": 9}
    made = {}
    for name, paint in (("detection", draw_detection), ("collusion", draw_collusion)):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        paint(*axes)
        path = IMAGES / f"economics-{name}.svg"
        figure.savefig(path.with_suffix(".new"), format="svg", metadata={"Date": None})
        plt.close(figure)
        made[path.name] = path.with_suffix(".new").read_bytes()
        path.with_suffix(".new").unlink()
    return made


# ── The page ────────────────────────────────────────────────────────────────────────────────────
def markdown(rows: Table) -> str:
    """A table's lines."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def filled(page: str) -> str:
    """The page with each table between its marks made anew."""
    for name, make in TABLES.items():
        begin, end = f"<!-- table: {name} -->", "<!-- end -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"{PAGE} has no place for the table {name}")
        page = f"{before}{begin}\n{markdown(make())}\n{end}{after}"
        print(name, file=sys.stderr)
    return page


def main() -> int:
    """Write, or compare with what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if anything differs")
    check = parser.parse_args().check
    IMAGES.mkdir(exist_ok=True)
    before = PAGE.read_text()
    made = {PAGE: filled(before).encode()} | {IMAGES / k: v for k, v in pictures().items()}
    stale = [path for path, new in made.items() if not path.exists() or path.read_bytes() != new]
    for path in stale:
        print(f"{'stale' if check else 'wrote'} {path.relative_to(ROOT)}")
        if not check:
            path.write_bytes(made[path])
    return int(check and bool(stale))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    sys.exit(main())
