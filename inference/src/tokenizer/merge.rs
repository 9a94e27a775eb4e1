//! Merges neighbouring symbols in order of priority, then from the left: what
//! BPE and `SentencePiece` share. O(n log n) for n symbols, without recursion.
//!
//! The rule is that of Sennrich et al. (arXiv 1508.07909) and of `SentencePiece`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::TokenId;

/// Stands for no neighbour, and for no token.
pub(super) const NONE: u32 = u32::MAX;

/// A stretch of the text that is one token so far, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// First byte in the text.
    pub(super) start: u32,
    /// Number of bytes; 0 once it belongs to its left neighbour.
    pub(super) len: u32,
    /// Token of these bytes, or [`NONE`].
    pub(super) id: TokenId,
    previous: u32,
    next: u32,
}

/// A pair that may be merged. Ordered by priority, then position.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Candidate {
    priority: u32,
    left: u32,
    /// Bytes of both: tells whether the pair is still the one that was found.
    len: u32,
    id: TokenId,
}

/// Symbols of one stretch of text, and space to merge them that is used again.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Adds the next symbol on the right.
    pub(super) fn push(&mut self, len: usize, id: TokenId) {
        let index = self.symbols.len() as u32;
        let start = self.symbols.last().map_or(0, |last| last.start + last.len);
        if let Some(last) = self.symbols.last_mut() {
            last.next = index;
        }
        let previous = index.checked_sub(1).unwrap_or(NONE);
        self.symbols.push(Symbol {
            start,
            len: len as u32,
            id,
            previous,
            next: NONE,
        });
    }

    /// Merges until `pair` knows none of the neighbours: it gives a priority, of
    /// which the lowest goes first, and the token of both. Empties the symbols
    /// into `emit`, from left to right.
    pub(super) fn merge(
        &mut self,
        pair: impl Fn(&Symbol, &Symbol) -> Option<(u32, TokenId)>,
        mut emit: impl FnMut(&Symbol),
    ) {
        for index in 1..self.symbols.len() {
            self.consider(index as u32 - 1, index as u32, &pair);
        }
        while let Some(Reverse(candidate)) = self.candidates.pop() {
            let left = self.symbols[candidate.left as usize];
            if left.len == 0 || left.next == NONE {
                continue;
            }
            let right = self.symbols[left.next as usize];
            if left.len + right.len != candidate.len {
                continue;
            }
            self.symbols[left.next as usize].len = 0;
            let merged = &mut self.symbols[candidate.left as usize];
            merged.len = candidate.len;
            merged.id = candidate.id;
            merged.next = right.next;
            if right.next != NONE {
                self.symbols[right.next as usize].previous = candidate.left;
                self.consider(candidate.left, right.next, &pair);
            }
            if left.previous != NONE {
                self.consider(left.previous, candidate.left, &pair);
            }
        }
        for symbol in self.symbols.drain(..).filter(|symbol| symbol.len > 0) {
            emit(&symbol);
        }
    }

    fn consider(
        &mut self,
        left: u32,
        right: u32,
        pair: &impl Fn(&Symbol, &Symbol) -> Option<(u32, TokenId)>,
    ) {
        let (left_symbol, right_symbol) =
            (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((priority, id)) = pair(left_symbol, right_symbol) {
            let len = left_symbol.len + right_symbol.len;
            self.candidates.push(Reverse(Candidate {
                priority,
                left,
                len,
                id,
            }));
        }
    }
}
