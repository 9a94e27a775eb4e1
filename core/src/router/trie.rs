//! The trie of all routes: a level per segment, the methods at the ends.
//!
//! Guarantees: routes are found in the order that [`Router`] documents; a
//! lookup allocates only for the fifth parameter on, and visits a node at most
//! once, so that backtracking is bounded by the routes, not by the request.
//!
//! [`Router`]: crate::router::Router

use crate::request::Spans;
use crate::router::path::{Key, Path};
use crate::router::pattern::{Kind, Segment};
use crate::router::stems::Stems;

/// Place of a method at an ending: the standard ones, [`ANY`], the custom ones.
pub(super) type Slot = usize;

/// Methods that have a slot in every router.
pub(super) const NUM_STANDARD: usize = 9;

/// Slot of the routes for any method.
pub(super) const ANY: Slot = NUM_STANDARD;

/// Routes of all methods, by index into the router's list.
#[derive(Debug)]
pub(super) struct Trie {
    /// By [`NodeId`].
    nodes: Vec<Node>,
    /// Literal children of all nodes, by parent and key: an open-addressed
    /// hash set with linear probing. At most a sixteenth is in use, because
    /// each parameter is sought here in vain first.
    literals: Vec<NodeId>,
    num_literals: usize,
    endings: Vec<Ending>,
    stems: Stems,
}

impl Trie {
    /// Adds a route.
    ///
    /// # Errors
    /// The route that already has this place.
    pub(super) fn insert(
        &mut self,
        segments: &[Segment],
        slot: Slot,
        route: u32,
    ) -> Result<(), u32> {
        let mut id = ROOT;
        let mut stem = Some(String::new());
        for (index, segment) in segments.iter().enumerate() {
            id = match segment {
                Segment::Literal(text) => self.add_literal(id, text),
                Segment::Parameter(kind) => self.add_wildcard(id, *kind),
            };
            stem = stem.and_then(|stem| match segment {
                Segment::Literal(text) => Some(stem + "/" + text),
                Segment::Parameter(_) => None,
            });
            if let Some(stem) = &stem {
                self.stems.insert(stem, index + 1, id);
            }
        }
        let node = &mut self.nodes[id as usize];
        if node.ending == NONE {
            node.ending = self.endings.len() as u32;
            self.endings.push(Ending::default());
        }
        self.endings[node.ending as usize].insert(slot, route)
    }

    /// The route that answers; its parameters are in `spans`.
    ///
    /// `path` starts with a slash, and `spans` is empty before. Without a
    /// route, all that ends at this path is in `refusals`.
    pub(super) fn find<'t>(
        &'t self,
        path: Path<'_>,
        wanted: Wanted,
        spans: &mut Spans,
        refusals: &mut Vec<&'t Ending>,
    ) -> Option<u32> {
        // What leads to `id` has matched the path up to `at`.
        let (mut id, mut at) = self.stems.find(path).unwrap_or((ROOT, 0));
        loop {
            let node = &self.nodes[id as usize];
            let mut wildcard = ROOT;
            if at < path.text.len() {
                if node.has_literals {
                    let end = path.segment_end(at);
                    let literal = self.literal(id, path.text, at, end);
                    if literal != ROOT {
                        (id, at) = (literal, end);
                        continue;
                    }
                }
                wildcard = node.wildcards;
            } else if let Some(ending) = self.endings.get(node.ending as usize) {
                let route = ending.route(wanted.slot);
                if let Some(route) = route.or_else(|| ending.route(wanted.or_else)) {
                    return Some(route);
                }
                refusals.push(ending);
            }
            loop {
                let (entered, end) = self.enter(wildcard, path, at);
                if entered != ROOT {
                    spans.push((at as u32 + 1, end as u32));
                    (id, at) = (entered, end);
                    break;
                }
                if id == ROOT {
                    return None;
                }
                // Back to the parent, to try what comes after this node.
                let node = &self.nodes[id as usize];
                id = node.parent;
                if node.kind.is_some() {
                    let (start, _) = spans.pop().expect("a wildcard has pushed its span");
                    at = start as usize - 1;
                    wildcard = node.next;
                } else {
                    at -= node.key.len();
                    wildcard = self.nodes[id as usize].wildcards;
                }
            }
        }
    }

    /// The first from `wildcard` on that accepts what follows the slash at
    /// `slash`, or [`ROOT`], and where its value ends.
    fn enter(&self, mut wildcard: NodeId, path: Path<'_>, slash: usize) -> (NodeId, usize) {
        while wildcard != ROOT {
            let node = &self.nodes[wildcard as usize];
            let end = match node.kind {
                Some(Kind::Path) => path.text.len(),
                _ => path.segment_end(slash),
            };
            let value = &path.text[slash + 1..end];
            // A leaf is no use before the path ends.
            let is_possible = !value.is_empty() && (end == path.text.len() || !node.is_leaf());
            if is_possible && node.kind.is_none_or(|kind| kind.accepts(value)) {
                return (wildcard, end);
            }
            wildcard = node.next;
        }
        (ROOT, slash)
    }

    /// The child of `parent` for `path[slash..end]`, or [`ROOT`].
    #[inline]
    fn literal(&self, parent: NodeId, path: &[u8], slash: usize, end: usize) -> NodeId {
        let key = Key::new(path, slash, end);
        let index = place(parent, key) & (self.literals.len() - 1);
        let id = self.literals[index];
        let node = &self.nodes[id as usize];
        let is_exact = end - slash <= Key::MAX_EXACT_LEN;
        if id == ROOT || is_exact && node.parent == parent && node.key == key {
            id
        } else {
            self.next_literal(index, parent, key, &path[slash..end])
        }
    }

    /// [`Trie::literal`] from `index` on, whatever the length of the label.
    #[cold]
    #[inline(never)]
    fn next_literal(&self, index: usize, parent: NodeId, key: Key, label: &[u8]) -> NodeId {
        let (before, from) = self.literals.split_at(index);
        let ids = from.iter().chain(before).copied();
        let mut ids = ids.take_while(|id| *id != ROOT);
        let found = ids.find(|id| {
            let node = &self.nodes[*id as usize];
            node.parent == parent && node.key == key && *node.label == *label
        });
        found.unwrap_or(ROOT)
    }

    fn add_literal(&mut self, parent: NodeId, text: &str) -> NodeId {
        let label = format!("/{text}");
        let label = label.as_bytes();
        let known = self.literal(parent, label, 0, label.len());
        if known != ROOT {
            return known;
        }
        let id = self.nodes.len() as NodeId;
        self.nodes.push(Node {
            key: Key::new(label, 0, label.len()),
            label: label.into(),
            ..Node::new(parent, None)
        });
        self.num_literals += 1;
        self.nodes[parent as usize].has_literals = true;
        if self.literals.len() < 16 * self.num_literals {
            self.literals = vec![ROOT; 2 * self.literals.len()];
            for id in 1..id {
                self.index_literal(id);
            }
        }
        self.index_literal(id);
        id
    }

    fn index_literal(&mut self, id: NodeId) {
        let node = &self.nodes[id as usize];
        if node.kind.is_some() {
            return;
        }
        let mask = self.literals.len() - 1;
        let mut index = place(node.parent, node.key);
        while self.literals[index & mask] != ROOT {
            index += 1;
        }
        self.literals[index & mask] = id;
    }

    fn add_wildcard(&mut self, parent: NodeId, kind: Kind) -> NodeId {
        let mut before = None;
        let mut next = self.nodes[parent as usize].wildcards;
        while next != ROOT && self.nodes[next as usize].kind < Some(kind) {
            before = Some(next);
            next = self.nodes[next as usize].next;
        }
        if next != ROOT && self.nodes[next as usize].kind == Some(kind) {
            return next;
        }
        let id = self.nodes.len() as NodeId;
        self.nodes.push(Node {
            next,
            ..Node::new(parent, Some(kind))
        });
        match before {
            Some(before) => self.nodes[before as usize].next = id,
            None => self.nodes[parent as usize].wildcards = id,
        }
        id
    }
}

impl Default for Trie {
    fn default() -> Self {
        Self {
            nodes: vec![Node::new(ROOT, None)],
            literals: vec![ROOT; 8],
            num_literals: 0,
            endings: Vec::new(),
            stems: Stems::default(),
        }
    }
}

/// Which route of an ending answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) slot: Slot,
    /// In place of `slot` where that has no route.
    pub(super) or_else: Slot,
}

/// The routes of one path, by method; of one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Ending {
    standard: [u32; NUM_STANDARD + 1],
    custom: Vec<(Slot, u32)>,
}

impl Ending {
    /// The route of exactly this slot.
    #[inline]
    pub(super) fn route(&self, slot: Slot) -> Option<u32> {
        let route = match self.standard.get(slot) {
            Some(route) => *route,
            None => {
                let mut custom = self.custom.iter();
                custom.find(|(known, _)| *known == slot)?.1
            }
        };
        (route != NONE).then_some(route)
    }

    /// Slots that have a route.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        let standard = (0..=ANY).filter(|slot| self.standard[*slot] != NONE);
        standard.chain(self.custom.iter().map(|(slot, _)| *slot))
    }

    fn insert(&mut self, slot: Slot, route: u32) -> Result<(), u32> {
        if let Some(existing) = self.route(slot) {
            return Err(existing);
        }
        match self.standard.get_mut(slot) {
            Some(place) => *place = route,
            None => self.custom.push((slot, route)),
        }
        Ok(())
    }
}

impl Default for Ending {
    fn default() -> Self {
        Self {
            standard: [NONE; NUM_STANDARD + 1],
            custom: Vec::new(),
        }
    }
}

/// Index of a node. The root is nobody's child, so [`ROOT`] also says "none".
type NodeId = u32;

const ROOT: NodeId = 0;

/// No ending, no route.
const NONE: u32 = u32::MAX;

/// Of one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    parent: NodeId,
    /// Type of a wildcard; `None` for a literal.
    kind: Option<Kind>,
    /// Whether there are literal children.
    has_literals: bool,
    /// First wildcard child, or [`ROOT`].
    wildcards: NodeId,
    /// Of a wildcard: its sibling of the next kind, or [`ROOT`].
    next: NodeId,
    /// Index of the ending, or [`NONE`].
    ending: u32,
    /// Of a literal with the slash before it.
    key: Key,
    label: Box<[u8]>,
}

impl Node {
    fn new(parent: NodeId, kind: Option<Kind>) -> Self {
        Self {
            parent,
            kind,
            has_literals: false,
            wildcards: ROOT,
            next: ROOT,
            ending: NONE,
            key: Key::default(),
            label: Box::default(),
        }
    }

    fn is_leaf(&self) -> bool {
        !self.has_literals && self.wildcards == ROOT
    }
}

/// Where the search for a literal child begins.
#[inline]
fn place(parent: NodeId, key: Key) -> usize {
    key.hash()
        .wrapping_add(u64::from(parent).wrapping_mul(PARENT_STEP)) as usize
}

/// Spreads the children of different nodes: 2⁶⁴ divided by the golden ratio.
const PARENT_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
