"""The exact chance that a draw puts a coalition in charge of a committee.

The draw names seats uniformly and skips owners that it has (`verillm.draw.draw_seats`), so it is
successive sampling: owners enter by their seats, without replacement. Equal holdings make that a
hypergeometric law; for any others it is computed from exponential arrivals: give owner i a
waiting time with rate s_i (its seats), and the committee is the first m to arrive. With
u = 1 - exp(-t) everything is a polynomial in u of degree below the number of seats, so that
Gauss-Legendre quadrature with enough nodes is exact up to rounding.

Not covered: a draw that gives up after 256 steps (then the job is refunded at the scheduler's
cost), which takes owners with almost all seats, and is `exhaustion` below.
"""

from collections.abc import Collection, Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

from verillm.draw import MAX_STEPS
from verillm.errors import InputError

_MOST_NODES = 4096


def majority(members: int) -> int:
    """Members that decide: the clique rule's ceil((m+1)/2)."""
    return members // 2 + 1


def hypergeometric(owners: int, coalition: int, members: int) -> NDArray[np.float64]:
    """The law of the coalition's members (index 0..m) where every owner has equally many seats."""
    if not (0 <= coalition <= owners and 0 < members <= owners):
        raise InputError("0 <= coalition <= owners, 0 < members <= owners")
    ways = [
        comb(coalition, k) * comb(owners - coalition, members - k) if k <= coalition else 0
        for k in range(members + 1)
    ]
    return np.array([way / comb(owners, members) for way in ways])


def coalition_members(
    seats: Sequence[int], coalition: Collection[int], members: int
) -> NDArray[np.float64]:
    """The law of the coalition's members (index 0..m) in a committee of distinct owners.

    `seats` of each owner that can be drawn (the inferencer's is left out), each at least 1;
    `coalition` by index into it. InputError if there are fewer owners than members.
    """
    if min(seats, default=0) < 1 or not all(0 <= owner < len(seats) for owner in coalition):
        raise InputError("every owner has a seat, and the coalition is of owners")
    if not 0 < members <= len(seats):
        raise InputError("a committee needs as many owners as members")
    nodes = min(sum(seats) // 2 + 1, _MOST_NODES)
    x, weights = np.polynomial.legendre.leggauss(nodes)
    u = (x + 1) / 2
    inside = set(coalition)
    law = _arrivals([(s, i in inside) for i, s in enumerate(seats)], members, 1 - u)
    return np.asarray(law @ (weights / 2), dtype=np.float64)


def _arrivals(
    owners: Sequence[tuple[int, bool]], members: int, rest: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Density in u of the m-th arrival, by how many of the m are the coalition's: [m+1, nodes].

    `before[a, b]`: chance that a others and b of the coalition are there; `marked`: and one of
    them arrives right now. Owners are added one at a time, in any order.
    """
    shape = (members + 1, members + 1, rest.size)
    before, marked = np.zeros(shape), np.zeros(shape)
    before[0, 0] = 1
    for seats, inside in owners:
        away, now = rest**seats, seats * rest ** (seats - 1)
        there = 1 - away
        shifted_before, shifted_marked = _shift(before, inside), _shift(marked, inside)
        marked = marked * away + shifted_marked * there + shifted_before * now
        before = before * away + shifted_before * there
    return np.stack([marked[members - k, k] for k in range(members + 1)])


def _shift(counts: NDArray[np.float64], inside: bool) -> NDArray[np.float64]:
    moved = np.zeros_like(counts)
    if inside:
        moved[:, 1:] = counts[:, :-1]
    else:
        moved[1:] = counts[:-1]
    return moved


def capture(seats: Sequence[int], coalition: Collection[int], members: int) -> float:
    """The chance that a coalition has the majority of a committee: it decides the verdict."""
    return float(coalition_members(seats, coalition, members)[majority(members) :].sum())


def unanimity(seats: Sequence[int], coalition: Collection[int], members: int) -> float:
    """The chance that a coalition has the whole committee: nobody is left to object."""
    return float(coalition_members(seats, coalition, members)[members])


def blocking(seats: Sequence[int], coalition: Collection[int], members: int) -> float:
    """The chance that the others have no majority: the coalition can make it inconclusive."""
    least = members - majority(members) + 1
    return float(coalition_members(seats, coalition, members)[least:].sum())


def exhaustion(seats: Sequence[int], members: int, steps: int = MAX_STEPS) -> float:
    """A bound on the chance that `steps` do not find `members` owners.

    The draw only fails if fewer than m owners appear, so all steps fall on some m-1 owners; the
    bound takes the m-1 with the most seats, times the number of such sets.
    """
    if not 0 < members <= len(seats):
        raise InputError("a committee needs as many owners as members")
    most = sum(sorted(seats)[len(seats) - members + 1 :]) / sum(seats)
    return float(min(1.0, comb(len(seats), members - 1) * most**steps))
