//! The routes of one method: canonical path to route index.
//!
//! Guarantee: a path without parameters is found without allocating, and
//! before any pattern, which per-segment priority demands anyway.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::router::route::Route;

/// Routes of one method, by index into the router's list.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Kept out of the tree, because matchit allocates where a literal and a
    /// parameter branch meet.
    statics: HashMap<Box<str>, u32, BuildHasherDefault<PathHasher>>,
    /// Values index `patterns`, so that an any-method route can be replaced.
    tree: matchit::Router<u32>,
    patterns: Vec<u32>,
}

impl Table {
    /// Index of the route that matches a canonical path, its types unchecked.
    ///
    /// Per segment, from the left: literal, then parameter, then catch-all.
    pub(super) fn find(&self, path: &str) -> Option<u32> {
        if let Some(index) = self.statics.get(path) {
            return Some(*index);
        }
        let found = self.tree.at(path).ok()?;
        Some(self.patterns[*found.value as usize])
    }

    /// Adds `routes[index]`; a route for one method displaces an any-method
    /// route of the same key.
    ///
    /// # Errors
    /// Text of the pattern that it conflicts with.
    pub(super) fn insert(&mut self, routes: &[Route], index: u32) -> Result<(), String> {
        let route = &routes[index as usize];
        let key = &route.pattern.key;
        let place = if route.pattern.is_static() {
            self.statics.get_mut(key.as_str())
        } else {
            let mut places = self.patterns.iter_mut();
            places.find(|place| routes[**place as usize].pattern.key == *key)
        };
        if let Some(place) = place {
            let existing = &routes[*place as usize];
            match (&existing.method, &route.method) {
                (None, Some(_)) => *place = index,
                (Some(_), None) => {}
                _ => return Err(existing.pattern.text.clone()),
            }
        } else if route.pattern.is_static() {
            self.statics.insert(key.as_str().into(), index);
        } else {
            let place = self.patterns.len() as u32;
            self.tree.insert(key.as_str(), place).map_err(|error| {
                let mut existing = self
                    .patterns
                    .iter()
                    .map(|&other| &routes[other as usize].pattern);
                existing
                    .find(|other| other.conflicts_with(&route.pattern))
                    .map_or_else(|| error.to_string(), |other| other.text.clone())
            })?;
            self.patterns.push(index);
        }
        Ok(())
    }
}

/// Hash of a path: one folded multiplication per eight bytes.
///
/// Unkeyed: the keys are the program's own routes, so a client cannot make
/// them collide.
#[derive(Debug, Default)]
struct PathHasher(u64);

/// Digits of pi, as any odd number without structure would do.
const MULTIPLIER: u64 = 0x2437_54a3_88d3_1319;

impl PathHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for PathHasher {
    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.as_chunks().0 {
            self.mix(u64::from_le_bytes(*word));
        }
        // The last word overlaps the one before; the length keeps apart what
        // that makes alike.
        let last = match bytes.last_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => bytes
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        self.mix(last ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, _terminator: u8) {
        // `str` ends with 0xff for prefix freedom between fields; there is one field.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
