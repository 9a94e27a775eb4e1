"""Counts the outcomes of an Autobahn report; fails above the limits.

No case may fail, be unclean or have the wrong close code; at most two may be
non-strict. Informational outcomes have no right and wrong.
"""

import collections
import json
import sys

MAX_NON_STRICT = 2
FINE = {"OK", "INFORMATIONAL"}


def main(path: str) -> int:
    """Prints the counts and every case that is not fine."""
    with open(path, encoding="utf-8") as file:
        (cases,) = json.load(file).values()
    counts = collections.Counter()
    num_bad = 0
    for name, case in sorted(cases.items(), key=lambda item: [int(part) for part in item[0].split(".")]):
        outcomes = case["behavior"], case["behaviorClose"]
        counts[case["behavior"]] += 1
        if not FINE.issuperset(outcomes):
            print(f"{name}: {outcomes[0]}, close {outcomes[1]} ({case['remoteCloseCode']})")
            if outcomes != ("NON-STRICT", "OK"):
                num_bad += 1
    print(f"{len(cases)} cases:", ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    return int(not cases or num_bad > 0 or counts["NON-STRICT"] > MAX_NON_STRICT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
