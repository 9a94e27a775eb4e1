"""Counts the outcomes of an Autobahn report; fails above the limits.

No case may fail, be unclean or have the wrong close code; at most two may be
non-strict. Informational outcomes have no right and wrong.
"""

import collections
import json
import sys
from pathlib import Path

MAX_NON_STRICT = 2
FINE = {"OK", "INFORMATIONAL"}


def main(path: str) -> int:
    """Prints the counts and every case that is not fine."""
    (cases,) = json.loads(Path(path).read_text(encoding="utf-8")).values()
    counts = collections.Counter()
    num_bad = 0
    for name in sorted(cases, key=lambda name: [int(part) for part in name.split(".")]):
        case = cases[name]
        outcomes = case["behavior"], case["behaviorClose"]
        counts[case["behavior"]] += 1
        if not FINE.issuperset(outcomes):
            print(f"{name}: {outcomes[0]}, close {outcomes[1]} ({case['remoteCloseCode']})")
            if outcomes != ("NON-STRICT", "OK"):
                num_bad += 1
    totals = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    print(f"{len(cases)} cases: {totals}")
    return int(not cases or num_bad > 0 or counts["NON-STRICT"] > MAX_NON_STRICT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
