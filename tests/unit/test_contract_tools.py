"""The tools that measure the contracts: they must see what they are there to see."""

import json
import subprocess
from pathlib import Path

import pytest

from tools import contract_coverage, contract_mutants
from tools.contract_mutants import Finder, Mutant, woven

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
            "contracts/src/Mutant.sol": {"content": contract_mutants.MUTANT.decode()},
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
