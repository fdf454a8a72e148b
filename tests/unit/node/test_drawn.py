"""What a worker opens is what the protocol asks of it, and no more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from verillm.api import CommitmentEvent, TaskSubmission
from verillm.hashing import sha
from verillm.task import ItemLeaf
from verillm.types import Hash32
from verillm_node.drawn import drawn
from verillm_node.errors import NotDrawn
from verillm_node.tasks import TaskRecord, TaskState
from verillm_node.view import View

from ..verifier import lab

STORY = lab.Story(prompts=((10, 20, 30, 40, 50, 60), (70, 80, 90), tuple(range(1, 30))))


@pytest.fixture(scope="module")
def played(folder: Path) -> Iterator[lab.Played]:
    engines = lab.Engines(folder)
    yield lab.play(engines, lab.spec_of(folder, checked_requests=2, positions=5), STORY)
    engines.close()


def _view(played: lab.Played, until: int = lab.SEAL) -> View:
    facts = played.facts(until=until)
    return View(facts.history.job_id, facts.state, facts.history, 0, 0)


def own_record(played: lab.Played, party: int) -> TaskRecord:
    """A party's record; leaves that the bundle does not show are filled up."""
    evidence = played.bundle.parties[party]
    shown = {each.leaf.item: each.leaf for each in evidence.openings.values()}
    empty = ItemLeaf(0, 5, 5, sha(b""), sha(b""))
    leaves = tuple(shown.get(item, empty) for item in range(len(evidence.task.items)))
    inner = next(iter(evidence.openings.values())).inner
    commitment = CommitmentEvent(inner, leaves, evidence.commitment_signature)
    submission = TaskSubmission(evidence.task, lab.SCHEDULER.address, evidence.task_signature)
    digest, job = Hash32(bytes(32)), _view(played).job_id
    return TaskRecord(digest, submission, TaskState.COMMITTED, commitment, digest, job, party)


@pytest.mark.parametrize("party", range(4))
def test_every_opening_of_a_bundle_is_drawn(played: lab.Played, party: int) -> None:
    own = own_record(played, party)
    for place, opening in played.bundle.parties[party].openings.items():
        item = played.checked[place] if party == 0 else place
        what = drawn(_view(played), played.spec, own, item)
        full = [each.position for each in opening.entries if each.slices is not None]
        final = [each.position for each in opening.entries if each.slices is None]
        what.check(full, final)
        assert what.compared == set(full)
        if party == 0:
            assert set(what.generated) <= {*full, *final}


def test_a_verifier_opens_no_more_states_than_the_job_has_new_tokens(played: lab.Played) -> None:
    own = own_record(played, 1)
    sealing = played.sealing
    for place in range(len(played.checked)):
        what = drawn(_view(played), played.spec, own, place)
        length = own.task.items[place].length
        assert what.generated[-1] == length - 1
        assert len(what.generated) <= sealing.inner.new_tokens - len(played.requests) + 1


def test_other_positions_are_refused(played: lab.Played) -> None:
    what = drawn(_view(played), played.spec, own_record(played, 0), played.checked[0])
    closed = next(each for each in range(1, 40) if each not in what.compared)
    with pytest.raises(NotDrawn):
        what.check([closed], [])
    with pytest.raises(NotDrawn):
        what.check([], [0])
    with pytest.raises(NotDrawn):
        what.check([], [what.generated[-1] + 1])


def test_requests_that_nobody_checks_stay_closed(played: lab.Played) -> None:
    (unchecked,) = set(range(3)) - set(played.checked)
    with pytest.raises(NotDrawn):
        drawn(_view(played), played.spec, own_record(played, 0), unchecked)
    with pytest.raises(NotDrawn):
        drawn(_view(played), played.spec, own_record(played, 1), 2)


def test_nothing_is_drawn_before_the_seal(played: lab.Played) -> None:
    with pytest.raises(NotDrawn):
        drawn(_view(played, lab.POST), played.spec, own_record(played, 0), played.checked[0])
