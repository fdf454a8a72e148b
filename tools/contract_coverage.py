"""Print what forge's coverage of the deployed contracts leaves out; fail if that is anything.

Reads the lcov file that `make coverage-contracts` has forge write. A `require` counts as two
branches, as an `if` does. What only develops or declares (src/dev, interfaces) is not counted.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = "contracts/src/"
APART = ("contracts/src/dev/", "contracts/src/interfaces/")

Counts = dict[str, dict[str, int]]


def parse(lines: Iterable[str]) -> dict[str, Counts]:
    """For each source file and kind (lines, branches, functions): how often each was run."""
    found: dict[str, Counts] = defaultdict(lambda: defaultdict(dict))
    file = ""
    for line in lines:
        kind, _, value = line.strip().partition(":")
        if kind == "SF":
            file = value
        elif not file.startswith(SOURCES) or file.startswith(APART):
            continue
        elif kind == "DA":
            number, count = value.split(",")[:2]
            found[file]["lines"][number] = int(count)
        elif kind == "BRDA":
            number, block, branch, count = value.split(",")
            found[file]["branches"][f"{number}, {block}.{branch}"] = int(count.replace("-", "0"))
        elif kind == "FNDA":
            count, name = value.split(",", 1)
            found[file]["functions"][name] = int(count)
    return found


def main() -> int:
    """Report the file given as argument."""
    found = parse(Path(sys.argv[1]).read_text().splitlines())
    complete = bool(found)
    for kind in ("lines", "branches", "functions"):
        counts = [count for counted in found.values() for count in counted[kind].values()]
        print(f"{kind}: {sum(map(bool, counts))} of {len(counts)}")
        complete = complete and all(counts)
    for file, counted in sorted(found.items()):
        for kind in ("lines", "branches", "functions"):
            for place, count in counted[kind].items():
                if not count:
                    print(f"{file}: {place} of {kind} is never taken")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
