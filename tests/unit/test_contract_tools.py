"""The tools that measure the contracts: they must see what they are there to see."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from tools import contract_coverage, contract_mutants
from tools.contract_mutants import Asked, Killers, Reach, note
from tools.mutant_build import STAGES
from tools.mutant_weaver import MUTANT, Finder, Mutant, woven

SOLC = Path(__file__).parents[2] / "tools" / "solc"
SOURCE = """pragma solidity 0.8.30;
enum Kind { Good, Bad }
contract Small {
    uint256 public total;
    function add(uint256 a, uint256 b) external returns (Kind) {
        require(a + 1 < b, "order");
        for (uint256 i = 0; i < 1; ++i) {
            if (a == 2 && !(b == 5)) continue;
        }
        total += a;
        return a > 3 ? Kind.Good : Kind.Bad;
    }
}
"""


def _compiled(source: str, output: str) -> dict[str, dict[str, object]]:
    wanted = {"*": {"": ["ast"]}} if output == "ast" else {"*": {"*": [output]}}
    request = {
        "language": "Solidity",
        "sources": {
            "contracts/src/Small.sol": {"content": source},
            "contracts/src/Mutant.sol": {"content": MUTANT.decode()},
        },
        "settings": {"outputSelection": wanted},
    }
    told = subprocess.run(
        [SOLC], input=json.dumps(request), capture_output=True, text=True, check=True, timeout=60
    )
    answer: dict[str, dict[str, object]] = json.loads(told.stdout)
    return answer


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    unit = _compiled(SOURCE, "ast")["sources"]["contracts/src/Small.sol"]
    assert isinstance(unit, dict)
    finder = Finder("contracts/src/Small.sol", SOURCE.encode(), {"Kind": ["Good", "Bad"]})
    finder.walk(unit["ast"])
    return finder.found


def test_mutants_ofComparisonsConstantsConditionsAndStatements_areFound(
    mutants: list[Mutant],
) -> None:
    keys = {each.key for each in mutants}
    assert {
        "Small.add: a + 1 < b -> a + 1 <= b",
        "Small.add: a + 1 -> a - 1",
        "Small.add: 1 -> 1 + 1",
        'Small.add: require(a + 1 < b, "order"); -> {}',
        "Small.add: a == 2 && !(b == 5) -> a == 2 || !(b == 5)",
        "Small.add: a == 2 && !(b == 5) -> true",
        "Small.add: !(b == 5) -> (b == 5)",
        "Small.add: continue; -> {}",
        "Small.add: total += a; -> {}",
        "Small.add: total += a; -> total -= a;",
        "Small.add: a > 3 ? Kind.Good : Kind.Bad -> a > 3 ? Kind.Bad : Kind.Good",
        "Small.add: Kind.Good -> Kind.Bad",
    } <= keys
    assert not any("++i" in each.original for each in mutants), "a loop must advance"
    assert len(keys) == len(mutants), "every mutant has a name of its own"


def test_allMutants_compileTogether(mutants: list[Mutant]) -> None:
    text = woven(SOURCE.encode(), dict(enumerate(mutants, 1))).decode()
    assert text.count("Mutant.on(") == len(mutants)
    answer = _compiled(text, "evm.bytecode.object")
    errors = [each for each in answer.get("errors", []) if each["severity"] == "error"]  # type: ignore[index]
    assert errors == []


def test_without_aMutant_theTextIsTheOriginal_butForTheImport() -> None:
    text = woven(SOURCE.encode(), {}).decode()
    assert [line for line in text.splitlines() if "Mutant" not in line] == SOURCE.splitlines()


TRACES = """
Ran 2 tests for contracts/test/A.t.sol:ATest
[PASS] test_one() (gas: 200)
Traces:
  [200] ATest::test_one()
    ├─ [0] 0x0000000000000000000000004d75746100000007::fallback() [staticcall]
    └─ ← [Stop]

[PASS] test_fuzz_two(uint8) (runs: 32, μ: 100, ~: 100)
Traces:
  [100] ATest::test_fuzz_two(3)
    ├─ [0] 0x0000000000000000000000004D7574610000000A::fallback() [staticcall]

[FAIL: next call did not revert] test_three() (gas: 300)
Traces:
  [300] ATest::test_three()
"""


def test_reach_isWhatTheTracesShow_andWhatTheyCannotShow() -> None:
    reach = Reach()
    note("A", TRACES.splitlines(), reach)
    one, two, three = (Asked("A", f"test_{name}") for name in ("one", "fuzz_two", "three"))
    assert reach.cost == {one: 200, two: 100, three: 300}
    assert reach.of(7) == [two, one, three], (
        "the last fuzz run alone and what failed show too little"
    )
    assert reach.of(10) == [two, three]
    assert reach.of(8) == [two, one, three], "nobody seen: all are asked"


def test_killers_ofTheNearestMutants_areAskedFirst(mutants: list[Mutant]) -> None:
    first, last = mutants[0], mutants[-1]
    tests = [Asked("A", f"test_{number}") for number in range(9)]
    killers = Killers()
    assert killers.near(first, tests) == tests[:4], "the cheapest, while nobody has killed"
    killers.add(last, "test_7")
    killers.add(last, "test_of_another_suite")
    assert killers.near(first, tests) == [tests[7]]


@pytest.mark.parametrize(
    ("known", "status", "said"),
    [
        ({"killed": "test_x"}, 1, "| `A.sol` | 1 | 1 | 0 | 1 |"),
        ({"killed": "test_x", "lives": None}, 1, "| `A.sol` | 1 | 1 | 1 | 0 |"),
        ({"killed": "test_x", "lives": "test_y"}, 0, "| `A.sol` | 2 | 1 | 0 | 0 |"),
    ],
)
def test_power_whatLivesOrHasNotRun_fails(
    known: dict[str, str | None],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _kept(tmp_path, monkeypatch, known, {"equal": "a reason"})
    assert contract_mutants.main() == status
    assert said in capsys.readouterr().out


def test_power_aReasonForWhatIsNoMutant_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"killed": "test_x", "lives": "test_y"}
    _kept(tmp_path, monkeypatch, known, {"equal": "a reason", "gone": "a reason"})
    assert contract_mutants.main() == 1
    assert "explained, but no mutant: gone" in capsys.readouterr().out


def _kept(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: Mapping[str, str | None],
    reasons: Mapping[str, str],
) -> None:
    mutants = [
        Mutant(key, "contracts/src/A.sol", 1, 0, 1, False, "a", "b")
        for key in ("killed", "lives", "equal")
    ]
    for stage in STAGES:
        rows = mutants if stage == "network" else []
        (folder / f"{stage}.json").write_text(json.dumps([asdict(each) for each in rows]))
    lines = [json.dumps({"key": key, "by": by, "asked": 1}) for key, by in known.items()]
    (folder / "results.jsonl").write_text("\n".join(lines))
    (folder / "reasons.json").write_text(json.dumps(dict(reasons)))
    monkeypatch.setattr(contract_mutants, "FOLDER", folder)
    monkeypatch.setattr(contract_mutants, "REASONS", folder / "reasons.json")
    monkeypatch.setattr("sys.argv", ["contract_mutants", "--report"])


LCOV = """SF:contracts/src/A.sol
FNDA:3,A.run
DA:10,3
BRDA:10,0,0,3
BRDA:10,0,1,{}
end_of_record
SF:contracts/src/dev/B.sol
DA:1,0
end_of_record
"""


@pytest.mark.parametrize(("count", "status"), [("1", 0), ("0", 1), ("-", 1)])
def test_power_aBranchThatIsNeverTaken_fails(
    count: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "lcov"
    file.write_text(LCOV.format(count))
    monkeypatch.setattr("sys.argv", ["contract_coverage", str(file)])
    assert contract_coverage.main() == status
    assert ("A.sol: 10, 0.1 of branches is never taken" in capsys.readouterr().out) == (status == 1)


def test_power_nothingMeasured_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lcov"
    file.write_text("")
    monkeypatch.setattr("sys.argv", ["contract_coverage", str(file)])
    assert contract_coverage.main() == 1
