//! The past, from git: nothing that was ever committed to the ledger may change or go.
//!
//! The chain of hashes cannot show that its newest end was cut off, or that all of it was written
//! anew. Git can: every record blob on HEAD's history must still be there, and the sections of every
//! committed `BENCHMARKS.md` must be a byte prefix of what they are today, or were before a strike
//! that the chain holds. The first part is a summary and is left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::chain::{Chain, LedgerFiles};
use super::render::split;
use super::{BENCHMARKS, CHARTS_FOLDER, RESULTS, VerifyFailure, sha256_hex};

/// What git could say about the past.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum History {
    /// The whole history was checked.
    Checked {
        /// Committed states of `BENCHMARKS.md`.
        num_documents: usize,
        /// Committed record files.
        num_records: usize,
    },
    /// Only the commits present in a shallow clone were checked.
    Shallow {
        /// Committed states of `BENCHMARKS.md`.
        num_documents: usize,
        /// Committed record files.
        num_records: usize,
    },
    /// The past could not be checked.
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// Compares the ledger with everything committed on HEAD's history.
pub(super) fn check(
    root: &Path,
    files: &LedgerFiles,
    chain: &Chain,
) -> Result<History, VerifyFailure> {
    // Saves starting git where it has nothing to say.
    let absolute = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    if !absolute
        .ancestors()
        .any(|folder| folder.join(".git").exists())
    {
        return Ok(History::Unavailable {
            reason: String::from("not a git checkout"),
        });
    }
    let git = Git { root };
    match git.check(files, chain) {
        Ok(history) => Ok(history),
        Err(Trouble::Git(reason)) => Ok(History::Unavailable { reason }),
        Err(Trouble::Violation(failure)) => Err(failure),
    }
}

enum Trouble {
    Git(String),
    Violation(VerifyFailure),
}

struct Git<'a> {
    root: &'a Path,
}

impl Git<'_> {
    fn check(&self, files: &LedgerFiles, chain: &Chain) -> Result<History, Trouble> {
        let shallow = self.text(&["rev-parse", "--is-shallow-repository"])? == "true";
        if self
            .text(&["rev-parse", "--quiet", "--verify", "HEAD"])
            .is_err()
        {
            return Ok(History::Unavailable {
                reason: String::from("no commit yet"),
            });
        }
        let num_documents = self.check_documents(chain)?;
        let num_records = self.check_records(files)?;
        Ok(if shallow {
            History::Shallow {
                num_documents,
                num_records,
            }
        } else {
            History::Checked {
                num_documents,
                num_records,
            }
        })
    }

    fn check_documents(&self, chain: &Chain) -> Result<usize, Trouble> {
        let ages = chain.ages();
        let mut num_documents = 0;
        for change in self.changes(BENCHMARKS, &["--first-parent"])? {
            if change.is_deletion() {
                continue;
            }
            let committed = self.bytes(&["cat-file", "blob", &change.blob])?;
            let (_, sections) = split(&committed);
            if !ages.iter().any(|age| age.as_bytes().starts_with(sections)) {
                return Err(Trouble::Violation(VerifyFailure::History {
                    file: BENCHMARKS.to_owned(),
                    commit: change.commit,
                    problem: String::from(
                        "the committed text is not a prefix of the file, nor of what it was before a strike",
                    ),
                }));
            }
            num_documents += 1;
        }
        Ok(num_documents)
    }

    fn check_records(&self, files: &LedgerFiles) -> Result<usize, Trouble> {
        // All parents: a record that came and went on a merged branch was committed too.
        let charts = format!("{RESULTS}/{CHARTS_FOLDER}/");
        let mut committed: BTreeMap<(String, String), String> = BTreeMap::new();
        for change in self.changes(RESULTS, &[])? {
            if !change.is_deletion() && !change.path.starts_with(&charts) {
                committed.insert((change.path, change.blob), change.commit);
            }
        }
        for ((path, blob), commit) in &committed {
            let violation = |problem: &str| {
                Trouble::Violation(VerifyFailure::History {
                    file: path.clone(),
                    commit: commit.clone(),
                    problem: problem.to_owned(),
                })
            };
            let file = path
                .strip_prefix(RESULTS)
                .map_or("", |p| p.trim_start_matches('/'));
            let today = files.records.get(file);
            let today = today.ok_or_else(|| violation("the committed record is gone"))?;
            let content = self.bytes(&["cat-file", "blob", blob])?;
            if sha256_hex(&content) != sha256_hex(today) {
                return Err(violation("the record differs from the committed one"));
            }
        }
        Ok(committed.len())
    }

    /// Every blob that a commit on HEAD's history gave a path below `path`.
    fn changes(&self, path: &str, options: &[&str]) -> Result<Vec<Change>, Trouble> {
        // `-m` shows merges against each parent, or a merge could bring a change of its own.
        let mut arguments = vec!["log", "-m", "--raw", "-z", "--no-renames", "--no-abbrev"];
        arguments.extend(["--relative", "--format=commit %H"]);
        arguments.extend(options);
        arguments.extend(["HEAD", "--", path]);
        let output = self.bytes(&arguments)?;
        Ok(parse_changes(&String::from_utf8_lossy(&output)))
    }

    fn text(&self, arguments: &[&str]) -> Result<String, Trouble> {
        let bytes = self.bytes(arguments)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn bytes(&self, arguments: &[&str]) -> Result<Vec<u8>, Trouble> {
        let output = git_command(self.root)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Trouble::Git(format!("git: {error}")))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let line = stderr.lines().next().unwrap_or("failed");
        Err(Trouble::Git(format!("git {}: {line}", arguments.join(" "))))
    }
}

/// A git command in `root` that no surrounding hook redirects to another repository.
pub(crate) fn git_command(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(root);
    for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    command
}

struct Change {
    commit: String,
    blob: String,
    path: String,
}

impl Change {
    fn is_deletion(&self) -> bool {
        self.blob.bytes().all(|b| b == b'0')
    }
}

/// Reads `git log --raw -z`: commit lines, then `:mode mode old new status` NUL path NUL.
fn parse_changes(output: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut commit = String::new();
    let mut blob = None;
    for token in output.split(['\0', '\n']).filter(|token| !token.is_empty()) {
        if let Some(blob) = blob.take() {
            let commit = commit.clone();
            let path = token.to_owned();
            changes.push(Change { commit, blob, path });
        } else if let Some(hash) = token.strip_prefix("commit ") {
            hash.split(' ')
                .next()
                .unwrap_or_default()
                .clone_into(&mut commit);
        } else if token.starts_with(':') {
            blob = token.split(' ').nth(3).map(str::to_owned);
        }
    }
    changes
}
