//! The first part of `BENCHMARKS.md`: the method, the machines, and where we are not the best.
//!
//! It is rendered from all entries, so unlike the sections below it changes with each of them; no
//! word of it that depends on a result is written by hand. Caveats are computed: every rule that
//! the newest run of its cell did not pass is named.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::chain::Chain;
use super::record::{Bound, CellRecord, Record, Verdict, VerdictRow};
use super::render::{cell_text, estimate_text, target_of};

const METHOD: &str = "\
# Benchmark ledger

Written by `justapi bench`, one section per run, oldest first. Nobody edits this file: each section
is rendered from the record it names, the records are chained by hash, and `justapi bench verify`
renders everything again and compares every byte, with what git remembers too. This first part sums
up what stands below and is rendered anew with each run. A wrong result is never removed: it is
superseded, and stays, struck through.

## How it is measured

- A **round** is the unit: in each, every arm starts a fresh server, in an order drawn anew, and is
  probed, warmed up, loaded, probed again and stopped. Where there are two CPUs, servers have one
  and the load engine the other.
- Every body is compared with what was declared. A round with an error, another body or a server
  that ends makes its row INVALID; errors are never throughput.
- An arm may name the counter of its server that proves which path was taken; a row whose counter
  differs from its answers is INVALID.
- Values are **medians over rounds**, with the lowest and highest round in brackets. Effects are
  medians of the ratio per round, with the wider of a bootstrap and an exact 95 % interval.
- **A/A** is the same comparison between an arm and its own repetition: the noise of that run.
- A verdict is computed from the rounds. PASS and FAIL need the whole interval on one side of the
  limit and an A/A comparison that finds no difference; since the second edition of the rules also
  an exact p below 0.05 after Holm's correction for all rules of the cell, more than twice the
  noise between result and limit, and a machine that did nothing else meanwhile. All else is
  INCONCLUSIVE.
- **CPU time per request**, of the server's whole process tree, is the number to compare on a small
  machine; a rate is INCONCLUSIVE where the load engine was the limit.
";

/// Shown once there is a record that it is about.
const THIRD_EDITION: &str = "
Since the third edition of the rules a rate counts although the load engine was the limit of one
arm, where a better one could only make the verdict stronger: a lower bound on the ratio to an arm
for which it was not. Of files from 1 MiB every 32nd body of a connection is compared to its last
byte, of the others the length; the probes before and after hash all of it. A row with a background
has no CPU time, as that would be of both.
";

/// Shown once there is a record that it is about.
const FOURTH_EDITION: &str = "
Since the fourth edition of the rules a FAIL needs two runs: what failed in one alone is
INCONCLUSIVE, says so, and is a FAIL once the next run that decides the same rule agrees.
";

const MODEL_SERVERS: &str = "
## How model servers are measured

- `justapi bench llm` asks a server that somebody else has started, with the processors it was
  given; the numbers are those of its client's clock at the socket. A **round** is a request, and
  the brackets hold the lowest and highest request.
- Every prompt is new and has a length that the server itself counted. A run with a failed request,
  or with a prompt of another length, is not recorded.
- Each row names the model, the digest of its weights, their type, and whether anything is made up.
  Rates of all answers together are beside what one client gets: more at once is not faster.
";

/// Shown once there is a record that it is about.
const RELOADS: &str = "
## How reloads are measured

- A development server is asked on one new connection after the other, a few milliseconds apart,
  while its application is saved as editors do: written beside the file and renamed over it. The
  time of a save ends with the answer that has its value.
- Every probe is counted by what became of it, also between the saves: refused, reset, timed out,
  failed, or answered by older code. A rule on those, or on the longest wait, is about the worst
  round. A 95th percentile is that of the saves of all rounds, with its exact interval and test.
";

fn has_model_server(record: &Record) -> bool {
    record.cells.iter().any(|cell| cell.serving.is_some())
}

/// Renders the first part.
pub(super) fn first_part(chain: &Chain) -> String {
    let mut out = String::from(METHOD);
    let newest = chain.runs().flat_map(|(_, record)| &record.cells);
    let newest = newest.filter(|cell| cell.serving.is_none());
    let newest = newest.map(|cell| cell.rules_edition).max().unwrap_or(0);
    for (edition, text) in [(3, THIRD_EDITION), (4, FOURTH_EDITION)] {
        if newest >= edition {
            out.push_str(text);
        }
    }
    if chain.runs().any(|(_, record)| has_model_server(record)) {
        out.push_str(MODEL_SERVERS);
    }
    let mut cells = chain.runs().flat_map(|(_, record)| &record.cells);
    if cells.any(|cell| cell.reload.is_some()) {
        out.push_str(RELOADS);
    }
    machines(&mut out, chain);
    caveats(&mut out, chain);
    out
}

/// A verdict that counts today: of the newest run that has its cell, and not struck through.
pub(super) struct Standing<'a> {
    pub(super) file: &'a str,
    pub(super) cell: &'a CellRecord,
    pub(super) verdict: &'a VerdictRow,
    /// Runs that came to the same verdict, and all that judged the rule.
    pub(super) agreeing: (usize, usize),
}

/// The verdicts of the newest run of each cell, by cell id.
pub(super) fn newest(chain: &Chain) -> Vec<Standing<'_>> {
    let mut cells: BTreeMap<&str, (&str, &CellRecord)> = BTreeMap::new();
    for (file, record) in chain.runs() {
        let marks = chain.marks(file);
        for cell in &record.cells {
            let is_whole = cell
                .rows
                .iter()
                .any(|row| marks.row(cell, &row.id).is_none());
            if is_whole {
                cells.insert(&cell.id, (file, cell));
            }
        }
    }
    let mut standing = Vec::new();
    for (file, cell) in cells.into_values() {
        let marks = chain.marks(file);
        for verdict in &cell.verdicts {
            if marks.verdict(cell, verdict).is_none() {
                let agreeing = agreeing(chain, verdict);
                standing.push(Standing {
                    file,
                    cell,
                    verdict,
                    agreeing,
                });
            }
        }
    }
    standing
}

/// How many runs say the same of a rule, of all that have it.
fn agreeing(chain: &Chain, verdict: &VerdictRow) -> (usize, usize) {
    let mut same = 0;
    let mut all = 0;
    for (file, record) in chain.runs() {
        let marks = chain.marks(file);
        for cell in &record.cells {
            let found = (cell.verdicts.iter())
                .find(|row| row.id == verdict.id && row.rule == verdict.rule)
                .filter(|row| marks.verdict(cell, row).is_none());
            if let Some(row) = found {
                all += 1;
                same += usize::from(row.verdict == verdict.verdict);
            }
        }
    }
    (same, all)
}

fn machines(out: &mut String, chain: &Chain) {
    let mut machines: Vec<(String, usize)> = Vec::new();
    for (_, record) in chain.runs() {
        let machine = machine(record);
        match machines.iter_mut().find(|(text, _)| *text == machine) {
            Some((_, count)) => *count += 1,
            None => machines.push((machine, 1)),
        }
    }
    if machines.is_empty() {
        return;
    }
    out.push_str("\n## Where it was measured\n\n");
    for (machine, count) in machines {
        let runs = if count == 1 { "run" } else { "runs" };
        let _ = writeln!(out, "- {machine}: {count} {runs}");
    }
    out.push_str(
        "\nClient and server share that machine and its loopback interface, and each server has \
         one core.\nRatios carry over to other machines better than values do.\n",
    );
}

/// The machine of a record in one line.
pub(super) fn machine(record: &Record) -> String {
    let fact = |name| cell_text(record.machine.text(name));
    let virtualised = match &*fact("virtualised") {
        "true" => ", virtual",
        _ => "",
    };
    format!(
        "{}, {} CPUs{virtualised}, {}, kernel {}",
        fact("cpu_model"),
        fact("cpus"),
        fact("os"),
        fact("kernel"),
    )
}

fn caveats(out: &mut String, chain: &Chain) {
    let standing = newest(chain);
    if standing.is_empty() {
        return;
    }
    let count = |wanted| {
        let mut found = 0;
        for row in &standing {
            found += usize::from(row.verdict.verdict == wanted);
        }
        found
    };
    let _ = write!(
        out,
        "\n## Where we are not the best\n\n\
         Of the {} rules in the newest run of each cell {} PASS, {} FAIL, {} are INCONCLUSIVE and \
         {} INVALID.\nThese did not pass:\n\n\
         | rule | effect | verdict | in | newest run |\n|---|---:|---|---|---|\n",
        standing.len(),
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::Inconclusive),
        count(Verdict::Invalid),
    );
    let order = [Verdict::Fail, Verdict::Invalid, Verdict::Inconclusive];
    for wanted in order {
        for row in standing.iter().filter(|row| row.verdict.verdict == wanted) {
            let verdict = row.verdict;
            let worse = if is_worse_than_other(row) {
                ", the other is better"
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "| {}: {} | {} | {}{worse} | {} of {} | {} |",
                cell_text(&verdict.id),
                cell_text(&verdict.rule),
                estimate_text(row.cell, verdict, verdict.estimate),
                verdict.verdict.name(),
                row.agreeing.0,
                row.agreeing.1,
                cell_text(row.file.trim_end_matches(".json")),
            );
        }
    }
    let _ = writeln!(
        out,
        "\nA FAIL says that a target was missed; \"the other is better\" that the whole interval \
         is on the\nother side of equality; \"in\" how many runs came to that verdict, of those that \
         judged the rule.\nWhat a run does not show stands at its end."
    );
}

/// Whether another program is better, by the whole interval.
pub(super) fn is_worse_than_other(row: &Standing<'_>) -> bool {
    let program_of = |label: &str| {
        let mut arms = row.cell.arms.iter();
        arms.find(|arm| arm.label == label).map(|arm| &arm.program)
    };
    let target = target_of(row.cell, row.verdict);
    let (Some(target), Some(estimate)) = (target, row.verdict.estimate) else {
        return false;
    };
    let versus = target.versus.as_deref().and_then(program_of);
    let is_other = versus.is_some_and(|program| Some(program) != program_of(&target.label));
    is_other
        && match target.bound {
            Bound::AtMost => estimate.low.value() > 1.0,
            Bound::AtLeast => estimate.high.value() < 1.0,
        }
}
